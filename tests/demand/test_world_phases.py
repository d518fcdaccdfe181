"""Phases of a decision: passes by kind of head, work against sums by hand and an operator-level count, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.catalog.worlds import load_world_model, world_model_ids
from capacity.demand.decisions import decision_phases
from capacity.demand.phases import decode_phase, verify_phase
from capacity.demand.stage_phase import stage_phase
from capacity.engines.builder import memory_table
from capacity.errors import CapacityError
from capacity.estimate.ledger import ledger_lines
from capacity.specs.deployment import Deployment

BF16 = Deployment(weights="bf16")


def by_name(world, batch=1, deploy=BF16):
    return {phase.name: phase for phase in decision_phases(world, deploy, batch=batch)}


# Passes follow from the head: 7 action tokens, the first from the prefill; 10 flow steps; 10 CEM iterations; one
# pass for a chunk; 6 iterations x horizon 3; ten steps and one image out.
@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("openvla-7b", {"encode": 1, "prefill": 1, "decode": 6}),
        ("openvla-oft", {"encode": 1, "prefill": 1}),
        ("pi0", {"encode": 1, "prefill": 1, "denoise": 10}),
        ("gr00t-n1.7-3b", {"encode": 1, "prefill": 1, "project": 1, "denoise": 4}),
        ("v-jepa-2-ac", {"encode": 1, "plan": 10}),
        ("tdmpc2-5m", {"encode": 1, "plan": 18}),
        ("v-jepa-2-vit-l", {"encode": 1}),
        ("dreamerv3-200m", {"encode": 1, "prefill": 1}),
        ("oasis-500m", {"denoise": 10, "detokenise": 1}),
        ("example-robot", {"encode": 1, "prefill": 1, "decode": 19}),
    ],
)
def test_the_head_decides_the_passes(name, passes):
    assert {key: phase.passes for key, phase in by_name(load_world_model(name)).items()} == passes


def test_every_shipped_model_has_phases_that_do_work():
    for name in world_model_ids():
        for phase in decision_phases(load_world_model(name), BF16, batch=1):
            assert min(phase.flop, phase.moved_bytes, phase.launches) > 0, (name, phase.name)


# One recurrent step: two FLOP for each weight it reads; weights once, the state of 40,960 bytes read and written.
def test_a_recurrent_step_reads_weights_once_and_state_of_each_session():
    world = load_world_model("dreamerv3-200m")
    one, many = by_name(world)["prefill"], by_name(world, batch=64)["prefill"]

    assert many.moved_bytes - one.moved_bytes == 63 * 2 * 40_960
    assert many.flop == 64 * one.flop


# 16 of the 32 layers of GR00T's action head (1,536 wide) look at the core's output (2,048 wide, 64 image and 40 text
# tokens): two matrices each in bf16, read once a decision, two FLOP per weight and token.
def test_keys_and_values_of_the_core_output_are_made_once_a_decision():
    world = load_world_model("gr00t-n1.7-3b")
    one, eight = (by_name(world, batch=batch)["project"] for batch in (1, 8))

    assert one.moved_bytes == eight.moved_bytes == 16 * 2 * 1536 * 2048 * 2
    assert one.flop == 16 * 2 * 1536 * 2048 * 2 * 104
    assert eight.flop == 8 * one.flop


# MaskGIT: every step is one pass over all tokens of a frame. 1xgpt: two steps over 256 tokens.
def test_maskgit_runs_its_steps_over_a_whole_frame():
    table = load_world_model("iris").model_dump()
    core = {**table["model"]["stages"][0], "role": "head"}
    head = {"kind": "maskgit", "stage": "core", "steps": 2, "extra_tokens": 255}
    world = load_world_model({**table, "core": None, "model": {**table["model"], "stages": [core]}, "head": head})
    denoise = by_name(world)["denoise"]

    layers = 10 * (256 * 4 * 256**2 * 2 + 256 * 2 * 256 * 1024 * 2 + 4 * 256 * 256 * 256)
    output = 256 * 2 * (256 * 256 + 512 * 256)
    assert denoise.passes == 2
    assert denoise.flop == 2 * (layers + output)


def test_oasis_denoises_as_torch_counts_it():
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    nn, width, frames, places = torch.nn, 1024, 32, 144

    def attend(q, k, v):
        return torch.matmul(torch.matmul(q, k.transpose(-1, -2)), v)

    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):  # groups, tokens of a group, width
            q, k, v = (part.unflatten(-1, (16, 64)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            return self.down(self.up(self.out(attend(q, k, v).transpose(1, 2).flatten(2))))

    counter = FlopCounterMode(display=False)
    with torch.device("meta"), counter, torch.no_grad():
        space, time = Half(), Half()
        for _ in range(16):
            space(torch.empty(frames, places, width))
            time(torch.empty(places, frames, width))
        nn.Linear(64, width)(torch.empty(frames * places, 64))
        nn.Linear(width, 64)(torch.empty(frames * places, width))
    step = by_name(load_world_model("oasis-500m"))["denoise"].flop / 10

    assert step == counter.get_total_flops()


def held(world, deploy, batch, context_tokens):
    """Bytes of one device by the name of the line."""
    lines = ledger_lines(memory_table(world, deploy), 0, sequences=batch, context_tokens=context_tokens)
    return {line.name: line.held_bytes for line in lines}


# SigLIP So400m at 224 px has 412,442,352 parameters (timm) and a pooling head of 15,238,352, which OpenVLA loads too;
# the table is one of 32,064 x 4,096. In bf16.
def test_offloaded_stages_and_tables_leave_the_device():
    world = load_world_model("openvla-7b")
    lighter = world.replace(offloaded=("siglip", "core.embedding"))
    before, after = (held(item, BF16, 1, 281) for item in (world, lighter))

    assert "weights: embedding" not in after
    assert before["weights: embedding"] == 2 * 32_064 * 4_096
    gone = sum(before[name] - after[name] for name in ("weights: vision", "weights: norm"))
    assert gone == 2 * (412_442_352 + 15_238_352)
    assert {name for name in after if after[name] != before[name]} == {"weights: vision", "weights: norm"}


# The prompts of 64 robots are 64 x 281 tokens; at the end of a layer a token holds 4 x 4,096 + 4 x 11,008 elements,
# bf16. A pass has at most prefill_chunk_tokens of them (DESIGN 4, "Pass"), 8,192 unless said otherwise.
def test_the_activations_of_a_batch_are_those_of_the_tokens_in_flight():
    world, token = load_world_model("openvla-7b"), (4 * 4096 + 4 * 11_008) * 2

    assert held(world, BF16, 64, 281)["activations"] == 8192 * token
    assert held(world, BF16.replace(prefill_chunk_tokens=100_000), 64, 281)["activations"] == 64 * 281 * token
    prefill = by_name(world, batch=64)["prefill"]
    assert prefill.passes == 1


# The pass over a chunk counts as well: Oasis denoises 32 frames of 144 tokens in layers of 1,024 and 4,096.
def test_the_activations_of_a_denoiser_are_those_of_its_chunk():
    found = held(load_world_model("oasis-500m"), BF16, 2, 1)

    assert found["activations"] == 2 * 32 * 144 * (4 * 1024 + 4 * 4096) * 2


def test_an_offloaded_part_that_is_not_there_is_refused():
    with pytest.raises(CapacityError, match=r"offloaded: no stage or tensor .core\.table"):
        load_world_model("openvla-7b").replace(offloaded=("core.table",))


# openvla-7b: one token from the pass over 281 prompt tokens, then six passes that find 281 to 286 tokens in a cache of
# 524,288 bytes per token. In a session each of the seven takes a pass.
def test_decode_passes_read_the_cache_that_they_find():
    world = load_world_model("openvla-7b")
    first = by_name(world)["decode"]
    later = {phase.name: phase for phase in decision_phases(world, BF16, batch=1, context_tokens=1000)}["decode"]

    assert (first.passes, later.passes) == (6, 7)
    first_weights = (first.moved_bytes - 524_288 * sum(range(281, 287))) / 6
    later_weights = (later.moved_bytes - 524_288 * sum(range(1000, 1007))) / 7
    assert first_weights == later_weights


# A session's policy denoises over all that it remembers: 18,432 bytes per token and step.
def test_denoising_reads_the_cache_of_the_session():
    world = load_world_model("pi0")
    short, long = (
        {phase.name: phase for phase in decision_phases(world, BF16, batch=3, context_tokens=tokens)}["denoise"]
        for tokens in (816, 1816)
    )

    assert short.moved_bytes == by_name(world, batch=3)["denoise"].moved_bytes
    assert long.moved_bytes - short.moved_bytes == 10 * 3 * 1000 * 18_432


# A verification computes the drafted tokens and one more: the head meets each of them, k + 1 queries meet the cached
# keys and, of their own, those before and their own; every weight is read once.
def test_a_verification_is_a_pass_over_the_drafted_tokens_and_one_more():
    world, drafted, cached = load_world_model("openvla-7b"), 3, 1000
    step = decode_phase(world, BF16, batch=2, context_tokens=cached + 1)
    checked = verify_phase(world, BF16, batch=2, drafted=drafted, cached_tokens=cached)

    assert checked.moved_bytes == step.moved_bytes
    assert (checked.tokens, checked.head_tokens) == (2 * 4, 4)
    more_pairs = 1 + 2 + 3  # the second query meets one key more than the first, the third two, the fourth three
    assert checked.flop == 4 * step.flop + 2 * more_pairs * 4 * 32 * 4096


# Decode passes of a session: the cache of context - 1 tokens, 2 x 32 layers x 4,096 x 2 = 524,288 bytes per token.
def test_a_decode_pass_reads_the_cache_before_its_own_token():
    world = load_world_model("openvla-7b")
    one, more = (decode_phase(world, BF16, batch=3, context_tokens=tokens) for tokens in (1, 101))

    assert more.moved_bytes - one.moved_bytes == 3 * 100 * 524_288
    assert decode_phase(world, BF16, batch=3, context_tokens=101, passes=5).moved_bytes == 5 * more.moved_bytes


def test_a_phase_in_the_shape_of_batches_equals_each_of_them():
    batches = np.array([1, 3, 64])
    for name in ("openvla-7b", "pi0", "gr00t-n1.7-3b", "dreamerv3-200m", "v-jepa-2-ac", "oasis-500m"):
        world = load_world_model(name)
        many = decision_phases(world, BF16, batch=batches)
        for index, batch in enumerate(batches.tolist()):
            for phase, one in zip(many, decision_phases(world, BF16, batch=batch), strict=True):
                assert np.broadcast_to(phase.flop, 3)[index] == one.flop, (name, phase.name)
                assert np.broadcast_to(phase.moved_bytes, 3)[index] == one.moved_bytes, (name, phase.name)


# A pass over nothing but its own tokens reads no key; two more queries of a causal stage add their pairs.
def test_a_stage_phase_counts_the_new_tokens_of_every_sequence():
    world = load_world_model("openvla-7b")
    short, long = (stage_phase("p", world, BF16, "core", batch=2, new_tokens=n) for n in (10, 12))

    assert short.moved_bytes == long.moved_bytes
    layer = 32 * (4 * 4096**2 + 3 * 4096 * 11_008)
    assert long.flop - short.flop == 2 * (2 * 2 * layer + (11 + 12) * 4 * 32 * 4096)


def test_a_head_that_makes_nothing_plans_nothing_though_it_names_a_stage():
    world = load_world_model("dreamerv3-12m").replace(**{"head.stage": "core"})

    assert [phase.name for phase in decision_phases(world, Deployment(), batch=1)] == ["encode", "prefill"]


def test_frames_that_go_in_sequences_of_their_own_are_encoded_as_so_many_images():
    """Four frames, two to a sequence, are two sequences of every view: twice the work of two frames."""
    world = load_world_model("openvla-7b")
    encoder = world.encoders[0]
    pairs = encoder.replace(**{"tokens.temporal_patch": 2})

    def encoded(frames):
        together = world.replace(encoders=[pairs.model_dump()], frames=frames)
        return by_name(together)["encode"].flop

    assert pairs.tokens.sequences(4) == 2
    assert encoded(4) == 2 * encoded(2)
