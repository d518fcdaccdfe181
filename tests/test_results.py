"""Results: values that become plain dictionaries, and verdicts as codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from capacity.results import Decision, Estimate, Ledger, LedgerLine, Objective, PhaseTime

PHASE = PhaseTime("decode", 6, 1e9, 2e9, 10, 0.4, 0.45, "memory, head", 0.4, 0.1)


def test_arrays_and_numpy_numbers_become_plain_values():
    times = Estimate(
        quantity="TPOT",
        bound=np.array([0.002, 0.004]),
        roofline=np.array([0.003, 0.004]),
        bound_by=np.array([0, 1]),
        largest_operator=np.array([1, 0]),
        operators=("a", "b"),
        fits=np.array([True, False]),
        evidence="computed",
    )

    assert times.to_dict()["bound"] == [0.002, 0.004]
    assert times.to_dict()["fits"] == [True, False]


def test_derived_values_are_in_the_dictionary():
    ledger = Ledger(0, 1, (LedgerLine("weights", 60, "computed"),), 60, 50, 80)

    assert ledger.margin_bytes == ledger.to_dict()["margin_bytes"] == -10
    assert ledger.line("weights") == 60


def test_the_state_of_an_objective_is_a_code():
    assert Objective("TPOT", 0.01, 0.02, True).state == "missed"
    assert Objective("TPOT", 0.03, 0.02, False).state == "not excluded"


def test_the_best_time_of_a_decision_is_its_estimate_or_its_bound():
    bound_alone = Decision((PHASE,), 0.4, 0.45, None, None, None, "computed")
    estimated = Decision((PHASE,), 0.4, 0.45, 0.5, 0.45, 0.6, "calibrated", attainable_s=0.42)

    assert (bound_alone.best_s, estimated.best_s) == (0.4, 0.5)
    assert bound_alone.attainable_s is None
    assert bound_alone.phase("decode") is PHASE
    assert bound_alone.phase("encode") is None


def test_attainable_times_of_phases_are_a_column_where_there_are_any():
    phase = replace(PHASE, attainable_s=0.41)
    without = Decision((PHASE,), 0.4, 0.45, None, None, None, "computed", attainable_s=0.42)
    with_them = replace(without, phases=(phase,))

    assert "attainable 420.000 ms" in str(without)
    assert "410.000 ms" not in str(without)
    assert "410.000 ms" in str(with_them)


def test_every_result_says_what_it_assumes_and_leaves_out():
    for result in (Decision((PHASE,), 0.4, 0.45, None, None, None, "computed"), Ledger(0, 1, (), 0, 1, 1)):
        assert {"assumed", "notes", "not_modelled"} <= result.to_dict().keys()
        assert result.not_modelled
