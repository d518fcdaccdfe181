"""Numbers that people give: what is whole comes back exact, anything else is one sentence."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from capacity.errors import CapacityError
from capacity.inputs import check_count, check_kind, check_time, one_count, one_time, whole
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec


@pytest.mark.parametrize(
    "given",
    [3, 3.0, np.int64(3), np.float32(3), np.uint8(3), np.array(3)],
)
def test_a_whole_scalar_is_a_python_int(given):
    found = whole("batch", given)

    assert found == 3
    assert type(found) is int


def test_a_list_that_holds_itself_is_refused():
    given = [1]
    given.append(given)

    with pytest.raises(CapacityError, match=r"^batch must be a whole number or an array of them"):
        whole("batch", given)


@pytest.mark.parametrize("given", [[1, 2], (1.0, 2.0), np.array([1, 2], np.uint16), np.array([1, 2], object)])
def test_whole_sequences_are_int64(given):
    found = whole("batch", given)

    assert found.tolist() == [1, 2]
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    "given",
    [
        "four", None, True, b"3", object(), {1: 2}, np.datetime64("2026-01-01"),
        ["1.0", "2"], ["1", "2"], [True, False], [1, True], (2.0, np.True_), [[1], [True]],
        [1, np.array(True)], np.array([1, True], object), np.ma.array([1, 2], mask=[False, True]), [1, np.ma.masked],
        [np.ma.array([1], mask=[True])], [1, None], [[1], [1, 2]], [],
        [10**5000], pytest.param(10**5000, id="digits"), [1, 10**30], 2**31 + 1, [1, 2**31 + 1], 0, -1, 1.5, [1, 1.5],
        float("nan"), float("inf"), [1, float("nan")], 1 + 0j, np.array([1 + 2j]),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_one_sentence_and_never_a_number(given):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CapacityError, match=r"^batch must be ") as caught:
            whole("batch", given)
    assert len(str(caught.value)) < 160
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        "soon", "0.02", True, [0.1, True], np.array([0.1, True], object), np.ma.array([0.1, 0.2], mask=[False, True]),
        [0.1, np.ma.masked], 10**400, 1 + 2j, [[1], [2, 3]], 0, -1, float("nan"),
    ],
)  # fmt: skip
def test_what_is_not_a_time_is_one_sentence(given):
    with pytest.raises(CapacityError, match=r"^period_s must be"):
        check_time("period_s", given)


def test_a_missing_time_is_asked_for():
    with pytest.raises(CapacityError, match=r"^network_s is missing; give a number, 0 if there is none$"):
        check_time("network_s", None, zero=True)


@pytest.mark.parametrize("given", [1e-320, 1e308, [0.1, 1e300]])
def test_a_time_beyond_all_clocks_is_refused(given):
    with pytest.raises(CapacityError, match=r"^period_s must be from 1e-15 to 1e\+15, got"):
        check_time("period_s", given)


def test_times_may_be_zero_where_that_is_allowed():
    assert check_time("sensing_s", [0, 1e-15, 1e15], zero=True).tolist() == [0, 1e-15, 1e15]
    with pytest.raises(CapacityError, match=r"^sensing_s must be 0 or from 1e-15 to 1e\+15, got 1e\+308"):
        check_time("sensing_s", 1e308, zero=True)


def test_one_number_is_not_an_array():
    with pytest.raises(CapacityError, match=r"one number, got an array of shape \(2,\)"):
        one_time("period_s", [0.1, 0.2])
    with pytest.raises(CapacityError, match=r"one number, got an array of shape \(1,\)"):
        one_count("robots", [1])


def test_counts_are_whole_numbers_of_at_least_one():
    assert check_count("sessions", [1, 2.0]).tolist() == [1.0, 2.0]
    with pytest.raises(CapacityError, match=r"^sessions must be a whole number of at least 1, got"):
        check_count("sessions", [1, 0])


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (HardwareSpec, "load it with load_hardware"),
        (Deployment, r"make one with Deployment\(...\)"),
        (str, "give its name"),
    ],
)
def test_an_argument_of_another_type_is_refused_with_the_way_to_one(kind, advice):
    with pytest.raises(CapacityError, match=f"^part must be a {kind.__name__}, got int; {advice}$"):
        check_kind("part", 3, kind)


def test_a_type_without_advice_is_refused_all_the_same():
    with pytest.raises(CapacityError, match=r"^part must be a list, got int$"):
        check_kind("part", 3, list)
