"""Input that an adversary tried: one sentence each, never a traceback, and never a number for a wrong question."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import capacity as cap
from capacity.catalog.runs import read_runs
from capacity.cli import run
from capacity.errors import CapacityError
from capacity.importers.checkpoints.safetensors import read_folder
from capacity.units import format_bytes, format_seconds, parse_bytes, parse_seconds

H100 = "nvidia-h100-sxm5-80gb"
BF16 = cap.Deployment(weights="bf16")
SIZE = ["size", "llama-3-8b", H100]
HUGE = {
    "model_type": "llama", "hidden_size": 2**31, "intermediate_size": 2**31, "num_hidden_layers": 2_000,
    "num_attention_heads": 32, "vocab_size": 32_000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def control_of_pi0(**changes):
    cycle = {"period_s": 1.0, "sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0}
    return cap.control(cap.load_world_model("pi0"), cap.load_hardware(H100), BF16, **cycle, **changes)


def command(*arguments, **options):
    run = [sys.executable, "-m", "capacity.cli", *arguments]
    return subprocess.run(run, capture_output=True, text=True, timeout=120, check=False, **options)


# What follows the hundredth letter was dropped unread.
@pytest.mark.parametrize(
    "text", ["0" * 98 + "80 GiB", "80" + " " * 98 + "GiB", "80 GiB" + " " * 94 + "; or was it 40?", "1" * 400]
)
def test_a_size_is_read_whole_or_not_at_all(text):
    with pytest.raises(CapacityError, match="is not a number of bytes"):
        parse_bytes(text)


def test_a_time_is_read_whole_or_not_at_all():
    with pytest.raises(CapacityError, match="is not a time"):
        parse_seconds("0." + "0" * 98 + "50 ms")


@pytest.mark.parametrize("text", ["8__0_ GiB", "_80 GiB", "80_ GiB", "8,0 GiB", "９ GiB"])
def test_digits_are_written_as_numbers_are(text):
    with pytest.raises(CapacityError):
        parse_bytes(text)


@pytest.mark.parametrize("count", [1, 1000 * 2**20, 1023 * 2**30, 85_520_809_984])
def test_a_printed_size_is_read_again(count):
    assert parse_bytes(format_bytes(count, digits=6)) == pytest.approx(count, rel=1e-5)


@pytest.mark.parametrize("seconds", [1e-3, 0.05, 1.5, 100.0, 7_500_000.0])
def test_a_printed_time_is_read_again(seconds):
    assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=1e-2)


@pytest.mark.parametrize("rate", [1e-300, 1.0, 1e38, 1e300])
def test_a_peak_has_a_range(rate):
    with pytest.raises(CapacityError, match=r"peak_flop_per_s\.bf16"):
        cap.load_hardware(H100).replace(**{"peak_flop_per_s.bf16": rate})


# The ranges are far beyond what is built: the largest shipped link has 1.3e12 B/s, clock 2.9e9 Hz, board 1,400 W.
@pytest.mark.parametrize("value", [1e-300, 1e300])
@pytest.mark.parametrize(
    ("figure", "unit"),
    [
        ("peak_flop_per_s.bf16", "FLOP/s"),
        ("memory.bytes_per_s", "B/s"),
        ("links.bytes_per_s_per_direction", "B/s"),
        ("host_link.bytes_per_s_per_direction", "B/s"),
        ("measured.gemv_bytes_per_s", "B/s"),
        ("measured.gemv_fixed_s", "s"),
        ("compute.boost_hz", "Hz"),
        ("power.tdp_w", "W"),
    ],
)
def test_a_figure_of_a_part_has_a_range(figure, unit, value):
    with pytest.raises(
        CapacityError, match=rf"{re.escape(figure)}: must be (0 or )?from .* to .* {unit}, got 1e[+-]300"
    ):
        cap.load_hardware(H100).replace(**{figure: value})


@pytest.mark.parametrize("value", [1e-300, 1e300])
@pytest.mark.parametrize("figure", ["network.bytes_per_s_per_device", "full_w", "idle_w", "rack_units"])
def test_a_figure_of_a_server_has_a_range(figure, value):
    with pytest.raises(CapacityError, match=rf"{re.escape(figure)}: must be from .* to .*, got 1e[+-]300"):
        cap.load_server("nvidia-hgx-h100-8x80gb").replace(**{figure: value})


@pytest.mark.parametrize("name", ["max_ttft_s", "max_tpot_s", "requests_per_s"])
def test_a_figure_of_a_workload_has_a_range(name):
    with pytest.raises(CapacityError, match=rf"{name}: must be from .* got 1.1e\+99"):
        cap.Workload(**{name: 1.1e99})


# The slowest part that the ranges allow, and the largest grid of times: no figure leaves a float.
def test_times_of_the_slowest_part_are_finite():
    slow = cap.load_hardware(H100).replace(**{"memory.bytes_per_s": 1e6, "peak_flop_per_s.bf16": 1e6})
    step = cap.tpot(cap.load_model("llama-3-8b"), slow, BF16, batch=2**31, context_tokens=8192)
    assert np.isfinite([step.bound, step.roofline]).all()
    assert np.isfinite(cap.request_latency(1e15, 1e15, 2**31))


# Their files: a planner, an encoder, recurrent and diffusion policies, and two cores behind which an expert acts.
NO_TOKENS = {
    "tdmpc2-5m": "has no decoder stage",
    "v-jepa-2-vit-l": "has no decoder stage",
    "oasis-500m": "has no decoder stage",
    "dreamerv3-12m": "has no output head over a vocabulary",
    "octo-base": "has no output head over a vocabulary",
    "gr00t-n1.7-3b": "has no output head over a vocabulary",
    "pi0": "answers through its stage expert",
    "smolvla": "answers through its stage expert",
}
ASK_CONTROL = "it does not make tokens one at a time; ask control for a decision of its world model"
QUESTIONS = {
    "size": lambda model, part: cap.size(model, part, None, BF16),
    "tpot": lambda model, part: cap.tpot(model, part, BF16, batch=1, context_tokens=10),
    "ttft": lambda model, part: cap.ttft(model, part, BF16, batch=1, prompt_tokens=10),
    "max_batch": lambda model, part: cap.max_batch(model, part, BF16, context_tokens=10),
    "max_context": lambda model, part: cap.max_context(model, part, BF16, batch=1),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", NO_TOKENS)
def test_a_network_that_makes_no_tokens_is_not_sized(name, question):
    with pytest.raises(CapacityError, match=f"^{re.escape(name)} {NO_TOKENS[name]}: {ASK_CONTROL}$"):
        QUESTIONS[question](cap.load_world_model(name).model, cap.load_hardware(H100))


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", ["openvla-7b", "mineworld-300m", "iris"])
def test_a_core_that_makes_tokens_is_sized(name, question):
    assert QUESTIONS[question](cap.load_world_model(name).model, cap.load_hardware(H100)) is not None


# An encoder keeps nothing between passes, so no context ends its batch.
@pytest.mark.parametrize("name", ["v-jepa-2-vit-l", "tdmpc2-5m", "oasis-500m"])
def test_a_network_without_a_decoder_has_no_context(name):
    world, part = cap.load_world_model(name), cap.load_hardware(H100)
    for subject in (world, world.model):
        for ask in (
            lambda subject: cap.max_batch(subject, part, BF16, context_tokens=10),
            lambda subject: cap.max_context(subject, part, BF16, batch=1),
            lambda subject: cap.kv_cache_bytes(subject, BF16, batch=1, context_tokens=10),
        ):
            with pytest.raises(CapacityError, match=f"{re.escape(name)} has no decoder stage: {ASK_CONTROL}"):
                ask(subject)


@pytest.mark.parametrize("ask", [cap.parameter_count, lambda model: cap.weight_bytes(model, BF16)])
def test_a_model_a_thousand_times_the_largest_is_refused(ask):
    with pytest.raises(CapacityError, match=r"llama has .* parameters, at most 1e\+15 are sized: see whether a digit"):
        ask(cap.load_model(HUGE))


def test_arrays_that_broadcast_beyond_memory_are_refused():
    model, part = cap.load_model("llama-3-8b"), cap.load_hardware(H100)
    with pytest.raises(CapacityError, match="broadcast to 1,000,000,000,000 points"):
        cap.tpot(model, part, BF16, batch=np.ones((10**6, 1), int), context_tokens=np.ones((1, 10**6), int))
    with pytest.raises(CapacityError, match="at most 32 dimensions"):
        cap.tpot(model, part, BF16, batch=np.ones((1,) * 33, int), context_tokens=1)


class Raises:
    """An object that offers an array and gives none."""

    def __array__(self, *_, **__):
        raise RuntimeError("no array")


class Unprintable(Raises):
    def __repr__(self):
        raise RuntimeError("no text")


SHAPES = {
    "batch: arrays of at most 32 dimensions are allowed, got 33": np.ones((1,) * 33, int),
    "batch has 1,000,000,000,000 points; at most 134,217,728 are allowed": np.broadcast_to(np.int64(1), (10**6, 10**6)),
    "batch must be a whole number or an array of them, got an object of type Raises": Raises(),
    "batch must be a whole number or an array of them, got an object of type Unprintable": Unprintable(),
}


@pytest.mark.parametrize("sentence", SHAPES)
def test_an_array_that_cannot_be_held_is_refused_by_every_question(sentence):
    model, part, batch = cap.load_model("llama-3-8b"), cap.load_hardware(H100), SHAPES[sentence]
    for ask in (
        lambda: cap.max_context(model, part, BF16, batch=batch),
        lambda: cap.state_bytes(model, BF16, batch=batch),
        lambda: cap.kv_cache_bytes(model, BF16, batch=batch, context_tokens=1),
        lambda: cap.tpot(model, part, BF16, batch=batch, context_tokens=1),
    ):
        with pytest.raises(CapacityError, match=sentence):
            ask()


def test_a_time_that_cannot_be_held_is_refused():
    with pytest.raises(CapacityError, match="ttft_s: arrays of at most 32 dimensions are allowed, got 33"):
        cap.request_latency(np.ones((1,) * 33), 1.0, 1)
    with pytest.raises(CapacityError, match="ttft_s must be a number, got an object of type Raises"):
        cap.request_latency(Raises(), 1.0, 1)


def test_a_name_is_text():
    with pytest.raises(CapacityError, match="name must be a str"):
        cap.load_world_model({"name": "x"}, name=3)


def test_a_spec_is_not_changed_in_place():
    with pytest.raises(CapacityError, match=r"Deployment\.weights cannot be changed in place"):
        BF16.weights = "int8"
    with pytest.raises(CapacityError, match=r"Deployment\.weights cannot be deleted"):
        del BF16.weights


def test_results_are_compared_and_hashed():
    model, part = cap.load_model("llama-3-8b"), cap.load_hardware(H100)
    one, same, other = (cap.tpot(model, part, BF16, batch=np.array([1, n]), context_tokens=5) for n in (2, 2, 3))

    assert one == same
    assert one != other
    assert len({cap.size(model, part), cap.size(model, part)}) == 1
    assert len({cap.activation_moments(model, BF16, batch=1, tokens=9) for _ in range(2)}) == 1
    assert len({control_of_pi0() for _ in range(2)}) == 1


def test_measured_ceilings_are_asked_for_with_true_or_false():
    with pytest.raises(CapacityError, match="attainable must be a bool"):
        cap.ridge_point(cap.load_hardware(H100), "bf16", attainable="no")


def test_taken_bytes_are_whole():
    with pytest.raises(CapacityError, match=r"taken_bytes must be a whole number of bytes from 0 to 2\^62, got 1.5"):
        control_of_pi0(taken_bytes=1.5)


@pytest.mark.parametrize(
    "twice",
    [
        ["--batch", "1", "--batch", "2"],
        ["--batch=1", "--batch=1"],
        ["--weights", "bf16", "--weights", "int8"],
        ["--out", "a.json", "--out", "b.json"],
    ],
)
def test_an_option_given_twice_is_refused(capsys, twice):
    option = twice[0].partition("=")[0]
    assert run([*SIZE, *twice]) == 2
    assert capsys.readouterr().err == f"capacity: {option} is given 2 times; give it once\n"


def test_an_option_of_every_command_is_given_once(capsys):
    for arguments in (
        ["control", "pi0", H100, "--period", "1 s", "--period", "2 s"],
        ["frames", "oasis-500m", H100, "--frames-per-s", "1", "--frames-per-s", "2"],
        ["validate", "--published", "speed", "--published", "world"],
    ):
        assert run(arguments) == 2
        assert f"{arguments[-2]} is given 2 times" in capsys.readouterr().err


def test_a_switch_says_the_same_twice(capsys):
    assert run([*SIZE, "--json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fits"] is True


@pytest.mark.parametrize("option", ["--batch", "--percentile", "--memory-fraction", "--requests-per-s"])
def test_digits_of_other_scripts_are_no_number(capsys, option):
    assert run([*SIZE, option, "\uff19"]) == 2
    assert f"{option} must be a number, got '\uff19'" in capsys.readouterr().err


def test_assumed_figures_are_a_list():
    with pytest.raises(CapacityError, match="assumed must be a list of names"):
        cap.load_hardware({"based_on": H100, "name": "y", "assumed": 3})


@pytest.mark.parametrize(
    "doubt", [{"sources": [{"fields": ["[" * 16_000], "cite": "a"}]}, {"unverified": ["[" * 16_000]}]
)
def test_a_pattern_of_brackets_is_refused_at_once(doubt):
    memory = {"capacity_bytes": 80 * 10**9, "bytes_per_s": 3e12}
    started = time.process_time()
    for whole in ({"based_on": H100}, {"id": "y", "vendor": "v", "memory": memory}):
        with pytest.raises(CapacityError, match="200"):
            cap.load_hardware({"name": "y", **whole, **doubt})
    assert time.process_time() - started < 2


def large_configuration(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", **{f"k{i}": 1 for i in range(300_000)}}))
    return lambda: cap.load_model(path)


def large_yaml(tmp_path):
    path = tmp_path / "world.yaml"
    path.write_text("a: [" + "1," * 490_000 + "1]")
    return lambda: cap.load_world_model(path)


def large_header(tmp_path):
    path, length = tmp_path / "model.safetensors", 86_000_000
    path.write_bytes(length.to_bytes(8, "little") + b" " * length)
    return lambda: read_folder(tmp_path)


def many_runs(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("{}\n" * 20_000_000)
    return lambda: read_runs(path)


def many_lines(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("\n" * 2_000_000 + "{}")
    return lambda: read_runs(path)


@pytest.mark.parametrize("make", [large_configuration, large_yaml, large_header, many_runs, many_lines])
def test_a_large_file_is_refused_before_it_takes_memory(tmp_path, make):
    read = make(tmp_path)
    tracemalloc.start()
    with pytest.raises(CapacityError, match=r"keys; a configuration has hundreds|too large|is missing"):
        read()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 256 * 2**20


@pytest.mark.parametrize("escape", ["\x1b]0;owned\x07", "\u202e"])
def test_a_check_prints_no_command_to_the_terminal(tmp_path, capsys, escape):
    part, model = tmp_path / f"part{escape}.toml", tmp_path / f"model{escape}.json"
    part.write_text(f'based_on = "{H100}"\nname = {json.dumps("p" + escape)}\n')
    model.write_text(json.dumps(HUGE | {"hidden_size": 4096, "intermediate_size": 4096, "num_hidden_layers": 2}))

    assert run(["hardware", "check", str(part)]) == 0
    assert run(["models", "check", str(model)]) == 0
    assert not set(escape) & set("\x1b\x07\u202e") & set(capsys.readouterr().out)


def test_a_stage_that_computes_nothing_is_refused():
    table = cap.load_world_model("tdmpc2-19m").model_dump(mode="json")
    del table["model"]["stages"][0]["before"]
    with pytest.raises(CapacityError, match="has no layers and no tensors before or after them"):
        cap.load_world_model(table)


def test_brackets_in_brackets_are_refused_at_once(tmp_path):
    path = tmp_path / "world.yaml"
    path.write_text("a: 1\n" + "[" * 50_000)
    with pytest.raises(CapacityError, match="nested too deeply"):
        cap.load_world_model(path)


def test_a_reader_that_leaves_is_no_missed_objective():
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m capacity.cli {' '.join(SIZE)} | head -1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


def test_closed_output_is_no_traceback():
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m capacity.cli {' '.join(SIZE)} >&-"],
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("columns", ["0", "1"])
def test_a_terminal_without_columns_is_printed_to(columns):
    assert len(command(*SIZE, env={**os.environ, "COLUMNS": columns}).stdout) > 500


# A half-downloaded folder of a hub is full of links that lead nowhere.
def test_a_link_that_leads_nowhere_is_one_sentence(tmp_path):
    config = HUGE | {"hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to("../../blobs/missing")
    done = command("size", str(tmp_path), H100)

    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    assert "model.safetensors" in done.stderr


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707])
def test_no_library_is_loaded_from_a_folder_that_others_may_write(tmp_path, monkeypatch, mode):
    from capacity.measure.decoder.build_cache import cache_folder

    open_to_all = tmp_path / "capacity"
    open_to_all.mkdir()
    open_to_all.chmod(mode)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "own"))

    assert cache_folder() != open_to_all
    assert stat.S_IMODE(cache_folder().lstat().st_mode) & 0o022 == 0


def test_a_link_given_for_the_answer_leads_to_it(tmp_path):
    (tmp_path / "answer.json").write_text("old")
    (tmp_path / "link.json").symlink_to("answer.json")
    (tmp_path / "new.json").symlink_to("made.json")

    for name in ("link.json", "new.json"):
        assert run([*SIZE, "--out", str(tmp_path / name)]) == 0
        assert (tmp_path / name).is_symlink()
    assert json.loads((tmp_path / "answer.json").read_text()) == json.loads((tmp_path / "made.json").read_text())


def test_the_answer_replaces_no_pipe_device_or_folder(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "device.json").symlink_to(os.devnull)
    (tmp_path / "loop.json").symlink_to("loop.json")

    for name in ("pipe.json", "folder.json", "device.json", "loop.json"):
        assert run([*SIZE, "--out", str(tmp_path / name)]) == 2
        assert f"{name}: cannot be written (" in capsys.readouterr().err
    assert stat.S_ISFIFO((tmp_path / "pipe.json").stat().st_mode)
    assert (tmp_path / "device.json").resolve() == Path(os.devnull)


# 130 is 128 + SIGINT, as shells report it; the first interrupt comes while modules are loaded, the second at work.
@pytest.mark.parametrize("loading", ["capacity.cli", "capacity.studies.parts"])
def test_an_interrupt_ends_a_command_without_a_traceback(tmp_path, loading):
    interrupt = f"""import os, signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == {loading!r}:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = ["size", "llama-3-8b", "--all-parts"]
from capacity.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", interrupt], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr


def test_the_code_of_an_interrupt_is_documented(capsys):
    run(["--help"])
    assert "130 interrupted" in " ".join(capsys.readouterr().out.split())


# As the id of a file says nothing of what is in it, the part says so itself.
def test_a_file_that_replaces_a_shipped_part_says_so(tmp_path):
    path = tmp_path / f"{H100}.toml"
    path.write_text('based_on = "nvidia-l4-pcie-24gb"\nname = "not what the id says"\n')

    assert cap.load_hardware(H100, folders=tmp_path).notes[-1] == f"{path} replaces the shipped part of this id"
    assert not any("replaces" in note for note in cap.load_hardware(H100).notes)
    assert not any("replaces" in note for note in cap.load_hardware(path).notes)


def test_a_file_may_change_the_shipped_part_of_its_own_name(tmp_path):
    (tmp_path / f"{H100}.toml").write_text(f'based_on = "{H100}"\nname = "ours"\nmemory.bytes_per_s = 3.0e12\n')
    (tmp_path / "ours.toml").write_text('based_on = "ours"\nname = "ours"\n')
    own, shipped = cap.load_hardware(H100, folders=tmp_path), cap.load_hardware(H100)

    assert (own.memory.bytes_per_s, own.peak_flop_per_s) == (3.0e12, shipped.peak_flop_per_s)
    assert {"memory.bytes_per_s", "peak_flop_per_s.bf16"} <= set(own.assumed)
    with pytest.raises(CapacityError, match="based_on is circular: ours -> ours"):
        cap.load_hardware("ours", folders=tmp_path)


SECRET = "hunter2 is the password"


@pytest.mark.parametrize("name", ["secret.txt", "secret", "secret.toml", "secret.json", "secret.yaml"])
@pytest.mark.parametrize("text", [f'"{SECRET}" = 1', f'{{"{SECRET}": 1, "{SECRET}": 2}}', f"{SECRET}: 1", SECRET])
def test_a_file_that_is_no_spec_is_not_repeated(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    for read in (cap.load_hardware, cap.load_server, cap.load_model, cap.load_world_model, cap.load_deployment):
        with pytest.raises(CapacityError) as refused:
            read(path)
        assert "hunter2" not in str(refused.value)


def test_a_part_is_read_from_toml_alone(tmp_path):
    path = tmp_path / "id_rsa"
    path.write_text("key = 1")
    with pytest.raises(CapacityError, match=r"id_rsa: a part is a \.toml file"):
        cap.load_hardware(path)
