"""Only the files of a kind, the specs and the importers know kinds of mixers and feed-forwards; nothing else asks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import capacity
from capacity.demand import feed_forwards, mixers

PACKAGE = Path(capacity.__file__).parent
KNOWING = ("demand/mixers/", "demand/feed_forwards/", "specs/", "importers/")
CLASSES = {"Attention", "LatentAttention", "StateMixer", "NoMixer", "Dense", "Experts", "NoFeedForward", "Indexer"}
NAMES = {"mixer", "feed_forward", "forward", "mixing"}  # how a mixer or a feed-forward is called where it is held
SPANS = {"full", "sliding", "chunked", "cross"}
KINDS = {*mixers.KINDS, *feed_forwards.KINDS} - {"none"}


def asked_kinds(tree: ast.AST) -> list[int]:
    """Lines at which code asks for the kind of a mixer or of a feed-forward."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "type"):
            wanted = {name for part in node.args[1:] for name in names(part)}
            found += [node.lineno] if wanted & CLASSES else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            found += [node.lineno] if any(map(is_kind, node.args)) else []
        elif isinstance(node, ast.MatchClass):
            found += [node.cls.lineno] if names(node.cls) & CLASSES else []
        elif isinstance(node, ast.Compare):
            found += [node.lineno] if any(map(is_kind, (node.left, *node.comparators))) else []
            found += [node.lineno] if asks_span(node) or names_a_kind(node) else []
        elif isinstance(node, ast.Match):
            found += [node.subject.lineno] if is_kind(node.subject) else []
        elif isinstance(node, ast.Subscript):
            found += [node.lineno] if is_kind(node.slice) else []
    return found


def names(tree: ast.AST) -> set[str]:
    """Every name and attribute below a node."""
    return {
        item.id if isinstance(item, ast.Name) else item.attr
        for item in ast.walk(tree)
        if isinstance(item, ast.Name | ast.Attribute)
    }


def is_kind(node: ast.AST) -> bool:
    """Whether a node is ``mixer.kind``, ``group.feed_forward.kind`` and the like."""
    return isinstance(node, ast.Attribute) and node.attr == "kind" and bool(names(node.value) & NAMES)


def asks_span(node: ast.Compare) -> bool:
    """Whether a comparison asks for the span of attention."""
    sides = (node.left, *node.comparators)
    return any(isinstance(side, ast.Attribute) and side.attr == "span" for side in sides) and bool(texts(node) & SPANS)


def names_a_kind(node: ast.Compare) -> bool:
    """Whether a comparison holds some ``.kind`` against the name of a kind of mixer or feed-forward."""
    sides = (node.left, *node.comparators)
    return any(isinstance(side, ast.Attribute) and side.attr == "kind" for side in sides) and bool(texts(node) & KINDS)


def texts(tree: ast.AST) -> set[str]:
    """Every string below a node."""
    return {item.value for item in ast.walk(tree) if isinstance(item, ast.Constant) and isinstance(item.value, str)}


def sources() -> list[str]:
    """Files of the package that may not know kinds."""
    files = (path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    return sorted(name for name in files if not name.startswith(KNOWING))


@pytest.mark.parametrize("name", sources())
def test_no_other_file_asks_for_the_kind_of_a_mixer_or_feed_forward(name):
    assert asked_kinds(ast.parse((PACKAGE / name).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("name", sources())
def test_no_other_file_imports_the_classes_of_mixers_and_feed_forwards(name):
    tree = ast.parse((PACKAGE / name).read_text(encoding="utf-8"))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "capacity.specs.model"
        for alias in node.names
    }
    assert not imported & CLASSES


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(group.mixer, Attention)",
        "isinstance(group.mixer, Attention | StateMixer)",
        "isinstance(group.mixer, (model.LatentAttention, NoMixer))",
        "group.mixer.kind == 'state'",
        "'experts' != group.feed_forward.kind",
        "mixer.kind in ('attention', 'latent')",
        "x.kind == 'latent'",
        "TABLE[mixer.kind]",
        "TABLE.get(mixer.kind, 0)",
        "mixer.span == 'cross'",
        "match mixer.kind:\n    case 'state': pass",
        "match mixer:\n    case Attention(): pass",
    ],
)
def test_the_search_finds_what_asks_for_a_kind(line):
    assert asked_kinds(ast.parse(line))


@pytest.mark.parametrize("line", ["world.head.kind == 'planner'", "run.kind == 'decode'", "isinstance(x, int)"])
def test_the_search_leaves_other_kinds_alone(line):
    assert not asked_kinds(ast.parse(line))
