"""Numbers that people give: what is whole comes back exact, anything else is one sentence."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from capacity.errors import CapacityError
from capacity.inputs import whole


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
