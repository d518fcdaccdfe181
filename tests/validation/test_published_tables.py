"""Hostile tables of published measurements end in one sentence, never in a traceback or a number."""

from __future__ import annotations

import os

import pytest

from capacity.cli import run
from capacity.errors import CapacityError, SpecError
from capacity.validation import published_speed, published_world
from capacity.validation.published_speed import COLUMNS
from capacity.validation.published_table import count, positive, read_table

# id, kind, model, weights, cache, part, devices, tensor parallel, batch, prompt, output, context, engine, value, unit,
# split by layers, flag, source, note
ROW = (
    "S1,decode_tps_per_seq,meta-llama/Llama-2-7b-hf,bf16,bf16,A100 SXM 80GB,1,1,1,5,200,~100,an engine,104.9,tok/s,,,,"
)


def table(tmp_path, *rows, columns=",".join(COLUMNS)):
    path = tmp_path / "table.csv"
    path.write_text("\n".join([columns, *rows]))
    return path


def test_a_good_row_of_a_user_is_compared(tmp_path):
    (pair,) = published_speed.validate(table(tmp_path, ROW)).pairs
    assert pair.measured == pytest.approx(1 / 104.9)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (7, "1.5"),
        (7, "9" * 5000),
        (8, "0.5"),
        (6, "-1"),
        (6, "x"),
        (13, "nan"),
        (13, "1e999"),
        (13, "1e-320"),
        (2, "gpt-9"),
    ],
)
def test_a_row_with_a_bad_number_is_left_out_with_its_reason(tmp_path, place, value):
    cells = ROW.replace("S1", "S2").split(",")
    cells[place] = value
    found = published_speed.validate(table(tmp_path, ROW, ",".join(cells)))
    assert len(found.pairs) == 1
    assert list(found.left_out.values()) == [("S2",)]


@pytest.mark.parametrize("validate", [published_speed.validate, published_world.validate])
@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "x" * 200_000 + ",b\n", "\x00"])
def test_a_file_that_is_no_such_table_is_refused(tmp_path, validate, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(SpecError, match=r"table\.csv: "):
        validate(path)


def test_a_field_of_any_length_is_one_sentence(tmp_path, capsys):
    path = table(tmp_path, ROW + ',"' + "x" * 200_000 + '"', columns=",".join([*COLUMNS, "more"]))
    assert run(["validate", "--published", "speed", "--file", str(path)]) == 2
    assert "not a table" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "rows", "sentence"),
    [
        (COLUMNS, [ROW, ROW.replace("104.9", "50")], "line 3: id 'S1' is that of line 2 too"),
        (COLUMNS, [ROW, "", ROW.replace("S1", " S1 ")], "line 4: id 'S1' is that of line 2 too"),
        ((*COLUMNS, "source"), [ROW + ",1"], "line 1: column 'source' is named 2 times"),
        ((*COLUMNS, " source"), [ROW + ",1"], "line 1: column 'source' is named 2 times"),
        (COLUMNS, [ROW + ",7,8"], "line 2: 21 cells under 19 columns; the first without is '7'"),
        (COLUMNS, [ROW.replace("S1", '"S1')], "not a table of comma-separated values"),
    ],
)
def test_a_table_that_can_be_read_in_two_ways_is_refused(tmp_path, capsys, columns, rows, sentence):
    """A row twice would count twice, and of two cells for one figure none is known to be the right one."""
    path = table(tmp_path, *rows, columns=",".join(columns))
    assert run(["validate", "--published", "speed", "--file", str(path)]) == 2
    assert f"table.csv: {sentence}" in capsys.readouterr().err


def test_blanks_around_the_name_of_a_column_do_not_matter(tmp_path):
    assert len(published_speed.validate(table(tmp_path, ROW, columns=", ".join(COLUMNS))).pairs) == 1


def test_numbers_of_a_table_are_finite_and_positive_or_nothing():
    assert [positive(text) for text in ("2.5", "0", "-1", "inf", "nan", "1e-320", "x")] == [2.5, *[None] * 6]
    assert [count(text) for text in (" 7 ", "0", "1.5", "-1", "²", "9" * 10)] == [7, 0, None, None, None, None]


def test_a_table_without_rows_is_refused(tmp_path):
    with pytest.raises(SpecError, match="no rows"):
        read_table(table(tmp_path), shipped="none", columns=COLUMNS)


def test_a_table_of_which_no_row_can_be_compared_says_why(tmp_path):
    with pytest.raises(CapacityError, match=r"no row can be compared \(model not shipped"):
        published_speed.validate(table(tmp_path, ROW.replace("Llama-2-7b-hf", "gpt-9")))


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    path = tmp_path / "table.csv"
    os.mkfifo(path)
    with pytest.raises(SpecError, match="not a regular file"):
        read_table(path, shipped="none", columns=COLUMNS)
