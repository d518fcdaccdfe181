"""What the memory table says of a published memory row: one function for each family of engines and kind of figure.

Figures that the row states as inputs (a pool in bytes, weights, what is free) are taken from it, so that each rule is
judged by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from capacity.demand.memory import state_rows
from capacity.demand.placement import stored_bytes
from capacity.engines.builder import cache_table_of_engine
from capacity.engines.kinds import DeviceKind, PoolTotals
from capacity.engines.overheads import rotary_table
from capacity.engines.settings import with_settings
from capacity.estimate.pool import pool_of_bytes, request_cache_bytes
from capacity.estimate.usage import held_bytes
from capacity.formulas import limits
from capacity.specs.model import ModelSpec
from capacity.units import number_format
from capacity.validation.memory_rows import MemoryCase, word_of
from capacity.validation.published_names import LeftOut
from capacity.validation.published_table import positive

Figure = Callable[[MemoryCase], float]
_SUGGESTION_MARGIN_BYTES = 150 * 2**20  # vLLM's --kv-cache-memory suggestion leaves this much [B]


def predicted(case: MemoryCase) -> float:
    """What the rules of the engine say, in bytes, tokens or requests.

    Raises
    ------
    LeftOut
        If no rule gives this figure from what the row states.
    """
    family = "vllm" if case.engine.name == "vllm" else case.engine.name
    figure = FIGURES.get((family, case.row["kind"])) or FIGURES.get(("", case.row["kind"]))
    if figure is None:
        raise LeftOut(f"no rule for {case.row['kind']} of {family}")
    return figure(case)


def _kind(case: MemoryCase) -> DeviceKind:
    """What sequences keep on one device, with the layers that a draft adds."""
    model, deploy = _as_run(case), with_settings(case.model, case.deploy)
    return cache_table_of_engine(case.engine, model, deploy).kinds[0]


def _pool(case: MemoryCase) -> PoolTotals:
    for pool in _kind(case).pools:
        if pool.totals.caches:
            return pool
    raise LeftOut("no key-value cache")


def _as_run(case: MemoryCase) -> ModelSpec:
    """The network as the engine ran it: keys and values of every head where it does not absorb latents, and one more
    full-attention layer for a drafting head that keeps a cache of its own.
    """
    draft, expanded = case.row["draft"], "mla=expanded" in case.words("kv_policy")
    if draft.startswith("model:"):
        raise LeftOut("a draft model of its own")
    data = case.model.model_dump()
    for group in [group for stage in data["stages"] for group in stage["layers"] if expanded]:
        group["mixer"] = _expanded(group["mixer"])
    return ModelSpec.parse(_with_draft_layer(case, data) if draft else data, case.model.name)


def _expanded(mixer: dict[str, Any]) -> dict[str, Any]:
    if mixer["kind"] != "latent":
        return mixer
    heads, key_size = mixer["query_heads"], mixer["nope_size"] + mixer["rope_size"]
    sizes = {"head_size": key_size, "value_size": mixer["value_size"]}
    return {"kind": "attention", "query_heads": heads, "kv_heads": heads, **sizes}


def _with_draft_layer(case: MemoryCase, data: dict[str, Any]) -> dict[str, Any]:
    layers = next(stage["layers"] for stage in data["stages"] if stage["name"] == case.model.decoder.name)
    full = [group for group in layers if _keeps_everything(group["mixer"])]
    if not full:
        raise LeftOut("a draft for a network without full attention")
    full[-1]["indices"] = (*full[-1]["indices"], case.model.decoder.layer_count)
    return data


def _keeps_everything(mixer: dict[str, Any]) -> bool:
    return mixer["kind"] == "latent" or (mixer["kind"] == "attention" and mixer["span"] == "full")


def _pool_blocks(case: MemoryCase, pool: PoolTotals) -> int:
    """Blocks of the pool that the row states in bytes or, where one kind of layer shares it, in tokens. [block]"""
    if case.row["input_kv_bytes"]:
        return int(case.number("input_kv_bytes") * (1 + 1e-12)) // pool.unit_bytes
    if len(pool.totals.caches) > 1 or pool.totals.sequence_bytes:
        raise LeftOut("a pool of several kinds of layers, in tokens")
    return int(case.number("input_context_tokens")) // pool.totals.caches[0].rule.block_tokens


def _pool_tokens(case: MemoryCase) -> float:
    pool = _pool(case)
    context = int(case.number("max_model_len")) if case.engine.tokens_line == "concurrency" else 1
    printed = pool_of_bytes(case.engine, pool, _pool_blocks(case, pool) * pool.unit_bytes, context_tokens=context)
    if printed.tokens is None:
        raise LeftOut("the engine prints no tokens")
    return printed.tokens * _context_ranks(case)


def _context_ranks(case: MemoryCase) -> int:
    """Ranks that share the context of each sequence in decode. [1]"""
    return next((int(word.removeprefix("dcp=")) for word in case.words("kv_policy") if word.startswith("dcp=")), 1)


def _requests(case: MemoryCase) -> float:
    pool = _pool(case)
    context = int(case.number("max_model_len"))
    blocks = _pool_blocks(case, pool)
    return pool_of_bytes(case.engine, pool, blocks * pool.unit_bytes, context_tokens=context).requests


def _request_bytes(case: MemoryCase) -> float:
    return request_cache_bytes(_pool(case), context_tokens=int(case.number("max_model_len")))


def _longest_context(case: MemoryCase) -> float:
    pool, limit_bytes = _pool(case), case.number("input_kv_bytes")

    def fitting(tokens: Any) -> Any:
        needed = [request_cache_bytes(pool, context_tokens=int(count)) for count in np.ravel(tokens)]
        return np.reshape(np.array(needed) <= limit_bytes, np.shape(tokens))

    return int(limits.largest(fitting, shape=(), upper=2**31))


def _block_tokens(case: MemoryCase) -> float:
    return min(cache.rule.block_tokens for cache in _pool(case).totals.caches)


def _weights(case: MemoryCase) -> float:
    """Weights of a rank and the table of positions that is loaded with them, or the parts that the row names. [B]"""
    parts = stored_bytes(case.model, with_settings(case.model, case.deploy))[0]
    names = {"embed": {"embedding"}, "no_embed": set(parts) - {"embedding"}}.get(case.row["component"], set(parts))
    tables = rotary_table(case.engine, case.model, case.deploy) if case.engine.name == "vllm" else ()
    return sum(size for part, size in parts.items() if part in names) + sum(row.fixed_bytes for row in tables)


def _budget(case: MemoryCase) -> float:
    if case.row["input_budget_bytes"]:
        return case.number("input_budget_bytes")
    return int(case.number("input_total_bytes") * case.number("memory_fraction"))


def _available(case: MemoryCase) -> float:
    """What vLLM's budget leaves for caches. [B]"""
    taken = case.number("input_weight_bytes") + case.number("input_activation_bytes")
    return _budget(case) - taken - (positive(case.row["input_non_torch_bytes"]) or 0) - _graph_bytes(case)


def _graph_bytes(case: MemoryCase) -> float:
    """Captured graphs, where this version sets them apart before its cache. [B]"""
    inside = case.engine.graphs is not None and case.engine.graphs.inside
    return (positive(case.row["input_graph_bytes"]) or 0) if inside else 0


def _suggested(case: MemoryCase) -> float:
    return _available(case) - _SUGGESTION_MARGIN_BYTES


def _left_of_free(case: MemoryCase) -> float:
    """What SGLang leaves for its pools of what is free after loading, or the part of one pool. [B]"""
    before, after = case.number("input_total_bytes"), case.number("input_free_bytes")
    rest = after - before * (1 - case.number("memory_fraction"))
    parts = {pool.name: pool.parts for pool in case.engine.pools}
    shares = {"state": parts["state"], "kv": parts["KV cache"]}
    if component := case.row["component"]:
        if component not in shares:
            raise LeftOut(f"component {component[:20]!r} not known")
        return rest * shares[component] / sum(shares.values())
    return rest


def _share_of_free(case: MemoryCase) -> float:
    return case.number("input_free_bytes") * case.number("memory_fraction")


def _token_pool(case: MemoryCase) -> float:
    """Pools of so many tokens, and one page that is never used. [B]"""
    kind, tokens = _kind(case), int(case.number("input_context_tokens"))
    caches = [cache for cache in kind.totals.caches if cache.blocks == "all"]
    page = case.deploy.block_tokens if case.engine.name == "sglang" else 0
    size_bytes = sum(cache.content.bytes for cache in caches) * (tokens + page)
    return size_bytes * _part_of_cache(case)


def _part_of_cache(case: MemoryCase) -> float:
    """Keys alone are half of a cache whose keys and values are alike. [1]"""
    if case.row["component"] in ("", "kv", "latent"):
        return 1.0
    if case.row["component"] != "k":
        raise LeftOut(f"component {case.row['component'][:20]!r} not known")
    return 0.5


def _cells(case: MemoryCase) -> float:
    """Caches of all slots of llama.cpp, of which the context is the total. [B]"""
    slots = case.deploy.max_sequences or 1
    total, words = int(case.number("input_context_tokens")), case.words("kv_policy")
    unified = "cache=per_stream" not in words
    each = total // slots if unified else -(-total // (256 * slots)) * 256
    names = {"full": ("KV cache",), "sliding": ("KV cache of windows",)}.get(case.row["component"])
    policies = case.engine.policies.model_copy(update={"cache": "unified_cells" if unified else "cells"})
    engine = case.engine.model_copy(update={"policies": policies})
    formats = [number_format(word_of("caches", word, "cache format")).name for word in _cache_words(case)]
    size_bytes = 0.0
    for name in formats:  # of keys and of values, which are of one size where their formats differ
        kind = _kind(replace(case, engine=engine, deploy=case.deploy.replace(kv_cache=name)))
        for cache in kind.totals.caches:
            if names is None or cache.name in names:
                size_bytes += int(held_bytes(cache, sequences=slots, context_tokens=each)) / len(formats)
    return size_bytes * _split(case) * _part_of_latent(case)


def _cache_words(case: MemoryCase) -> list[str]:
    return case.row["kv_format"].split("+")


def _split(case: MemoryCase) -> float:
    """The share of the layers that lie on the device of a row. [1]"""
    for word in case.words("kv_policy"):
        if word.startswith("layers_on_device="):
            return int(word.partition("=")[2]) / case.model.decoder.layer_count
    return 1.0


def _part_of_latent(case: MemoryCase) -> float:
    """A transposed copy of a latent has it without its rotary key. [1]"""
    if case.row["component"] != "latent_transposed":
        return 1.0
    mixer: Any = case.model.decoder.layers[0].mixer
    return float(mixer.kv_rank / mixer.latent_size)


def _states(case: MemoryCase) -> Iterator[tuple[str, int]]:
    """Kind and bytes of each state of one sequence, in all layers of a rank. [B]"""
    deploy = with_settings(case.model, case.deploy)
    rows = state_rows(case.model, deploy)
    if not rows:
        raise LeftOut("no states")
    for group in case.model.decoder.layers:
        for state in getattr(group.mixer, "state", ()):
            bits = 32 if state.kind == "recurrent" or "conv:f32" in case.row["state_format"] else 16
            bits = 16 if "ssm:fp16" in case.row["state_format"] else bits
            elements = state.kept_elements(case.engine.cache_rules.spared_columns)
            local = -(-elements // deploy.tensor_parallel)
            yield state.kind, len(group.indices) * local * bits // 8


def _state_pool(case: MemoryCase) -> float:
    """States of all slots: one more than asked for in SGLang, and copies to roll back a draft in llama.cpp. [B]"""
    state_kind = {"ssm": "recurrent", "conv": "conv"}.get(case.row["component"])
    each = sum(size for kind, size in _states(case) if state_kind is None or kind == state_kind)
    slots = case.deploy.max_sequences or 1
    if case.engine.name == "sglang":
        return each * (slots + 1)
    drafted = case.row["draft"].partition(":")[2]
    return each * slots * (1 + (int(drafted) if drafted.isdigit() else 0))


FIGURES: dict[tuple[str, str], Figure] = {
    ("vllm", "kv_pool_tokens"): _pool_tokens,
    ("vllm", "max_concurrency"): _requests,
    ("vllm", "request_kv_bytes"): _request_bytes,
    ("vllm", "max_context_tokens"): _longest_context,
    ("vllm", "block_tokens"): _block_tokens,
    ("vllm", "budget_bytes"): _budget,
    ("vllm", "available_kv_bytes"): _available,
    ("vllm", "suggested_kv_bytes"): _suggested,
    ("sglang", "pool_kv_bytes"): _token_pool,
    ("sglang", "available_kv_bytes"): _left_of_free,
    ("sglang", "state_pool_bytes"): _state_pool,
    ("tensorrt-llm", "available_kv_bytes"): _share_of_free,
    ("tensorrt-llm", "pool_kv_bytes"): _token_pool,
    ("llama.cpp", "pool_kv_bytes"): _cells,
    ("llama.cpp", "state_pool_bytes"): _state_pool,
    ("", "weights_bytes"): _weights,
}
