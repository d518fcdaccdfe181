"""Views of a sheet: ids are whole, columns go in order of usefulness, nothing is markup that was only a name."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import capacity as cap
from capacity.presentation import layout, notebook, terminal
from capacity.presentation.sheet import Cell, Column, Line, Section, Sheet
from capacity.presentation.sheets.hardware import part_sheet, parts_sheet

LONGEST_ID = "nvidia-rtx-pro-6000-blackwell-workstation-96gb"
COLUMNS = (Column("part", "id"), Column("most useful"), Column("less useful", rank=1), Column("least useful", rank=2))
ROW = (Cell(LONGEST_ID), Cell(123_456_789), Cell(123_456_789), Cell(123_456_789))


def section(*rows, columns=COLUMNS):
    return Section("", columns, rows or (ROW,))


def plain(lines):
    return ["".join(span.text for span in spans).rstrip() for spans in lines]


@pytest.fixture(scope="module")
def parts():
    return parts_sheet([cap.load_hardware(name) for name in cap.hardware_ids()], "bf16")


@pytest.mark.parametrize("width", [80, 100, 140])
def test_every_id_is_whole_and_every_part_one_line(parts, width):
    printed = terminal.text(parts, width).splitlines()

    for name in cap.hardware_ids():
        assert sum(line.split()[:1] == [name] for line in printed) == 1
    assert max(map(len, printed)) <= width


# The id has 46 characters, a number 11, a gap 2: all four columns need 85, three 72, two 59.
@pytest.mark.parametrize(
    ("width", "left_out"),
    [(85, ()), (84, ("least useful",)), (72, ("least useful",)), (71, ("less useful", "least useful"))],
)
def test_the_least_useful_column_goes_first(width, left_out):
    found = layout.table(section(), width)

    assert found.left_out == left_out
    assert all(len(line) <= width for line in plain(found.lines))


def test_what_is_most_useful_and_the_id_stay_whatever_the_width():
    (last,) = plain(layout.table(section(), 30).lines)[-1:]

    assert last == f"{LONGEST_ID}  123,456,789"


def test_columns_that_were_left_out_are_named():
    printed = terminal.text(Sheet("", (), (section(),)), 80)

    assert printed.splitlines()[-1] == "Columns left out at a width of 80: least useful"
    assert "left out" not in terminal.text(Sheet("", (), (section(),)), 85)


def test_only_text_is_wrapped():
    columns = (Column("reason", "text"), Column("value"))
    lines = plain(layout.table(section((Cell("word " * 30), Cell(1_234_567)), columns=columns), 60).lines)

    assert len(lines) > 4
    assert sum("1,234,567" in line for line in lines) == 1
    assert max(map(len, lines)) <= 60


def test_figures_stand_below_each_other():
    columns = (Column("name", "text"), Column("value"))
    lines = plain(layout.table(section((Cell("a"), Cell(1)), (Cell("b"), Cell(1000)), columns=columns), 60).lines)

    assert [line[-5:] for line in lines[2:]] == ["    1", "1,000"]


def test_assumed_numbers_are_marked_where_no_column_says_so(parts):
    known = {name: cap.load_hardware(name) for name in cap.hardware_ids()}
    doubtful = [name for name, part in known.items() if part.evidence("memory.capacity_bytes") == "assumed"]
    printed = terminal.text(parts, 100)

    for line in printed.splitlines():
        if line.split()[:1] and line.split()[0] in known and "GiB" in line:
            assert (" GiB ?" in line) == (line.split()[0] in doubtful)
    assert "? marks what is unverified" in printed


def test_a_name_is_escaped_in_html_and_harmless_in_a_terminal():
    name = "<script>alert('x')</script>\x1b[31m& co"
    sheet = Sheet("", (Line(name),), (section((Cell(name), *ROW[1:])),), assumptions=(name,), notes=(), not_modelled=())
    shown, printed = notebook.html(sheet), terminal.text(sheet, 200)

    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 3
    assert "\x1b" not in shown + printed
    assert "&amp; co" in shown


def test_html_has_every_column_and_no_wrapped_id():
    shown = notebook.html(Sheet("", (), (section(),)))

    assert all(column.name in shown for column in COLUMNS)
    cell = shown[: shown.index(LONGEST_ID)].rpartition("<td")[2]
    assert "white-space: nowrap" in cell


@pytest.mark.parametrize(("colours", "escapes"), [(True, True), (False, False)])
def test_colours_are_for_a_terminal_alone(colours, escapes):
    file = io.StringIO()
    console = Console(file=file, force_terminal=colours, width=80, color_system="standard" if colours else None)
    terminal.show(Sheet("", (Line("fits", "good"),), (section(),)), console)

    assert ("\x1b[" in file.getvalue()) is escapes
    assert max(map(len, file.getvalue().splitlines())) <= 80 or escapes


def test_a_terminal_without_unicode_gets_plain_rules():
    class Ascii(io.StringIO):
        encoding = "ascii"

    file = Ascii()
    terminal.show(Sheet("", (Line("fits"),), (section(),)), Console(file=file, width=80))
    assert file.getvalue().isascii()


def test_a_part_shows_each_figure_with_its_unit_and_evidence():
    printed = terminal.text(part_sheet(cap.load_hardware("nvidia-h100-sxm5-80gb")), 100)

    for words in ("295.3 FLOP/B", "253.8 FLOP/B", "3.35 TB/s", "1.83 GHz", "700 W", "4.000 µs"):
        assert words in printed  # 989.4e12 / 3.35e12 and 794.5e12 / 3.13e12 are the ridge points
    assert "Sources" in printed
    assert "Not modelled" not in printed  # a page of the catalogue is no result


def test_specs_print_in_a_few_lines():
    specs = (
        cap.load_model("deepseek-v3"),
        cap.load_hardware("nvidia-h100-sxm5-80gb"),
        cap.load_world_model("pi0"),
        cap.load_server("nvidia-hgx-h100-8x80gb"),
    )
    for spec in specs:
        assert 2 <= len(str(spec).splitlines()) <= 6
        assert spec.name in str(spec).splitlines()[0]
        assert len(str(spec)) < 500
    assert "61 layers of width 7,168" in str(specs[0])
