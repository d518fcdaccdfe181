"""Plots draw the numbers of the results, in the units on their axes, and give their axes back."""

from __future__ import annotations

import numpy as np
import pytest

import capacity as cap

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plots = pytest.importorskip("capacity.presentation.plots")


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure().subplots()


@pytest.fixture(scope="module")
def part():
    return cap.load_hardware("nvidia-h100-sxm5-80gb")


@pytest.fixture(scope="module")
def sizing(part):
    return cap.size(cap.load_model("llama-3-8b"), part, cap.Workload(), cap.Deployment(weights="bf16"))


def test_the_roof_bends_at_the_ridge_and_ends_at_the_peak(part, ax):
    assert plots.plot_roof(part, "bf16", ax=ax) is ax
    x, y = ax.lines[0].get_data()

    assert x[1] == pytest.approx(cap.ridge_point(part, "bf16"))
    assert y[1] == y[2] == 989.4e12
    assert y[0] / x[0] == pytest.approx(3.35e12)


def test_a_step_lies_on_or_below_the_roof(part, sizing, ax):
    plots.mark_step(sizing, ax=ax)
    (x,), (y,) = ax.lines[0].get_data()

    assert y <= min(989.4e12, x * 3.35e12) * (1 + 1e-9)


# A source saw an RTX 5090 multiply bf16 at 254 TFLOP/s, above the 209.5 of its datasheet.
def test_the_roof_lies_above_the_rates_that_were_reached(ax):
    plots.plot_roof(cap.load_hardware("nvidia-rtx-5090-32gb"), "bf16", ax=ax)

    assert ax.lines[0].get_ydata()[-1] == pytest.approx(254e12)


def test_the_ledger_is_stacked_to_its_total_in_gib(sizing, ax):
    plots.plot_ledger(sizing, ax=ax)

    assert sum(bar.get_width() for bar in ax.patches) == pytest.approx(sizing.ledger[0].total_bytes / 2**30)


def test_times_that_do_not_fit_are_hollow(part, ax):
    model, batch = cap.load_model("llama-3-8b"), np.array([1, 10, 100, 1000])
    found = cap.tpot(model, part, cap.Deployment(weights="bf16"), batch=batch, context_tokens=8192)
    plots.plot_times(found, batch, ax=ax)

    assert ax.lines[0].get_ydata() == pytest.approx(found.bound * 1e3)
    assert list(ax.lines[-1].get_xdata()) == [n for n, fits in zip(batch, found.fits, strict=True) if not fits]


def test_times_of_several_contexts_are_told_apart(part, ax):
    model, batch = cap.load_model("llama-3-8b"), np.array([1, 10])
    for context in (2048, 8192):
        found = cap.tpot(model, part, cap.Deployment(weights="bf16"), batch=batch, context_tokens=context)
        plots.plot_times(found, batch, ax=ax, name=f"{context} tokens")

    labels = [line.get_label() for line in ax.lines]
    assert len(set(labels)) == len(labels)
    assert {"2048 tokens, bound", "8192 tokens, bound"} <= set(labels)
    assert ax.get_ylabel() == "TPOT [ms]"


def test_a_format_without_a_path_and_a_wrong_shape_are_errors(part, ax):
    with pytest.raises(cap.CapacityError, match="no mxfp4 path"):
        plots.plot_roof(part, "mxfp4", ax=ax)
    found = cap.tpot(cap.load_model("llama-3-8b"), part, cap.Deployment(weights="bf16"), batch=1, context_tokens=1)
    with pytest.raises(cap.CapacityError, match="shape"):
        plots.plot_times(found, np.array([1, 2]), ax=ax)
