"""Late decisions against the table of the normal distribution and against samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from capacity.errors import CapacityError
from capacity.formulas import jitter


# NIST/SEMATECH e-Handbook, 1.3.6.7.1, cumulative normal distribution: 90 % lie below 1.282, 95 % below 1.645,
# 99 % below 2.326, 99.9 % below 3.090. With a spread of one e-fold a standard deviation, p99 over p50 is exp(2.326).
@pytest.mark.parametrize(("percentile", "quantile"), [(50, 0.0), (90, 1.282), (95, 1.645), (99, 2.326), (99.9, 3.090)])
def test_a_percentile_lies_where_the_normal_table_puts_it(percentile, quantile):
    found = jitter.percentile_latency_s(0.050, p99_over_p50=math.exp(2.326), percentile=percentile)

    assert float(found) == pytest.approx(0.050 * math.exp(quantile), rel=1e-3)


@pytest.mark.parametrize(("deviations", "late"), [(0.0, 0.5), (1.282, 0.100), (1.645, 0.050), (-1.282, 0.900)])
def test_the_share_that_is_late_is_the_tail_of_the_normal_table(deviations, late):
    found = jitter.miss_rate(0.050, p99_over_p50=math.exp(2.326), deadline_s=0.050 * math.exp(deviations))

    assert float(found) == pytest.approx(late, abs=2e-4)


def test_percentile_and_miss_rate_are_inverse():
    for percentile in (50.0, 90.0, 99.0, 99.9):
        late = jitter.percentile_latency_s(0.05, p99_over_p50=1.3, percentile=percentile)
        missed = jitter.miss_rate(0.05, p99_over_p50=1.3, deadline_s=late)
        assert float(missed) == pytest.approx(1 - percentile / 100, abs=1e-9)


def test_a_lognormal_percentile_equals_samples():
    sigma = math.log(1.3) / 2.3263478740408408
    samples = 0.05 * np.exp(sigma * np.random.default_rng(0).standard_normal(200_000))

    found = float(jitter.percentile_latency_s(0.05, p99_over_p50=1.3, percentile=95))
    assert np.percentile(samples, 95) == pytest.approx(found, rel=0.003)
    missed = jitter.miss_rate(0.05, p99_over_p50=1.3, deadline_s=0.06)
    assert float(np.mean(samples > 0.06)) == pytest.approx(float(missed), abs=0.002)


def test_without_jitter_every_percentile_is_the_median():
    assert jitter.percentile_latency_s(0.05, p99_over_p50=1, percentile=[1, 50, 99.9]).tolist() == [0.05] * 3


def test_without_jitter_a_deadline_is_met_always_or_never():
    assert jitter.miss_rate([0.05, 0.051], p99_over_p50=1.0, deadline_s=0.05).tolist() == [0.0, 1.0]


# 3 x 0.1 s is 0.30000000000000004 s in binary floating point, and in time for 0.3 s; a millionth later is late.
def test_a_latency_that_equals_its_deadline_but_for_rounding_is_in_time():
    assert jitter.miss_rate([3 * 0.1, 0.3 * (1 + 1e-6)], p99_over_p50=1.0, deadline_s=0.3).tolist() == [0.0, 1.0]


def test_arrays_give_element_by_element_what_scalars_give():
    spreads, deadlines = [1.0, 1.2], [[0.04], [0.06]]
    many = jitter.miss_rate(0.05, p99_over_p50=spreads, deadline_s=deadlines)
    late = jitter.percentile_latency_s([[0.05], [0.06]], p99_over_p50=spreads, percentile=90)

    for row, column in np.ndindex(2, 2):
        spread = spreads[column]
        assert many[row, column] == jitter.miss_rate(0.05, p99_over_p50=spread, deadline_s=deadlines[row][0])
        median = [0.05, 0.06][row]
        assert late[row, column] == jitter.percentile_latency_s(median, p99_over_p50=spread, percentile=90)


def test_nonsense_is_refused():
    for percentile in (0, 100, -1, [50, 101]):
        with pytest.raises(CapacityError, match="percentile lies between 0 and 100, both excluded"):
            jitter.percentile_latency_s(0.1, p99_over_p50=1.1, percentile=percentile)
    for spread in (0.9, float("inf"), float("nan")):
        with pytest.raises(CapacityError, match="p99_over_p50 is at least 1"):
            jitter.miss_rate(0.1, p99_over_p50=spread, deadline_s=0.2)
    with pytest.raises(CapacityError, match="deadline_s must be finite and positive"):
        jitter.miss_rate(0.1, p99_over_p50=1.1, deadline_s=0)
    with pytest.raises(CapacityError, match="median_s must be finite and positive"):
        jitter.percentile_latency_s(-0.1, p99_over_p50=1.1, percentile=99)
