"""The shipped parts: every row of the survey, known errors put right, and loading by name, path or table."""

import csv
import re
import tomllib
from pathlib import Path

import pytest

from capacity.catalog import parts as catalog
from capacity.catalog import prices as prices_of
from capacity.catalog import servers
from capacity.catalog.models import load_model
from capacity.errors import SpecError
from capacity.specs.provenance import matches

ROOT = Path(__file__).parents[2]
IDS = catalog.hardware_ids()

# A reduced copy of the table that this project's survey of 2026-11-30 collected: 95 parts, dense rates.
with (ROOT / "tests/data/hardware_survey.csv").open(encoding="utf-8", newline="") as file:
    SURVEY = {row["part"]: row for row in csv.DictReader(file)}
# The survey's row is the package of two devices; its peaks of the server card are 120/126 of the workstation card's.
CORRECTED = {"amd-mi250x-gcd-64gb", "nvidia-rtx-pro-6000-blackwell-server-96gb"}


@pytest.mark.parametrize("part_id", sorted(set(SURVEY) - CORRECTED))
def test_part_has_the_figures_of_its_survey_row(part_id):
    part, row = catalog.load_hardware(part_id), SURVEY[part_id]

    stated = {
        "mem_mib_reported": part.memory.capacity_bytes and part.memory.capacity_bytes / 2**20,
        "mem_bw_gbs": part.memory.bytes_per_s / 1e9,
        "fp32_tflops": part.vector_flop_per_s.get("fp32", 0) / 1e12,
        "fp16_tflops": (part.peak_flop_per_s.get("fp16") or part.vector_flop_per_s.get("fp16", 0)) / 1e12,
        "bf16_tflops": part.peak_flop_per_s.get("bf16", 0) / 1e12,
        "fp8_tflops": part.peak_flop_per_s.get("fp8_e4m3", 0) / 1e12,
        "int8_tops": part.peak_flop_per_s.get("int8", 0) / 1e12,
        "fp4_tflops": part.peak_flop_per_s.get("mxfp4", 0) / 1e12,
        "sm_cu_count": part.compute.units,
        "tdp_w": part.power.tdp_w,
        "scaleup_gbs_per_dir": part.links and (part.links.bytes_per_s_per_direction or 0) / 1e9,
        "meas_read_bw_gbs": (part.measured.read_bytes_per_s or 0) / 1e9,
    }
    printed = {name: float(row[name]) for name in stated if row[name]}
    assert {name: stated[name] for name in printed} == pytest.approx(printed)


def test_every_row_of_the_survey_is_a_part():
    assert len(SURVEY) == 95
    assert set(SURVEY) <= set(IDS)


@pytest.mark.parametrize("part_id", sorted(SURVEY))
def test_both_directions_of_a_link_are_twice_one(part_id):
    row, links = SURVEY[part_id], catalog.load_hardware(part_id).links
    if row["scaleup_gbs_bidir"] and links and links.bytes_per_s_per_direction:
        assert 2 * links.bytes_per_s_per_direction == pytest.approx(1e9 * float(row["scaleup_gbs_bidir"]))


@pytest.mark.parametrize("part_id", IDS)
def test_sources_and_doubts_name_figures_that_the_part_has(part_id):
    part = catalog.load_hardware(part_id)
    stated = [*part.figures(), "launched"]

    patterns = [*part.unverified, *(pattern for source in part.sources for pattern in source.fields)]

    assert [pattern for pattern in patterns if not any(matches(figure, (pattern,)) for figure in stated)] == []


@pytest.mark.parametrize("part_id", IDS)
def test_id_is_the_file_name_vendor_first_in_lower_case(part_id):
    part = catalog.load_hardware(part_id)

    assert part.id == part_id
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", part_id)
    assert part_id.startswith(part.vendor.lower().split()[0])


# What the driver reports, in bytes over 1e9, for parts whose "GB" is neither 1e9 nor 2^30 (survey, section 2).
@pytest.mark.parametrize(
    ("part_id", "gigabytes"),
    [
        ("nvidia-a100-sxm4-80gb", 85.9),
        ("nvidia-h100-sxm5-80gb", 85.5),
        ("nvidia-h200-sxm5-141gb", 150.8),
        ("nvidia-b200-sxm-180gb", 192.3),
        ("nvidia-b300-sxm-288gb", 288.4),
        ("nvidia-gb300-nvl72-288gb", 298.0),
        ("nvidia-l4-pcie-24gb", 24.2),
        ("nvidia-l40s-pcie-48gb", 48.3),
        ("nvidia-t4-pcie-16gb", 16.1),
        ("nvidia-rtx-4090-24gb", 25.8),
        ("amd-mi300x-oam-192gb", 206.1),
        ("amd-mi325x-oam-256gb", 274.9),  # 262,128 MiB
        ("nvidia-h20-141gb", 150.8),  # 143,771 MiB, as the H200
        ("amd-mi355x-oam-288gb", 309.2),
    ],
)
def test_capacity_is_what_the_driver_reports(part_id, gigabytes):
    assert round(catalog.load_hardware(part_id).memory.capacity_bytes / 1e9, 1) == gigabytes


# The trap table of the survey (section 3): right value next to the wrong one seen in a public table.
@pytest.mark.parametrize(
    ("part_id", "field", "right"),
    [
        ("nvidia-a100-sxm4-80gb", "memory.bytes_per_s", 2039e9),
        ("nvidia-a100-pcie-80gb", "memory.bytes_per_s", 1935e9),
        ("nvidia-a100-sxm4-40gb", "memory.bytes_per_s", 1555e9),
        ("nvidia-rtx-pro-6000-blackwell-server-96gb", "memory.bytes_per_s", 1597e9),  # 1792 is the Workstation card
        ("nvidia-rtx-pro-6000-blackwell-workstation-96gb", "memory.bytes_per_s", 1792e9),
        ("nvidia-h200-sxm5-141gb", "memory.bytes_per_s", 4800e9),  # not 4890
        ("nvidia-l4-pcie-24gb", "memory.bytes_per_s", 300e9),  # not 3350
        ("aws-trainium1-32gb", "memory.bytes_per_s", 880e9),  # 820 GiB/s
        ("aws-trainium1-32gb", "memory.capacity_bytes", 32 * 2**30),
        ("amd-mi250x-gcd-64gb", "memory.bytes_per_s", 1638e9),  # one of two devices
        ("amd-mi250x-gcd-64gb", "memory.capacity_bytes", 64 * 2**30),
        ("amd-mi250x-gcd-64gb", "peak_flop_per_s.bf16", 191.5e12),
        ("nvidia-a100-pcie-80gb", "memory.l2_bytes", 40 * 2**20),  # not 80
        ("nvidia-l40-pcie-48gb", "peak_flop_per_s.bf16", 181e12),
        ("intel-gaudi-3-oam-128gb", "peak_flop_per_s.bf16", 1677e12),
        ("intel-gaudi-3-oam-128gb", "peak_flop_per_s.fp16", 459e12),
        ("amd-mi300x-oam-192gb", "links.bytes_per_s_per_direction", 448e9),
        ("amd-mi300x-oam-192gb", "links.bytes_per_s_per_peer", 64e9),
        ("nvidia-l4-pcie-24gb", "compute.units", 58),
        ("amd-mi325x-oam-256gb", "memory.datasheet_label", "256 GB"),
        ("nvidia-h100-sxm5-80gb", "peak_flop_per_s.bf16", 989.4e12),  # 1979 is sparse
        ("nvidia-l40s-pcie-48gb", "peak_flop_per_s.fp8_e4m3", 733e12),
        ("nvidia-b100-sxm-192gb", "peak_flop_per_s.bf16", 1750e12),
        ("nvidia-jetson-agx-orin-64gb", "peak_flop_per_s.int8", 85.2e12),  # 275 adds sparsity and another engine
        ("nvidia-jetson-agx-thor-128gb", "peak_flop_per_s.nvfp4", 1035e12),
        ("nvidia-gb10-128gb", "peak_flop_per_s.nvfp4", 500e12),
        ("nvidia-rtx-4090-24gb", "peak_flop_per_s.fp16", 165.2e12),
        ("nvidia-rtx-5090-32gb", "peak_flop_per_s.fp16", 209.5e12),
        ("nvidia-a100-sxm4-80gb", "peak_flop_per_s.fp16", 312e12),
    ],
)
def test_known_traps_are_put_right(part_id, field, right):
    value = catalog.load_hardware(part_id).model_dump()
    for key in field.split("."):
        value = value[key]

    assert value == right


# Width of the memory interface in bits and rate of one pin, as the makers print them (datasheets and architecture
# papers; DDR5 and LPDDR as channels x width and transfers): an independent way to the bandwidth.
@pytest.mark.parametrize(
    ("part_id", "bits", "pin_bits_per_s"),
    [
        ("nvidia-a100-sxm4-40gb", 5120, 2.43e9),
        ("nvidia-a10-pcie-24gb", 384, 12.5e9),
        ("nvidia-a40-pcie-48gb", 384, 14.5e9),
        ("nvidia-t4-pcie-16gb", 256, 10e9),
        ("nvidia-l4-pcie-24gb", 192, 12.5e9),
        ("nvidia-l40s-pcie-48gb", 384, 18e9),
        ("nvidia-rtx-3060-12gb", 192, 15e9),
        ("nvidia-rtx-3090-24gb", 384, 19.5e9),
        ("nvidia-rtx-4080-16gb", 256, 22.4e9),
        ("nvidia-rtx-4090-24gb", 384, 21e9),
        ("nvidia-rtx-5090-32gb", 512, 28e9),
        ("nvidia-rtx-a6000-48gb", 384, 16e9),
        ("nvidia-rtx-6000-ada-48gb", 384, 20e9),
        ("nvidia-rtx-pro-6000-blackwell-workstation-96gb", 512, 28e9),
        ("nvidia-jetson-agx-orin-64gb", 256, 6.4e9),
        ("nvidia-jetson-agx-thor-128gb", 256, 8.533e9),
        ("nvidia-gb10-128gb", 256, 8.533e9),
        ("amd-mi210-pcie-64gb", 4096, 3.2e9),
        ("amd-mi250x-gcd-64gb", 4096, 3.2e9),
        ("amd-mi300x-oam-192gb", 8192, 5.2e9),
        ("amd-radeon-rx-7900-xtx-24gb", 384, 20e9),
        ("amd-radeon-pro-w7900-48gb", 384, 18e9),
        ("amd-ryzen-ai-max-395-128gb", 256, 8e9),
        ("amd-epyc-9654-socket", 12 * 64, 4.8e9),
        ("intel-xeon-8480-socket", 8 * 64, 4.8e9),
        ("intel-xeon-6980p-socket", 12 * 64, 8.8e9),
        ("intel-arc-b580-12gb", 192, 19e9),
    ],
)
def test_bandwidth_is_interface_width_times_pin_rate(part_id, bits, pin_bits_per_s):
    expected = bits / 8 * pin_bits_per_s

    assert catalog.load_hardware(part_id).memory.bytes_per_s == pytest.approx(expected, rel=0.005)


# Ada architecture paper, appendix A, and the card's printed "780 sparse" for the RTX 4080: fp8 with fp16 sums runs
# at twice the rate of fp32 sums, as fp16 does; a bound takes the higher.
@pytest.mark.parametrize(("part_id", "tera"), [("nvidia-rtx-4080-16gb", 389.9), ("nvidia-rtx-4090-24gb", 660.6)])
def test_fp8_peak_of_a_geforce_part_is_that_of_fp16_sums(part_id, tera):
    assert catalog.load_hardware(part_id).peak("fp8_e4m3") == tera * 1e12


def test_rates_that_were_cut_on_blackwell_ultra_are_low():
    for part_id in ("nvidia-b300-sxm-288gb", "nvidia-gb300-nvl72-288gb"):
        part = catalog.load_hardware(part_id)
        assert 153e12 <= part.peak("int8") <= 165e12
        assert 1.2e12 <= part.vector_flop_per_s["fp64"] <= 1.3e12


@pytest.mark.parametrize(
    ("part_id", "stored"),
    [
        ("nvidia-h100-sxm5-80gb", "int4_g128"),
        ("amd-mi300x-oam-192gb", "int4_g128"),
        ("nvidia-a100-sxm4-80gb", "fp8_e4m3"),
        ("amd-mi210-pcie-64gb", "fp8_e4m3"),
        ("intel-arc-pro-b60-24gb", "fp8_e4m3"),
        ("nvidia-h100-sxm5-80gb", "nvfp4"),
        ("amd-mi355x-oam-288gb", "nvfp4"),
        ("nvidia-v100-sxm2-32gb", "bf16"),
    ],
)
def test_paths_that_tables_invent_do_not_exist(part_id, stored):
    assert catalog.load_hardware(part_id).peak(stored) is None


def test_memory_shared_with_a_system_is_not_all_free():
    assert catalog.load_hardware("apple-m2-ultra-192gb").usable_bytes == 147_000_000_000
    assert catalog.load_hardware("nvidia-gb10-128gb").usable_bytes < 122 * 2**30
    assert catalog.load_hardware("nvidia-jetson-agx-thor-128gb").usable_bytes == 117_000_000_000


def test_burst_and_sustained_rates_are_kept_apart():
    measured = catalog.load_hardware("nvidia-h100-sxm5-80gb").measured

    assert (measured.gemm_flop_per_s["bf16"], measured.gemm_flop_per_s_sustained["bf16"]) == (956e12, 794.5e12)


def test_figures_of_another_part_or_a_broken_node_are_left_out():
    assert not catalog.load_hardware("nvidia-a10-pcie-24gb").measured.gemm_flop_per_s  # was an A10G
    assert catalog.load_hardware("nvidia-l40s-pcie-48gb").measured.allreduce_bytes_per_s is None  # 1.3 GB/s


# Ridge points of the survey (section 2): dense bf16 over headline bandwidth, rounded; fp16 for the M1 Ultra.
@pytest.mark.parametrize(
    ("part_id", "path", "ridge"),
    [
        ("apple-m1-ultra-128gb", "fp16", 26),
        ("nvidia-h20-96gb", "bf16", 37),
        ("nvidia-a100-sxm4-80gb", "bf16", 153),
        ("nvidia-h200-sxm5-141gb", "bf16", 206),
        ("nvidia-h100-sxm5-80gb", "bf16", 295),
        ("nvidia-b200-sxm-180gb", "bf16", 281),
        ("nvidia-l40s-pcie-48gb", "bf16", 419),
        ("nvidia-gb10-128gb", "bf16", 458),
        ("nvidia-jetson-agx-thor-128gb", "bf16", 947),
    ],
)
def test_ridge_points_span_what_the_survey_says(part_id, path, ridge):
    part = catalog.load_hardware(part_id)

    assert round(part.peak(path) / part.memory.bytes_per_s) == ridge


def test_a_power_mode_makes_the_part_that_is_sold_under_that_mode():
    nano = catalog.load_hardware("nvidia-jetson-orin-nano-8gb")
    sold = catalog.load_hardware("nvidia-jetson-orin-nano-super-8gb")

    held = nano.in_power_mode("25W Super")

    assert (held.power.tdp_w, held.memory.bytes_per_s) == (sold.power.tdp_w, sold.memory.bytes_per_s)
    assert held.peak("bf16") == pytest.approx(sold.peak("bf16"), rel=0.025)  # printed with one digit less
    assert held.evidence("peak_flop_per_s.bf16") == "assumed"


def test_an_unknown_power_mode_gets_the_nearest_ones():
    with pytest.raises(SpecError, match="unknown power mode '35W'; nearest: 50W, 30W, 15W"):
        catalog.load_hardware("nvidia-jetson-agx-orin-64gb").in_power_mode("35W")


def test_an_unknown_part_gets_the_nearest_names():
    with pytest.raises(SpecError, match="unknown part 'nvidia-h100-sxm-80gb'; nearest: nvidia-h100-sxm5-80gb"):
        catalog.load_hardware("nvidia-h100-sxm-80gb")


def test_loading_one_part_parses_one_file_once():
    catalog._cached_hardware.cache_clear()

    first = catalog.load_hardware("nvidia-l4-pcie-24gb")

    assert catalog.load_hardware("nvidia-l4-pcie-24gb") is first
    assert catalog._cached_hardware.cache_info().misses == 1


THREE_LINES = """\
based_on = "nvidia-h100-sxm5-80gb"
name = "Ours"
memory.bytes_per_s = 3.0e12
"""


def test_three_lines_make_a_part_whose_figures_are_all_assumed(tmp_path):
    path = tmp_path / "ours.toml"
    path.write_text(THREE_LINES, encoding="utf-8")

    ours, base = catalog.load_hardware(path), catalog.load_hardware("nvidia-h100-sxm5-80gb")

    assert (ours.id, ours.name, ours.memory.bytes_per_s) == ("ours", "Ours", 3.0e12)
    assert ours.peak_flop_per_s == base.peak_flop_per_s
    assert ours.sources == ()
    assert {ours.evidence(figure) for figure in ours.figures()} == {"assumed"}
    assert ours.measured.read_bytes_per_s is None  # was measured on the other memory
    assert ours.measured.gemm_flop_per_s == base.measured.gemm_flop_per_s


def test_a_figure_that_the_file_sources_itself_is_not_assumed(tmp_path):
    path = tmp_path / "ours.toml"
    sources = '[[sources]]\nfields = ["memory.bytes_per_s"]\ncite = "our own datasheet"\n'
    path.write_text(THREE_LINES + sources, encoding="utf-8")

    ours = catalog.load_hardware(str(path))

    assert ours.evidence("memory.bytes_per_s") == "published"
    assert ours.evidence("memory.capacity_bytes") == "assumed"


def test_folders_of_the_user_come_first_by_parameter_and_environment(tmp_path, monkeypatch):
    (tmp_path / "ours.toml").write_text(THREE_LINES, encoding="utf-8")
    (tmp_path / "nvidia-l4-pcie-24gb.toml").write_text(THREE_LINES, encoding="utf-8")

    assert "ours" in catalog.hardware_ids(folders=[tmp_path])
    assert catalog.load_hardware("ours", folders=[tmp_path]).name == "Ours"
    assert "ours" not in catalog.hardware_ids()

    monkeypatch.setenv("CAPACITY_PATH", str(tmp_path))
    assert catalog.load_hardware("ours").name == "Ours"
    assert catalog.load_hardware("nvidia-l4-pcie-24gb").name == "Ours"


def test_an_edited_file_is_read_again(tmp_path):
    path = tmp_path / "ours.toml"
    path.write_text(THREE_LINES, encoding="utf-8")
    assert catalog.load_hardware(path).memory.bytes_per_s == 3.0e12

    path.write_text(THREE_LINES.replace("3.0e12", "2.50e12"), encoding="utf-8")
    assert catalog.load_hardware(path).memory.bytes_per_s == 2.5e12


def test_a_part_is_read_again_when_the_file_it_is_based_on_was_edited(tmp_path):
    (tmp_path / "base.toml").write_text(THREE_LINES, encoding="utf-8")
    (tmp_path / "ours.toml").write_text('name = "Ours"\nbased_on = "base"\n', encoding="utf-8")
    assert catalog.load_hardware("ours", folders=[tmp_path]).memory.bytes_per_s == 3.0e12

    (tmp_path / "base.toml").write_text(THREE_LINES.replace("3.0e12", "2.50e12"), encoding="utf-8")
    assert catalog.load_hardware("ours", folders=[tmp_path]).memory.bytes_per_s == 2.5e12


@pytest.mark.parametrize("load", [catalog.load_hardware, servers.load_server, load_model])
@pytest.mark.parametrize("name", [5, None, b"nvidia-l4-pcie-24gb", ["nvidia-l4-pcie-24gb"], "a\0b"])
def test_what_is_neither_name_nor_path_nor_table_is_refused(load, name):
    with pytest.raises(SpecError, match=r"is given by name, path or table|cannot hold a null character"):
        load(name)


def test_folders_are_paths():
    with pytest.raises(SpecError, match="folders must be a path or a list of paths, got int"):
        catalog.load_hardware("nvidia-l4-pcie-24gb", folders=5)


def test_a_table_serves_as_well_as_a_file():
    part = catalog.load_hardware(tomllib.loads(THREE_LINES))

    assert (part.name, part.memory.bytes_per_s) == ("Ours", 3.0e12)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('based_on = "ours"\nname = "x"', "based_on is circular"),
        ('based_on = "nvidia-h1000"', "unknown part 'nvidia-h1000'; nearest"),
        ("based_on = 7", "based_on must be the id of a part, got 7"),
        ('name = "x"', "ours.toml: memory is missing"),
        ('name = "x"\n[memory]\nbytes_per_s = 1e12', "no source for memory.bytes_per_s; add to"),
        ("name = ", "not valid TOML"),
        ('based_on = "nvidia-l4-pcie-24gb"\nmemory = 3', "ours.toml: memory"),
        (
            'based_on = "nvidia-l4-pcie-24gb"\nmemory.bytes_per_second = 3',
            "unknown field 'bytes_per_second'; nearest",
        ),
        ('based_on = "nvidia-l4-pcie-24gb"\nunverified = 3', "ours.toml: unverified"),
        ("x = " + "[" * 50_000, "nested too deeply"),
        (".".join(["a"] * 30_000) + " = 1", "nested too deeply"),
        ("x = " + "1" * 5000, "a number of thousands of digits"),
    ],
)
def test_a_bad_file_is_one_sentence_that_names_it(tmp_path, text, sentence):
    path = tmp_path / "ours.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SpecError) as error:
        catalog.load_hardware(path, folders=[tmp_path])
    assert sentence in str(error.value)


def test_missing_binary_and_huge_files_are_refused(tmp_path):
    with pytest.raises(SpecError, match="no part file at"):
        catalog.load_hardware(tmp_path / "none.toml")
    (tmp_path / "raw.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not UTF-8 text"):
        catalog.load_hardware(tmp_path / "raw.toml")
    (tmp_path / "huge.toml").write_text("#" * 1_000_001, encoding="utf-8")
    with pytest.raises(SpecError, match="at most 1,000,000 bytes are read"):
        catalog.load_hardware(tmp_path / "huge.toml")


def test_prices_are_dated_sourced_and_of_known_parts():
    prices = prices_of.load_prices()

    assert {price.part for price in prices} <= set(IDS)
    assert [price.date for price in prices] == sorted((price.date for price in prices), reverse=True)
    h100 = prices_of.load_prices("nvidia-h100-sxm5-80gb")
    assert (min(p.usd_per_hour_low for p in h100), max(p.usd_per_hour_high for p in h100)) == (2.69, 12.29)
