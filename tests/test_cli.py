"""The command line: verdicts, exit codes, JSON, files, and what is printed where."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import capacity as cap
from capacity.cli import COMMANDS, run
from capacity.specs.deployment import LAUNCH_MODES
from capacity.validation.speed_rows import COLUMNS

MODEL, PART = "llama-3.1-8b", "nvidia-h100-sxm5-80gb"
ANSI = re.compile("\x1b\\[")


def shell(*arguments, columns="80"):
    """Run the command line in a process of its own, as a pipe sees it."""
    command = [sys.executable, "-m", "capacity.cli", *arguments]
    environment = {**os.environ, "COLUMNS": columns, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


def printed_json(capsys, *arguments, code=0):
    assert run([*arguments, "--json"]) == code
    printed = capsys.readouterr()
    assert printed.err == ""
    return json.loads(printed.out)


@pytest.mark.parametrize("columns", ["80", "120"])
def test_size_prints_the_verdict_first_and_stays_within_the_screen(columns):
    done = shell("size", MODEL, PART, "--batch", "16", "--context", "8192", columns=columns)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fits, ")
    assert not ANSI.search(done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= int(columns)
    for word in ("KV cache", "max batch", "max context", "TTFT bound", "TPOT bound", "ridge point", "intensity"):
        assert word in done.stdout
    for title in ("Assumptions", "Notes", "Not modelled"):
        assert title in done.stdout


def test_json_is_valid_and_alone_and_equals_the_python_result(capsys):
    found = printed_json(capsys, "size", MODEL, PART, "--concurrency", "8", "--prompt", "1000", "--output", "100")
    workload = cap.Workload(concurrency=8, prompt_tokens=1000, output_tokens=100)

    assert found == cap.size(cap.load_model(MODEL), cap.load_hardware(PART), workload).to_dict() | {
        "assumed": found["assumed"]
    }


def test_batch_and_context_judge_memory_and_tpot_at_the_context(capsys):
    found = printed_json(capsys, "size", MODEL, PART, "--batch", "16", "--context", "8192")

    assert (found["batch"], found["memory_tokens"], found["tpot_context_tokens"]) == (16, 8192, 8192)
    bound = cap.tpot(
        cap.load_model(MODEL), cap.load_hardware(PART), cap.Deployment(), batch=16, context_tokens=8192
    ).bound
    assert found["tpot"]["bound"] == bound


def test_prompt_and_output_judge_memory_at_the_end_and_tpot_in_the_middle(capsys):
    found = printed_json(capsys, "size", MODEL, PART, "--prompt", "1000", "--output", "101")

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


def test_mixtral_in_bf16_fits_two_h100(capsys):
    found = printed_json(capsys, "size", "mixtral-8x7b", PART, "--weights", "bf16", "--tensor-parallel", "2")

    assert found["fits"]
    assert found["devices"] == 2


def test_a_missed_objective_is_exit_code_1_even_where_memory_fits(capsys):
    assert printed_json(capsys, "size", MODEL, PART, "--max-tpot", "1 ms", code=1)["fits"]
    assert printed_json(capsys, "size", MODEL, PART, "--max-tpot", "1 s", code=0)["fits"]


def test_out_writes_the_same_json_as_a_whole_file(capsys, tmp_path):
    file = tmp_path / "sizing.json"

    found = printed_json(capsys, "size", MODEL, PART, "--out", str(file))

    assert json.loads(file.read_text()) == found
    assert [path.name for path in tmp_path.iterdir()] == ["sizing.json"]


def test_files_give_deployment_and_workload_and_options_win_over_them(capsys, tmp_path):
    deploy, work = tmp_path / "deploy.toml", tmp_path / "work.json"
    deploy.write_text('weights = "bf16"\ntensor_parallel = 2\nkv_cache = "fp8_e4m3"\n')
    work.write_text('{"prompt_tokens": 500, "output_tokens": 100, "concurrency": 3}')

    found = printed_json(
        capsys, "size", MODEL, PART, "--deployment", str(deploy), "--workload", str(work), "--tensor-parallel", "4"
    )

    assert found["deployment"]["tensor_parallel"] == 4
    assert found["deployment"]["kv_cache"] == "fp8_e4m3"
    assert (found["batch"], found["memory_tokens"]) == (3, 600)


def test_defaults_that_were_not_given_are_echoed_as_assumptions(capsys):
    assumed = printed_json(capsys, "size", MODEL, PART)["assumed"]
    said = printed_json(capsys, "size", MODEL, PART, "--concurrency", "1", "--memory-fraction", "0.9")["assumed"]

    for line in ("concurrency = 1", "prompt_tokens = 2048", "memory_fraction = 0.9", "kv_cache = bf16"):
        assert line in assumed
    assert "concurrency = 1" not in said
    assert "memory_fraction = 0.9" not in said


def test_size_takes_a_config_file_and_its_folder(capsys, tmp_path):
    config = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
        "max_position_embeddings": 8192, "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))

    for source in (tmp_path, tmp_path / "config.json"):
        assert printed_json(capsys, "size", str(source), PART)["parameters"] == 8_030_261_248


def test_all_parts_puts_those_that_fit_first(capsys):
    rows = printed_json(capsys, "size", "llama-3.3-70b", "--all-parts", "--weights", "bf16")["rows"]

    verdicts = [row["fits"] for row in rows]
    assert verdicts == sorted(verdicts, reverse=True)
    assert True in verdicts
    assert {row["part"] for row in rows} == set(cap.hardware_ids())
    assert all(row["reason"] or row["shortage"] for row in rows if row["devices"] is None)


def test_all_parts_refuses_a_question_that_no_part_can_answer(capsys):
    assert run(["size", "llama-3.3-70b", "--all-parts", "--tensor-parallel", "3"]) == 2
    assert "tensor_parallel 3 must divide" in capsys.readouterr().err


@pytest.mark.parametrize("columns", ["80", "120"])
def test_lists_show_every_name_and_stay_within_the_screen(columns):
    for command, ids in (("hardware", cap.hardware_ids()), ("models", cap.model_ids())):
        done = shell(command, "list", columns=columns)

        assert done.returncode == 0, done.stderr
        assert max(map(len, done.stdout.splitlines())) <= int(columns)
        first = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
        assert [name for name in ids if first.count(name) != 1] == []


def test_hardware_list_filters_by_word_memory_and_format(capsys):
    assert run(["hardware", "list", "h100", "--memory", "90 GiB", "--format", "fp8_e4m3", "--json"]) == 0

    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == ["nvidia-h100-nvl-94gb"]


def test_hardware_show_names_sources_and_both_ridge_points(capsys):
    assert run(["hardware", "show", PART]) == 0
    printed = capsys.readouterr().out

    assert "295.3 FLOP/B" in printed  # 989.4e12 / 3.35e12
    assert "253.8 FLOP/B" in printed  # 794.5e12 / 3.13e12
    assert "Sources" in printed
    assert re.search(r"peak_flop_per_s.fp64\s.*assumed", printed)


def test_models_show_counts_parameters_and_names_sources(capsys):
    assert run(["models", "show", "llama-3-8b"]) == 0
    printed = capsys.readouterr().out

    assert "8,030,261,248" in printed
    assert "8 KV heads" in printed
    assert "Sources" in printed


def test_check_accepts_what_holds_and_refuses_what_does_not(capsys, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(f'name = "mine"\nbased_on = "{PART}"\n[memory]\nbytes_per_s = 4.8e12\n')
    assert run(["hardware", "check", str(file)]) == 0
    file.write_text(f'name = "mine"\nbased_on = "{PART}"\n[memory]\nbytes_per_s = -1\n')
    assert run(["hardware", "check", str(file)]) == 2
    assert "memory.bytes_per_s" in capsys.readouterr().err


def test_a_three_line_hardware_file_of_the_user_works_in_size(capsys, tmp_path):
    file = tmp_path / "faster.toml"
    file.write_text(f'based_on = "{PART}"\n[memory]\nbytes_per_s = 4.8e12\n')

    found = printed_json(capsys, "size", MODEL, str(file))

    assert found["ridge_flop_per_byte"] == pytest.approx(989.4e12 / 4.8e12)
    assert any("memory.bytes_per_s" in line for line in found["assumed"])


def test_validate_judges_bounds_against_published_rates(capsys):
    found = printed_json(capsys, "validate", "--published", "speed")

    assert found["bounds_hold"]
    assert all(pair["bound"] <= pair["measured"] for pair in found["pairs"])


def test_validate_finds_a_measurement_below_the_bound(capsys, tmp_path):
    """Llama-2-7B reads 13.2 GB a token: an A100 with 2.039 TB/s cannot make 300 tokens a second at batch 1."""
    file = tmp_path / "wrong.csv"
    row = {"id": "X1", "kind": "decode_tps_per_seq", "model": "meta-llama/Llama-2-7b-hf", "gpu": "A100 SXM 80GB"}
    row |= {"weights_dtype_quant": "bf16", "kv_dtype": "bf16", "n_gpus": "1", "tp": "1", "batch_or_concurrency": "1"}
    row |= {"context_len": "105", "observed_value": "300", "observed_unit": "tok/s"}
    file.write_text(",".join(COLUMNS) + "\n" + ",".join(row.get(name, "") for name in COLUMNS) + "\n")

    assert run(["validate", "--published", "speed", "--file", str(file)]) == 1


def test_validate_refuses_a_table_without_the_columns(capsys, tmp_path):
    file = tmp_path / "wrong.csv"
    file.write_text("a,b\n1,2\n")

    for kind in ("speed", "world"):
        assert run(["validate", "--published", kind, "--file", str(file)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(capsys, command):
    assert run([command, "--help"]) == 0
    assert command in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"capacity {cap.__version__}\n"


def test_a_reader_that_leaves_a_pipe_early_sees_no_traceback():
    command = f"{sys.executable} -m capacity.cli hardware list --json | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)

    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("command", [["models", "list"], ["size", "llama-2-7b", "nvidia-h100-sxm5-80gb", "--json"]])
def test_a_full_disk_under_the_output_is_one_sentence(command):
    with open("/dev/full", "w") as full:
        run_of = subprocess.run(
            [sys.executable, "-m", "capacity.cli", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert run_of.returncode == 2
    assert run_of.stderr.startswith("capacity: standard output: cannot be written")
    assert len(run_of.stderr.splitlines()) == 1


def test_an_escape_sequence_in_a_file_name_does_not_reach_the_terminal(capsys):
    assert run(["size", "\x1b[31mred", PART]) == 2
    assert not ANSI.search(capsys.readouterr().err)


CYCLE = ["--period", "2 s", "--sensing", "10 ms", "--preprocessing", "5 ms", "--network", "0"]


def test_control_meets_a_long_period_and_misses_a_short_one(capsys):
    name, part = "openvla-7b", "nvidia-jetson-agx-orin-64gb"
    long = printed_json(capsys, "control", name, part, *CYCLE)
    short = printed_json(capsys, "control", name, part, *CYCLE, "--period", "20 ms", code=1)

    assert long["verdict"]["met"]
    assert not short["verdict"]["met"]
    assert short["verdict"]["late_s"] > 0.02


def test_control_takes_the_launch_mode_from_option_or_file_and_assumes_a_graph(capsys, tmp_path):
    question = ["control", "openvla-7b", "nvidia-jetson-agx-orin-64gb", *CYCLE]
    file = tmp_path / "deploy.toml"
    file.write_text('[launch_mode]\ndecode = "eager"\ndefault = "tuned"\n')
    silent = printed_json(capsys, *question)
    tuned = printed_json(capsys, *question, "--launch-mode", "tuned")
    mixed = printed_json(capsys, *question, "--deployment", str(file))

    assert "launch_mode = graph" in silent["assumed"]
    assert not any("launch_mode" in text for text in tuned["assumed"] + mixed["assumed"])
    modes = [{phase["launch_mode"] for phase in found["decision"]["phases"]} for found in (silent, tuned, mixed)]
    assert modes == [{"graph"}, {"tuned"}, {"tuned", "eager"}]


# openvla-7b sees 256 patches and 25 text tokens and answers with 7 tokens.
def test_size_takes_a_world_model_whose_answer_comes_token_by_token(capsys):
    found = printed_json(capsys, "size", "openvla-7b", PART, "--launch-mode", "graph")
    sizing = cap.size(
        cap.load_world_model("openvla-7b"), cap.load_hardware(PART), None, cap.Deployment(launch_mode="graph")
    )

    assert (found["prompt_tokens"], found["memory_tokens"]) == (281, 288)
    assert found["ttft"] == sizing.to_dict()["ttft"]
    assert found["ttft"]["low"] < found["ttft"]["value"] < found["ttft"]["high"]
    assert printed_json(capsys, "size", "openvla-7b", PART, "--batch", "4")["batch"] == 4
    rows = printed_json(capsys, "size", "openvla-7b", "--all-parts")["rows"]
    assert sizing.max_batch in [row["max_batch"] for row in rows if row["part"] == PART]


@pytest.mark.parametrize(
    ("option", "sentence"),
    [("--context", "--context: openvla-7b has a context of its own"), ("--prompt", "openvla-7b has a prompt of 281")],
)
def test_size_of_a_world_model_refuses_another_prompt(capsys, option, sentence):
    assert run(["size", "openvla-7b", PART, option, "8192"]) == 2
    assert sentence in capsys.readouterr().err


FRAMES = ["frames", "mineworld-300m", "nvidia-a100-sxm4-80gb", "--weights", "bf16", "--launch-mode", "tuned"]


# arXiv:2504.08388: MineWorld keeps 4 to 7 frames a second only with 37 passes per frame instead of 336.
def test_frames_meets_a_slow_rate_and_misses_a_fast_one(capsys, tmp_path):
    file = tmp_path / "plan.json"
    options = ["--window", "5552", "--sessions", "2", "--elapsed", "60 s"]
    slow = printed_json(capsys, *FRAMES, "--frames-per-s", "0.5", *options, "--out", str(file))
    fast = printed_json(capsys, *FRAMES, "--frames-per-s", "30", *options, code=1)
    deploy = cap.Deployment(weights="bf16", launch_mode="tuned")
    world, part = cap.load_world_model("mineworld-300m"), cap.load_hardware("nvidia-a100-sxm4-80gb")
    plan = cap.frames(world, part, deploy, frames_per_s=0.5, sessions=2, elapsed_s=60.0, window_tokens=5552)

    assert slow == plan.to_dict() == json.loads(file.read_text())
    assert (slow["met"], fast["met"]) == (True, False)
    assert (slow["sessions"], slow["cache_tokens"], slow["seconds_until_full"]) == (2, 5552, None)


@pytest.mark.parametrize("columns", ["80", "120"])
def test_frames_prints_the_verdict_first_and_stays_within_the_screen(columns):
    done = shell(*FRAMES, "--frames-per-s", "5", columns=columns)

    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("frame budget missed with 1 session: ")
    assert max(map(len, done.stdout.splitlines())) <= int(columns)
    for word in ("sessions in memory", "memory full after", "start of a session", "Not modelled", "Assumptions"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["frames", "mineworld-300m", PART], "Missing option '--frames-per-s'"),
        (["frames", "openvla-oft", PART, "--frames-per-s", "5"], "openvla-oft makes no frame"),
        ([*FRAMES, "--frames-per-s", "0"], "frames_per_s must be finite and positive, got 0.0"),
        ([*FRAMES, "--frames-per-s", "many"], "--frames-per-s must be a number, got 'many'"),
        ([*FRAMES, "--frames-per-s", "5", "--window", "1"], "window_tokens must hold one frame"),
        ([*FRAMES, "--frames-per-s", "5", "--sessions", "0"], "--sessions must be a whole number from 1"),
        ([*FRAMES, "--frames-per-s", "5", "--elapsed", "long"], "--elapsed: 'long'"),
        ([*FRAMES, "--frames-per-s", "5", "--taken", "much"], "--taken: 'much'"),
    ],
)
def test_frames_refuses_what_it_cannot_judge(capsys, arguments, sentence):
    assert run(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_control_help_says_each_launch_mode_in_a_line_of_its_own():
    lines = [line.split() for line in shell("control", "--help").stdout.splitlines()]

    assert {line[0] for line in lines if line and line[0] in LAUNCH_MODES} == set(LAUNCH_MODES)
    assert "the verdict depends on it" in " ".join(word for line in lines for word in line)


# What a reader does with the printed change: give its options to the same command.
@pytest.mark.parametrize(
    ("model", "part", "options"),
    [
        ("openvla-7b", "nvidia-rtx-4090-24gb", ["--period", "100ms"]),
        ("openvla-7b", "nvidia-a100-sxm4-80gb", ["--period", "100ms", "--robots", "2"]),
        ("pi0", "nvidia-jetson-agx-orin-64gb", ["--period", "20ms", "--schedule", "chunked"]),
    ],
)
def test_each_printed_change_gives_its_time_when_its_options_are_given(capsys, model, part, options):
    command = ["control", model, part, *CYCLE, "--launch-mode", "tuned", *options]
    run(command)
    printed = " ".join(capsys.readouterr().out.split())
    run([*command, "--json"])
    changes = [item for item in json.loads(capsys.readouterr().out)["changes"] if item["given_as"].startswith("--")]

    assert len(changes) >= 3
    for change in changes:
        run([*command, *change["given_as"].split(), "--json"])
        followed = json.loads(capsys.readouterr().out)["verdict"]
        assert set(f"{change['what']} {change['given_as']}".split()) <= set(printed.split())
        assert followed["latency_s"] == pytest.approx(change["latency_s"], rel=1e-12)
        assert followed["met"] == change["met"]


@pytest.mark.parametrize("missing", ["period", "sensing", "preprocessing", "network"])
def test_control_has_no_hidden_zero(capsys, missing):
    given = CYCLE[:]
    place = given.index(f"--{missing}")
    del given[place : place + 2]

    assert run(["control", "openvla-7b", "nvidia-jetson-agx-orin-64gb", *given]) == 2
    assert f"--{missing} is missing" in capsys.readouterr().err


def test_control_names_all_missing_options_at_once_and_in_its_usage(capsys):
    assert run(["control", "openvla-7b", "nvidia-jetson-agx-orin-64gb", "--sensing", "0"]) == 2
    assert "--period, --preprocessing, --network are missing" in capsys.readouterr().err
    usage = " ".join(shell("control", "--help").stdout.split("Judge")[0].split())
    assert "--period TIME --sensing TIME --preprocessing TIME --network TIME [OPTIONS]" in usage


@pytest.mark.parametrize(
    ("rate", "period"), [("10Hz", "the period, 100 ms"), ("0.5 hz", "2000 ms"), ("1 kHz", "1 ms"), ("0Hz", "a period")]
)
def test_a_period_given_as_a_rate_is_answered_with_the_time(capsys, rate, period):
    assert run(["control", "openvla-7b", "nvidia-jetson-agx-orin-64gb", *CYCLE, "--period", rate]) == 2
    said = capsys.readouterr().err
    assert f"--period: {rate} is a rate" in said
    assert period in said


@pytest.mark.parametrize("arguments", [["everything"], ["decode", "--device", "abacus"]])
def test_measure_refuses_what_it_does_not_know(capsys, arguments):
    assert run(["measure", *arguments]) == 2
    assert "unknown" in capsys.readouterr().err


def test_measure_writes_records_of_a_quick_look(capsys, tmp_path):
    pytest.importorskip("torch")
    file = tmp_path / "runs.jsonl"

    assert run(["measure", "ceilings", "--device", "cpu", "--quick", "--out", str(file)]) == 0

    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert records
    assert str(file) in capsys.readouterr().out.replace("\n", "")


CONTROL = ["control", "openvla-7b", "nvidia-jetson-agx-orin-64gb", *CYCLE]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["hardware", "list", "--vendor", "nvidiaa"], "--vendor: unknown vendor 'nvidiaa'; nearest: nvidia"),
        (["hardware", "list", "--vendor", ""], "--vendor: unknown vendor ''"),
        (["hardware", "list", "--memory", "much"], "--memory: 'much'"),
        ([*CONTROL, "--taken", "nonsense"], "--taken: 'nonsense'"),
        (["size", MODEL, PART, "--context", ""], "--context must be a number"),
        (["size", MODEL, PART, "--batch", ""], "--batch must be a number"),
        (["validate", "--runs", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["validate", "--published", "world", "--rows"], "--rows goes with measured runs"),
        (["validate", "--published", "speed", "--plot", ""], "--plot goes with measured runs"),
        (["validate", "--file", "rows.csv"], "--published speed or --published world"),
    ],
)
def test_the_option_that_is_wrong_is_named(capsys, arguments, sentence):
    assert run(arguments) == 2
    assert sentence in capsys.readouterr().err


# 70.55e9 parameters of 2 bytes and 64 sequences of 2304 tokens of 327,680 bytes are 189.4 GB; two H100 give at most
# 0.9 x 2 x 85.5 = 153.9 GB to an engine, four 307.9 GB, and shared layers are divided by powers of two.
def test_what_does_not_fit_says_on_how_many_devices_it_does(capsys):
    found = printed_json(capsys, "size", "llama-3.3-70b", PART, "--concurrency", "64", code=1)

    assert found["verdict"] == "does not fit"
    assert (found["enough"]["devices"], found["enough"]["tensor_parallel"]) == (4, 4)
    assert found["devices"] == 1
    asked = ("size", "llama-3.3-70b", PART, "--concurrency", "64", "--tensor-parallel", "4")
    assert printed_json(capsys, *asked)["fits"]


def test_a_case_that_no_number_of_devices_holds_promises_none(capsys):
    found = printed_json(capsys, "size", "llama-3.3-70b", PART, "--concurrency", "100000", code=1)

    assert found["enough"] is None


# pi0, OpenVLA and SmolVLA are policies of robots, which `capacity control` times.
def test_world_models_are_listed_with_the_command_that_takes_them(capsys):
    assert run(["models", "list", "vla"]) == 0
    printed = capsys.readouterr().out
    assert {"openvla-7b", "openvla-oft", "smolvla"} <= set(printed.split())
    assert "capacity control MODEL PART" in printed

    kinds = {row["id"]: row["kind"] for row in printed_json(capsys, "models", "list")}
    assert kinds["pi0"] == "world model"
    assert kinds[MODEL] == "model"


def test_a_world_model_is_shown_with_what_enters_it_and_its_sources(capsys):
    assert run(["models", "show", "pi0"]) == 0
    printed = capsys.readouterr().out
    assert "pi0, flow head, 10 steps, 50 actions per decision" in printed
    assert "Physical-Intelligence/openpi" in printed

    found = printed_json(capsys, "models", "show", "pi0")
    assert (found["name"], found["parameters"]) == ("pi0", 3_238_044_400)
    assert found["spec"]["head"]["kind"] == "flow"


def test_help_shows_no_type_of_a_flag(capsys):
    run(["size", "--help"])
    flags = [line for line in capsys.readouterr().out.splitlines() if "--json" in line or "--all-parts" in line]
    assert flags
    assert not any("bool" in line for line in flags)


@pytest.mark.parametrize("policy", ["pi0", "pi0.5", "smolvla", "gr00t-n1.7-3b", "octo-base", "pi0-fast", "v-jepa-2-ac"])
def test_a_policy_has_no_frame_rate(capsys, policy):
    assert run(["frames", policy, PART, "--frames-per-s", "5"]) == 2
    assert f"{policy} makes no frame: its " in capsys.readouterr().err


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


# The model cards: gpt-oss stores its experts in MXFP4 and the rest in BF16; DeepSeek-V3 its products in fp8 of 128x128.
@pytest.mark.parametrize(
    ("model", "stored"),
    [("gpt-oss-120b", "bf16, experts mxfp4"), ("deepseek-v3", "bf16, attention + mlp + experts fp8_block128")],
)
def test_a_list_of_models_says_in_which_formats_one_is_stored(capsys, model, stored):
    (row,) = printed_json(capsys, "models", "list", model)

    assert row["stored"] == stored


# nvidia-smi prints 81,559 MiB for an H100 SXM5; other files list their capacity as unverified.
def test_memory_that_no_source_states_is_marked_in_the_list(capsys):
    doubtful = [name for name in cap.hardware_ids() if "memory.capacity_bytes" in cap.load_hardware(name).unverified]
    assert doubtful
    assert PART not in doubtful

    assert run(["hardware", "list", doubtful[0]]) == 0
    printed = capsys.readouterr().out
    assert "GiB ?" in printed
    assert "unverified" in printed
    assert run(["hardware", "list", PART]) == 0
    assert "?" not in capsys.readouterr().out
    (row,) = printed_json(capsys, "hardware", "list", PART)
    assert row["capacity_evidence"] == "published"
