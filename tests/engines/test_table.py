"""The memory table of the reference engine, row by row and added up, against bytes counted by hand."""

from __future__ import annotations

import tomllib
from importlib import resources

import pytest

import capacity as cap
from capacity.catalog.engines import engine_ids, load_engine
from capacity.catalog.worlds import load_world_model
from capacity.engines.activations import ACTIVATION_PEAKS
from capacity.engines.budget import BUDGETS
from capacity.engines.builder import budget, memory_table, policy
from capacity.engines.cache import CACHES
from capacity.engines.overheads import OVERHEADS
from capacity.engines.table import MemoryRow, memory_table_of
from capacity.errors import CapacityError
from capacity.estimate import usage
from capacity.estimate.ledger import ledger_lines, ledgers
from capacity.specs.model import Attention, Dense, LayerGroup, StateMixer
from capacity.specs.state_mixer import StateTensor

BF16 = cap.Deployment(weights="bf16")
WIDTH, INNER, WORDS = 256, 512, 1000
FULL = Attention(query_heads=4, kv_heads=2, head_size=64)
STATE = StateMixer(
    name="s",
    heads=4,
    matrices=({"name": "in", "rows": 512, "columns": WIDTH},),
    state=(
        StateTensor(name="conv", elements=100, kind="conv"),
        StateTensor(name="s", elements=1000, kind="recurrent"),
    ),
)

TOKEN = 2 * 2 * 64 * 2  # key and value of two heads of 64 in 16 bit, of one layer
ATTENTION_LAYER = 2 * (WIDTH * 4 * 64 * 2 + WIDTH * 2 * 64 * 2)  # query and output, key and value
MLP_LAYER = 2 * 3 * WIDTH * INNER
NORMS_LAYER = 2 * 2 * WIDTH
STATE_LAYER = 2 * 512 * WIDTH
TABLE = 2 * WORDS * WIDTH


@pytest.fixture(scope="module")
def mixed(make_decoder):
    """Six layers: full, sliding by 100, full, state, sliding by 100, full."""
    sliding, dense = FULL.replace(span="sliding", window=100), Dense(intermediate_size=INNER)
    mixers = {(0, 2, 5): FULL, (1, 4): sliding, (3,): STATE}
    groups = [LayerGroup(indices=indices, mixer=mixer, feed_forward=dense) for indices, mixer in mixers.items()]
    return make_decoder("mixed", WIDTH, WORDS, groups)


def figures(row):
    """The coefficients of a row that are not zero."""
    names = ("fixed_bytes", "sequence_bytes", "image_bytes", "in_flight_bytes", "block_bytes", "window_tokens")
    return {name: int(row[name]) for name in names if row[name]}


def by_name(table, rank=0):
    """Coefficients of the rows of one rank by name, rows of one name as a list."""
    found = {}
    for row in table.of_rank(rank):
        found.setdefault(row["name"], []).append(figures(row))
    return found


# ---- the engines are data ----


def test_every_engine_names_policies_that_exist():
    """Read off the files themselves, so that a policy which the spec forgot would show."""
    folder = resources.files("capacity") / "data" / "engines"
    files = {entry.name.removesuffix(".toml"): entry for entry in folder.iterdir() if entry.name.endswith(".toml")}

    assert set(files) == set(engine_ids())
    assert "reference" in files
    for name, entry in files.items():
        table = tomllib.loads(entry.read_text(encoding="utf-8"))
        known = {"budget": BUDGETS, "cache": CACHES, "session_cache": CACHES, "activations": ACTIVATION_PEAKS}
        overheads = table["policies"].pop("overheads", [])
        assert set(overheads) <= set(OVERHEADS), name
        assert set(table["policies"]) == set(known)
        for kind, chosen in table["policies"].items():
            assert chosen in known[kind], (name, kind)
        assert load_engine(name).name == table["name"] == name
        assert table["sources"]


@pytest.mark.parametrize("given", ["referense", "Reference", "reference "])
def test_an_unknown_engine_is_answered_with_the_nearest(given, llama_3_8b):
    deploy = cap.Deployment(weights="bf16", engine=given)

    for ask in (load_engine, lambda name: memory_table(llama_3_8b, deploy)):
        with pytest.raises(cap.CapacityError, match=f"^unknown engine '{given}'; nearest: reference$"):
            ask(given)


def test_an_engine_that_resembles_none_is_answered_with_all():
    with pytest.raises(cap.CapacityError, match=r"^unknown engine 'zzz'; known: .*\breference\b"):
        load_engine("zzz")


# ---- rows ----


def test_the_rows_of_one_device(mixed):
    """Five layers of attention and one of state; three caches grow, two end at 100 tokens."""
    assert by_name(memory_table(mixed, BF16)) == {
        "weights: embedding": [{"fixed_bytes": TABLE}],
        "weights: attention": [{"fixed_bytes": 5 * ATTENTION_LAYER + STATE_LAYER}],
        "weights: mlp": [{"fixed_bytes": 6 * MLP_LAYER}],
        "weights: norm": [{"fixed_bytes": 6 * NORMS_LAYER + 2 * WIDTH}],
        "weights: lm_head": [{"fixed_bytes": TABLE}],
        "KV cache": [
            {"block_bytes": 3 * TOKEN * 16},
            {"block_bytes": 2 * TOKEN * 16, "window_tokens": 100},
        ],
        "state": [{"sequence_bytes": 100 * 2 + 1000 * 4}],
        # the widest layer: residual, normed, projected and new residual, and the four of the inner width;
        # the sampler: hidden state of each token; of each sequence its normed row, logits in 16 and 32 bit and
        # probabilities
        "activations": [
            {"in_flight_bytes": 2 * (4 * WIDTH + 4 * INNER)},
            {"in_flight_bytes": 2 * WIDTH, "sequence_bytes": 2 * WIDTH + WORDS * (2 + 4 + 4)},
        ],
    }


def test_rows_say_what_they_rest_on(mixed):
    table = memory_table(mixed, BF16)

    rows, peaks = table.rows, table.rows["name"] == "activations"
    assert set(rows["evidence"][~peaks]) == {"computed"}
    assert set(rows["evidence"][peaks]) == {"assumed"}
    assert set(rows["alternative"][peaks]) == {"activations"}
    assert (table.rank_groups, table.chunk_tokens, table.pools) == (((0,),), 8192, ())
    assert set(rows["block_tokens"][rows["name"] == "KV cache"]) == {16}
    assert rows["fixed_bytes"].sum() == cap.weight_bytes(mixed, BF16)
    assert rows["fixed_bytes"][rows["loaded"]].sum() == cap.weight_bytes(mixed, BF16)


# Six layers over three ranks, two each: full and sliding; full and state; sliding and full. The table is on the first,
# the head and its norm on the last.
def test_each_pipeline_rank_has_its_own_rows(mixed):
    table = memory_table(mixed, BF16.replace(pipeline_parallel=3))
    norms = {"weights: norm": [{"fixed_bytes": 2 * NORMS_LAYER}], "weights: mlp": [{"fixed_bytes": 2 * MLP_LAYER}]}
    sliding = {"block_bytes": TOKEN * 16, "window_tokens": 100}
    held = [{k: v for k, v in by_name(table, rank).items() if k != "activations"} for rank in range(3)]

    assert table.rank_groups == ((0,), (1,), (2,))
    assert held[0] == norms | {
        "weights: embedding": [{"fixed_bytes": TABLE}],
        "weights: attention": [{"fixed_bytes": 2 * ATTENTION_LAYER}],
        "KV cache": [{"block_bytes": TOKEN * 16}, sliding],
    }
    assert held[1] == norms | {
        "weights: attention": [{"fixed_bytes": ATTENTION_LAYER + STATE_LAYER}],
        "KV cache": [{"block_bytes": TOKEN * 16}],
        "state": [{"sequence_bytes": 4200}],
    }
    assert held[2] == norms | {
        "weights: norm": [{"fixed_bytes": 2 * NORMS_LAYER + 2 * WIDTH}],
        "weights: attention": [{"fixed_bytes": 2 * ATTENTION_LAYER}],
        "weights: lm_head": [{"fixed_bytes": TABLE}],
        "KV cache": [{"block_bytes": TOKEN * 16}, sliding],
    }


# A thousand layers on as many ranks: the first has the table, the last the head; all between them hold the same.
def test_ranks_that_hold_the_same_are_one_kind_of_device(make_decoder, make_part):
    group = LayerGroup(indices=tuple(range(1000)), mixer=FULL, feed_forward=Dense(intermediate_size=INNER))
    model, deploy = make_decoder("deep", WIDTH, WORDS, [group]), BF16.replace(pipeline_parallel=1000)
    table = memory_table(model, deploy)

    assert table.rank_groups == ((0,), tuple(range(1, 999)), (999,))
    assert [kind.totals.fixed_bytes for kind in table.kinds] == [
        ATTENTION_LAYER + MLP_LAYER + NORMS_LAYER + ends for ends in (TABLE, 0, TABLE + 2 * WIDTH)
    ]
    assert by_name(table, 500) == by_name(table, 1)
    found = ledgers(table, budget(make_part(gib=1), deploy), deploy, batch=1, context_tokens=16)
    assert sorted(ledger.rank for ledger in found) == list(range(1000))
    assert {ledger.total_bytes for ledger in found[2:]} == {found[2].total_bytes}


# Two ranks: a KV head, half the heads, half the inner width and half the vocabulary each; norms whole; states halved.
def test_a_tensor_parallel_rank_holds_its_share(mixed):
    found = by_name(memory_table(mixed, BF16.replace(tensor_parallel=2)))

    assert found["weights: attention"] == [{"fixed_bytes": (5 * ATTENTION_LAYER + STATE_LAYER) // 2}]
    assert found["weights: mlp"] == [{"fixed_bytes": 6 * MLP_LAYER // 2}]
    assert found["weights: norm"] == [{"fixed_bytes": 6 * NORMS_LAYER + 2 * WIDTH}]
    assert found["weights: embedding"] == [{"fixed_bytes": TABLE // 2}]
    assert found["KV cache"][0] == {"block_bytes": 3 * TOKEN // 2 * 16}
    assert found["state"] == [{"sequence_bytes": 50 * 2 + 500 * 4}]
    assert found["activations"][0] == {"in_flight_bytes": 2 * (4 * WIDTH + 4 * INNER // 2)}


# ---- added up ----


def test_rows_that_are_alternatives_are_not_added():
    """Of two peaks the largest counts: for many tokens the one that grows with tokens, for many sequences the other."""
    rows = (
        MemoryRow("a", 0, fixed_bytes=100, sequence_bytes=5),
        MemoryRow("b", 0, fixed_bytes=11, blocks="windowed", block_bytes=12, block_tokens=4, window_tokens=7),
        MemoryRow("peak", 0, alternative="peak", in_flight_bytes=10),
        MemoryRow("peak", 0, alternative="peak", in_flight_bytes=1, sequence_bytes=40),
        MemoryRow("elsewhere", 1, fixed_bytes=1_000_000, sequence_bytes=1_000_000),
    )
    first, second = (kind.totals for kind in memory_table_of(rows, chunk_tokens=64).kinds)

    assert (first.fixed_bytes, first.sequence_bytes) == (111, 5)
    assert [(cache.name, cache.bytes, cache.rule.window_tokens) for cache in first.caches] == [("b", 12, 7)]
    assert first.alternatives == (((10, 0, 0), (1, 40, 0)),)
    assert second.alternatives == ()
    # 2 sequences of 20 tokens: 40 in flight, max(400, 40 + 80); of 1 token: 2 in flight, max(20, 2 + 80).
    peaks = [usage.activation_bytes(first, sequences=2, context_tokens=tokens) for tokens in (20, 1)]
    assert [int(peak) for peak in peaks] == [400, 82]
    # 7 tokens of a window in blocks of 4 are 8.
    assert int(usage.total_bytes(first, sequences=2, context_tokens=20)) == 111 + 2 * (5 + 3 * 8) + 400


# 3 sequences of 203 tokens in blocks of 16: 208 where caches grow, 112 where they end at 100. Their 609 tokens go
# through a layer together, which outweighs the sampler.
def test_a_ledger_counted_by_hand(mixed):
    table = memory_table(mixed, BF16)
    lines = {line.name: line.held_bytes for line in ledger_lines(table, 0, sequences=3, context_tokens=203)}
    tokens = 3 * (3 * TOKEN * 203 + 2 * TOKEN * 100)
    blocks = 3 * (3 * TOKEN * 208 + 2 * TOKEN * 112)

    assert lines == {
        "weights: embedding": TABLE,
        "weights: attention": 5 * ATTENTION_LAYER + STATE_LAYER,
        "weights: mlp": 6 * MLP_LAYER,
        "weights: norm": 6 * NORMS_LAYER + 2 * WIDTH,
        "weights: lm_head": TABLE,
        "KV cache": tokens,
        "KV cache, internal fragmentation": blocks - tokens,
        "state": 3 * 4200,
        "activations": 609 * 2 * (4 * WIDTH + 4 * INNER),
    }
    held = usage.total_bytes(table.kinds[0].totals, sequences=3, context_tokens=203)
    assert held == sum(lines.values())


def test_the_ledgers_of_a_sizing_are_those_lines(mixed, make_part):
    deploy = BF16.replace(pipeline_parallel=3)
    asked = cap.Workload(prompt_tokens=150, output_tokens=53, concurrency=3)
    sizing = cap.size(mixed, make_part(gib=1), asked, deploy)
    table = memory_table(mixed, deploy)

    assert sorted(ledger.rank for ledger in sizing.ledger) == [0, 1, 2]
    for ledger in sizing.ledger:
        lines = ledger_lines(table, ledger.rank, sequences=3, context_tokens=203)
        assert ledger.lines == lines
        assert ledger.total_bytes == sum(line.held_bytes for line in lines)
    margins = [ledger.margin_bytes for ledger in sizing.ledger]
    assert margins == sorted(margins)


# ---- what may be planned with ----


@pytest.mark.parametrize(("fraction", "reserved", "planned"), [(0.9, 0, 900), (0.5, 100, 400), (1.0, 1000, 0)])
def test_a_budget_is_a_share_of_the_capacity_less_what_is_reserved(make_part, fraction, reserved, planned):
    part = make_part().replace(**{"memory.capacity_bytes": 1000})
    deploy = cap.Deployment(weights="bf16", memory_fraction=fraction, reserved_bytes=reserved)

    assert budget(part, deploy).planned_bytes() == planned
    with pytest.raises(cap.DoesNotFit, match=r"reserved_bytes = 1,001 is more than the [\d,]+ bytes"):
        budget(part, deploy.replace(reserved_bytes=1001))


# ---- world models ----


@pytest.fixture(scope="module")
def robot():
    return load_world_model("openvla-7b")


def test_the_caches_of_a_session_are_one_growing_buffer(robot):
    table = memory_table(robot, BF16)

    assert set(table.rows["block_tokens"]) == {1}
    assert by_name(table)["KV cache"] == [{"block_bytes": 524_288}]


def test_resident_parts_of_a_world_model_lie_in_memory_unless_they_are_offloaded(robot):
    parts = ({"name": "text encoder", "held_bytes": 7_000}, {"name": "guardrail", "held_bytes": 900, "offloaded": True})
    world = robot.replace(residents=parts)
    plain, rows = by_name(memory_table(robot, BF16)), by_name(memory_table(world, BF16))

    assert rows == plain | {"text encoder": [{"fixed_bytes": 7_000}]}
    lines = ledger_lines(memory_table(world, BF16), 0, sequences=1, context_tokens=281)
    assert {line.name: line.held_bytes for line in lines}["text encoder"] == 7_000


# What is offloaded leaves the rows of weights, and nothing else: the table alone; the core with all its layers.
def test_offloaded_tensors_and_stages_leave_the_rows_of_weights(robot):
    plain = by_name(memory_table(robot, BF16))
    table = by_name(memory_table(robot.replace(offloaded=("core.embedding",)), BF16))
    core = by_name(memory_table(robot.replace(offloaded=("core",)), BF16))

    assert table == {name: row for name, row in plain.items() if name != "weights: embedding"}
    assert set(plain) - set(core) == {f"weights: {part}" for part in ("embedding", "attention", "mlp", "lm_head")}
    norms = 2 * (32 * 2 + 1) * 4096
    assert core["weights: norm"][0]["fixed_bytes"] == plain["weights: norm"][0]["fixed_bytes"] - norms
    assert {name: row for name, row in core.items() if not name.startswith("weights")} == {
        name: row for name, row in plain.items() if not name.startswith("weights")
    }


# Peaks are alternatives: the core by token in flight, each other stage by the tokens that one robot sends through it.
# pi0: three views of 256 patches through SigLIP (1,152; 4,304); a chunk of 50 actions and its state through the expert
# (1,024; 4,096); the core (2,048; 16,384) by token.
def test_the_peaks_of_a_world_model_are_one_for_each_stage():
    world = load_world_model("pi0")
    table = memory_table(world, BF16)
    peaks = by_name(table)["activations"]
    chunk = world.head.chunk_actions + world.head.extra_tokens

    assert {"in_flight_bytes": 2 * (4 * 2048 + 4 * 16_384)} in peaks
    assert {"image_bytes": 256 * 2 * (4 * 1152 + 4 * 4304)} in peaks
    assert table.images == 3
    seen = usage.activation_bytes(table.kinds[0].totals, sequences=1, context_tokens=1)
    assert seen == 3 * 256 * 2 * (4 * 1152 + 4 * 4304)
    assert {"sequence_bytes": chunk * 2 * (4 * 1024 + 4 * 4096)} in peaks
    assert chunk in (50, 51)


# A planner sends all its samples through the network together: 512 for each robot.
def test_the_peak_of_a_planner_holds_its_samples():
    world = load_world_model("v-jepa-2-ac")
    stage, tokens = world.stage("predictor"), world.image_tokens + world.head.extra_tokens
    inner = stage.layers[0].feed_forward.intermediate_size
    peaks = by_name(memory_table(world, BF16))["activations"]

    assert {"sequence_bytes": world.head.samples * tokens * 2 * (4 * stage.hidden_size + 4 * inner)} in peaks


def test_a_world_model_without_a_core_keeps_no_cache():
    assert "KV cache" not in by_name(memory_table(load_world_model("oasis-500m"), BF16))


def test_a_policy_of_no_such_name_is_answered_with_the_nearest():
    with pytest.raises(CapacityError, match=r"unknown cache policy 'pagedd'; nearest: paged"):
        policy(CACHES, "cache", "pagedd")
