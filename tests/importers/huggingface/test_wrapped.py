"""Configurations of a text part and a vision tower: what must agree, and what is refused."""

import json
from pathlib import Path

import pytest

import capacity as cap
from capacity.errors import SpecError
from capacity.importers.huggingface.model import import_model

CONFIGS = Path(__file__).parents[2] / "data" / "model_configs"


@pytest.fixture
def config():
    return json.loads((CONFIGS / "Qwen__Qwen3-VL-4B-Instruct.json").read_text()) | {"_oracle": None}


def read(config, **changes):
    data = {key: value for key, value in config.items() if key != "_oracle"}
    for dotted, value in changes.items():
        inner, keys = data, dotted.split("__")
        for key in keys[:-1]:
            inner[key] = dict(inner[key])
            inner = inner[key]
        if value is ...:
            inner.pop(keys[-1], None)
        else:
            inner[keys[-1]] = value
    return import_model(data)


def test_the_tower_is_a_stage_whose_weights_are_loaded(config):
    model = read(config)
    ledger = cap.size(
        model, cap.load_hardware("nvidia-h100-sxm5-80gb"), cap.Workload(), cap.Deployment(weights="bf16")
    ).ledger[0]

    assert [stage.name for stage in model.stages] == ["vision", "decoder"]
    assert ledger.line("weights: vision") > 0
    assert "qwen3_vl" not in str(model.notes)


def test_a_head_is_tied_where_either_part_says_so(config):
    stated_outside = read(config, text_config__tie_word_embeddings=...)
    stated_inside = read(config, tie_word_embeddings=...)
    nowhere = read(config, tie_word_embeddings=..., text_config__tie_word_embeddings=...)

    tied = [cap.parameter_count(model).total for model in (stated_outside, stated_inside)]
    assert tied[0] == tied[1] == cap.parameter_count(nowhere).total - 151_936 * 2560


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False in the whole and True in text_config"),
        ({"tie_word_embeddings": float("nan")}, "tie_word_embeddings must be true or false, got nan"),
        ({"text_config__tie_word_embeddings": 1}, "text_config: tie_word_embeddings must be true or false, got 1"),
        ({"text_config__model_type": "llama"}, "text_config.model_type must be qwen3_vl_text in type qwen3_vl"),
        ({"text_config": ...}, "text_config must be an object, got nothing"),
        ({"vision_config": [1]}, "vision_config must be an object, got a list"),
        ({"vision_config__depth": ...}, "vision_config: depth is missing"),
        ({"vision_config__out_hidden_size": 4096}, "out_hidden_size = 4096 must be the 2560 of the decoder"),
        ({"vision_config__num_heads": 7}, "hidden_size = 1024 does not divide into 7 heads"),
        ({"vision_config__window_size": 112}, "window_size = 112 may change memory"),
        ({"num_audio_layers": 4}, "num_audio_layers = 4 may change memory"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, sentence, config):
    with pytest.raises(SpecError, match=sentence):
        read(config, **changes)


def test_what_a_tower_leaves_open_is_noted(config):
    model = read(config, vision_config__deepstack_visual_indexes=...)

    assert any("deepstack_visual_indexes ([8, 16, 24]: as in type qwen3_vl)" in note for note in model.notes)
