"""Every model of the oracle is counted to the integer and its cache to the byte, or its type is refused by name."""

from __future__ import annotations

import csv
import json
import tomllib
from functools import cache
from pathlib import Path

import pytest

from capacity import kv_cache_bytes, parameter_count, state_bytes
from capacity.errors import SpecError
from capacity.importers.huggingface.facts import model_types
from capacity.importers.huggingface.model import import_model
from capacity.importers.huggingface.wrapped import wrapper_types
from capacity.specs.deployment import Deployment

DATA = Path(__file__).parent.parent / "data"
BF16 = Deployment(weights="bf16")
FIRST_TYPES = {
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma3_text", "gpt_oss", "deepseek_v3", "kimi_k2",
}  # fmt: skip
DENSE_AND_EXPERT_TYPES = FIRST_TYPES | {
    "qwen2_moe", "qwen3_moe", "gemma", "gemma2", "phi", "phi3", "phimoe", "falcon", "gpt_neox", "gptj", "gpt2", "opt",
    "bloom", "mpt", "starcoder2", "stablelm", "olmo", "olmo2", "olmo3", "olmoe", "cohere", "dbrx", "granite",
    "granitemoe", "glm4", "glm4_moe", "exaone4", "minicpm3", "llama4_text", "deepseek_v2", "minimax_m2",
}  # fmt: skip


@cache
def oracle():
    """Rows of both tables of the oracle with the configuration of each."""
    texts = [(DATA / name).read_text(encoding="utf-8") for name in ("model_oracle.csv", "model_oracle_2.csv")]
    return [(row, _config(row["model"])) for text in texts for row in csv.DictReader(text.splitlines())]


def _config(model):
    names = {path.stem.replace("__", "/"): path for path in (DATA / "model_configs").glob("*.json")}
    plain = model.replace(" (", "_").replace(")", "").replace(" ", "_")
    path = names[model if model in names else plain]
    return {key: value for key, value in json.loads(path.read_text()).items() if key != "_oracle"}


def is_read(config):
    """Whether type, storage and layers are ones that are read: formats of each layer and latent experts are not."""
    quantization = config.get("quantization_config") or {}
    mixed = quantization.get("quant_algo") == "MIXED_PRECISION"
    known = config["model_type"] in {*model_types(), *wrapper_types()}
    return known and not mixed and config.get("moe_latent_size") is None


def supported():
    return [pytest.param(row, config, id=row["model"]) for row, config in oracle() if is_read(config)]


@pytest.mark.parametrize(("row", "config"), supported())
def test_parameters_equal_the_oracle_to_the_integer(row, config):
    assert parameter_count(import_model(config)).total == int(row["total_params"])


@pytest.mark.parametrize(("row", "config"), supported())
def test_cache_slopes_and_constant_equal_the_oracle_to_the_byte(row, config):
    if not row["kv_bytes_per_token_below_window"]:
        pytest.skip("the oracle has no cache figure")
    model, window = import_model(config), int(row["window"] or 0)

    def cache_bytes(tokens):
        return kv_cache_bytes(model, BF16, batch=1, context_tokens=tokens)

    far = 4 * (window or 1000)
    below, beyond = cache_bytes(17) - cache_bytes(16), cache_bytes(far + 1) - cache_bytes(far)
    # The oracle's library keeps window - 1 tokens of a sliding layer, this package the whole window.
    one_token_more = (below - beyond) if float(row["kv_const_bytes_per_seq"]) else 0

    assert below == float(row["kv_bytes_per_token_below_window"])
    assert beyond == float(row["kv_bytes_per_token_beyond_window"])
    assert cache_bytes(far) - beyond * far == float(row["kv_const_bytes_per_seq"]) + one_token_more
    assert state_bytes(model, BF16, batch=1) == float(row["state_bytes_per_seq"] or 0)


def test_every_other_type_or_storage_is_refused_by_its_name():
    for _, config in oracle():
        if not is_read(config):
            kind = f"unknown model_type '{config['model_type']}'"
            with pytest.raises(SpecError, match=f"{kind}|'MIXED_PRECISION'; known|moe_latent_size = "):
                import_model(config)


def test_three_counts(record_property, capsys):
    doubtful = tomllib.loads((DATA / "model_oracle_doubtful.toml").read_text())
    known = [row for row, config in oracle() if is_read(config)]
    counts = {
        "trusted and exact": sum(row["model"] not in doubtful for row in known),
        "doubtful, with cause": sum(row["model"] in doubtful for row in known),
        "type refused by name": len(oracle()) - len(known),
    }
    with capsys.disabled():
        print(f"\noracle: {counts}")

    assert set(doubtful) <= {row["model"] for row in known}
    assert {row["model"] for row in known if "class default" in row["provenance"]} <= set(doubtful)
    assert sum(counts.values()) == 177


def test_no_dense_or_expert_type_of_the_oracle_is_refused():
    refused = {config["model_type"] for _, config in oracle()} - {*model_types(), *wrapper_types()}

    assert not refused & DENSE_AND_EXPERT_TYPES
