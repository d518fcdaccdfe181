"""Headers of checkpoint files: names, shapes and exact bytes; anything that does not hold together is refused."""

from __future__ import annotations

import json
import os

import pytest

from capacity.errors import SpecError
from capacity.importers.checkpoints.safetensors import StoredTensor, read_folder, read_header


def write(path, table, data=b"", length=None):
    """A file as its format says: eight bytes of length, the header, the data."""
    header = json.dumps(table).encode() if isinstance(table, dict) else table
    path.write_bytes((len(header) if length is None else length).to_bytes(8, "little") + header + data)
    return path


def row(dtype="BF16", shape=(2, 3), place=(0, 12)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(place)}


def test_a_header_gives_types_shapes_and_bytes(tmp_path):
    table = {"__metadata__": {"format": "pt"}, "a": row(), "b": row("F8_E4M3", (5,), (12, 17))}
    found = read_header(write(tmp_path / "x.safetensors", table, bytes(17)))

    assert found == {"a": StoredTensor("BF16", (2, 3), 12), "b": StoredTensor("F8_E4M3", (5,), 5)}


@pytest.mark.parametrize(
    ("table", "length", "sentence"),
    [
        ({"a": row()}, 10**6, "truncated"),
        (b"", 2**63, "truncated"),
        (b"not json", None, "not valid JSON"),
        (b"[1]", None, "expected a JSON object"),
        ({"a": 3}, None, "no valid dtype"),
        ({"a": row(dtype="BF17")}, None, "no valid dtype"),
        ({"a": row(dtype=["BF16"])}, None, "no valid dtype"),
        ({"a": row(dtype={})}, None, "no valid dtype"),
        ({"a": row(shape=(-2, 3))}, None, "no valid dtype"),
        ({"a": row(shape=(2, 4))}, None, "needs 16 bytes"),
        ({"a": row(place=(6, 18))}, None, "needs 12 bytes"),
        ({"a": row(place=(12,))}, None, "no valid dtype"),
    ],
)
def test_a_header_that_does_not_hold_together_is_refused(tmp_path, table, length, sentence):
    file = write(tmp_path / "x.safetensors", table, bytes(12), length)

    with pytest.raises(SpecError, match=sentence):
        read_header(file)


# huggingface/safetensors README.md, "Format": "The byte buffer needs to be entirely indexed, and cannot contain holes".
@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"a": row(), "b": row(place=(0, 12)), "c": row(place=(12, 24))}, "tensor 'b' overlaps another tensor"),
        ({"a": row(), "b": row(place=(6, 18)), "c": row("U8", (6,), (18, 24))}, "tensor 'b' overlaps another tensor"),
        ({"a": row("U8", (24,), (0, 24)), "b": row(place=(6, 18))}, "tensor 'b' overlaps another tensor"),
        ({"b": row(place=(12, 24))}, "tensor 'b' leaves a hole of 12 bytes before it"),
        ({"a": row(), "b": row("U8", (8,), (16, 24))}, "tensor 'b' leaves a hole of 4 bytes before it"),
        ({"a": row()}, "12 bytes of data belong to no tensor"),
        ({}, "24 bytes of data belong to no tensor"),
    ],
)
def test_data_that_the_tensors_do_not_cover_once_each_is_refused(tmp_path, table, sentence):
    with pytest.raises(SpecError, match=sentence):
        read_header(write(tmp_path / "x.safetensors", table, bytes(24)))


def test_tensors_may_stand_in_any_order_and_be_empty(tmp_path):
    table = {
        "c": row(place=(12, 24)),
        "b": row(shape=(0, 3), place=(12, 12)),
        "a": row(),
        "z": row(shape=(0,), place=(24, 24)),
    }

    assert sorted(read_header(write(tmp_path / "x.safetensors", table, bytes(24)))) == ["a", "b", "c", "z"]


def test_a_folder_is_read_through_its_index(tmp_path):
    write(tmp_path / "1.safetensors", {"a": row()}, bytes(12))
    write(tmp_path / "2.safetensors", {"b": row()}, bytes(12))
    write(tmp_path / "stray.safetensors", {"a": row()}, bytes(12))
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))

    assert sorted(read_folder(tmp_path)) == ["a", "b"]
    index.write_text(json.dumps({"weight_map": {"a": "../1.safetensors"}}))
    with pytest.raises(SpecError, match="outside the folder"):
        read_folder(tmp_path)
    index.unlink()
    with pytest.raises(SpecError, match="is in another file as well"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ({}, "weight_map names no tensor"),
        ({"a": "x\0y.safetensors"}, "cannot be the name of a file"),
        ({"a": "\ud800.safetensors"}, "cannot be the name of a file"),
        ({"a": "missing.safetensors"}, "no such file"),
        ({"a": "x" * 300}, "cannot be read"),
        ({"a": 3}, "must be an object of file names"),
        (["a"], "must be an object of file names"),
    ],
)
def test_an_index_of_files_that_cannot_be_is_one_sentence(tmp_path, weights, sentence):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))

    with pytest.raises(SpecError, match=sentence) as error:
        read_folder(tmp_path)
    assert str(error.value).isprintable()


def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "model.safetensors")

    with pytest.raises(SpecError, match="not a regular file"):
        read_folder(tmp_path)


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    with pytest.raises(SpecError, match=r"no \.safetensors file"):
        read_folder(tmp_path)
