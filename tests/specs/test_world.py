"""World model specs: token rules against printed counts, shipped parameters against published ones, refusals."""

from __future__ import annotations

import pytest

from capacity import kv_cache_bytes, parameter_count, state_bytes
from capacity.catalog.worlds import load_world_model, world_model_ids
from capacity.demand.modules import modules
from capacity.errors import SpecError
from capacity.specs.deployment import Deployment
from capacity.specs.world import TokenRule

BF16 = Deployment(weights="bf16")


def stage_parameters(name: str, stage: str) -> int:
    world = load_world_model(name)
    return sum(module.parameters for module in modules(world.model) if module.stage == stage and module.stored)


# Each count was printed by its own code, or follows from a published file size; cited beside it.
@pytest.mark.parametrize(
    ("name", "stages", "parameters"),
    [
        # model.safetensors.index.json of openvla/openvla-7b: total_size 15,082,474,368 bytes of bf16.
        ("openvla-7b", ("siglip", "dinov2", "core"), 15_082_474_368 // 2),
        # timm prints 427.68 M for vit_so400m_patch14_siglip_224 with its pooling head; 412,442,352 without.
        ("openvla-7b", ("siglip",), 412_442_352 + 15_238_352),
        # A public line-by-line audit of etched-ai/open-oasis at f59deef2 counts backbone and autoencoder.
        ("oasis-500m", ("dit",), 607_943_744),
        ("oasis-500m", ("autoencoder_in", "autoencoder_out"), 229_246_160),
    ],
)
def test_shipped_models_have_their_published_parameters(name, stages, parameters):
    assert sum(stage_parameters(name, stage) for stage in stages) == parameters


# microsoft/mineworld names its models 300M, 700M, 1200M; Cosmos calls its 4B and 12B; TD-MPC2 names parameters in
# millions (common/__init__.py), for other tasks than ours, hence the wider tolerance.
@pytest.mark.parametrize(
    ("name", "millions", "tolerance"),
    [
        ("mineworld-300m", 321, 0.002),
        ("mineworld-700m", 726, 0.002),
        ("mineworld-1.2b", 1229, 0.002),
        ("cosmos-1.0-autoregressive-4b", 4010, 0.002),
        ("cosmos-1.0-autoregressive-12b", 11_560, 0.002),
        ("octo-small", 27, 0.005),  # README: 27 M and 93 M, text encoder not counted
        ("octo-base", 93, 0.005),
        ("smolvla", 450, 0.01),
        ("tdmpc2-5m", 5, 0.05),
        ("tdmpc2-19m", 19, 0.06),
        ("tdmpc2-48m", 48, 0.03),
        ("tdmpc2-317m", 317, 0.02),
    ],
)
def test_shipped_models_have_the_size_in_their_name(name, millions, tolerance):
    assert parameter_count(load_world_model(name).model).total / 1e6 == pytest.approx(millions, rel=tolerance)


# Token counts printed by the models' own configuration code.
@pytest.mark.parametrize(
    ("rule", "frames", "tokens"),
    [
        ({"height_px": 224, "width_px": 224, "patch_px": 14}, 1, 256),  # SigLIP, PaliGemma: 256 image tokens
        ({"height_px": 384, "width_px": 384, "patch_px": 14}, 1, 729),  # SigLIP-384
        ({"height_px": 256, "width_px": 256, "patch_px": 16, "merge": 2}, 1, 64),  # Qwen3-VL
        ({"height_px": 512, "width_px": 512, "patch_px": 16, "merge": 4}, 1, 64),  # SmolVLM2: 64 a frame
        (
            {"height_px": 256, "width_px": 256, "patch_px": 16, "temporal_patch": 2, "frames_together": 32},
            64,
            8192,
        ),  # V-JEPA 2
        # Cosmos DV8x16x16: 33 frames of 640 x 1024 are 5 x 40 x 64 tokens.
        (
            {"height_px": 640, "width_px": 1024, "patch_px": 16, "temporal_patch": 8, "first_frame_alone": True},
            33,
            12_800,
        ),
        # Cosmos CV8x8x8 with patches of 2: 121 frames of 704 x 1280 are 16 x 44 x 80.
        (
            {"height_px": 704, "width_px": 1280, "patch_px": 16, "temporal_patch": 8, "first_frame_alone": True},
            121,
            56_320,
        ),
        ({"height_px": 224, "width_px": 224, "patch_px": 14, "pooled_tokens": 64}, 8, 512),  # a resampler
        ({"height_px": 360, "width_px": 640, "patch_px": 40}, 1, 144),  # Oasis: latents of 20 px, patches of 2
    ],
)
def test_token_rules_give_the_printed_counts(rule, frames, tokens):
    made = TokenRule(**rule)

    assert made.sequences(frames) * made.tokens_per_image == tokens


# The chapter: 8 frames of 224 x 224 are 2,048 visual tokens, and 20 action tokens come out.
def test_the_chapters_robot_sees_2048_tokens_and_makes_20():
    robot = load_world_model("example-robot")

    assert (robot.image_tokens, robot.answer_tokens) == (2048, 20)


# KV bytes a token, bf16: 2 x layers x KV heads x head size x 2, worked out by hand for each.
@pytest.mark.parametrize(
    ("name", "token_bytes"),
    [
        ("openvla-7b", 524_288),
        ("cosmos-1.0-autoregressive-12b", 163_840),
        ("cosmos-1.0-autoregressive-4b", 65_536),
        ("gr00t-n1.7-3b", 65_536),
        ("mineworld-300m", 20_480),
        ("pi0", 18_432),
        ("iris", 10_240),
    ],
)
def test_a_token_of_a_session_takes_its_kv_bytes(name, token_bytes):
    world = load_world_model(name)

    assert kv_cache_bytes(world.model, BF16, batch=1, context_tokens=1000) == 1000 * token_bytes


# danijar/dreamerv3: deter + 32 x classes numbers in 32 bit (configs.yaml).
@pytest.mark.parametrize(
    ("size", "deter", "classes"),
    [("1m", 512, 4), ("12m", 2048, 16), ("50m", 4096, 32), ("200m", 8192, 64), ("400m", 12288, 96)],
)
def test_dreamer_keeps_its_recurrent_state(size, deter, classes):
    world = load_world_model(f"dreamerv3-{size}")

    assert state_bytes(world.model, BF16, batch=1) == 4 * (deter + 32 * classes)


def test_every_shipped_model_says_where_it_is_from():
    for name in world_model_ids():
        world = load_world_model(name)
        assert world.name == name
        assert all(source.confidence for source in world.sources), name
        assert any("*" in source.fields for source in world.sources), name


def test_the_list_of_the_project_is_shipped():
    wanted = {"openvla-7b", "openvla-oft", "pi0", "pi0.5", "pi0-fast", "gr00t-n1.7-3b", "smolvla", "octo-small"}
    wanted |= {"octo-base", "dreamerv3-200m", "tdmpc2-5m", "iris", "mineworld-300m", "oasis-500m", "v-jepa-2-ac"}
    wanted |= {"cosmos-1.0-autoregressive-4b", "cosmos-1.0-autoregressive-12b", "v-jepa-2-vit-g", "example-robot"}

    assert wanted <= set(world_model_ids())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("head.steps", 0, "head.steps"),
        ("head.chunk_actions", 0, "head.chunk_actions"),
        ("views", 0, "views"),
        ("core", "brain", "no stage 'brain'"),
        ("core", "siglip", "core: stage 'siglip' has role 'encoder', must have 'decoder'"),
        ("head.stage", "core", "head.stage: stage 'core' has role 'decoder', must have 'head'"),
        ("head.stage", None, "a flow head needs the name of its stage"),
    ],
)
def test_nonsense_is_refused(field, value, message):
    with pytest.raises(SpecError, match=message):
        load_world_model("pi0").replace(**{field: value})


def test_a_patch_larger_than_the_image_is_refused():
    with pytest.raises(SpecError, match="a patch of 512 px is larger than the image, 224x224"):
        TokenRule.parse({"height_px": 224, "width_px": 224, "patch_px": 512}, "rule")


# Merging is a reshape of the grid: Qwen2-VL's preprocessor makes both sides multiples of patch x merge, because 3 x 3
# patches have one 2 x 2 block and five left over.
@pytest.mark.parametrize(("height_px", "width_px"), [(42, 42), (42, 28), (28, 42), (14, 14)])
def test_a_grid_that_does_not_divide_into_the_merged_blocks_is_refused(height_px, width_px):
    with pytest.raises(SpecError, match=r"do not divide into 2x2: resize the image to multiples of 28 px"):
        TokenRule.parse({"height_px": height_px, "width_px": width_px, "patch_px": 14, "merge": 2}, "rule")


@pytest.mark.parametrize(
    ("tokens", "chunk", "message"),
    [(1e308, 100, "head.tokens_per_action"), (2e9, 2, "4e[+]09, more than 2"), (0.001, 10, "at least one token")],
)
def test_an_answer_of_an_impossible_length_is_refused(tokens, chunk, message):
    with pytest.raises(SpecError, match=message):
        load_world_model("pi0-fast").replace(**{"head.tokens_per_action": tokens, "head.chunk_actions": chunk})


# An action expert attends to the core's cache and to its own chunk, which it forgets after each denoising step.
@pytest.mark.parametrize(("name", "head"), [("pi0", "expert"), ("gr00t-n1.7-3b", "dit"), ("v-jepa-2-ac", "predictor")])
def test_a_head_keeps_no_cache_of_its_own(name, head):
    layers = [group.mixer for group in load_world_model(name).stage(head).layers if group.mixer.kind == "attention"]

    assert layers
    assert not any(mixer.keeps_cache for mixer in layers if mixer.span != "cross")


def test_positions_of_an_unknown_tensor_are_refused():
    table = load_world_model("dreamerv3-1m").model_dump()
    encoder = {**table["encoders"][0], "positions": {"conv_9": 4}}

    with pytest.raises(SpecError, match="no tensor 'conv_9'"):
        load_world_model({**table, "encoders": [encoder]})


def test_an_unknown_model_is_answered_with_the_nearest():
    with pytest.raises(SpecError, match=r"unknown world model 'pi-0'; nearest: pi0"):
        load_world_model("pi-0")
