"""Units as people write them: bytes are not bits."""

from __future__ import annotations

import pytest

from capacity.errors import CapacityError
from capacity.units import parse_bytes, parse_seconds


# SI and IEC 80000-13: B is the byte, b the bit.
@pytest.mark.parametrize("text", ["80 Gb", "1 Mib", "512Kb", "2 Tb"])
def test_bits_are_not_read_as_bytes(text):
    with pytest.raises(CapacityError, match=f"'{text}': a small b means bits"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "count"), [("80 GB", 80e9), ("80 GiB", 80 * 2**30), ("80 gb", 80e9), ("80gib", 80 * 2**30), ("7 B", 7)]
)
def test_bytes_with_a_capital_b_or_all_in_small_letters_are_bytes(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize(("parse", "text"), [(parse_bytes, "1e308 GB"), (parse_seconds, "1e308 h")])
def test_a_number_that_its_unit_makes_infinite_is_refused(parse, text):
    with pytest.raises(CapacityError, match=f"must be finite and not negative, got '{text}'"):
        parse(text)
