"""Which commit a record names, wherever the package lies."""

from __future__ import annotations

import subprocess

import pytest

from capacity.measure.runs import environment


@pytest.fixture
def commit(monkeypatch):
    """The commit for a package whose measuring code is in ``folder``, with the variable set to ``stated``."""

    def ask(folder, stated=""):
        monkeypatch.setattr(environment, "__file__", str(folder / "runs" / "environment.py"))
        monkeypatch.setenv("CAPACITY_COMMIT", stated)
        environment.code_commit.cache_clear()
        return environment.code_commit()

    yield ask
    environment.code_commit.cache_clear()


def git(folder, *words):
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *names, *words], check=True, capture_output=True)


def test_a_checkout_names_its_commit_and_its_changes(commit, tmp_path):
    (tmp_path / "file.py").write_text("a")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "a")
    head = (tmp_path / ".git" / "HEAD").read_text().split()[1]
    full = (tmp_path / ".git" / head).read_text().strip()
    assert commit(tmp_path) == full[:12]
    (tmp_path / "file.py").write_text("b")
    assert commit(tmp_path) == full[:12] + "+"


def test_a_copy_without_git_is_unknown_unless_the_variable_states_it(commit, tmp_path):
    assert commit(tmp_path) == "unknown"
    assert commit(tmp_path, " 0123456789ab\n") == "0123456789ab"


def test_an_installed_package_is_a_release_also_inside_a_checkout_of_something_else(commit, tmp_path):
    git(tmp_path, "init")
    installed = tmp_path / "lib" / "site-packages" / "capacity" / "measure"
    installed.mkdir(parents=True)
    assert commit(installed) == "release"
