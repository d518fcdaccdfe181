"""YAML from outside: a table of plain values whose aliases stay small, or one sentence that names the file."""

from __future__ import annotations

import pytest

from capacity.errors import SpecError
from capacity.files.yaml_file import read_yaml

# Ten aliases a line of a list of ten make 10^11 values of some 500 bytes.
LIST_BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{line}: &a{line} [{', '.join([f'*a{line - 1}'] * 10)}]\n" for line in range(1, 12)
)
MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{line}: &a{line}\n  <<: [{', '.join([f'*a{line - 1}'] * 10)}]\n" for line in range(1, 12)
)


def read(tmp_path, text):
    path = tmp_path / "configs.yaml"
    path.write_text(text, encoding="utf-8")
    return read_yaml(path)


# dreamerv3/configs.yaml writes its presets with anchors and merges them: `dmc_proprio: {<<: *size1m, ...}`.
def test_an_alias_stands_for_what_it_names(tmp_path):
    text = "size1m: &size1m\n  .*\\.depth: 4\ndmc_proprio:\n  <<: *size1m\n  task: dmc_walker_walk\n"

    assert read(tmp_path, text)["dmc_proprio"] == {".*\\.depth": 4, "task": "dmc_walker_walk"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 2001-99-99", "month must be in 1..12"),
        ("a: " + "1" * 5000, "Exceeds the limit"),
        ("a: &a [*a]", "its aliases expand to more than"),
        ("&a {b: *a}", "its aliases expand to more than"),
        (LIST_BOMB, "its aliases expand to more than"),
        (MERGE_BOMB, "its aliases expand to more than"),
        ("a: 1\nb: 2\na: 3", "'a' is given twice"),
        ("", "must be a table of fields, got NoneType"),
        ("[1]", "must be a table of fields, got list"),
        ("a: [1", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("? [a]\n: 1", "unhashable key at line 1"),
        ("a: !!timestamp noon", "not valid YAML"),
        ("a: !!bool maybe", "not valid YAML"),
        ("a: !!int ''", "not valid YAML"),
        ("a: \x01", "not valid YAML"),
        ("[" * 5000, "nested too deeply"),
        ("#" * 100_001, "too large"),
    ],
)
def test_what_is_no_table_is_one_sentence(tmp_path, text, sentence):
    with pytest.raises(SpecError, match=sentence) as error:
        read(tmp_path, text)
    assert str(error.value).startswith(str(tmp_path))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("bracket", ["[", "{", "[ ", "[\n"])
def test_brackets_in_brackets_are_refused_before_they_are_parsed(tmp_path, bracket):
    with pytest.raises(SpecError, match="nested too deeply"):
        read(tmp_path, "a: 1\n" + bracket * 400)
