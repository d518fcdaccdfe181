"""The house itself: short files, one dispatcher on kinds, and values that are named by nouns."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import capacity

ROOT = Path(capacity.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py"))
MAX_LINES = 300
NOT_NOUNS = {
    "found",
    "asked",
    "given",
    "kept",
    "mine",
    "alike",
    "told",
    "ways",
    "done",
    "held",
    "tried",
    "wanted",
    "said",
}
DIALECT = re.compile(
    r"\b(nobody|somebody|beside|ride with|(?:bytes|tokens|frames|FLOP|requests) a (?:second|token|device))\b"
)
"""Words that DESIGN.md section 1 replaces by those of the field: per device, compared with, in the passive voice."""


def name(path):
    return path.relative_to(ROOT).as_posix()


def test_the_whole_package_is_looked_at():
    assert len(FILES) > 200
    assert {"results/sizing.py", "catalog/parts.py", "measure/runs/cpu_runs.py"} <= set(map(name, FILES))


def test_no_file_is_over_300_lines():
    lengths = {name(path): len(path.read_text().splitlines()) for path in FILES}

    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES} == {}


def names_of_values(tree):
    """Variables and parameters; fields of a result are keys of its JSON, which stay."""
    fields = {id(item.target) for item in ast.walk(tree) if isinstance(item, ast.AnnAssign)}
    for node in ast.walk(tree):
        if id(node) in fields:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


@pytest.mark.parametrize("path", FILES, ids=name)
def test_values_are_named_by_what_they_are(path):
    assert [(word, line) for word, line in names_of_values(ast.parse(path.read_text())) if word in NOT_NOUNS] == []


def test_a_value_named_by_a_participle_is_seen():
    assert [word for word, _ in names_of_values(ast.parse("found = asked(lambda kept: kept)"))] == ["found", "kept"]


@pytest.mark.parametrize("path", FILES, ids=name)
def test_prose_uses_the_words_of_the_field(path):
    assert [line for line in path.read_text().splitlines() if DIALECT.search(line)] == []


def imported_kinds(path):
    """Classes of mixers and feed-forwards that a file tests for with isinstance."""
    kinds = {"Attention", "LatentAttention", "StateMixer", "NoMixer", "Dense", "Experts", "NoFeedForward"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            for item in ast.walk(node.args[1]):
                if isinstance(item, ast.Name) and item.id in kinds:
                    yield item.id


def test_only_specs_and_importers_know_the_kinds_of_layers():
    """Elsewhere a file in ``demand/mixers`` or ``demand/feed_forwards`` answers for its kind."""
    outside = [path for path in FILES if name(path).split("/")[0] not in ("specs", "importers")]

    assert {name(path): kinds for path in outside if (kinds := list(imported_kinds(path)))} == {}


def test_package_data_has_one_reader():
    readers = [name(path) for path in FILES if "importlib.resources" in path.read_text()]

    assert readers == ["files/package_data.py"]


HOUSE = (ROOT.parent / "docs" / "house.md").read_text() if (ROOT.parent / "docs" / "house.md").exists() else ""
PLACE = re.compile(r"`(?!tests/)((?:[a-z_]+/)*[a-z_0-9]+\.(?:py|toml))`")
NAMED = sorted(set(PLACE.findall(HOUSE)))


@pytest.mark.parametrize("place", NAMED)
def test_every_place_that_the_guide_names_exists(place):
    assert list(ROOT.rglob(place.rpartition("/")[2])), place
    assert "/" not in place or (ROOT / place).exists() or any(folder.joinpath(place).exists() for folder in FOLDERS)


FOLDERS = [path for path in ROOT.iterdir() if path.is_dir()]


def test_the_guide_names_places():
    assert len(NAMED) > 60
