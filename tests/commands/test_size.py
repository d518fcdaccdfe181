"""`capacity size`: verdicts, exit codes, JSON, files, and the model and part that options name."""

from __future__ import annotations

import json
import re

import pytest

import capacity as cap
from capacity.cli import run

ANSI = re.compile("\x1b\\[")
MODEL = "llama-3.1-8b"
PART = "nvidia-h100-sxm5-80gb"


@pytest.mark.parametrize("columns", ["80", "120"])
def test_size_prints_the_verdict_first_and_stays_within_the_screen(shell, columns):
    done = shell("size", MODEL, PART, "--batch", "16", "--context", "8192", columns=columns)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fits, ")
    assert not ANSI.search(done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= int(columns)
    for word in ("KV cache", "max batch", "max context", "TTFT bound", "TPOT bound", "ridge point", "intensity"):
        assert word in done.stdout
    for title in ("Assumptions", "Notes", "Not modelled"):
        assert title in done.stdout


def test_json_is_valid_and_alone_and_equals_the_python_result(printed_json):
    found = printed_json("size", MODEL, PART, "--concurrency", "8", "--prompt", "1000", "--output", "100")
    workload = cap.Workload(concurrency=8, prompt_tokens=1000, output_tokens=100)

    sized = cap.size(cap.load_model(MODEL), cap.load_hardware(PART), workload).to_dict()
    assert found == sized | {"assumed": found["assumed"], "sustained": found["sustained"]}


def test_batch_and_context_judge_memory_and_tpot_at_the_context(printed_json):
    found = printed_json("size", MODEL, PART, "--batch", "16", "--context", "8192")

    assert (found["batch"], found["memory_tokens"], found["tpot_context_tokens"]) == (16, 8192, 8192)
    bound = cap.tpot(
        cap.load_model(MODEL), cap.load_hardware(PART), cap.Deployment(), batch=16, context_tokens=8192
    ).bound
    assert found["tpot"]["bound"] == bound


def test_prompt_and_output_judge_memory_at_the_end_and_tpot_in_the_middle(printed_json):
    found = printed_json("size", MODEL, PART, "--prompt", "1000", "--output", "101")

    assert (found["memory_tokens"], found["tpot_context_tokens"], found["prompt_tokens"]) == (1101, 1051, 1000)


def test_mixtral_in_bf16_does_not_fit_one_h100_and_the_missing_memory_is_said(capsys):
    code = run(["size", "mixtral-8x7b", PART, "--weights", "bf16"])
    printed = capsys.readouterr().out

    assert code == 1
    assert re.match(
        r"does not fit: [0-9.]+ GiB missing per device; fits on 2 devices \(--tensor-parallel\s2\)\n", printed
    )
    assert "weights alone need 86.99 GiB" in printed  # 46,702,792,704 parameters of 2 bytes
    assert "times that memory does not allow" in printed


def test_mixtral_in_bf16_fits_two_h100(printed_json):
    found = printed_json("size", "mixtral-8x7b", PART, "--weights", "bf16", "--tensor-parallel", "2")

    assert found["fits"]
    assert found["devices"] == 2


def test_a_missed_objective_is_exit_code_1_even_where_memory_fits(printed_json):
    assert printed_json("size", MODEL, PART, "--max-tpot", "1 ms", code=1)["fits"]
    assert printed_json("size", MODEL, PART, "--max-tpot", "1 s", code=0)["fits"]


def test_out_writes_the_same_json_as_a_whole_file(printed_json, tmp_path):
    file = tmp_path / "sizing.json"

    found = printed_json("size", MODEL, PART, "--out", str(file))

    assert json.loads(file.read_text()) == found
    assert [path.name for path in tmp_path.iterdir()] == ["sizing.json"]


def test_files_give_deployment_and_workload_and_options_win_over_them(printed_json, tmp_path):
    deploy, work = tmp_path / "deploy.toml", tmp_path / "work.json"
    deploy.write_text('weights = "bf16"\ntensor_parallel = 2\nkv_cache = "fp8_e4m3"\n')
    work.write_text('{"prompt_tokens": 500, "output_tokens": 100, "concurrency": 3}')

    found = printed_json(
        "size", MODEL, PART, "--deployment", str(deploy), "--workload", str(work), "--tensor-parallel", "4"
    )

    assert found["deployment"]["tensor_parallel"] == 4
    assert found["deployment"]["kv_cache"] == "fp8_e4m3"
    assert (found["batch"], found["memory_tokens"]) == (3, 600)


def test_defaults_that_were_not_given_are_echoed_as_assumptions(printed_json):
    assumed = printed_json("size", MODEL, PART)["assumed"]
    said = printed_json("size", MODEL, PART, "--concurrency", "1", "--memory-fraction", "0.9")["assumed"]

    for line in ("concurrency = 1", "prompt_tokens = 2048", "memory_fraction = 0.9", "kv_cache = bf16"):
        assert line in assumed
    assert "concurrency = 1" not in said
    assert "memory_fraction = 0.9" not in said


def test_size_takes_a_config_file_and_its_folder(printed_json, tmp_path):
    config = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
        "max_position_embeddings": 8192, "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))

    for source in (tmp_path, tmp_path / "config.json"):
        assert printed_json("size", str(source), PART)["parameters"] == 8_030_261_248


def test_all_parts_puts_those_that_fit_first(printed_json):
    rows = printed_json("size", "llama-3.3-70b", "--all-parts", "--weights", "bf16")["rows"]

    verdicts = [row["fits"] for row in rows]
    assert verdicts == sorted(verdicts, reverse=True)
    assert True in verdicts
    assert {row["part"] for row in rows} == set(cap.hardware_ids())
    assert all(row["reason"] or row["shortage"] for row in rows if row["devices"] is None)


def test_all_parts_refuses_a_question_that_no_part_can_answer(capsys):
    assert run(["size", "llama-3.3-70b", "--all-parts", "--tensor-parallel", "3"]) == 2
    assert "tensor_parallel 3 must divide" in capsys.readouterr().err


def test_a_three_line_hardware_file_of_the_user_works_in_size(printed_json, tmp_path):
    file = tmp_path / "faster.toml"
    file.write_text(f'based_on = "{PART}"\n[memory]\nbytes_per_s = 4.8e12\n')

    found = printed_json("size", MODEL, str(file))

    assert found["ridge_flop_per_byte"] == pytest.approx(989.4e12 / 4.8e12)
    assert any("memory.bytes_per_s" in line for line in found["assumed"])


# openvla-7b sees 256 patches and 25 text tokens and answers with 7 tokens.
def test_size_takes_a_world_model_whose_answer_comes_token_by_token(printed_json):
    found = printed_json("size", "openvla-7b", PART, "--launch-mode", "graph")
    sizing = cap.size(
        cap.load_world_model("openvla-7b"), cap.load_hardware(PART), None, cap.Deployment(launch_mode="graph")
    )

    assert (found["prompt_tokens"], found["memory_tokens"]) == (281, 288)
    assert found["ttft"] == sizing.to_dict()["ttft"]
    assert found["ttft"]["low"] < found["ttft"]["value"] < found["ttft"]["high"]
    assert printed_json("size", "openvla-7b", PART, "--batch", "4")["batch"] == 4
    rows = printed_json("size", "openvla-7b", "--all-parts")["rows"]
    assert sizing.max_batch in [row["max_batch"] for row in rows if row["part"] == PART]


@pytest.mark.parametrize(
    ("option", "sentence"),
    [("--context", "--context: openvla-7b has a context of its own"), ("--prompt", "openvla-7b has a prompt of 281")],
)
def test_size_of_a_world_model_refuses_another_prompt(capsys, option, sentence):
    assert run(["size", "openvla-7b", PART, option, "8192"]) == 2
    assert sentence in capsys.readouterr().err


# 70.55e9 parameters of 2 bytes and 64 sequences of 2304 tokens of 327,680 bytes are 189.4 GB; two H100 give at most
# 0.9 x 2 x 85.5 = 153.9 GB to an engine, four 307.9 GB, and shared layers are divided by powers of two.
def test_what_does_not_fit_says_on_how_many_devices_it_does(printed_json):
    found = printed_json("size", "llama-3.3-70b", PART, "--concurrency", "64", code=1)

    assert found["verdict"] == "does not fit"
    assert (found["enough"]["devices"], found["enough"]["tensor_parallel"]) == (4, 4)
    assert found["devices"] == 1
    asked = ("size", "llama-3.3-70b", PART, "--concurrency", "64", "--tensor-parallel", "4")
    assert printed_json(*asked)["fits"]


def test_a_case_that_no_number_of_devices_holds_promises_none(printed_json):
    found = printed_json("size", "llama-3.3-70b", PART, "--concurrency", "100000", code=1)

    assert found["enough"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["size", "pi0", PART], "ask for a decision with control"),
        (["size", "pi0", "--all-parts"], "ask for a decision with control"),
    ],
)
def test_a_world_model_where_none_is_taken_names_the_command(capsys, arguments, sentence):
    assert run(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_the_words_of_engines_and_thousands_of_tokens_are_understood(capsys, printed_json):
    own = ["--tensor-parallel", "2", "--memory-fraction", "0.8", "--prompt", "8192", "--output", "500"]
    theirs = ["--tp", "2", "--gpu-memory-utilization=0.8", "--prompt", "8K", "--output", "500"]
    found = [printed_json("size", MODEL, PART, "--weights", "bf16", *words) for words in (own, theirs)]

    assert found[0] == found[1]
    assert printed_json("size", MODEL, PART, "--max-model-len", "8k", "--batch", "1")["memory_tokens"] == 8000
    assert run(["size", MODEL, PART, "--tp", "2", "--tensor-parallel", "4"]) == 2
    assert "--tensor-parallel is given 2 times" in capsys.readouterr().err


# 20 requests of 2,000 tokens in and 500 out per second, each within 50 ms per token.
def test_size_says_what_a_replica_sustains_and_how_many_are_needed(capsys, printed_json):
    question = ["--prompt", "2000", "--output", "500", "--max-tpot", "50 ms", "--requests-per-s", "20"]
    found = printed_json("size", MODEL, PART, "--weights", "bf16", *question)["sustained"]
    work = cap.Workload(prompt_tokens=2000, output_tokens=500, max_tpot_s=0.05, requests_per_s=20.0)
    rates = cap.sustained(cap.load_model(MODEL), cap.load_hardware(PART), work, cap.Deployment(weights="bf16"))

    assert found == rates.to_dict()
    assert run(["size", MODEL, PART, "--weights", "bf16", *question]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"replicas needed {found['arrivals']['replicas']}" in printed
    assert "output tokens" in printed


@pytest.mark.parametrize(
    ("option", "value", "units"), [("--max-tpot", "20", "ms, s or min"), ("--taken", "10", "GB or GiB")]
)
def test_a_number_without_its_unit_is_refused(capsys, option, value, units):
    assert run(["size", MODEL, PART, option, value]) == 2
    assert f"{option} needs a unit, {units}; got '{value}'" in capsys.readouterr().err
    assert run(["size", MODEL, PART, "--taken", "0"]) == 0
