"""Package data has one reader, which gives text and tables."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from capacity.files import package_data

PACKAGE = Path(package_data.__file__).parent.parent


def imported(source):
    """Dotted names of everything that a module imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reads_package_data(source):
    return any(name.startswith(("importlib.resources", "pkgutil.get_data")) for name in imported(source))


def test_only_one_module_reads_package_data():
    readers = [path for path in PACKAGE.rglob("*.py") if reads_package_data(path.read_text(encoding="utf-8"))]

    assert readers == [Path(package_data.__file__)]


@pytest.mark.parametrize(
    "source", ["from importlib.resources import files", "import importlib.resources", "from importlib import resources"]
)
def test_a_second_reader_would_be_found(source):
    assert reads_package_data(source)


def test_names_are_sorted_and_without_suffix():
    found = package_data.names("data/world_models", ".json")

    assert list(found) == sorted(path.stem for path in (PACKAGE / "data/world_models").glob("*.json"))


def test_text_and_content_are_those_of_the_file():
    path = PACKAGE / "data/links.toml"

    assert package_data.text(f"data/{path.name}") == path.read_text(encoding="utf-8")
    assert package_data.content(f"data/{path.name}") == path.read_bytes()


def test_a_folder_inside_the_package_comes_before_one_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(package_data, "files", lambda _: tmp_path / "capacity")
    (tmp_path / "capacity").mkdir()

    assert package_data.folder("hardware_specs") == tmp_path / "hardware_specs"
    (tmp_path / "capacity/hardware_specs").mkdir()
    assert package_data.folder("hardware_specs") == tmp_path / "capacity/hardware_specs"
