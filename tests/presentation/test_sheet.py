"""Sheets: cells hold values and units, every result lists what it assumes and leaves out, in each of its views."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import capacity as cap
from capacity.presentation import notebook, terminal
from capacity.presentation.figures import figure
from capacity.presentation.sheet import Cell, Column, Section, Sheet, with_remarks
from capacity.presentation.sheets import sheet_of
from capacity.studies.frames import frames
from capacity.studies.parts import size_on_all_parts
from capacity.studies.size import OperatingPoint
from capacity.validation.compare import Errors, Pair
from capacity.validation.observation import Observation
from capacity.validation.published_speed import Agreement, PublishedSpeed
from capacity.validation.published_world import WorldValidation
from capacity.validation.reference import ReferenceCheck
from capacity.validation.targets import Figure, RunPair, Target

BF16 = cap.Deployment(weights="bf16")
ORIN, H100 = "nvidia-jetson-agx-orin-64gb", "nvidia-h100-sxm5-80gb"
TIMES = {"period_s": 0.5, "sensing_s": 0.01, "preprocessing_s": 0.0, "network_s": 0.002}
ERRORS = Errors(rows=1, median=0.1, mean_absolute=0.1, p90=0.1, worst=0.1)
TARGETS = (
    Target("CPU: memory to the byte", False, (Figure("figures", 2), Figure("differ", 1)), ("weights of m",), "", "CPU"),
    Target("CUDA: memory to the byte", None, reason="no run yet", device="CUDA"),
)


def run_pair(group, predicted, measured, *, unit="s", **more):
    about = {"run_id": "r", "source": "cpu", "model": "m", "batch": 1, "tokens": 1000}
    return RunPair("m", unit, predicted, measured, group=group, **about, **more)


def reference_check(*pairs):
    return ReferenceCheck(
        pairs=pairs,
        rejected=("run x: noisy",),
        not_compared=(),
        other_kernels=(),
        matrix={"weights": {"computed": True, "measured, CPU": 2, "measured, CUDA": "no run yet"}},
        errors={},
        targets=TARGETS,
    )


def world_validation():
    pair = Pair("row-1", "s", 0.2, 0.1, low=0.1, high=0.3, bound=0.05, note="graph")
    return WorldValidation(
        rows=2,
        pairs=(pair,),
        held_out=(pair,),
        unjudged={"model not shipped": ("row-2",)},
        bound_rows=1,
        exceeded=(),
        modes=(),
        target_rows=1,
        target_median=0.2,
        target_within=0.7,
        conflicts=(),
        memory=(),
    )


@pytest.fixture(scope="module")
def results():
    """One result of each kind, by the name of its class."""
    model, part = cap.load_model("llama-3.1-8b"), cap.load_hardware(H100)
    pi0, orin = cap.load_world_model("pi0"), cap.load_hardware(ORIN)
    workload = cap.Workload(concurrency=16)
    sizing = cap.size(model, part, workload)
    plan = cap.control(pi0, orin, **TIMES)
    mineworld = cap.load_world_model("mineworld-300m")
    made = [
        sizing,
        sizing.ledger[0],
        cap.tpot(model, part, cap.Deployment(), batch=np.array([1, 4096]), context_tokens=8192),
        sizing.tpot,
        plan,
        plan.decision,
        frames(mineworld, part, frames_per_s=5, sessions=2, elapsed_s=10.0),
        size_on_all_parts(model, [part, orin], cap.Deployment(), OperatingPoint.of(workload), workload=workload),
        reference_check(run_pair("TPOT bound", 0.8, 1.0, bound=0.8), run_pair("weights", 7, 7, unit="B")),
        world_validation(),
        PublishedSpeed(
            pairs=(Pair("a", "s", 1.0, 2.0, bound=0.5),),
            agreements=(Agreement("decode", 1, 0, 0.25, 0.25, 0.25, 1, 0, 0.5, 0.5, 0.5),),
            apart={"a cache hit": ("y",)},
            left_out={"no batch": ("x",)},
            single_stream_median=0.25,
        ),
        Observation(10, 40, 0, 8, 64, None, ()),
    ]
    return {f"{type(result).__name__} {number}": result for number, result in enumerate(made)}


@pytest.mark.parametrize("view", [terminal.text, lambda result: notebook.html(result), str, lambda r: r._repr_html_()])
def test_every_view_of_every_result_lists_assumptions_notes_and_what_is_not_modelled(results, view):
    for name, result in results.items():
        shown = view(result)
        for heading in ("Assumptions", "Notes", "Not modelled"):
            assert shown.count(heading) == 1, (name, heading)


def test_what_a_result_assumes_and_leaves_out_is_printed_in_full(results):
    for result in results.values():
        sheet, printed = sheet_of(result), terminal.text(result, 500)
        for sentence in (*sheet.assumptions, *sheet.not_modelled):
            assert f"- {sentence}" in printed


def test_every_result_stays_json(results):
    for name, result in results.items():
        if not name.startswith("Estimate"):
            json.dumps(result.to_dict())


def test_cells_hold_values_and_units_not_text(results):
    for name, result in results.items():
        for section in sheet_of(result).sections:
            for row in section.rows:
                assert len(row) == len(section.columns), (name, section.title)
                for column, cell in zip(section.columns, row, strict=True):
                    number = isinstance(cell.value, int | float | np.number)
                    assert number or column.kind != "number" or cell.value in (None, "") or cell.tone, (name, column)
                    assert not (cell.unit and isinstance(cell.value, str)), (name, column.name, cell)


def test_the_bytes_of_a_sizing_are_those_of_its_ledger(results):
    sizing = results["Sizing 0"]
    memory = sheet_of(sizing).sections[0]
    sizes = {row[0].value: row[1] for row in memory.rows}

    assert {cell.unit for cell in sizes.values()} == {"B"}
    assert sizes["total"].value == sizing.ledger[0].total_bytes
    assert sizes["margin"].value == sizing.margin_bytes
    assert sizes["activations"].evidence == "assumed"


def test_the_times_of_a_sizing_are_seconds_with_their_evidence(results):
    sizing = results["Sizing 0"]
    figures = {row[0].value: row[1] for row in sheet_of(sizing).sections[1].rows}

    assert (figures["TPOT bound"].value, figures["TPOT bound"].unit) == (sizing.tpot.bound, "s")
    assert figures["TPOT bound"].evidence == sizing.evidence["tpot.bound"]
    assert figures["max batch"].value == sizing.max_batch


def test_a_result_without_a_sheet_is_named():
    with pytest.raises(TypeError, match="no sheet is made for dict"):
        sheet_of({})


def test_evidence_and_notes_of_cells_become_columns_where_a_row_has_any():
    columns = (Column("figure", "text"), Column("value"))
    plain = Section("", columns, ((Cell("a"), Cell(1)),))
    told = Section("", columns, ((Cell("a"), Cell(1, evidence="assumed", note=("at ", Cell(8192, "token")))),))

    assert [column.name for column in with_remarks(plain).columns] == ["figure", "value"]
    assert [column.name for column in with_remarks(told).columns] == ["figure", "value", "evidence", "note"]
    assert "at 8,192" in terminal.text(Sheet("", (), (told,)), 80)


# 79.65 GiB are the 81,559 MiB that nvidia-smi prints for an H100 SXM5.
@pytest.mark.parametrize(
    ("cell", "written"),
    [
        (Cell(81_559 * 2**20, "B"), "79.65 GiB"),
        (Cell(0.00931, "s"), "9.310 ms"),
        (Cell(-0.02, "s"), "-20.000 ms"),
        (Cell(0.0, "s"), "0 s"),
        (Cell(3.35e12, "B/s"), "3.35 TB/s"),
        (Cell(989.4e12, "FLOP/s"), "989.4 TFLOP/s"),
        (Cell(0.5, "1"), "50.0%"),
        (Cell(0.003, "probability"), "under 1%"),
        (Cell(0.5, "probability"), "50%"),
        (Cell(0.999, "probability"), "over 99%"),
        (Cell(8192, "token"), "8,192"),
        (Cell(np.int64(8192), "token"), "8,192"),
        (Cell(295.34, "FLOP/B", digits=1), "295.3 FLOP/B"),
        (Cell(None, "s"), "-"),
        (Cell(True), "yes"),
    ],
)
def test_a_view_writes_the_unit(cell, written):
    assert figure(cell) == written


def test_a_sizing_that_does_not_fit_says_in_words_what_its_codes_mean():
    mixtral, part = cap.load_model("mixtral-8x7b"), cap.load_hardware(H100)
    found = cap.size(mixtral, part, deploy=cap.Deployment(weights="bf16"))
    printed = str(found)

    assert (found.verdict, found.binding) == ("does not fit", "weights")
    assert printed.startswith("does not fit: 16.15 GiB missing per device; fits on 2 devices")
    assert "weights alone need 86.99 GiB of 71.68 GiB usable per device" in printed  # 46,702,792,704 x 2 bytes
    assert "times that memory does not allow" in printed


def test_an_objective_is_a_code_in_the_result_and_a_sentence_in_the_sheet(results):
    part = cap.load_hardware(H100)
    found = cap.size(cap.load_model("llama-3.1-8b"), part, cap.Workload(max_ttft_s=1e-6, max_tpot_s=1.0))

    assert [objective.state for objective in found.objectives] == ["missed", "not excluded"]
    assert "objective TTFT <= 1.000 µs: missed even at the bound" in str(found)
    assert "objective TPOT <= 1.000 s: not excluded by the bound" in str(found)


def test_a_grid_prints_its_range_and_where_memory_does_not_suffice():
    part = cap.load_hardware(H100)
    times = cap.tpot(
        cap.load_model("llama-3.1-8b"), part, cap.Deployment(), batch=np.array([1, 4096]), context_tokens=8192
    )
    printed = str(
        replace(times, value=np.array([0.006, np.nan]), low=np.array([0.005, np.nan]), high=np.array([0.007, np.nan]))
    )

    assert "does not fit in memory: such a time cannot be reached at 1 of 2 points" in printed
    assert "6.000 ms" in printed
    assert "nan" not in printed
    assert "never" not in printed


def test_a_reference_check_counts_its_targets_and_shows_runs_to_the_last_byte():
    from capacity.presentation.sheets.reference import reference_sheet

    found = reference_check(
        run_pair("weights", 173_696, 173_697, unit="B"), run_pair("TPOT bound", 2e-3, 1e-3, bound=2e-3)
    )
    rows = terminal.text(reference_sheet(found, every_run=True), 80)

    assert terminal.text(found, 80).startswith("0 targets kept, 1 missed, 1 not judged\nCUDA: no run yet")
    assert "2 figures, 1 differ; weights of m" in terminal.text(found, 120)
    assert " ".join(["m", "1", "1,000", "173,696", "173,697", "1.000", "differs"]) in " ".join(rows.split())
    assert "ABOVE" in rows


def test_an_estimate_claims_no_evidence_for_its_attainable_time():
    found = cap.tpot(cap.load_model("llama-3.1-8b"), cap.load_hardware(H100), BF16, batch=[1, 2], context_tokens=100)
    one = cap.tpot(cap.load_model("llama-3.1-8b"), cap.load_hardware(H100), BF16, batch=1, context_tokens=100)
    for estimate in (found, one):
        (row,) = (row for row in sheet_of(estimate).sections[0].rows if row[0].value == "attainable")
        assert row[1].evidence == ""


def test_a_spec_in_a_notebook_is_its_text_escaped():
    deploy = cap.Deployment(weights="bf16", tensor_parallel=2)

    assert str(deploy) == "Deployment(weights='bf16', tensor_parallel=2)"
    assert deploy._repr_html_() == "<pre>Deployment(weights=&#x27;bf16&#x27;, tensor_parallel=2)</pre>"
    assert str(cap.Workload()) == "Workload()"
    for spec in (cap.load_model("llama-3.1-8b"), cap.load_hardware(H100), cap.load_world_model("pi0")):
        assert len(spec._repr_html_()) < 500
