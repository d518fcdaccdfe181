"""Whatever stands in the configuration of a world model, it gives one or one sentence, never another error."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capacity.catalog.worlds import load_world_model
from capacity.demand.decisions import decision_phases
from capacity.demand.stage_phase import Phase
from capacity.errors import CapacityError, SpecError
from capacity.specs.deployment import Deployment

IMAGE = {"type": "VISUAL", "shape": [3, 480, 640]}
CONFIGURATIONS: list[dict[str, Any]] = [
    {
        "model_type": "openvla",
        "arch_specifier": "no-align+fused-gelu-mlp",
        "timm_model_ids": ["vit_so400m_patch14_siglip_224", "vit_large_patch14_reg4_dinov2.lvd142m"],
        "torch_dtype": "bfloat16",
        "text_config": {"hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 32064},
    },
    {
        ".*\\.rssm": {"deter": 2048, "hidden": 256, "classes": 16},
        ".*\\.depth": 16,
        ".*\\.units": 256,
        "actions": 6,
        "image_px": 96,
    },
    {"model_type": "siglip_vision_model", "hidden_size": 768, "image_size": 384, "vision_use_head": False},
    {"model_type": "clip", "vision_config": {"patch_size": 16, "image_size": 224}, "text_config": {}},
    {"model_type": "dinov2_with_registers", "num_register_tokens": 4, "use_swiglu_ffn": True, "mlp_ratio": 4},
    {"model_type": "vjepa2", "mlp_ratio": 4.0, "tubelet_size": 2, "frames_per_clip": 8, "crop_size": 64},
    {"type": "pi0", "chunk_size": 20, "n_action_steps": 10, "empty_cameras": 1, "input_features": {"top": IMAGE}},
    {"type": "smolvla", "num_vlm_layers": 16, "chunk_size": 50, "tokenizer_max_length": 48},
    load_world_model("pi0").model_dump(mode="json"),
    load_world_model("octo-small").model_dump(mode="json"),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 40) | st.sampled_from([2**31, 10**400]) | st.floats() | st.text("a1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "kind"]), inner, max_size=2),
    max_leaves=5,
)


def places(table: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a table with each of its keys."""
    keys = table.keys() if isinstance(table, dict) else range(len(table)) if isinstance(table, list) else ()
    for key in list(keys):
        yield table, key
        yield from places(table[key])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_changed_world_model_has_phases_or_one_sentence(data):
    config = deepcopy(data.draw(st.sampled_from(CONFIGURATIONS)))
    spots = list(places(config))
    container, key = spots[data.draw(st.integers(0, len(spots) - 1))]
    container[key] = data.draw(VALUES)

    outcome: object
    try:
        outcome = decision_phases(load_world_model(config, name="dreamerv3-12m"), Deployment(weights="bf16"), batch=1)
    except CapacityError as error:
        outcome = str(error)

    if isinstance(outcome, str):
        assert "\n" not in outcome
        assert len(outcome) < 1500
    else:
        assert all(isinstance(phase, Phase) and phase.flop >= 0 for phase in outcome)


@pytest.mark.parametrize(("key", "value"), [("actions", "six"), ("actions", 0), ("image_px", [64]), ("image_px", True)])
def test_a_size_of_dreamer_that_is_no_number_is_refused(key, value):
    with pytest.raises(SpecError, match=f"{key} must be"):
        load_world_model({**CONFIGURATIONS[1], key: value}, name="dreamer")


# danijar/dreamerv3: four convolutions each halve the picture, so 96 px leave 6 x 6 places for the posterior.
def test_dreamer_of_a_larger_picture_has_a_wider_posterior():
    widths = {}
    for px in (64, 96):
        world = load_world_model({**CONFIGURATIONS[1], "image_px": px}, name="dreamer")
        matrices = world.stage("core").layers[0].mixer.matrices
        widths[px] = next(matrix.columns for matrix in matrices if matrix.name == "posterior")

    assert widths[96] - widths[64] == (36 - 16) * 4 * 16
