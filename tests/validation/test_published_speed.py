"""The tables of published speeds: how rows are read, and that no bound lies above a measurement."""

from __future__ import annotations

import pytest

from capacity.cli import run
from capacity.validation import published_speed
from capacity.validation.speed_rows import COLUMNS, read_cases

PLAIN = {
    "id": "R1",
    "kind": "decode_tps_per_seq",
    "model": "meta-llama/Meta-Llama-3-8B-Instruct",
    "weights_dtype_quant": "bf16",
    "kv_dtype": "bf16",
    "gpu": "H100 SXM",
    "n_gpus": "1",
    "tp": "1",
    "batch_or_concurrency": "1",
    "prompt_len": "512",
    "gen_len": "128",
    "context_len": "",
    "framework": "an engine",
    "observed_value": "100",
    "observed_unit": "tok/s",
    "layer_split": "",
    "physics_flag": "",
    "source": "of a test",
    "note": "",
}


def read(**changed):
    reading = read_cases([PLAIN | changed])
    return reading.cases[0] if reading.cases else {**reading.apart, **reading.left_out}


def test_a_row_of_one_stream_is_the_time_of_a_step():
    case = read()

    assert (case.model, case.parts, case.timed) == ("llama-3-8b", ("nvidia-h100-sxm5-80gb",), "decode")
    assert (case.batch, case.context_tokens, case.measured_s) == (1, 512 + 64, 0.01)


# 16 sequences that make 800 tokens a second together make a token each in 20 ms.
def test_a_total_rate_is_shared_by_its_sequences():
    assert read(kind="decode_tps_total", batch_or_concurrency="16", observed_value="800").measured_s == 16 / 800


def test_a_rate_per_device_counts_all_devices():
    changed = {"kind": "decode_tps_total", "n_gpus": "4", "tp": "4", "observed_unit": "tok/s per GPU"}
    case = read(batch_or_concurrency="16", observed_value="200", **changed)

    assert case.measured_s == 16 / 800
    assert [deploy.tensor_parallel for deploy in case.deployments] == [4]


# 128 tokens at 64 a second with their prefill: two seconds for the whole request.
def test_a_rate_with_its_prefill_is_the_time_of_whole_requests():
    case = read(observed_value="64", observed_unit="tok/s incl. prefill")

    assert (case.timed, case.measured_s, case.output_tokens) == ("requests", 2.0, 128)


def test_a_first_token_at_a_concurrency_is_judged_as_one_prompt():
    case = read(kind="ttft_ms", batch_or_concurrency="8", observed_value="250", observed_unit="ms median")

    assert (case.timed, case.batch, case.prompt_tokens, case.measured_s) == ("prefill", 1, 512, 0.25)


def test_a_prefill_rate_is_the_time_of_its_prompts():
    case = read(kind="prefill_tps", batch_or_concurrency="4", observed_value="20480")

    assert (case.batch, case.measured_s) == (4, 4 * 512 / 20480)


def test_layers_split_over_devices_are_a_pipeline():
    case = read(n_gpus="4", layer_split="yes", weights_dtype_quant="GGUF Q4_K_M")

    assert [(d.pipeline_parallel, d.tensor_parallel, d.weights) for d in case.deployments] == [(4, 1, "q4_k")]


# Of a request of 512 + 128 tokens, 64 tokens a second with the prompt counted are ten seconds.
def test_a_rate_that_counts_the_prompt_is_the_time_of_whole_requests():
    case = read(observed_value="64", observed_unit="tok/s incl. input")

    assert (case.timed, case.measured_s) == ("requests", 10.0)


# 20 ms for each of 128 tokens, prefill included: 2.56 s.
def test_an_end_to_end_latency_is_that_of_a_whole_request():
    case = read(kind="tpot_ms", observed_value="20", observed_unit="ms (end-to-end latency / 128 outputs)")

    assert (case.timed, case.measured_s) == ("requests", pytest.approx(2.56))


# Eight requests of 128 tokens each at 400 tokens a second of the whole run: 2.56 s.
def test_a_total_that_a_note_says_to_hold_its_prefill_is_the_time_of_all_requests():
    case = read(
        kind="decode_tps_total", batch_or_concurrency="8", observed_value="400", note="static, includes prefill"
    )

    assert (case.timed, case.batch, case.measured_s) == ("requests", 8, 2.56)


def test_without_a_number_of_sequences_a_rate_is_sustained_and_a_step_has_at_least_one():
    rate = read(kind="decode_tps_total", batch_or_concurrency="max")
    open_loop = read(kind="decode_tps_total", batch_or_concurrency="rate 0.3/s")
    step = read(kind="tpot_ms", batch_or_concurrency="rate 0.3/s", observed_unit="ms mean")

    assert (rate.timed, rate.measured_s, rate.batch_stated) == ("sustained", 0.01, True)
    assert (open_loop.timed, open_loop.batch_stated) == ("sustained", False)
    assert (step.timed, step.batch, step.batch_stated) == ("decode", 1, False)
    assert read(kind="prefill_tps", batch_or_concurrency="open loop") == {"no batch": ("R1",)}
    assert read(batch_or_concurrency="a few") == {"no batch": ("R1",)}


def test_devices_beyond_the_tensor_parallel_ones_hold_sequences_of_their_own():
    (deploy,) = read(n_gpus="8", tp="4").deployments

    assert (deploy.tensor_parallel, deploy.data_parallel) == (4, 2)


def test_attention_of_experts_may_be_shared_out_by_sequence():
    case = read(model="openai/gpt-oss-20b", n_gpus="8", tp="8", weights_dtype_quant="mxfp4")

    assert [(d.tensor_parallel, d.data_parallel, d.weights) for d in case.deployments] == [
        (8, 1, "as_stored"),
        (1, 8, "as_stored"),
    ]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"framework": "vLLM + speculative"}, "speculation"),
        ({"framework": "llama.cpp CUDA + host offload"}, "host memory"),
        ({"note": "accept length 3.1"}, "speculation"),
        ({"kind": "ttft_ms", "note": "prefix-cache HIT of the same prompt"}, "prefix-cache hit"),
        ({"kind": "prefill_tps", "note": "4096 tokens already cached"}, "prefix-cache hit"),
        ({"kind": "prefill_tps", "note": "HTTP latency taken off by the tool"}, "outside the engine is subtracted"),
        ({"physics_flag": "exceeds the link rate"}, "beyond what a part can do"),
        ({"kind": "ttft_ms", "physics_flag": "exceeds peak FLOP/s: prefix-cache hit suspected"}, "prefix-cache hit"),
        ({"model": "nobody/unheard-of"}, "model not shipped"),
        ({"model": "Qwen/Qwen3.9-1B"}, "type that is not read: qwen3_5"),
        ({"gpu": "RTX 9999"}, "part not shipped"),
        ({"gpu": ""}, "part not stated"),
        ({"weights_dtype_quant": "IQ2_TN 2-bit"}, "format of the weights not expressed"),
        ({"observed_unit": "images/s"}, "unit that is no time"),
        ({"observed_unit": "tok/s (per GPU or total ambiguous)"}, "unit that is no time"),
        ({"tp": "3", "n_gpus": "3"}, "a deployment that the model cannot have"),
        ({"kind": "achieved_bw_gbs"}, "not the time of a step"),
    ],
)
def test_a_row_of_something_else_says_why(changed, reason):
    (found,) = read(**changed)

    assert reason in found


@pytest.mark.parametrize(
    "changed",
    [
        {"note": "TTFT of this set is left out: warm runs hit the prompt cache"},
        {"kind": "ttft_ms", "framework": "vLLM + speculative", "observed_unit": "ms"},
        {"kind": "prefill_tps", "note": "0 tokens already cached"},
        {"physics_flag": "modelled bytes exceed datasheet bandwidth (expert-coverage model too high)"},
    ],
)
def test_what_a_note_says_of_other_kinds_of_rows_leaves_a_row_in(changed):
    assert read(**changed).row_id == "R1"


def test_a_flag_of_one_row_lists_the_first_tokens_of_its_source_apart():
    hit = PLAIN | {"kind": "ttft_ms", "physics_flag": "prefix-cache hit suspected"}
    same, other = hit | {"id": "R2", "physics_flag": ""}, hit | {"id": "R3", "physics_flag": "", "source": "another"}
    reading = read_cases([hit, same, other])

    assert [case.row_id for case in reading.cases] == ["R3"]
    assert list(reading.apart.values()) == [("R1", "R2")]
    assert read_cases([same], flagged_too=[hit]).cases == ()


@pytest.fixture(scope="module")
def shipped():
    return published_speed.validate()


# DESIGN section 6: never above a measured value on every row that a rule maps by inputs alone.
def test_no_bound_lies_above_a_published_measurement(shipped):
    first = [pair for pair in shipped.pairs if pair.name.startswith("S")]

    assert len(first) >= 700
    assert len(shipped.pairs) - len(first) >= 380
    assert [pair.name for pair in shipped.above] == []


def test_single_streams_reach_three_fifths_of_the_bound(shipped):
    assert shipped.single_stream_median >= 0.6


# Rates of gpt-fast's README over one to eight A100s: bound below attainable, and no attainable time much above.
def test_attainable_times_of_compiled_graphs_lie_between_bound_and_measurement(shipped):
    rows = [pair for pair in shipped.pairs if "gpt-fast" in pair.name and "a100" in pair.name]

    assert len(rows) >= 13
    for pair in rows:
        assert pair.bound < pair.predicted < 1.05 * pair.measured, pair.name
        assert pair.predicted > 0.5 * pair.measured, pair.name


def test_a_bound_above_a_measurement_ends_with_exit_code_one(tmp_path, capsys):
    path = tmp_path / "fast.csv"
    row = PLAIN | {"observed_value": "100000"}
    path.write_text(",".join(COLUMNS) + "\n" + ",".join(row[name] for name in COLUMNS) + "\n")

    assert run(["validate", "--published", "speed", "--file", str(path), "--rows"]) == 1
    assert "a bound is ABOVE its measurement in 1 of 1" in capsys.readouterr().out
