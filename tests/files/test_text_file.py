"""Text and TOML from outside: a table, or one sentence that names the file."""

from __future__ import annotations

import os

import pytest

from capacity.errors import SpecError
from capacity.files.text_file import read_text, read_toml


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\r\nb.c = 'x'\n")

    assert read_toml(path) == {"a": 1, "b": {"c": "x"}}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a = ", "not valid TOML"),
        (b"a = 1\na = 2", "not valid TOML"),
        (b"a = 2001-99-99", "not valid TOML"),
        (b"\xff", "not UTF-8 text"),
        (b"a = " + b"1" * 5000, "a number of thousands of digits"),
        (b"a = " + b"[" * 50_000, "nested too deeply"),
        (b".".join([b"a"] * 100_000) + b" = 1", "nested too deeply"),
        (b"[" + b".".join([b"a"] * 100_000) + b"]", "nested too deeply"),
        (b"#" * 1_000_001, "too large; at most 1,000,000 bytes are read"),
    ],
)
def test_what_is_no_table_is_one_sentence(tmp_path, content, sentence):
    path = tmp_path / "a.toml"
    path.write_bytes(content)

    with pytest.raises(SpecError, match=sentence) as error:
        read_toml(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_a_pipe_a_device_and_a_folder_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(SpecError, match="not a regular file"):
            read_text(path, 100)
