"""The hardware spec: which peak a format finds, what a replaced figure costs, and who vouches for a figure."""

import pytest

from capacity.errors import CapacityError, SpecError
from capacity.specs.hardware import HardwareSpec


@pytest.fixture
def table():
    """A part with round figures, whole and sourced."""
    return {
        "name": "Part",
        "memory": {"capacity_bytes": 85_520_809_984, "datasheet_label": "80 GB", "bytes_per_s": 2e12},
        "peak_flop_per_s": {"bf16": 100e12, "fp16": 100e12, "fp8_e4m3": 200e12, "int8": 200e12},
        "vector_flop_per_s": {"fp32": 50e12},
        "measured": {"read_bytes_per_s": 1.8e12, "gemm_flop_per_s": {"bf16": 90e12}, "gemv_fixed_s": 4e-6},
        "sources": [{"fields": ["*"], "cite": "a datasheet, read today"}],
    }


@pytest.fixture
def part(table):
    return HardwareSpec.parse(table, "part.toml")


@pytest.mark.parametrize(
    ("stored", "peak"),
    [
        ("bf16", 100e12),
        ("fp8_e4m3", 200e12),
        ("fp8_e5m2", 200e12),
        ("fp8_block128", 200e12),
        ("mxfp8", 200e12),
        ("int8", 200e12),
        ("int8_g128", 200e12),
        ("q4_k", 100e12),  # unpacked to 16 bits
        ("nf4", 100e12),
        ("fp32", 50e12),  # the vector units
        ("int4_g128", None),
        ("int4", None),
        ("nvfp4", None),
        ("mxfp4", None),
        ("tf32", None),
        ("fp64", None),
    ],
)
def test_peak_follows_the_arithmetic_of_the_stored_format(part, stored, peak):
    assert part.peak(stored) == peak


def test_peak_takes_the_faster_accumulate_mode(table):
    table["peak_flop_per_s_narrow"] = {"fp16": 200e12}

    fast = HardwareSpec.parse(table, "part.toml")

    assert (fast.peak("fp16"), fast.peak("bf16")) == (200e12, 100e12)


def test_peak_of_an_unknown_format_is_an_error(part):
    with pytest.raises(CapacityError, match="unknown number format 'fp7'"):
        part.peak("fp7")


def test_usable_bytes_leaves_what_the_system_keeps(table):
    table["memory"] |= {"unified": True, "reserve_bytes": 5_520_809_984}

    assert HardwareSpec.parse(table, "part.toml").usable_bytes == 80_000_000_000


def test_a_part_without_capacity_loads_and_says_what_to_give(table):
    del table["memory"]["capacity_bytes"]
    socket = HardwareSpec.parse(table, "part.toml")

    with pytest.raises(SpecError, match=r"memory\.capacity_bytes is not given"):
        _ = socket.usable_bytes
    assert socket.replace(**{"memory.capacity_bytes": 10**12}).usable_bytes == 10**12


def test_a_replaced_figure_is_assumed_and_what_was_measured_on_it_goes(part):
    faster = part.replace(**{"memory.bytes_per_s": 4.8e12})

    assert faster.memory.bytes_per_s == 4.8e12
    assert (part.evidence("memory.bytes_per_s"), faster.evidence("memory.bytes_per_s")) == ("published", "assumed")
    assert (faster.measured.read_bytes_per_s, faster.measured.gemv_fixed_s) == (None, None)
    assert faster.measured.gemm_flop_per_s["bf16"] == 90e12


def test_a_replaced_peak_keeps_measured_reads_and_may_leave_the_family(part):
    wilder = part.replace(**{"peak_flop_per_s.bf16": 1000e12})

    assert wilder.peak("bf16") == 1000e12
    assert wilder.measured.read_bytes_per_s == 1.8e12
    assert not wilder.measured.gemm_flop_per_s


@pytest.mark.parametrize("doubts", ["assumed", "unverified"])
def test_no_replacement_makes_a_what_if_a_published_figure(table, doubts):
    guess = HardwareSpec.parse(table | {"unverified": ["power.*"]}, "part.toml").replace(**{"memory.bytes_per_s": 8e12})

    with pytest.raises(SpecError, match=f"'{doubts}' lists figures without a source and cannot be replaced"):
        guess.replace(**{doubts: ()})


@pytest.mark.parametrize(
    ("change", "reads_stay", "products_stay"),
    [
        ({"memory": {"bytes_per_s": 8e12, "capacity_bytes": 85_520_809_984}}, False, True),
        ({"memory.bytes_per_s": 8e12}, False, True),
        ({"memory.capacity_bytes": 80 * 2**30}, True, True),
        ({"peak_flop_per_s": {"bf16": 500e12}}, True, False),
        ({"peak_flop_per_s.fp16": 300e12}, True, False),
        ({"peak_flop_per_s_narrow.fp16": 300e12}, True, True),  # a path that it did not have
        ({"vector_flop_per_s.fp32": 80e12}, True, False),
        ({"compute.boost_hz": 2e9}, True, False),
        ({"power.tdp_w": 500}, True, True),
    ],
)
def test_what_was_measured_goes_with_the_ceiling_it_was_measured_on(part, change, reads_stay, products_stay):
    changed = part.replace(**change)

    assert (changed.measured.read_bytes_per_s is not None) == reads_stay
    assert (changed.measured.gemv_fixed_s is not None) == reads_stay
    assert bool(changed.measured.gemm_flop_per_s) == products_stay


def test_a_figure_that_only_runs_of_this_package_vouch_for_is_measured(table):
    datasheet = {"fields": ["peak_flop_per_s.*", "vector_flop_per_s.*"], "cite": "a datasheet, read today"}
    runs = {"fields": ["memory.*", "measured.*", "vector_flop_per_s.*"], "cite": "our runs", "evidence": "measured"}
    part = HardwareSpec.parse(table | {"sources": [datasheet, runs]}, "part.toml")

    assert part.evidence("memory.bytes_per_s") == "measured"
    assert part.evidence("peak_flop_per_s.bf16") == "published"
    assert part.evidence("vector_flop_per_s.fp32") == "published"
    assert part.measured_ceilings() == ("memory.bytes_per_s",)
    assert part.replace(**{"memory.bytes_per_s": 1e12}).evidence("memory.bytes_per_s") == "assumed"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory.bytes_per_s", "4e12"),
        ("memory.bytes_per_s", True),
        ("power.tdp_w", True),
        ("power.tdp_w", "700"),
        ("peak_flop_per_s.bf16", "1e12"),
        ("compute.units", 132.0),
    ],
)
def test_text_and_switches_are_no_numbers(part, field, value):
    with pytest.raises(SpecError, match=field.replace(".", r"\.")):
        part.replace(**{field: value})


def test_a_field_that_a_table_does_not_have_is_answered_with_the_nearest(part):
    with pytest.raises(SpecError, match="compute: unknown field 'unit'; nearest: units"):
        part.replace(**{"compute.unit": 3})
    with pytest.raises(SpecError, match="unknown field 'memry"):
        part.replace(**{"memry.bytes_per_s": 3e12})
    assert part.replace(**{"peak_flop_per_s.nvfp4": 400e12}).peak("nvfp4") == 400e12


def test_a_replaced_figure_is_still_validated(part):
    with pytest.raises(SpecError, match=r"must be from 1e\+06 to 1e\+18 B/s, got -1"):
        part.replace(**{"memory.bytes_per_s": -1.0})
    with pytest.raises(SpecError, match=r"nearest: .*bytes_per_s"):
        part.replace(**{"memory.byte_per_s": 1.0})


def test_unverified_figures_count_as_assumed_whatever_the_sources_cover(table):
    table["unverified"] = ["memory.*"]

    part = HardwareSpec.parse(table, "part.toml")

    assert part.evidence("memory.bytes_per_s") == "assumed"
    assert part.evidence("peak_flop_per_s.bf16") == "published"


@pytest.mark.parametrize("bare", ["memory.bytes_per_s", "vector_flop_per_s.fp32", "measured.gemm_flop_per_s.bf16"])
def test_a_figure_without_source_is_refused_by_name(table, part, bare):
    table["sources"][0]["fields"] = [figure for figure in part.figures() if figure != bare]

    with pytest.raises(SpecError, match=f"part.toml: no source for {bare}; add to"):
        HardwareSpec.parse(table, "part.toml")

    table["unverified"] = [bare]
    assert HardwareSpec.parse(table, "part.toml").evidence(bare) == "assumed"


def test_equal_parts_are_equal_keys(table, part):
    again = HardwareSpec.parse(table, "elsewhere.toml")

    assert again == part
    assert hash(again) == hash(part)
    assert hash(part.replace(**{"memory.bytes_per_s": 1e12})) != hash(part)


def test_a_size_may_be_written_as_a_power_of_ten(table):
    table["memory"] = {"bytes_per_s": 1e12, "capacity_bytes": 32e9}
    table.pop("measured", None)
    held = HardwareSpec.parse(table, "part.toml").memory.capacity_bytes

    assert (held, type(held)) == (32_000_000_000, int)


def test_what_a_source_lacks_is_said_in_words(table):
    with pytest.raises(SpecError, match=r"^part.toml: sources 1: cite is missing$"):
        HardwareSpec.parse(table | {"sources": [{"fields": ["*"]}]}, "part.toml")
    with pytest.raises(SpecError, match=r"^part.toml: memory is missing$"):
        HardwareSpec.parse({key: value for key, value in table.items() if key != "memory"}, "part.toml")


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("memory", {"bytes_per_s": "fast"}, "memory.bytes_per_s"),
        (
            "memory",
            {"bytes_per_s": 1e12, "capacity_bytes": 8e10 + 0.5},
            "memory.capacity_bytes: must be a whole number",
        ),
        ("memory", {"bytes_per_s": 1e12, "capacity_bytes": 10**400}, "memory.capacity_bytes"),
        ("memory", {"bytes_per_s": float("nan")}, "memory.bytes_per_s"),
        ("memory", {"bytes_per_s": 1e12, "speed": 3}, "memory: unknown field 'speed'"),
        ("memory", {"bytes_per_s": 1e12, "datasheet_label": "eighty"}, "must read like '80 GB'"),
        ("peak_flop_per_s", {"bf15": 1e12}, "unknown number format 'bf15'; nearest: bf16"),
        ("exceptions", {"fp8_over_bf16": {"value": 1, "reason": "because it is"}}, "unknown exception 'fp8_over_bf16'"),
    ],
)
def test_a_wrong_field_is_named_in_one_sentence(table, field, value, sentence):
    table[field] = value

    with pytest.raises(SpecError, match=r"part\.toml") as error:
        HardwareSpec.parse(table, "part.toml")
    assert sentence in str(error.value)
