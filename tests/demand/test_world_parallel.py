"""World models over several devices: what each of them holds, computes and exchanges by stage, counted by hand."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.catalog.worlds import load_world_model
from capacity.demand.collectives import collectives
from capacity.demand.decisions import decision_phases
from capacity.demand.phases import decode_phase
from capacity.demand.placement import weight_shards

BF16 = cap.Deployment(weights="bf16")
TWO = BF16.replace(tensor_parallel=2)


def by_name(world, deploy, batch=1, **options):
    return {phase.name: phase for phase in decision_phases(world, deploy, batch=batch, **options)}


def exchanged(phase):
    """Collectives of a phase as (kind, how often, devices, bytes per token, only of the last token)."""
    return [(c.kind, c.count, c.devices, c.token_bytes, c.last_token_only) for c in phase.collectives]


@pytest.fixture(scope="module")
def openvla():
    """Two encoders and a core of 32 layers, 4,096 wide with 32 heads of 128, 11,008 inside, 32,064 words."""
    return load_world_model("openvla-7b")


@pytest.fixture(scope="module")
def pi0():
    """SigLIP, a core of 18 layers (2,048; 8 heads of 256, one KV head; 16,384) and an expert of 18 (1,024; 4,096)."""
    return load_world_model("pi0")


@pytest.fixture(scope="module")
def gr00t():
    """A core (2,048 wide) and a head of 32 layers (1,536 wide), 16 of which look at the core's 104 tokens."""
    return load_world_model("gr00t-n1.7-3b")


# Encoders are held whole on every rank, so each device encodes all images of its sequences, and exchanges nothing.
@pytest.mark.parametrize(("name", "ways"), [("openvla-7b", 2), ("pi0", 2), ("gr00t-n1.7-3b", 2), ("smolvla", 5)])
def test_an_encoder_is_whole_on_every_rank(name, ways):
    world, deploy = load_world_model(name), BF16.replace(tensor_parallel=ways)
    one, many = (by_name(world, deployed)["encode"] for deployed in (BF16, deploy))

    assert (many.flop, many.moved_bytes, many.work.launches) == (one.flop, one.moved_bytes, one.work.launches)
    assert many.collectives == ()
    stages = {encoder.stage for encoder in world.encoders}
    for shard in weight_shards(world.model, deploy):
        if shard.module.stage in stages:
            assert (shard.rows, shard.columns) == (shard.module.rows, shard.module.columns), shard.module.name


# Rank weights of the core: all matrices halve (32 heads, 32 KV heads and the inner width divide by 2), norms do not;
# the table and the head halve by rows, 32,064 / 2 each.
def test_the_matrices_of_the_core_are_halved(openvla):
    one, two = (by_name(openvla, deploy)["prefill"] for deploy in (BF16, TWO))
    matrices = 32 * (4 * 4096**2 + 3 * 4096 * 11_008)
    head, norms = 32_064 * 4096, (32 * 2 + 1) * 4096

    assert one.moved_bytes == 2 * (matrices + head + norms)
    assert two.moved_bytes == 2 * (matrices / 2 + head / 2 + norms)
    pairs = 281 * 282 / 2
    assert one.flop == 2 * matrices * 281 + 2 * head + 4 * 32 * 4096 * pairs
    assert two.flop == one.flop / 2
    assert two.launches == one.launches


# A rank holds half the KV heads: 524,288 / 2 bytes per token.
def test_a_decode_pass_of_the_core_reads_half_the_cache(openvla):
    short, long = (decode_phase(openvla, TWO, batch=3, context_tokens=tokens) for tokens in (101, 201))

    assert long.moved_bytes - short.moved_bytes == 3 * 100 * 524_288 / 2


# One KV head cannot be cut: both ranks keep it, half the query heads each. A chunk of the expert meets it too, as every
# other thing of a head that is cut.
def test_a_single_kv_head_is_kept_by_both_ranks(pi0):
    one, two = (cap.kv_cache_bytes(pi0, deploy, batch=1, context_tokens=816) for deploy in (BF16, TWO))
    assert one == two == 816 * 18_432

    tokens, matrices = 816, 18 * (2 * 2048 * 8 * 256 + 3 * 2048 * 16_384)
    key_value = 18 * 2 * 2048 * 256
    pairs = tokens * tokens  # its prompt is not causal
    prefill = by_name(pi0, TWO)["prefill"]
    assert prefill.flop == tokens * 2 * (matrices / 2 + key_value) + 18 * 4 * 4 * 256 * pairs


def test_a_head_stage_that_is_cut_does_half_its_work(pi0):
    """18 layers of query, output and three inner matrices are cut; keys and values of its one KV head are whole."""
    one, two = (by_name(pi0, deploy)["denoise"] for deploy in (BF16, TWO))
    tokens = pi0.head.chunk_actions + pi0.head.extra_tokens
    cut = 18 * (2 * 1024 * 8 * 256 + 3 * 1024 * 4096)
    pairs = tokens * (816 + tokens)

    saved = tokens * 2 * cut / 2 + 18 * 4 * 4 * 256 * pairs
    assert one.flop - two.flop == 10 * saved
    assert one.moved_bytes - two.moved_bytes == 10 * 2 * cut / 2
    assert two.passes == one.passes == 10


# Megatron-LM: each layer sums once behind attention and once behind the feed-forward; the core also behind its table,
# which is cut by words, and gathers the logits of the tokens that are sampled. Messages are 16-bit hidden states.
def test_what_the_phases_of_an_autoregressive_policy_exchange(openvla):
    phases = by_name(openvla, TWO)
    sums, logits = (2 * 32 + 1), ("all_to_all", 1, 2, 32_064 * 2.0, True)

    assert set(phases) == {"encode", "prefill", "decode"}
    assert exchanged(phases["encode"]) == []
    assert exchanged(phases["prefill"]) == [("all_reduce", sums, 2, 4096 * 2.0, False), logits]
    assert exchanged(phases["decode"]) == exchanged(phases["prefill"])
    assert (phases["prefill"].tokens, phases["prefill"].head_tokens) == (281, 1)
    assert (phases["decode"].tokens, phases["decode"].head_tokens) == (1, 1)


# The prompt of a flow policy makes no token, so no logits are gathered; its expert has no table.
def test_what_the_phases_of_a_flow_policy_exchange(pi0):
    phases = by_name(pi0, TWO)

    assert exchanged(phases["encode"]) == []
    assert exchanged(phases["prefill"]) == [("all_reduce", 2 * 18 + 1, 2, 2048 * 2.0, False)]
    assert exchanged(phases["denoise"]) == [("all_reduce", 2 * 18, 2, 1024 * 2.0, False)]
    assert phases["denoise"].tokens == pi0.head.chunk_actions + pi0.head.extra_tokens


# Keys and values of the core's output are cut by heads: each rank makes its own from the whole output.
def test_a_projection_into_a_head_is_cut_and_exchanges_nothing(gr00t):
    one, two = (by_name(gr00t, deploy)["project"] for deploy in (BF16, TWO))

    assert one.flop == 16 * 2 * 1536 * 2048 * 2 * 104
    assert (two.flop, two.moved_bytes) == (one.flop / 2, one.moved_bytes / 2)
    assert two.collectives == ()


# 256 + 25 + 1 tokens and 56 slots that are all sampled: the message of the gather is that of 56 tokens.
def test_a_parallel_head_gathers_the_logits_of_every_slot():
    world = load_world_model("openvla-oft")
    prefill = by_name(world, TWO, batch=3)["prefill"]

    assert (prefill.sequences, prefill.head_tokens) == (3, world.answer_tokens)
    assert exchanged(prefill)[1] == ("all_to_all", 1, 2, world.model.vocabulary * 2.0, True)


def test_one_device_exchanges_nothing(openvla, pi0):
    for world in (openvla, pi0):
        assert all(phase.collectives == () for phase in decision_phases(world, BF16, batch=1))
    assert collectives(openvla.model, TWO, "siglip") == ()


# pi0's heads divide by 2, 4 and 8. GR00T's core has 16 heads, its head 32: what divides one need not divide the other.
@pytest.mark.parametrize(
    ("name", "ways", "sentence"),
    [
        ("pi0", 3, "must divide the 8 attention heads of pi0;"),
        ("openvla-7b", 64, "must divide the 32 attention heads of openvla-7b;"),
        ("oasis-500m", 32, "must divide the 16 attention heads of oasis-500m, stage dit;"),
        ("v-jepa-2-ac", 32, "must divide the 16 attention heads of v-jepa-2-ac, stage predictor;"),
    ],
)
def test_a_degree_that_does_not_divide_the_heads_names_the_stage(name, ways, sentence):
    world = load_world_model(name)
    with pytest.raises(cap.CapacityError, match=f"tensor_parallel {ways} {sentence}"):
        decision_phases(world, BF16.replace(tensor_parallel=ways), batch=1)


def test_a_degree_that_divides_the_core_but_not_its_head_is_refused(gr00t, pi0):
    """A core with 8 heads and an expert with 6: 4 divides the first, not the second."""
    stages = []
    for stage in pi0.model.stages:
        group = stage.layers[0]
        layers = (group.replace(**{"mixer.query_heads": 6}),) if stage.name == "expert" else stage.layers
        stages.append(stage.replace(layers=layers))
    world = pi0.replace(model=pi0.model.replace(stages=tuple(stages)))

    assert by_name(world, TWO)["denoise"].flop > 0
    with pytest.raises(
        cap.CapacityError, match="tensor_parallel 4 must divide the 6 attention heads of pi0, stage exp"
    ):
        decision_phases(world, BF16.replace(tensor_parallel=4), batch=1)


def test_a_model_of_encoders_alone_cannot_be_cut():
    world = load_world_model("v-jepa-2-vit-l")
    with pytest.raises(cap.CapacityError, match="has no decoder: parallelism over 2 devices is not modelled"):
        decision_phases(world, TWO, batch=1)


# 5 robots over 2 ranks: one has 3; no rank of a policy without experts exchanges anything.
@pytest.mark.parametrize("name", ["openvla-7b", "pi0", "gr00t-n1.7-3b", "oasis-500m"])
@pytest.mark.parametrize(("batch", "local"), [(1, 1), (4, 2), (5, 3)])
def test_data_parallel_ranks_share_the_robots(name, batch, local):
    world = load_world_model(name)
    shared = by_name(world, BF16.replace(data_parallel=2), batch=batch)

    for phase, alone in zip(shared.values(), by_name(world, BF16, batch=local).values(), strict=True):
        assert (phase.sequences, phase.tokens) == (local, alone.tokens)
        assert (phase.flop, phase.moved_bytes) == (alone.flop, alone.moved_bytes)
        assert phase.collectives == ()


def test_pipeline_stages_are_refused(openvla, make_part):
    deploy = BF16.replace(pipeline_parallel=2)
    sentence = "openvla-7b: pipeline_parallel 2 is not modelled for world models; use tensor_parallel or data_parallel"

    for ask in (
        lambda: decision_phases(openvla, deploy, batch=1),
        lambda: cap.weight_bytes(openvla, deploy),
        lambda: cap.tpot(openvla, make_part(), deploy, batch=1, context_tokens=300),
    ):
        with pytest.raises(cap.CapacityError, match=sentence):
            ask()


# What each rank holds: SigLIP, DINOv2 and projector whole, the rest of 7,541,237,184 parameters in halves, norms apart.
def test_the_weights_of_a_rank(openvla):
    one, two = (cap.weight_bytes(openvla, deploy) for deploy in (BF16, TWO))
    cut = 32 * (4 * 4096**2 + 3 * 4096 * 11_008) + 2 * 32_064 * 4096

    assert one == 2 * 7_541_237_184
    assert one - two == 2 * cut // 2


# V-JEPA 2-AC scores 800 samples of one robot: they stay on its rank, however many ranks there are.
def test_the_samples_of_a_planner_stay_on_the_rank_of_their_robot():
    world = cap.load_world_model("v-jepa-2-ac")
    alone, split = (
        next(phase for phase in decision_phases(world, deploy, batch=1) if phase.name == "plan")
        for deploy in (cap.Deployment(), cap.Deployment(data_parallel=2))
    )

    assert int(split.sequences) == int(alone.sequences) == world.head.samples
    assert float(split.flop) == float(alone.flop)


# A rank of two holds half of the 32 rows of a plain expert's up projection, so half of its bias too; the bias of the
# down projection adds to sums that every rank holds whole.
def test_the_bias_of_a_plain_expert_is_cut_with_its_rows(make_llama):
    inner = {
        "kind": "experts",
        "experts": 4,
        "experts_per_token": 2,
        "intermediate_size": 32,
        "gated": False,
        "bias": True,
    }
    model = make_llama("plain", 1, 64, 4, 4, 16, 0, 128, feed_forward=inner)
    shards = {
        shard.module.name: shard.rows
        for shard in weight_shards(model, cap.Deployment(weights="bf16", tensor_parallel=2))
    }

    assert (shards["expert_up"], shards["expert_up_bias"], shards["expert_down_bias"]) == (16, 16, 64)
