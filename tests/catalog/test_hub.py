"""Hub ids: those of shipped models are read, others are answered with how to fetch the configuration."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.cli import run


# Ids as they stand on huggingface.co.
@pytest.mark.parametrize(
    ("hub", "shipped"),
    [
        ("Qwen/Qwen3-32B", "qwen3-32b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b-v0.1"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("microsoft/phi-4", "phi-4"),
        ("allenai/OLMo-2-1124-7B", "olmo-2-7b"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"),
    ],
)
def test_the_hub_id_of_a_shipped_model_is_that_model(hub, shipped):
    assert cap.load_model(hub) == cap.load_model(shipped)


def test_the_hub_id_of_a_shipped_world_model_is_that_model():
    assert cap.load_world_model("openvla/openvla-7b") == cap.load_world_model("openvla-7b")


# Another storage (FP8), another organisation, a longer context (2507) and another network are other models.
@pytest.mark.parametrize(
    "hub",
    [
        "Qwen/Qwen3-32B-FP8",
        "someone/Qwen3-32B",
        "Qwen/Qwen3-30B-A3B-Instruct-2507",
        "Foo/Bar-3B",
        "Qwen/Qwen2.5-VL-7B-Instruct",
    ],
)
def test_another_hub_id_is_answered_with_how_to_fetch_its_configuration(hub):
    with pytest.raises(cap.CapacityError) as refused:
        cap.load_model(hub)

    assert f"hf download {hub} config.json" in str(refused.value)
    assert "nothing is downloaded" in str(refused.value)


def test_a_folder_that_looks_like_a_hub_id_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen" / "Qwen3-32B").mkdir(parents=True)

    with pytest.raises(cap.CapacityError, match=r"the folder has no config\.json"):
        cap.load_model("Qwen/Qwen3-32B")


def test_hub_ids_work_on_the_command_line(capsys):
    assert run(["size", "Qwen/Qwen3-32B", "nvidia-h200-sxm5-141gb", "--batch", "1", "--context", "2048"]) == 0
    assert "qwen3-32b (32,762,123,264 parameters)" in capsys.readouterr().out
    assert run(["size", "Foo/Bar-3B", "nvidia-h200-sxm5-141gb"]) == 2
    assert "hf download Foo/Bar-3B config.json" in capsys.readouterr().err


# Qwen2.5-VL has a vision transformer of 32 blocks beside the decoder (its config.json, vision_config).
def test_a_model_with_a_vision_encoder_is_not_answered_with_the_text_model_alone():
    with pytest.raises(cap.CapacityError) as refused:
        cap.load_model("qwen2.5-vl-7b")

    assert "a vision encoder, which models with near names (" in str(refused.value)
    assert "qwen2.5-7b" in str(refused.value)
    assert "config.json" in str(refused.value)
