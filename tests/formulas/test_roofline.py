"""The ridge point against published ones, and against the roof walked along until it is flat."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.formulas import roofline


# NVIDIA, "Matrix Multiplication Background User's Guide", chapter 2: a V100 (125 TFLOP/s, 900 GB/s) has 138.9 FLOP/B.
def test_the_ridge_of_a_v100_is_the_one_that_nvidia_prints():
    assert float(roofline.ridge_point(flop_per_s=125e12, bytes_per_s=900e9)) == pytest.approx(138.9, abs=0.05)


# Williams, Waterman, Patterson, CACM 52(4), p. 67: attainable = min(peak, bandwidth x intensity); the Opteron X2 has
# 17.6 GFLOP/s and 15 GB/s. The ridge is the least intensity that attains the peak.
def test_the_ridge_is_where_the_roof_turns_flat():
    intensity = 2.0 ** np.arange(-2, 4, 0.001)
    attained = np.minimum(17.6e9, 15e9 * intensity)
    least = intensity[np.argmax(attained == 17.6e9)]

    assert float(roofline.ridge_point(flop_per_s=17.6e9, bytes_per_s=15e9)) == pytest.approx(least, rel=1e-3)


def test_ridges_of_arrays_are_those_of_their_elements():
    many = roofline.ridge_point(flop_per_s=[312e12, 624e12], bytes_per_s=[[2e12], [4e12]])

    assert many.tolist() == [[156, 312], [78, 156]]
    assert many[1, 0] == roofline.ridge_point(flop_per_s=312e12, bytes_per_s=4e12)


def test_a_part_that_computes_nothing_or_reads_nothing_has_no_ridge():
    for rate in (0, -1e12, [1e12, 0]):
        with pytest.raises(ValueError, match="flop_per_s must be positive"):
            roofline.ridge_point(flop_per_s=rate, bytes_per_s=1e12)
        with pytest.raises(ValueError, match="bytes_per_s must be positive"):
            roofline.ridge_point(flop_per_s=1e12, bytes_per_s=rate)
