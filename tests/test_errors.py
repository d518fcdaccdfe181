"""Whatever a user gets wrong is one clear sentence: an exception in Python, exit code 2 on the command line."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import capacity as cap
from capacity.cli import run
from capacity.errors import nearest_names

MODEL, PART = "llama-2-7b", "nvidia-h100-sxm5-80gb"
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 10000.0, "tie_word_embeddings": False,
}  # fmt: skip

BAD_OPTIONS = [
    (["--batch", "0"], "whole number from 1"),
    (["--batch", "-1"], "whole number from 1"),
    (["--batch", "1.5"], "whole number from 1"),
    (["--batch", "nan"], "nan"),
    (["--batch", "many"], "must be a number"),
    (["--batch", "9" * 400], "--batch"),
    (["--batch", str(2**31), "--context", str(2**32)], "2\\^31"),
    (["--batch", str(2**31), "--context", str(2**31)], "2\\^62"),
    (["--tensor-parallel", "3"], "32 attention heads"),
    (["--memory-fraction", "1.5"], "memory_fraction.*must be at most 1"),
    (["--memory-fraction", "nan"], "memory_fraction"),
    (["--engine", "vlm"], "unknown engine 'vlm'; nearest: vllm"),
    (["--weights", "bf17"], "nearest: bf16"),
    (["--batch", "2", "--prompt", "3"], "do not go together"),
    (["--max-tpot", "5 parsecs"], "unknown unit"),
    (["--percentile", "100"], "percentile"),
    (["--deployment", "missing.toml"], "no such file"),
    (["--out", "result.xyz"], "must end in .json"),
    (["--launch-mode", "grpah"], "launch_mode: unknown launch mode 'grpah'; nearest: graph"),
    (["--bogus", "1"], "No such option"),
    (["--batch"], "requires an argument"),
]


def refused(capsys, arguments):
    """Run a command that must be refused; its one sentence."""
    code = run(arguments)
    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("capacity: ")
    assert "Traceback" not in printed.err
    assert len(printed.err) < 400
    return printed.err


@pytest.mark.parametrize(("options", "sentence"), BAD_OPTIONS)
def test_a_bad_option_is_one_sentence(capsys, options, sentence):
    assert re.search(sentence, refused(capsys, ["size", MODEL, PART, *options]))


@pytest.mark.parametrize("names", [["lama-2-7b", PART], [MODEL, "h100"]])
def test_an_unknown_name_is_answered_with_the_nearest(capsys, names):
    assert "nearest: " in refused(capsys, ["size", *names])


def test_an_unknown_command_is_one_sentence(capsys):
    assert "No such command 'sise'" in refused(capsys, ["sise"])


def nested(depth):
    return '{"model_type": "llama", "x": ' + "[" * depth + "]" * depth + "}"


BAD_CONFIGS = [
    ("", "empty"),
    ('{"model_type": "llama", "hidden_size": 40', "not valid JSON"),
    ("[1, 2]", "expected a JSON object"),
    (nested(10_000), "nested too deeply"),
    (json.dumps(LLAMA).replace('"num_hidden_layers": 32', '"num_hidden_layers": 1' + "0" * 400), "num_hidden_layers"),
    (json.dumps(LLAMA).replace('"num_hidden_layers": 32', '"num_hidden_layers": 1' + "0" * 5000), "digits"),
    (json.dumps(LLAMA | {"attention_sparsity_kind": "strided"}), "attention_sparsity_kind"),
    (json.dumps(LLAMA | {"model_type": "lama"}), "nearest: .*llama"),
    (json.dumps(LLAMA | {"num_hidden_layers": -1}), "num_hidden_layers"),
    (json.dumps(LLAMA | {"num_hidden_layers": True}), "num_hidden_layers"),
    (json.dumps(LLAMA | {"num_attention_heads": 0}), "num_attention_heads"),
    (json.dumps(LLAMA | {"hidden_size": float("nan")}), "hidden_size must be a whole number, got nan"),
]


@pytest.mark.parametrize(("content", "sentence"), BAD_CONFIGS)
def test_a_bad_config_is_one_sentence_in_python_and_on_the_command_line(tmp_path, capsys, content, sentence):
    file = tmp_path / "config.json"
    file.write_text(content)

    with pytest.raises(cap.SpecError, match=sentence):
        cap.load_model(str(file))
    assert re.search(sentence, refused(capsys, ["size", str(file), PART, "--weights", "bf16"]))


def test_a_folder_without_a_config_says_so(tmp_path, capsys):
    assert "config.json" in refused(capsys, ["size", str(tmp_path), PART])


BAD_COUNTS = [0, -1, 1.5, float("nan"), float("inf"), 2**31 + 1, 10**400, "four", None, True, [1, 0], []]


@pytest.mark.parametrize("batch", BAD_COUNTS)
def test_a_count_that_is_not_whole_gives_no_number(batch):
    model, part, deploy = cap.load_model(MODEL), cap.load_hardware(PART), cap.Deployment(weights="bf16")

    with pytest.raises(cap.CapacityError, match=r"^batch must be"):
        cap.kv_cache_bytes(model, deploy, batch=batch, context_tokens=1)
    with pytest.raises(cap.CapacityError, match=r"^batch must be"):
        cap.tpot(model, part, deploy, batch=batch, context_tokens=1)
    with pytest.raises(cap.CapacityError, match=r"^batch must be"):
        cap.max_context(model, part, deploy, batch=batch)


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, float("nan"), 2**31 + 1, "four", True])
def test_a_workload_that_is_not_whole_is_refused(concurrency):
    with pytest.raises(cap.SpecError, match=r"^Workload: concurrency"):
        cap.Workload(concurrency=concurrency)


def test_products_beyond_64_bits_are_refused_not_wrapped():
    model, part, deploy = cap.load_model(MODEL), cap.load_hardware(PART), cap.Deployment(weights="bf16")

    with pytest.raises(cap.CapacityError, match=r"2\^62"):
        cap.kv_cache_bytes(model, deploy, batch=2**31, context_tokens=2**31)
    with pytest.raises(cap.CapacityError, match=r"2\^62"):
        cap.activation_bytes(model, deploy, batch=2**31, tokens=2**31)
    with pytest.raises(cap.CapacityError, match=r"2\^62"):
        cap.tpot(model, part, deploy, batch=2**31, context_tokens=2**31)
    with pytest.raises(cap.CapacityError, match=r"2\^62"):
        cap.size(model, part, cap.Workload(prompt_tokens=2**31, concurrency=2**31), deploy)


def test_a_pair_is_refused_for_its_own_product_and_not_for_its_neighbours():
    model, part, deploy = cap.load_model(MODEL), cap.load_hardware(PART), cap.Deployment(weights="bf16")
    batch, context = np.array([2**31, 1]), np.array([1, 2**31])

    found = cap.tpot(model, part, deploy, batch=batch, context_tokens=context)

    alone = [
        cap.tpot(model, part, deploy, batch=int(n), context_tokens=int(t)) for n, t in zip(batch, context, strict=True)
    ]
    assert found.bound == pytest.approx([one.bound for one in alone])
    with pytest.raises(cap.CapacityError, match=r"^batch 2147483648 with context 2147483648 asks for more than 2\^62"):
        cap.tpot(model, part, deploy, batch=batch[:, None], context_tokens=context)


def test_whole_blocks_of_more_than_2_to_62_bytes_are_refused():
    model, part = cap.load_model(MODEL), cap.load_hardware(PART)
    deploy = cap.Deployment(weights="bf16", block_tokens=2**16)

    with pytest.raises(cap.CapacityError, match=r"2\^62"):
        cap.size(model, part, cap.Workload(concurrency=2**31, prompt_tokens=1, output_tokens=1), deploy)


def test_three_ranks_do_not_divide_32_heads():
    with pytest.raises(cap.CapacityError, match="tensor_parallel 3 must divide the 32 attention heads"):
        cap.weight_bytes(cap.load_model(MODEL), cap.Deployment(weights="bf16", tensor_parallel=3))


@pytest.mark.parametrize("fraction", [0, -0.1, 1.5, float("nan")])
def test_a_memory_fraction_lies_between_0_and_1(fraction):
    with pytest.raises(cap.SpecError, match=r"^Deployment: memory_fraction"):
        cap.Deployment(memory_fraction=fraction)


def test_as_stored_needs_a_checkpoint(tmp_path, capsys):
    with pytest.raises(cap.CapacityError, match='"as_stored" needs a checkpoint'):
        cap.weight_bytes(cap.load_model(LLAMA), cap.Deployment())
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA))
    assert "needs a checkpoint" in refused(capsys, ["size", str(file), PART])


def test_an_override_that_matches_nothing_is_refused(tmp_path, capsys):
    deploy = cap.Deployment(weights="bf16", overrides=[{"part": "experts", "format": "int8"}])
    with pytest.raises(cap.CapacityError, match="override experts = int8 matches nothing in llama-2-7b"):
        cap.weight_bytes(cap.load_model(MODEL), deploy)
    file = tmp_path / "deploy.toml"
    file.write_text('weights = "bf16"\n[[overrides]]\npart = "kv_cache"\nformat = "int8"\nlayers = "40:"\n')
    assert "matches nothing" in refused(capsys, ["size", MODEL, PART, "--deployment", str(file)])


def test_a_misspelt_field_of_a_deployment_file_is_answered_with_the_nearest(tmp_path, capsys):
    file = tmp_path / "deploy.toml"
    file.write_text("tensor_paralel = 2\n")

    assert "nearest: tensor_parallel" in refused(capsys, ["size", MODEL, PART, "--deployment", str(file)])


@pytest.mark.parametrize("content", ["weights = ", "[[[", "\x00", 'weights = "bf16"\nweights = "fp8"'])
def test_a_broken_deployment_file_is_one_sentence(tmp_path, capsys, content):
    file = tmp_path / "deploy.toml"
    file.write_text(content)

    assert "not valid TOML" in refused(capsys, ["size", MODEL, PART, "--deployment", str(file)])


def test_a_result_that_cannot_be_written_leaves_no_file(tmp_path, capsys):
    refused(capsys, ["size", MODEL, PART, "--weights", "bf16", "--out", str(tmp_path / "no" / "x.json")])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: cap.Deployment(tensor_paralel=2), "Deployment: unknown field 'tensor_paralel'; nearest: tensor_paral"),
        (lambda: cap.Workload(concurency=2), "Workload: unknown field 'concurency'; nearest: concurrency"),
        (lambda: cap.Deployment(overrides=[{"prt": "mlp", "format": "int8"}]), "overrides 1: unknown field 'prt'"),
        (lambda: cap.Deployment(memory_fraction=True), "memory_fraction: .*got True"),
        (lambda: cap.Workload(max_ttft_s="1"), "max_ttft_s: .*got '1'"),
        (lambda: cap.Workload(percentile=True), "percentile: .*got True"),
        (lambda: cap.Deployment(launch_mode="grpah"), "launch_mode: unknown launch mode 'grpah'; nearest: graph"),
        (
            lambda: cap.Deployment(launch_mode=3),
            "launch_mode: must be one of eager, compiled, graph, tuned, or a table of them",
        ),
        (
            lambda: cap.Deployment(launch_mode={"decode": "tunned"}),
            "launch_mode: unknown launch mode 'tunned'; nearest: tuned",
        ),
        (
            lambda: cap.Deployment(launch_mode={"decoder": "tuned"}),
            "launch_mode: unknown phase 'decoder'; nearest: decode",
        ),
        (lambda: cap.load_deployment({"launch_mode": {3: "tuned"}}), "deployment: launch_mode: unknown phase '3'"),
        (lambda: cap.load_hardware({"name": "a" * 5000, "\ud800\n": 1}), "unknown field"),
    ],
)
def test_a_field_that_is_not_there_or_no_number_is_one_printable_sentence(make, sentence):
    with pytest.raises(cap.SpecError, match=sentence) as error:
        make()
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1500


CYCLE = ["--period", "50 ms", "--sensing", "0", "--preprocessing", "0", "--network", "0"]


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--taken", "1e308 GB", "--taken: a number of bytes must be finite"),
        ("--taken", "1e300", r"taken_bytes must be a whole number of bytes from 0 to 2\^62"),
        ("--period", "1e-320 s", "period_s must be from 1e-15 to"),
        ("--sensing", "1e308", "sensing_s must be 0 or from 1e-15 to"),
        ("--network", "1e308 h", "--network: a time must be finite"),
        ("--jitter", "1e308", "p99_over_p50 must be from"),
    ],
)
def test_a_control_case_beyond_all_clocks_and_memories_is_one_sentence(option, value, sentence, capsys):
    cycle = CYCLE[: CYCLE.index(option)] + CYCLE[CYCLE.index(option) + 2 :] if option in CYCLE else CYCLE
    assert re.search(sentence, refused(capsys, ["control", "pi0", PART, *cycle, option, value]))


def test_a_memory_without_end_lists_no_part(capsys):
    assert "a number of bytes must be finite" in refused(capsys, ["hardware", "list", "--memory", "1e308 GB"])


def wrong_kinds():
    """Calls with an argument of another kind, by the sentence that each must end in."""
    model, part, deploy = cap.load_model(MODEL), cap.load_hardware(PART), cap.Deployment(weights="bf16")
    step, pi0 = {"batch": 1, "context_tokens": 1}, cap.load_world_model("pi0")
    cycle = dict.fromkeys(("sensing_s", "preprocessing_s", "network_s"), 0) | {"period_s": 0.02}
    return {
        "model must be a ModelSpec, got str; load it with load_model": [
            lambda: cap.tpot(MODEL, part, deploy, **step),
            lambda: cap.kv_cache_bytes(MODEL, deploy, **step),
            lambda: cap.parameter_count(MODEL),
            lambda: cap.size(MODEL, part),
        ],
        "model must be a ModelSpec, got WorldModelSpec; load it with load_model": [lambda: cap.parameter_count(pi0)],
        "model must be a ModelSpec, got dict; load it with load_model": [lambda: cap.tpot({}, part, deploy, **step)],
        "hardware must be a HardwareSpec, got str; load it with load_hardware": [
            lambda: cap.tpot(model, PART, deploy, **step),
            lambda: cap.ttft(model, PART, deploy, batch=1, prompt_tokens=1),
            lambda: cap.max_batch(model, PART, deploy, context_tokens=1),
            lambda: cap.max_context(model, PART, deploy, batch=1),
            lambda: cap.ridge_point(PART, "bf16"),
            lambda: cap.control(pi0, PART, **cycle),
            lambda: cap.frames(pi0, PART, frames_per_s=1),
        ],
        "deploy must be a Deployment, got dict; make one with Deployment(...)": [
            lambda: cap.tpot(model, part, {}, **step),
            lambda: cap.state_bytes(model, {}, batch=1),
            lambda: cap.activation_bytes(model, {}, batch=1, tokens=1),
            lambda: cap.size(model, part, cap.Workload(), {}),
            lambda: cap.control(pi0, part, {}, **cycle),
            lambda: cap.frames(pi0, part, {}, frames_per_s=1),
        ],
        "workload must be a Workload, got str; make one with Workload(...)": [lambda: cap.size(model, part, "x")],
        "number_format must be a str, got dict; give its name": [lambda: cap.ridge_point(part, {})],
        "world must be a WorldModelSpec, got str; load it with load_world_model": [
            lambda: cap.control("pi0", part, **cycle),
            lambda: cap.frames("pi0", part, frames_per_s=1),
        ],
        "world must be a WorldModelSpec, got ModelSpec; load it with load_world_model": [
            lambda: cap.control(model, part, **cycle),
            lambda: cap.frames(model, part, frames_per_s=1),
        ],
        "power_mode must be a str, got int; give its name": [lambda: cap.control(pi0, part, power_mode=3, **cycle)],
        "each of parts must be a HardwareSpec, got str; load it with load_hardware": [
            lambda: cap.control(pi0, part, parts=("x",), **cycle)
        ],
        "parts must be a list or a tuple, got HardwareSpec": [lambda: cap.control(pi0, part, parts=part, **cycle)],
        "draft must be a Draft, got int; make one with Draft(tokens=..., acceptance=..., cost=...)": [
            lambda: cap.control(pi0, part, draft=3, **cycle)
        ],
    }


def test_an_argument_of_another_kind_is_one_sentence():
    for sentence, calls in wrong_kinds().items():
        for call in calls:
            with pytest.raises(cap.CapacityError, match=f"^{re.escape(sentence)}$"):
                call()


# What people write for formats that the catalogue spells with more.
@pytest.mark.parametrize(
    ("given", "first"), [("FP8_E4", "fp8_e4m3"), ("BF16", "bf16"), ("Fp8_E4M3", "fp8_e4m3"), ("bf17", "bf16")]
)
def test_the_nearest_number_format_begins_as_given_whatever_its_case(capsys, given, first):
    assert f"nearest: {first}" in refused(capsys, ["size", MODEL, PART, "--weights", given])


def test_an_empty_table_of_launch_modes_is_refused():
    with pytest.raises(cap.CapacityError, match="launch_mode must name the mode of at least one phase"):
        cap.Deployment(launch_mode={})


# Names as people type them; a GH200 is no H200.
@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("h200", ["nvidia-h200-nvl-141gb", "nvidia-h200-sxm5-141gb"]),
        ("H200 SXM", ["nvidia-h200-sxm5-141gb"]),
        (
            "orin-nano",
            ["nvidia-jetson-orin-nano-4gb", "nvidia-jetson-orin-nano-8gb", "nvidia-jetson-orin-nano-super-8gb"],
        ),
        ("l4", ["nvidia-l4-pcie-24gb", "nvidia-l40-pcie-48gb", "nvidia-l40s-pcie-48gb"]),
    ],
)
def test_all_parts_that_hold_the_words_typed_are_named(typed, found):
    assert nearest_names(typed, cap.hardware_ids())[: len(found)] == found


def test_the_form_that_servers_hold_is_named_first():
    with pytest.raises(cap.CapacityError, match=r"nearest: nvidia-h200-sxm5-141gb, nvidia-h200-nvl-141gb$"):
        cap.load_hardware("h200")
