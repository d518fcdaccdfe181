"""Published configurations of encoders and policies: read as they stand, stored as they say, nothing taken silently."""

from __future__ import annotations

from typing import Any

import pytest

from capacity.catalog.worlds import load_world_model
from capacity.demand.parameters import parameter_count
from capacity.demand.placement import stored_bytes
from capacity.errors import SpecError
from capacity.specs.deployment import Deployment

AS_STORED = Deployment()

# What transformers 4.16 wrote into each part of a pair, as in openai/clip-vit-base-patch32 config.json.
WRITTEN: dict[str, Any] = {
    "_name_or_path": "", "add_cross_attention": False, "architectures": None, "bad_words_ids": None,
    "bos_token_id": None, "chunk_size_feed_forward": 0, "cross_attention_hidden_size": None,
    "decoder_start_token_id": None, "diversity_penalty": 0.0, "do_sample": False, "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0, "eos_token_id": None, "finetuning_task": None, "forced_bos_token_id": None,
    "forced_eos_token_id": None, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "is_decoder": False,
    "is_encoder_decoder": False, "label2id": {"LABEL_0": 0, "LABEL_1": 1}, "length_penalty": 1.0, "max_length": 20,
    "min_length": 0, "no_repeat_ngram_size": 0, "num_beam_groups": 1, "num_beams": 1, "num_return_sequences": 1,
    "output_attentions": False, "output_hidden_states": False, "output_scores": False, "pad_token_id": None,
    "prefix": None, "problem_type": None, "pruned_heads": {}, "remove_invalid_values": False,
    "repetition_penalty": 1.0, "return_dict": True, "return_dict_in_generate": False, "sep_token_id": None,
    "task_specific_params": None, "temperature": 1.0, "tie_encoder_decoder": False, "tie_word_embeddings": True,
    "tokenizer_class": None, "top_k": 50, "top_p": 1.0, "torch_dtype": None, "torchscript": False,
    "transformers_version": "4.16.0.dev0", "use_bfloat16": False,
}  # fmt: skip
CLIP: dict[str, Any] = {
    "_name_or_path": "openai/clip-vit-base-patch32", "architectures": ["CLIPModel"], "initializer_factor": 1.0,
    "logit_scale_init_value": 2.6592, "model_type": "clip", "projection_dim": 512, "text_config_dict": None,
    "torch_dtype": "float32", "transformers_version": None, "vision_config_dict": None,
    "text_config": {**WRITTEN, "model_type": "clip_text_model", "hidden_size": 512, "vocab_size": 49408},
    "vision_config": {
        **WRITTEN, "attention_dropout": 0.0, "dropout": 0.0, "hidden_act": "quick_gelu", "hidden_size": 768,
        "image_size": 224, "initializer_factor": 1.0, "initializer_range": 0.02, "intermediate_size": 3072,
        "layer_norm_eps": 1e-05, "model_type": "clip_vision_model", "num_attention_heads": 12,
        "num_hidden_layers": 12, "patch_size": 32, "projection_dim": 512,
    },
}  # fmt: skip
# facebook/vjepa2-vitl-fpc64-256 config.json.
VJEPA: dict[str, Any] = {
    "architectures": ["VJEPA2Model"], "attention_dropout": 0.0, "attention_probs_dropout_prob": 0.0, "crop_size": 256,
    "drop_path_rate": 0.0, "frames_per_clip": 64, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
    "hidden_size": 1024, "image_size": 256, "in_chans": 3, "initializer_range": 0.02, "layer_norm_eps": 1e-06,
    "mlp_ratio": 4, "model_type": "vjepa2", "num_attention_heads": 16, "num_hidden_layers": 24,
    "num_pooler_layers": 3, "patch_size": 16, "pred_hidden_size": 384, "pred_mlp_ratio": 4.0,
    "pred_num_attention_heads": 12, "pred_num_hidden_layers": 12, "pred_num_mask_tokens": 10,
    "pred_zero_init_mask_tokens": True, "qkv_bias": True, "torch_dtype": "float32",
    "transformers_version": "4.53.0.dev0", "tubelet_size": 2, "use_SiLU": False, "wide_SiLU": True,
}  # fmt: skip
# facebook/dinov2-with-registers-small config.json.
DINO: dict[str, Any] = {
    "apply_layernorm": True, "architectures": ["Dinov2WithRegistersModel"], "attention_probs_dropout_prob": 0.0,
    "drop_path_rate": 0.0, "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": 384, "image_size": 518,
    "initializer_range": 0.02, "interpolate_antialias": True, "interpolate_offset": 0.0, "layer_norm_eps": 1e-06,
    "layerscale_value": 1.0, "mlp_ratio": 4, "model_type": "dinov2_with_registers", "num_attention_heads": 6,
    "num_channels": 3, "num_hidden_layers": 12, "num_register_tokens": 4, "patch_size": 14, "qkv_bias": True,
    "reshape_hidden_states": True, "torch_dtype": "float32", "transformers_version": "4.47.0", "use_swiglu_ffn": False,
}  # fmt: skip
# openvla/openvla-7b config.json; `norm_stats` cut to one data set.
OPENVLA: dict[str, Any] = {
    "architectures": ["OpenVLAForActionPrediction"], "arch_specifier": "no-align+fused-gelu-mlp",
    "auto_map": {"AutoConfig": "configuration_prismatic.OpenVLAConfig"}, "hf_llm_id": "meta-llama/Llama-2-7b-hf",
    "image_resize_strategy": "resize-naive", "image_sizes": [224, 224], "llm_backbone_id": "llama2-7b-pure",
    "llm_max_length": 2048, "model_type": "openvla", "n_action_bins": 256,
    "norm_stats": {"bridge_orig": {"action": {"mask": [True], "q01": [-0.1], "q99": [0.1]}, "num_trajectories": 9}},
    "output_projector_states": False, "pad_to_multiple_of": 64, "pad_token_id": 32000,
    "text_config": {
        "model_type": "llama", "pad_token_id": 32000, "torch_dtype": "bfloat16", "vocab_size": 32064,
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008,
    },
    "timm_model_ids": ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"],
    "timm_override_act_layers": [None, None], "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
    "use_fused_vision_backbone": True, "vision_backbone_id": "dinosiglip-vit-so-224px",
}  # fmt: skip
OPENVLA_BYTES = 15_082_474_368  # total_size of its model.safetensors.index.json, all bf16
IMAGE = {"type": "VISUAL", "shape": [3, 480, 640]}
STATE = {"type": "STATE", "shape": [8]}
TRAINED: dict[str, Any] = {
    "n_obs_steps": 1, "device": "cuda", "use_amp": False, "push_to_hub": True, "repo_id": None, "private": None,
    "tags": None, "license": None, "output_features": {"action": {"type": "ACTION", "shape": [7]}},
    "input_features": {"observation.images.top": IMAGE, "observation.state": STATE}, "empty_cameras": 0,
    "normalization_mapping": {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"},
    "freeze_vision_encoder": True, "train_expert_only": True, "optimizer_lr": 2.5e-05, "optimizer_betas": [0.9, 0.95],
    "optimizer_eps": 1e-08, "optimizer_weight_decay": 0.01, "optimizer_grad_clip_norm": 1.0,
    "scheduler_warmup_steps": 1000, "scheduler_decay_steps": 30000, "scheduler_decay_lr": 2.5e-06,
    "chunk_size": 50, "n_action_steps": 50, "max_state_dim": 32, "max_action_dim": 32,
}  # fmt: skip
# lerobot configuration classes written out: pi05 and pi0_fast as of 2026, smolvla as lerobot/smolvla_base.
PI05: dict[str, Any] = TRAINED | {
    "type": "pi05", "paligemma_variant": "gemma_2b", "action_expert_variant": "gemma_300m", "dtype": "float32",
    "num_inference_steps": 10, "time_sampling_beta_alpha": 1.5, "time_sampling_beta_beta": 1.0,
    "time_sampling_scale": 0.999, "time_sampling_offset": 0.001, "min_period": 0.004, "max_period": 4.0,
    "rtc_config": None, "image_resolution": [224, 224], "tokenizer_max_length": 200, "gradient_checkpointing": False,
    "compile_model": False, "compile_mode": "max-autotune",
}  # fmt: skip
PI0: dict[str, Any] = PI05 | {"type": "pi0", "tokenizer_max_length": 48}
FAST: dict[str, Any] = TRAINED | {
    "type": "pi0_fast", "paligemma_variant": "gemma_2b", "action_expert_variant": "gemma_300m", "dtype": "bfloat16",
    "max_action_tokens": 256, "max_decoding_steps": 256, "use_kv_cache": True, "image_resolution": [224, 224],
    "tokenizer_max_length": 200, "text_tokenizer_name": "google/paligemma-3b-pt-224", "temperature": 0.0,
    "action_tokenizer_name": "lerobot/fast-action-tokenizer", "fast_skip_tokens": 128,
}  # fmt: skip
SMOLVLA: dict[str, Any] = TRAINED | {
    "type": "smolvla", "resize_imgs_with_padding": [512, 512], "adapt_to_pi_aloha": False,
    "use_delta_joint_actions_aloha": False, "tokenizer_max_length": 48, "num_steps": 10, "use_cache": True,
    "train_state_proj": True, "vlm_model_name": "HuggingFaceTB/SmolVLM2-500M-Video-Instruct",
    "load_vlm_weights": True, "add_image_special_tokens": False, "attention_mode": "cross_attn", "prefix_length": 0,
    "pad_language_to": "max_length", "num_expert_layers": 0, "num_vlm_layers": 16, "self_attn_every_n_layers": 2,
    "expert_width_multiplier": 0.75, "min_period": 0.004, "max_period": 4.0,
}  # fmt: skip


def held_bytes(world, deploy=AS_STORED):
    return sum(stored_bytes(world.model, deploy)[0].values())


# Sizes that the makers print, in millions of parameters: CLIP ViT-B/32 87.5, DINOv2-S with registers 22.1, V-JEPA 2
# ViT-L "300 M" without predictor; each file says float32, so four bytes a parameter lie in memory.
@pytest.mark.parametrize(("config", "millions"), [(CLIP, 87.5), (DINO, 22.1), (VJEPA, 304)])
def test_an_encoder_takes_the_bytes_of_the_type_its_file_says(config, millions):
    world = load_world_model(config)
    parameters = parameter_count(world.model).total

    assert parameters / 1e6 == pytest.approx(millions, rel=0.005)
    assert held_bytes(world) == 4 * parameters
    assert world.model.checkpoint.evidence == "assumed"


def test_the_part_of_a_pair_may_say_another_type_than_the_pair():
    half = CLIP | {"vision_config": CLIP["vision_config"] | {"torch_dtype": "float16"}}

    assert load_world_model(half).model.checkpoint.default == "fp16"


def test_an_encoder_whose_file_says_no_type_asks_for_one():
    world = load_world_model({key: value for key, value in DINO.items() if key != "torch_dtype"})

    with pytest.raises(Exception, match='"as_stored" needs a checkpoint'):
        held_bytes(world)


def test_a_class_default_that_is_taken_is_said():
    world = load_world_model({"model_type": "clip", "vision_config": {}})

    assert {"hidden_size", "num_hidden_layers", "patch_size"} <= set(world.assumed)
    assert any("hidden_size is absent: assumed 768" in note for note in world.notes)
    assert any("only vision_config is counted" in note for note in world.notes)
    assert load_world_model(CLIP).assumed == ("num_channels",)


def test_what_else_a_checkpoint_holds_is_noted():
    assert any("predictor" in note for note in load_world_model(VJEPA).notes)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CLIP | {"num_experts": 8}, "num_experts"),
        (CLIP | {"vision_config": CLIP["vision_config"] | {"num_key_value_heads": 2}}, "num_key_value_heads = 2"),
        (DINO | {"torch_dtype": "int4?"}, "torch_dtype 'int4.' is unknown"),
        (DINO | {"dtype": "bfloat16"}, "name the same fact and disagree"),
        (DINO | {"quantization_config": {"load_in_8bit": True}}, "quantization_config = .* may change memory"),
        (VJEPA | {"use_SiLU": True}, "use_SiLU is supported for type vjepa2 only as false"),
        (VJEPA | {"image_size": 384}, "crop_size = 256 and image_size = 384 name the same fact"),
        (OPENVLA | {"torch_dtype": "int4?"}, "torch_dtype 'int4.' is unknown"),
        (OPENVLA | {"dtype": "float32"}, "name the same fact and disagree"),
        (OPENVLA | {"num_experts": 4, "num_selected_experts": 2}, "num_experts = 4 may change memory"),
        (OPENVLA | {"num_images_in_input": 2}, "num_images_in_input is supported for type openvla only as 1"),
        (OPENVLA | {"image_sizes": [384, 384]}, "image_sizes is supported for type openvla only as .224, 224."),
        (PI05 | {"paligemma_variant": "gemma_300m"}, "paligemma_variant is supported for type pi05 only as gemma_2b"),
        (PI05 | {"action_expert_variant": "gemma_2b"}, "action_expert_variant .* only as gemma_300m"),
        (PI05 | {"num_experts": 9}, "num_experts = 9 may change memory"),
        (PI05 | {"image_resolution": [448, 448]}, "image_resolution .* only as .224, 224.*, got .448, 448."),
        (PI05 | {"dtype": "float64"}, "torch_dtype 'float64' is unknown"),
        (PI05 | {"empty_cameras": -1}, "empty_cameras must be between 0 and"),
        (PI05 | {"empty_cameras": True}, "empty_cameras must be a whole number"),
        (PI05 | {"empty_cameras": 2.0}, "empty_cameras must be a whole number"),
        (PI05 | {"input_features": [IMAGE]}, "input_features must be a table"),
        (SMOLVLA | {"resize_imgs_with_padding": None}, "resize_imgs_with_padding null is not supported"),
        (SMOLVLA | {"add_image_special_tokens": True}, "add_image_special_tokens .* only as false"),
        (FAST | {"max_decoding_steps": 0}, "max_decoding_steps must be between 1"),
        (FAST | {"use_kv_cache": False}, "use_kv_cache .* only as true"),
    ],
)
def test_what_would_change_a_size_and_is_not_understood_is_refused(config, message):
    with pytest.raises(SpecError, match=message):
        load_world_model(config, name="x")


@pytest.mark.parametrize(("stored", "size"), [("bfloat16", OPENVLA_BYTES), ("float32", 2 * OPENVLA_BYTES)])
def test_openvla_takes_the_bytes_of_its_checkpoint(stored, size):
    assert held_bytes(load_world_model(OPENVLA | {"torch_dtype": stored}, name="openvla")) == size


# bitsandbytes keeps half a byte and a scale for each weight of the 32 layers: 6.476e9 weights of Llama-2-7B in
# attention and feed-forward; the rest of OpenVLA stays 16 bit.
def test_openvla_in_four_bits_is_smaller_by_what_its_layers_lose():
    quantised = OPENVLA | {"quantization_config": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}}
    linear = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    saved = OPENVLA_BYTES - held_bytes(load_world_model(quantised, name="openvla"))

    assert 1.40 * linear < saved < 1.5 * linear


# LeRobot's classes say dtype: float32 unless told otherwise; the pi0 checkpoint in it is 13 GB, 6.5 GB in bfloat16.
@pytest.mark.parametrize(("config", "gigabytes"), [(PI0, 13.0), (PI0 | {"dtype": "bfloat16"}, 6.5)])
def test_a_policy_takes_the_bytes_of_the_type_it_says(config, gigabytes):
    assert held_bytes(load_world_model(config)) / 1e9 == pytest.approx(gigabytes, rel=0.01)


def test_a_policy_that_says_no_type_takes_that_of_its_class_and_says_so():
    world = load_world_model({key: value for key, value in PI0.items() if key != "dtype"})

    assert world.model.checkpoint.default == "fp32"
    assert any("dtype is absent: assumed float32" in note for note in world.notes)
    assert "dtype" in world.assumed


@pytest.mark.parametrize("config", [PI0, PI05, FAST, SMOLVLA])
def test_a_configuration_as_lerobot_writes_it_is_understood_whole(config):
    world = load_world_model(config)

    assert not any("ignored keys" in note for note in world.notes)
    assert (world.views, world.head.chunk_actions) == (1, 50)


# `validate_features` of the policies adds observation.images.empty_camera_N to input_features before it is saved.
def test_empty_cameras_are_counted_once_whether_or_not_they_are_written_out():
    features = PI05["input_features"]
    written = features | {"observation.images.empty_camera_0": IMAGE, "observation.images.empty_camera_1": IMAGE}

    assert load_world_model(PI05 | {"empty_cameras": 2}).views == 3
    assert load_world_model(PI05 | {"empty_cameras": 2, "input_features": written}).views == 3


# pi0_fast decodes until its end token or `max_decoding_steps`; 30 to 60 tokens for 10 actions are quoted.
@pytest.mark.parametrize(
    ("change", "tokens"),
    [({}, 256), ({"max_decoding_steps": 100}, 100), ({"max_action_tokens": 64}, 64), ({"chunk_size": 10}, 60)],
)
def test_an_answer_of_fast_tokens_ends_at_its_limit(change, tokens):
    assert load_world_model(FAST | {"n_action_steps": 10} | change).answer_tokens == tokens
