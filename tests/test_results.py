"""What a result prints, scalars and arrays alike."""

from __future__ import annotations

import numpy as np

from capacity.results import Estimate


def estimate(**changes):
    given = {
        "quantity": "TPOT",
        "bound": np.array([0.002, 0.004]),
        "bound_by": np.array([0, 1]),
        "operators": ("qkv, memory", "qkv, compute"),
        "fits": np.array([True, True]),
        "evidence": "computed",
    }
    return Estimate(**given | changes)


def test_an_array_says_at_how_many_points_memory_does_not_suffice():
    text = str(estimate(fits=np.array([False, True])))

    assert "2.000 ms to 4.000 ms" in text
    assert "does not fit in memory at 1 of 2 points" in text
    assert "does not fit" not in str(estimate())


def test_an_array_prints_attainable_value_and_notes_too():
    nan = np.nan
    text = str(
        estimate(
            attainable=np.array([0.003, 0.005]),
            value=np.array([0.006, nan]),
            low=np.array([0.005, nan]),
            high=np.array([0.007, nan]),
            evidence="calibrated",
            notes=("links: assumed",),
        )
    )

    for piece in ("3.000 ms to 5.000 ms", "6.000 ms", "5.000 ms to 7.000 ms", "calibrated", "links: assumed"):
        assert piece in text
    assert "nan" not in text
    assert "never" not in text


def test_a_scalar_prints_what_binds_it():
    text = str(estimate(bound=0.002, bound_by="qkv, memory", fits=False))

    assert "2.000 ms  (computed; bound by qkv, memory)" in text
    assert "does not fit in memory: " in text
