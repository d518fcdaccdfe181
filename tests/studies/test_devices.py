"""The fewest devices on which a case fits that does not fit as asked."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.studies.devices import fewest_devices


def needing(devices):
    """A case that fits from so many tensor-parallel devices on."""
    return lambda deploy: deploy.tensor_parallel >= devices


# 72 devices in one NVLink domain: degrees are doubled from the one asked for, as far as 64.
@pytest.mark.parametrize(("needed", "found"), [(1, 1), (3, 4), (33, 64), (64, 64)])
def test_degrees_double_from_the_one_asked_for_to_64(needed, found):
    enough = fewest_devices(cap.load_hardware("nvidia-gb200-nvl72-186gb"), cap.Deployment(), needing(needed))

    assert (enough.devices, enough.tensor_parallel) == (found, found)


def test_more_than_64_devices_are_not_tried():
    assert fewest_devices(cap.load_hardware("nvidia-gb200-nvl72-186gb"), cap.Deployment(), needing(65)) is None


# 8 devices in one domain, of which two pipeline stages take half each: 4 ways of tensor parallelism remain.
def test_a_replica_stays_within_the_domain_of_its_links():
    part, deploy = cap.load_hardware("nvidia-h100-sxm5-80gb"), cap.Deployment(pipeline_parallel=2)

    assert fewest_devices(part, deploy, needing(4)).devices == 8
    assert fewest_devices(part, deploy, needing(8)) is None
