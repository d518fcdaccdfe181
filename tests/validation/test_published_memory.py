"""Published memory figures: targets, rows that are left out, other tables, and rules broken on purpose."""

import csv
import json

import pytest
from typer.testing import CliRunner

import capacity as cap
from capacity.cli import app
from capacity.engines import grouped_cache
from capacity.files import package_data
from capacity.validation import memory_figures, memory_rows, published_memory
from capacity.validation.memory_rows import COLUMNS, memory_case, unit_size
from capacity.validation.published_names import LeftOut
from capacity.validation.published_table import read_table


@pytest.fixture(scope="module")
def rows():
    return [
        row
        for name in published_memory.TABLES
        for row in read_table(None, shipped=name, columns=COLUMNS)
        if row["use"] == "test"
    ]


def missed(rows):
    """Rows that a rule misses."""
    wrong = set()
    for row in rows:
        try:
            case = memory_case(row, None)
            off = abs(memory_figures.predicted(case) / unit_size(row) / case.measured - 1)
        except LeftOut:
            continue
        if off > case.tolerance:
            wrong.add(row["id"])
    return wrong


def test_rows_lie_within_their_tolerance_by_the_promised_share():
    result = published_memory.validate()
    names = {target.name: target for target in result.targets}

    assert names["rows within their tolerance"].met
    assert len(result.pairs) >= 140
    assert {pair.group for pair in result.pairs} == {"vllm", "sglang", "tensorrt-llm", "llama.cpp"}
    assert len(result.pairs) + sum(map(len, result.left_out.values())) == 235


# ---- a rule broken on purpose is noticed by rows (memory_accounting, the power of the table) ----


def gib_as_1e9(patch):
    words = package_data.toml("data/published/memory_words.toml")
    patch.setitem(words["units"], "GiB", 10**9)


def fp8_cache_at_16_bit(patch):
    patch.setitem(package_data.toml("data/published/memory_words.toml")["caches"], "fp8", "bf16")


def layers_in_one_group(patch):
    patch.setattr(grouped_cache, "group_layers", lambda kinds, spread: sum(kind.layers for kind in kinds))


def no_draft_layer(patch):
    patch.setattr(memory_figures, "_with_draft_layer", lambda case, data: data)


def windows_of_llama_cpp_without_padding(patch):
    engine = memory_rows._engine

    def unpadded(row):
        found = engine(row)
        return found.model_copy(update={"cache_rules": found.cache_rules.model_copy(update={"cell_tokens": 1})})

    patch.setattr(memory_rows, "_engine", unpadded)


def latents_as_keys_and_values(patch):
    patch.setattr(memory_figures, "_part_of_cache", lambda case: 2.0 if "DeepSeek" in case.model.name else 1.0)
    pool = memory_figures._pool_blocks
    patch.setattr(
        memory_figures,
        "_pool_blocks",
        lambda case, held: pool(case, held) // (2 if held.totals.caches and is_latent(case) else 1),
    )


def is_latent(case):
    return case.model.decoder.layers[0].mixer.kind == "latent"


@pytest.mark.parametrize(
    ("broken", "at_least"),
    [
        (gib_as_1e9, 40),
        (fp8_cache_at_16_bit, 2),
        (layers_in_one_group, 4),
        (no_draft_layer, 4),
        (windows_of_llama_cpp_without_padding, 5),
        (latents_as_keys_and_values, 2),
    ],
)
def test_a_rule_broken_on_purpose_misses_rows(broken, at_least, rows, monkeypatch):
    as_it_is = missed(rows)
    broken(monkeypatch)

    assert len(missed(rows) - as_it_is) >= at_least


# ---- other tables, and the command ----


def table(folder, *changes):
    row = next(row for row in read_table(None, shipped="memory.csv", columns=COLUMNS) if row["id"] == "M018")
    path = folder / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        for number, change in enumerate(changes):
            writer.writerow({**row, "id": f"T{number}", **change})
    return path


def test_another_table_finds_its_configurations_beside_it(tmp_path):
    (tmp_path / "geometry").mkdir()
    text = package_data.text("data/published/geometry/Qwen__Qwen3-14B.json")
    (tmp_path / "geometry" / "somebody__own-model.json").write_text(text)
    path = table(tmp_path, {"model_config": "somebody__own-model"}, {"model_config": "nobody__knows-it"})

    result = published_memory.validate(path)

    assert [pair.row_id for pair in result.pairs] == ["T0"]
    assert result.pairs[0].within
    assert result.left_out == {"model not shipped, and its configuration is not read": ("T1",)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"engine": "lmstudio"}, "engine 'lmstudio' not known"),
        ({"kv_format": "int2"}, "cache format 'int2' not known"),
        ({"observed_value": ""}, "no figure measured"),
        ({"observed_unit": "furlongs"}, "unit 'furlongs' not known"),
        ({"kind": "joy_bytes"}, "no rule for joy_bytes of vllm"),
        ({"model_config": "../../etc/passwd"}, "model not stated"),
        ({"input_kv_bytes": "", "input_context_tokens": ""}, "input_context_tokens not stated"),
    ],
)
def test_a_row_that_no_rule_reads_is_counted_with_its_reason(change, reason, tmp_path):
    path = table(tmp_path, {}, change)

    assert published_memory.validate(path).left_out == {reason: ("T1",)}


def test_the_command_prints_targets_and_ends_with_1_where_one_is_missed(tmp_path):
    good, bad = table(tmp_path, {}), tmp_path / "bad.csv"
    bad.write_text(good.read_text().replace("42656", "99999"))
    runner = CliRunner()

    met = runner.invoke(app, ["validate", "--published", "memory", "--file", str(good)])
    missing = runner.invoke(app, ["validate", "--published", "memory", "--file", str(bad), "--json"])

    assert met.exit_code == 0
    assert "every target is met" in met.stdout
    assert missing.exit_code == 1
    assert json.loads(missing.stdout)["pairs"][0]["within"] is False
    assert cap.__version__
