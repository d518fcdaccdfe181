"""The bytes of a checkpoint's files confirm the formats of its configuration, or sizing it as stored is refused."""

from __future__ import annotations

import json

import pytest

import capacity as cap
from capacity.errors import CapacityError, SpecError

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100,
    "intermediate_size": 96, "max_position_embeddings": 128, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1}


def tensors(config=CONFIG, layers=None):
    """Names and shapes as the library's Llama writes them."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    found = {"model.embed_tokens.weight": (config["vocab_size"], width), "model.norm.weight": (width,)}
    for layer in range(layers or config["num_hidden_layers"]):
        here = f"model.layers.{layer}"
        found |= {f"{here}.self_attn.{name}_proj.weight": (width, width) for name in "qkvo"}
        found |= {f"{here}.mlp.{name}_proj.weight": (inner, width) for name in ("gate", "up")}
        found[f"{here}.mlp.down_proj.weight"] = (width, inner)
        found |= {f"{here}.{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}
    return found


def write(folder, shapes, dtype="BF16", config=CONFIG):
    """A folder as it is published; the file is sparse, for its data is never read. Returns the bytes of the tensors."""
    header, place = {}, 0
    for name, shape in shapes.items():
        size = SIZES[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    content = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        file.truncate(8 + len(content) + place)
    (folder / "config.json").write_text(json.dumps(config))
    return place


def test_files_that_agree_make_the_format_published(tmp_path):
    held = write(tmp_path, tensors())
    model = cap.load_model(tmp_path)

    assert cap.weight_bytes(model, cap.Deployment()) == model.checkpoint.total_bytes == held
    assert model.checkpoint.evidence == "published"
    assert not any("assumed" in note for note in model.notes)


# The case that buys half the memory: a configuration of 16 bits next to files of 32.
def test_files_of_twice_the_bytes_are_refused_as_stored_and_not_with_a_format(tmp_path):
    held = write(tmp_path, tensors(), "F32")
    model = cap.load_model(tmp_path)

    assert model.checkpoint.evidence == "assumed"
    with pytest.raises(CapacityError, match=f"hold {held:,} bytes of tensors, but its shapes take {held // 2:,} in"):
        cap.weight_bytes(model, cap.Deployment())
    assert cap.weight_bytes(model, cap.Deployment(weights="fp32")) == held
    assert cap.weight_bytes(model, cap.Deployment(weights="bf16")) == held // 2


def test_files_of_more_layers_than_the_configuration_has_are_refused(tmp_path):
    write(tmp_path, tensors(layers=3))

    with pytest.raises(CapacityError, match="but its shapes take"):
        cap.weight_bytes(cap.load_model(tmp_path), cap.Deployment())


def test_a_changed_model_keeps_the_check_of_its_files(tmp_path):
    write(tmp_path, tensors(), "F32")
    changed = cap.load_model(tmp_path).replace(positions=64)

    with pytest.raises(CapacityError, match="but its shapes take"):
        cap.max_batch(changed, cap.load_hardware("nvidia-l4-pcie-24gb"), cap.Deployment(), context_tokens=8)


def test_buffers_and_a_second_copy_of_a_tied_head_are_not_the_models_own(tmp_path):
    more = {"lm_head.weight": (100, 64), "model.layers.0.self_attn.rotary_emb.inv_freq": (8,)}
    write(tmp_path, tensors() | more | {"transformer.h.0.attn.bias": (1, 1, 128, 128)})

    assert cap.load_model(tmp_path).checkpoint.total_bytes == write(tmp_path, tensors())


# deepseek-ai/DeepSeek-V3 keeps its prediction layer under model.layers.61, behind 61 layers.
def test_layers_behind_those_of_the_model_are_not_counted(tmp_path):
    config = CONFIG | {"model_type": "glm4_moe", "n_routed_experts": 0, "num_nextn_predict_layers": 1}
    config |= {"num_key_value_heads": 4, "head_dim": 16}
    own = write(tmp_path, tensors(config), config=config)
    write(tmp_path, tensors(config, layers=3) | {"mtp.proj.weight": (64, 64)}, config=config)

    assert cap.load_model(tmp_path).checkpoint.total_bytes == own


def test_files_of_other_tensors_are_refused(tmp_path):
    write(tmp_path, {"lm_head.weight": (100, 64)})

    with pytest.raises(SpecError, match="hold no tensor of the model"):
        cap.load_model(tmp_path)
