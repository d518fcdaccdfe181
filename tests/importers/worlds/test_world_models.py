"""External configurations of world models: published counts, what changes what, and faults in one sentence."""

from __future__ import annotations

import json

import pytest

from capacity import parameter_count, state_bytes
from capacity.catalog.worlds import load_world_model
from capacity.errors import SpecError
from capacity.specs.deployment import Deployment

OPENVLA = {
    "model_type": "openvla",
    "arch_specifier": "no-align+fused-gelu-mlp",
    "timm_model_ids": ["vit_so400m_patch14_siglip_224", "vit_large_patch14_reg4_dinov2.lvd142m"],
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "llama",
        "vocab_size": 32064,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
    },
}
# Two of the size presets of dreamerv3/configs.yaml, with the keys it has.
DREAMER = {
    "size12m": {".*\\.rssm": {"deter": 2048, "hidden": 256, "classes": 16}, ".*\\.depth": 16, ".*\\.units": 256},
    "size200m": {".*\\.rssm": {"deter": 8192, "hidden": 1024, "classes": 64}, ".*\\.depth": 64, ".*\\.units": 1024},
}
IMAGE = {"type": "VISUAL", "shape": [3, 480, 640]}


# The index of openvla/openvla-7b says total_size 15,082,474,368 bytes, all bf16.
def test_openvla_has_the_parameters_of_its_checkpoint():
    world = load_world_model(OPENVLA, name="openvla")

    assert parameter_count(world.model).total * 2 == 15_082_474_368
    assert world.model.checkpoint.default == "bf16"
    assert (world.image_tokens, world.answer_tokens) == (256, 7)


def test_openvla_read_from_a_folder_equals_the_shipped_one(tmp_path):
    folder = tmp_path / "openvla-7b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(OPENVLA))
    read, shipped = load_world_model(folder), load_world_model("openvla-7b")

    assert read.name == "openvla-7b"
    assert parameter_count(read.model).total == parameter_count(shipped.model).total
    assert read.prompt_tokens == shipped.prompt_tokens


# Published sizes: google/siglip-base-patch16-224 vision 92.9 M with its pooling head; openai/clip-vit-base-patch32
# vision 87.5 M without its projection; facebook/dinov2-base 86.6 M.
@pytest.mark.parametrize(
    ("config", "millions"),
    [
        ({"model_type": "siglip_vision_model"}, 92.9),
        ({"model_type": "clip_vision_model"}, 87.5),
        ({"model_type": "dinov2", "image_size": 518}, 86.6),
    ],
)
def test_vision_encoders_have_their_published_size(config, millions):
    assert round(parameter_count(load_world_model(config).model).total / 1e6, 1) == millions


def test_a_pair_of_text_and_vision_is_read_at_its_vision_part():
    alone = load_world_model({"model_type": "clip_vision_model", "patch_size": 16})
    paired = load_world_model({"model_type": "clip", "vision_config": {"patch_size": 16}, "text_config": {}})

    assert paired.model.stages == alone.model.stages


def test_a_type_that_was_not_read_says_from_documentation_only():
    world = load_world_model({"model_type": "clip_vision_model"})

    assert world.sources[0].cite.startswith("from documentation only")
    assert world.sources[0].confidence == "C"


@pytest.mark.parametrize(("size", "expected_bytes"), [("12m", 10_240), ("200m", 40_960)])
def test_dreamer_presets_are_chosen_by_the_end_of_the_name(size, expected_bytes):
    world = load_world_model(DREAMER, name=f"dreamerv3-{size}")

    assert state_bytes(world.model, Deployment(weights="bf16"), batch=1) == expected_bytes
    assert parameter_count(world.model) == parameter_count(load_world_model(f"dreamerv3-{size}").model)


# danijar/dreamerv3 rssm.py: core and prior of the 200M preset, by hand: one imagined step is 0.162 GFLOP.
def test_an_imagined_step_of_dreamer_has_its_arithmetic():
    world = load_world_model("dreamerv3-200m")
    mixer = world.stage("core").layers[0].mixer
    core = {matrix.name: matrix.rows * matrix.columns for matrix in mixer.matrices}
    acting = core.pop("posterior") + core.pop("posterior_logits")
    prior = sum(t.shape[0] * t.shape[1] for t in world.stage("prior").after if len(t.shape) == 2)

    assert round(2 * (sum(core.values()) + prior) / 1e9, 3) == 0.162
    assert acting == 1024 * (8192 + 256 * 4 * 4) + 2048 * 1024


def test_a_policy_changes_the_shipped_model_it_is_of():
    config = {
        "type": "pi0",
        "chunk_size": 20,
        "n_action_steps": 10,
        "num_steps": 5,
        "input_features": {"observation.images.top": IMAGE, "observation.images.wrist": IMAGE},
    }
    world = load_world_model(config)

    assert (world.name, world.views, world.head.chunk_actions, world.head.steps) == ("pi0", 2, 20, 5)
    assert world.model.stages == load_world_model("pi0").model.stages
    assert any("configuration_pi0.py" in note for note in world.notes)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "vjepa3"}, "unknown model_type 'vjepa3'; nearest: vjepa2"),
        ({"model_type": "vjepa2", "patch_size": 512}, "patch_size 512 is larger than the image, 256 px"),
        ({"model_type": "siglip_vision_model", "hidden_size": "wide"}, "hidden_size must be a whole number"),
        ({"model_type": "siglip_vision_model", "hidden_size": 100}, "hidden_size 100 does not divide into 12 heads"),
        ({"model_type": "dinov2", "mlp_ratio": -1}, "mlp_ratio must be a number from above 0"),
        ({"model_type": "openvla"}, "timm_model_ids must be a list"),
        ({**OPENVLA, "timm_model_ids": ["vit_so400m"]}, "unknown encoder 'vit_so400m'"),
        ({**OPENVLA, "text_config": None}, "text_config must be a table"),
        ({**OPENVLA, "arch_specifier": "linear"}, "arch_specifier is supported .* only as no-align"),
        ({"type": "pi1"}, "unknown policy type 'pi1'"),
        ({"type": "pi0", "chunk_size": 50, "n_action_steps": 60}, "n_action_steps 60 is longer than the chunk of 50"),
        ({"type": "pi0", "num_steps": 0}, "num_steps must be between 1 and"),
        ({"type": "smolvla", "num_vlm_layers": 8}, "num_vlm_layers is supported for type smolvla only as 16, got 8"),
        ({"size12m": {".*\\.rssm": {"deter": 2048}}}, "unknown size preset"),
    ],
)
def test_faults_are_said_in_one_sentence(config, message):
    with pytest.raises(SpecError, match=message):
        load_world_model(config)


def test_a_dreamer_preset_without_a_width_is_refused():
    with pytest.raises(SpecError, match="hidden is missing"):
        load_world_model({"size12m": {".*\\.rssm": {"deter": 2048}}}, name="dreamerv3-12m")


def test_a_yaml_file_without_the_reader_asks_for_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    path = tmp_path / "configs.yaml"
    path.write_text("size12m: {}\n")

    with pytest.raises(SpecError, match="reading YAML needs pyyaml"):
        load_world_model(path)


# dreamerv3/configs.yaml: rssm has stoch 32, blocks 8 and one layer each; another number changes the sizes.
def test_a_dreamer_preset_with_other_layers_is_refused_and_other_groups_are_read():
    rssm = DREAMER["size12m"][".*\\.rssm"]
    preset = DREAMER["size12m"] | {".*\\.rssm": rssm | {"act": "silu", "norm": "rms", "imglayers": 2, "stoch": 16}}

    assert state_bytes(load_world_model(preset).model, Deployment(weights="bf16"), batch=1) == 4 * (2048 + 16 * 16)
    with pytest.raises(SpecError, match="obslayers is supported for type dreamerv3 only as 1, got 3"):
        load_world_model(DREAMER["size12m"] | {".*\\.rssm": rssm | {"obslayers": 3}})


def test_the_presets_of_dreamer_are_read_from_yaml(tmp_path):
    path = tmp_path / "configs.yaml"
    path.write_text(
        "defaults:\n  seed: 0\nsize12m: &size12m\n  .*\\.rssm: {deter: 2048, hidden: 256, classes: 16}\n"
        "  .*\\.depth: 16\n  .*\\.units: 256\ndebug:\n  <<: *size12m\n  batch_size: 8\n"
    )

    assert load_world_model(path, name="dreamerv3-12m").model == load_world_model(DREAMER, name="dreamerv3-12m").model
