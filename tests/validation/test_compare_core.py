"""Errors of predictions: worked by hand."""

import pytest

from capacity.errors import CapacityError
from capacity.validation.compare import Pair, by_group, relative_errors, share_within, summarise
from capacity.validation.published_speed import PublishedSpeed


def pairs(*ratios: float) -> list[Pair]:
    return [Pair(f"case {ratio}", "s", predicted=2.0 * ratio, measured=2.0, low=1.5, high=2.2) for ratio in ratios]


def test_summary_reports_mean_absolute_p90_and_worst_never_a_signed_mean():
    errors = summarise(pairs(0.9, 1.1, 0.7, 1.5))

    assert errors.mean_absolute == pytest.approx((0.1 + 0.1 + 0.3 + 0.5) / 4)
    assert (errors.worst, errors.p90) == (pytest.approx(0.5), pytest.approx(0.5))
    assert errors.median == pytest.approx(0.2)


def test_ninetieth_percentile_is_an_error_that_occurred():
    assert summarise(pairs(*[1.01] * 9, 1.4)).p90 == pytest.approx(0.01)
    assert summarise(pairs(*[1.01] * 8, 1.4, 1.4)).p90 == pytest.approx(0.4)


def test_band_and_bound_are_judged_on_the_measurement():
    row = Pair("x", "s", predicted=1.0, measured=1.2, low=0.9, high=1.1, bound=1.2)

    assert row.in_band is False
    assert row.bound_holds is True
    assert Pair("x", "s", predicted=1.0, measured=1.2, bound=1.21).bound_holds is False
    assert Pair("x", "s", predicted=1.0, measured=1.2).in_band is None


def test_share_within_counts_the_edge():
    assert share_within(pairs(0.75, 1.0, 1.26), 0.25) == pytest.approx(2 / 3)


def test_groups_keep_the_order_of_first_appearance():
    assert by_group(["b1", "a1", "b2"], lambda item: item[0]) == {"b": ["b1", "b2"], "a": ["a1"]}


def test_nothing_to_compare_is_an_error():
    with pytest.raises(CapacityError, match="nothing to compare"):
        summarise([])


@pytest.mark.parametrize("measured", [0.0, -1.0, float("nan")])
def test_a_measurement_that_is_not_positive_is_refused(measured):
    with pytest.raises(CapacityError, match="positive measurements"):
        relative_errors(1.0, measured)


def test_json_carries_what_follows_from_the_figures():
    """Worked by hand: 1.0 predicted beside 1.25 measured is a ratio of 0.8, outside 0.9 to 1.1 and above the bound."""
    row = Pair("x", "s", predicted=1.0, measured=1.25, low=0.9, high=1.1, bound=1.2)
    found = PublishedSpeed((row,), (), {}, {}, None).to_dict()

    (printed,) = found["pairs"]
    assert (printed["ratio"], printed["in_band"], printed["bound_holds"]) == (0.8, False, True)
    assert found["bounds_hold"]
