"""The latency law against NVIDIA's worked matrix products, and each of its terms against counting."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.formulas import latency

V100 = {"bytes_per_s": 900e9, "flop_per_s": 125e12}
WHOLE = {"memory_efficiency": 1, "flop_efficiency": 1}
NOTHING_ELSE = {
    "layers": 0,
    "layer_s": 0,
    "launches": 0,
    "launch_s": 0,
    "sequences": 0,
    "sequence_s": 0,
    "comm_s": 0,
    "host_floor_s": 0,
    "prefill_share": 0,
}


def product(m, n, k):
    """Bytes and FLOP of a 16-bit matrix product: both operands and the result once, two FLOP a multiply-add."""
    return 2 * (m * k + k * n + m * n), 2 * m * n * k


def step(operators_s, **terms):
    return latency.step_s(operators_s, **NOTHING_ELSE | terms)


# NVIDIA, "Matrix Multiplication Background User's Guide", chapter 2: on a V100 (138.9 FLOP/B) a product of 8192 x 128 x
# 8192 has 124.1 FLOP/B and is limited by memory, one of 8192 x 8192 x 8192 has 2730 and is limited by math.
def test_a_product_below_the_ridge_takes_the_time_of_its_bytes():
    moved, flop = product(8192, 128, 8192)
    time_s = float(latency.operator_s(moved, flop, **V100, **WHOLE))

    assert flop / time_s / 900e9 == pytest.approx(124.1, abs=0.05)


def test_a_product_above_the_ridge_takes_the_time_of_its_arithmetic():
    moved, flop = product(8192, 8192, 8192)

    assert flop / moved == pytest.approx(2730, abs=1)
    assert flop / float(latency.operator_s(moved, flop, **V100, **WHOLE)) == pytest.approx(125e12)


# 9 GB at 90 % of 900 GB/s, 10 TFLOP at 80 % of 125 TFLOP/s: 11.1 ms and 100 ms; with 0.1 TFLOP memory is slower.
def test_each_efficiency_slows_its_own_side():
    shares = {"memory_efficiency": 0.9, "flop_efficiency": 0.8}

    assert float(latency.operator_s(9e9, 1e11, **V100, **shares)) == pytest.approx(9e9 / 810e9)
    assert float(latency.operator_s(9e9, 10e12, **V100, **shares)) == pytest.approx(10e12 / 100e12)


def test_an_operator_without_bytes_or_without_flop_takes_the_other_side():
    assert float(latency.operator_s(0, 125e9, **V100, **WHOLE)) == pytest.approx(1e-3)
    assert float(latency.operator_s(900e6, 0, **V100, **WHOLE)) == pytest.approx(1e-3)
    assert float(latency.operator_s(0, 0, **V100, **WHOLE)) == 0


def test_the_times_of_arrays_are_those_of_their_elements():
    moved, flop, shares = [1e9, 9e9], [[1e9], [3e12]], np.array([0.5, 0.9])
    many = latency.operator_s(moved, flop, **V100, memory_efficiency=shares, flop_efficiency=1)

    assert many.shape == (2, 2)
    for row, column in np.ndindex(2, 2):
        one = latency.operator_s(
            moved[column], flop[row][0], **V100, memory_efficiency=shares[column], flop_efficiency=1
        )
        assert many[row, column] == one


def test_a_step_with_nothing_else_is_the_sum_of_its_operators():
    assert float(step(0.004)) == 0.004


# Each count is stepped through one by one, which is what it means to have that many.
@pytest.mark.parametrize(
    ("count", "each"), [("layers", "layer_s"), ("launches", "launch_s"), ("sequences", "sequence_s")]
)
def test_each_fixed_time_is_paid_once_for_each_of_its_kind(count, each):
    walked = 0.004
    for _ in range(32):
        walked += 3e-6

    assert float(step(0.004, **{count: 32, each: 3e-6})) == pytest.approx(walked, rel=1e-12)
    assert float(step(0.004, **{count: 0, each: 3e-6})) == 0.004


def test_time_on_links_is_paid_after_the_operators():
    assert float(step(0.004, comm_s=0.0015)) == pytest.approx(0.0055)


# 4 ms of operators, 32 layers of 10 us, 160 launches of 2 us, 8 sequences of 5 us, 0.7 ms on links.
def test_all_terms_of_a_step_add_up():
    found = step(
        0.004,
        layers=32,
        layer_s=10e-6,
        launches=160,
        launch_s=2e-6,
        sequences=8,
        sequence_s=5e-6,
        comm_s=0.0007,
    )

    assert float(found) == pytest.approx((4000 + 320 + 320 + 40 + 700) * 1e-6)


# A device that gives prefill a quarter of every 0.1 ms completes 6 ms of decode in 8 ms.
def test_a_step_that_shares_its_device_with_prefill_waits_for_the_share():
    left, slices = 6.0, 0
    while left > 1e-9:
        left, slices = left - 0.1 * 3 / 4, slices + 1

    assert float(step(0.006, prefill_share=0.25)) == pytest.approx(slices * 1e-4)
    assert float(step(0.005, comm_s=0.001, prefill_share=0.25)) == pytest.approx(slices * 1e-4)


def test_a_host_slower_than_the_device_sets_the_step():
    assert float(step(0.004, host_floor_s=0.007)) == 0.007
    assert float(step(0.003, layers=10, layer_s=1e-4, host_floor_s=0.007)) == 0.007


# Of 10 slots of 1 ms, 2 go to prefill: a step that the host issues in 4 ms or the device runs in 3 ms takes 4 of the 8
# slots left, so two steps per 10 ms.
def test_a_host_bound_step_also_waits_while_prefill_has_the_device():
    assert float(step(0.003, host_floor_s=0.004, prefill_share=0.2)) == pytest.approx(0.010 / 2)


def test_a_host_that_is_fast_enough_costs_nothing():
    assert float(step(0.004, host_floor_s=0.0039)) == 0.004


def test_the_steps_of_arrays_are_those_of_their_elements():
    operators, floors = np.array([0.004, 0.009]), np.array([[0.0], [0.006]])
    many = step(operators, launches=np.array([100, 200]), launch_s=1e-6, host_floor_s=floors)

    assert many.shape == (2, 2)
    for row, column in np.ndindex(2, 2):
        one = step(operators[column], launches=[100, 200][column], launch_s=1e-6, host_floor_s=float(floors[row, 0]))
        assert many[row, column] == one
