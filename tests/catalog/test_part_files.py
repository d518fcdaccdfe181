"""Part and server files: sources of every shipped figure, files written from scratch, and their documentation."""

import re
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from capacity.catalog import parts as catalog
from capacity.catalog import servers
from capacity.errors import SpecError
from capacity.specs.hardware import HardwareSpec
from capacity.specs.hardware_tables import Compute, HostLink, Links, Measured, Memory, Power, PowerMode
from capacity.specs.server import AllReduce, Network, ServerSpec

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "hardware_specs").rglob("*.toml"))
PARTS = sorted((ROOT / "hardware_specs").glob("*.toml"))
DOCUMENT = (ROOT / "docs/part_files.md").read_text(encoding="utf-8")


def numbers_in(table, path=""):
    for key, value in table.items() if isinstance(table, dict) else enumerate(table):
        name = f"{path}.{key}".lstrip(".")
        if isinstance(value, dict | list):
            yield from numbers_in(value, name)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name


def covered(figure, patterns):
    return any(fnmatchcase(figure, pattern) or figure.startswith(pattern + ".") for pattern in patterns)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_figure_of_a_shipped_file_has_a_source_or_is_listed_as_assumed(file):
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    cited = [pattern for source in table.get("sources", ()) for pattern in source["fields"]]
    listed = [*cited, *table.get("unverified", ()), *table.get("assumed", ())]
    stated = numbers_in({key: table[key] for key in table.keys() - {"sources", "exceptions"}})

    assert [figure for figure in stated if not covered(figure, listed)] == []


@pytest.mark.parametrize("file", PARTS, ids=lambda file: file.stem)
def test_every_shipped_part_cites_its_memory_and_names_no_star_as_unverified(file):
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    cited = [pattern for source in table.get("sources", ()) for pattern in source["fields"]]

    assert covered("memory.bytes_per_s", cited)
    assert "*" not in table.get("unverified", ())
    assert all(len(source["cite"]) > 8 for source in table["sources"])


# NVIDIA's editions table of the RTX PRO 6000 and its architecture paper: sparse fp4, fp32, clock.
@pytest.mark.parametrize(
    ("part_id", "sparse_fp4", "fp32", "clock"),
    [
        ("nvidia-rtx-pro-6000-blackwell-workstation-96gb", 4000e12, 126e12, 2.617e9),
        ("nvidia-rtx-pro-6000-blackwell-server-96gb", 3753e12, 117e12, 2.43e9),
    ],
)
def test_peaks_of_the_rtx_pro_6000_are_dense(part_id, sparse_fp4, fp32, clock):
    part = catalog.load_hardware(part_id)

    assert part.peak("nvfp4") == pytest.approx(sparse_fp4 / 2, rel=0.01)
    assert part.peak("fp8_e4m3") == pytest.approx(sparse_fp4 / 4, rel=0.01)
    assert part.peak("bf16") == pytest.approx(sparse_fp4 / 8, rel=0.01)
    assert part.peak("bf16") == pytest.approx(188 * 1024 * clock, rel=0.01)
    assert part.peak("fp32") == pytest.approx(fp32, rel=0.001)
    assert part.evidence("peak_flop_per_s.bf16") == "published"


# Best published reads in GB/s, each with its source in the part's file.
@pytest.mark.parametrize(
    ("part_id", "gigabytes_per_s"),
    [
        ("amd-mi300x-oam-192gb", 4177),  # AMD's own acceptance limit of BabelStream
        ("amd-mi350x-oam-288gb", 6914),
        ("amd-mi250x-gcd-64gb", 1302),
        ("nvidia-rtx-3090-24gb", 894),
        ("nvidia-rtx-4090-24gb", 921),
        ("nvidia-rtx-5090-32gb", 1674),
        ("nvidia-v100-pcie-32gb", 810),
        ("nvidia-h800-sxm5-80gb", 3000),
        ("nvidia-grace-socket", 342),
        ("apple-m1-max-64gb", 317),
    ],
)
def test_reads_are_the_published_ones_and_below_the_datasheet(part_id, gigabytes_per_s):
    part = catalog.load_hardware(part_id)

    assert int(part.measured.read_bytes_per_s / 1e9) == gigabytes_per_s
    assert part.measured.read_bytes_per_s < part.memory.bytes_per_s
    assert any("measured.read_bytes_per_s" in source.fields for source in part.sources)


def test_the_h20_with_141_gb_is_the_other_with_more_memory():
    small, large = catalog.load_hardware("nvidia-h20-96gb"), catalog.load_hardware("nvidia-h20-141gb")

    assert large.memory.capacity_bytes == 143_771 * 2**20
    assert dict(large.peak_flop_per_s) == dict(small.peak_flop_per_s)
    assert large.evidence("memory.bytes_per_s") == "assumed"  # no publication of it


# Ports per device: NVIDIA's and Microsoft's and AWS's pages of these nodes, Gb/s.
@pytest.mark.parametrize(
    ("server_id", "gigabits"),
    [
        ("nvidia-hgx-a100-8x80gb", 200),
        ("nvidia-hgx-h100-8x80gb", 400),
        ("nvidia-hgx-h200-8x141gb", 400),
        ("nvidia-hgx-b200-8x180gb", 400),
        ("nvidia-gb200-nvl72", 400),
        ("nvidia-dgx-spark", 200),
        ("amd-mi300x-8x192gb", 400),
        ("nvidia-l40s-pcie-8x48gb", 400 / 8),
        ("nvidia-rtx-pro-6000-blackwell-8x96gb", 1600 / 8),
        ("nvidia-jetson-agx-orin-64gb-carrier", 10),
    ],
)
def test_a_server_has_the_network_rate_of_one_device(server_id, gigabits):
    assert servers.load_server(server_id).network.bytes_per_s_per_device == pytest.approx(gigabits * 1e9 / 8)


def test_every_shipped_server_has_a_network_rate():
    assert all(servers.load_server(name).network.bytes_per_s_per_device for name in servers.server_ids())


SOURCED = '\n[[sources]]\nfields = ["*"]\ncite = "our datasheet, 2026-11"\n'
WRITTEN = {
    "least": 'name = "Least"\n[memory]\nbytes_per_s = "3 TB/s"\ncapacity_bytes = "80 GiB"\n',
    "card": (
        'name = "Card"\n[memory]\ncapacity_bytes = "24 GB"\nbytes_per_s = "1.008 TB/s"\n'
        '[peak_flop_per_s]\nbf16 = "165.2 TFLOP/s"\nint8 = "330 TOPS"\n[compute]\nunits = 128\nboost_hz = "2.52 GHz"\n'
        '[power]\ntdp_w = "450 W"\n[host_link]\nkind = "PCIe Gen4 x16"\nbytes_per_s_per_direction = "31.5 GB/s"\n'
    ),
    "board": (
        'name = "Board"\n[memory]\nunified = true\ncapacity_bytes = "16 GiB"\nreserve_bytes = "2 GiB"\n'
        'bytes_per_s = "102.4 GB/s"\n[peak_flop_per_s]\nfp16 = 20e12\n[measured]\ngemv_fixed_s = "8 us"\n'
        'gemv_bytes_per_s = "80 GB/s"\n'
    ),
}


@pytest.mark.parametrize(
    ("name", "capacity", "rate"),
    [("least", 80 * 2**30, 3e12), ("card", 24e9, 1.008e12), ("board", 16 * 2**30, 102.4e9)],
)
def test_a_part_written_from_scratch_with_units_is_read(tmp_path, name, capacity, rate):
    path = tmp_path / f"{name}.toml"
    path.write_text(WRITTEN[name] + SOURCED, encoding="utf-8")

    part = catalog.load_hardware(path)

    assert (part.memory.capacity_bytes, part.memory.bytes_per_s) == (capacity, rate)
    assert part.evidence("memory.bytes_per_s") == "published"


def test_units_reach_every_table_of_a_part(tmp_path):
    path = tmp_path / "card.toml"
    path.write_text(WRITTEN["card"] + SOURCED, encoding="utf-8")
    card = catalog.load_hardware(path)

    assert dict(card.peak_flop_per_s) == {"bf16": 165.2e12, "int8": 330e12}
    assert (card.compute.boost_hz, card.power.tdp_w) == (2.52e9, 450)
    assert card.host_link.bytes_per_s_per_direction == 31.5e9


def test_a_figure_written_as_text_replaces_that_of_the_part_below_and_what_was_measured_on_it():
    ours = catalog.load_hardware({"based_on": "nvidia-h100-sxm5-80gb", "memory": {"bytes_per_s": "4 TB/s"}})

    assert ours.memory.bytes_per_s == 4e12
    assert ours.measured.read_bytes_per_s is None
    assert ours.evidence("memory.bytes_per_s") == "assumed"


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("memory.bytes_per_s", "3 Tb/s", "memory.bytes_per_s: '3 Tb/s': a small b means bits"),
        ("memory.bytes_per_s", "fast", "'fast' is not a rate in bytes; write for example '3 TB/s'"),
        ("memory.bytes_per_s", "3e12", "'3e12' has no unit; write a plain number or, for example, '3 TB/s'"),
        ("memory.bytes_per_s", "3 TFLOP/s", "unknown unit 'tflop/s'"),
        ("memory.capacity_bytes", "80", "'80' has no unit; write a plain number or, for example, '80 GiB'"),
        ("memory.capacity_bytes", "1 GB/GB", "unknown unit 'gb/gb'"),
        ("memory.capacity_bytes", "80 GiB/s", "unknown unit 'gib/s'"),
        ("memory.capacity_bytes", [80], "must be a whole number, got [80]"),
        ("memory.unified", "maybe", "memory.unified: must be true or false, got 'maybe'"),
        ("memory.kind", 3, "memory.kind: must be text, got 3"),
        ("memory", 3, "memory: must be a table, got 3"),
        ("peak_flop_per_s.bf16", -1.0, "must be from 1e+06 to 1e+20 FLOP/s, got -1"),
        ("power.tdp_w", 0, "power.tdp_w: must be from 0.01 to 1e+08 W, got 0"),
        ("compute.units", 2.5, "compute.units: must be a whole number, got 2.5"),
        ("notes", "one", "notes: must be a list, got 'one'"),
    ],
)
def test_a_wrong_value_is_one_sentence_in_words_of_this_package(field, value, sentence):
    table = tomllib.loads(WRITTEN["card"] + SOURCED)
    inner, *rest = field.split(".")
    if rest:
        table.setdefault(inner, {})[rest[0]] = value
    else:
        table[inner] = value

    with pytest.raises(SpecError) as error:
        catalog.load_hardware(table)
    assert sentence in str(error.value)
    assert not re.search("Input should|valid dictionary|instance of|pydantic", str(error.value))


TABLES = (HardwareSpec, Memory, Compute, Links, HostLink, Power, PowerMode, Measured, ServerSpec, Network, AllReduce)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_every_field_of_a_file_is_documented(table):
    assert [field for field in table.model_fields if not re.search(rf"[`\[]{field}\b", DOCUMENT)] == []


def test_the_documented_example_holds():
    example = re.search("```toml\n(.*?)```", DOCUMENT, re.DOTALL)[1]

    part = catalog.load_hardware(tomllib.loads(example))

    assert (part.memory.capacity_bytes, part.memory.bytes_per_s, part.peak("fp8_e4m3")) == (80 * 2**30, 3e12, 1800e12)
