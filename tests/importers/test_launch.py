"""Command lines of serving engines: real ones from public threads, the way back, and lines that are none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import capacity as cap
from capacity.errors import CapacityError
from capacity.files import package_data
from capacity.importers.launch import launch_line, launchers, read_launch

# Each with the thread or page it stands in, and what it states.
REAL = [
    (
        "CUDA_VISIBLE_DEVICES=0,1 VLLM_USE_V1=1 VLLM_WORKER_MULTIPROC_METHOD=spawn vllm serve "
        "/home/work/Qwen/Qwen2.5-VL-3B-Instruct --gpu-memory-utilization 0.9 --swap-space 16 --max-model-len 4096 "
        "--tensor-parallel-size 2 --port 8091 --disable-custom-all-reduce",  # vllm-project/vllm#15469
        {"engine": "vllm", "tensor_parallel": 2, "memory_fraction": 0.9},
        4096,
    ),
    (
        "python -m vllm.entrypoints.openai.api_server --host 0.0.0.0 --port 12345 --max-model-len 65536 "
        "--trust-remote-code --tensor-parallel-size 8 --quantization moe_wna16 --gpu-memory-utilization 0.97 "
        "--kv-cache-dtype fp8_e5m2 --calculate-kv-scales --served-model-name deepseek-reasoner --model "
        "cognitivecomputations/DeepSeek-R1-AWQ",  # vllm-project/vllm#13267
        {"engine": "vllm", "tensor_parallel": 8, "memory_fraction": 0.97, "kv_cache": "fp8_e5m2"},
        65536,
    ),
    (
        "vllm serve /mnt/llm/Qwen2.5-32B-Instruct-AWQ --enable-prefix-caching --port 9001 --served-model-name "
        "Qwen2.5-32B-Instruct -tp 2 --max-model-len 15000 --gpu-memory-utilization 0.78 --enable-chunked-prefill "
        "--swap-space 4",  # vllm-project/vllm#15105
        {"engine": "vllm", "tensor_parallel": 2, "memory_fraction": 0.78},
        15000,
    ),
    (
        "python -u -m vllm.entrypoints.openai.api_server --host 0.0.0.0 --model TheBloke/Mistral-7B-OpenOrca-AWQ "
        "--dtype half --gpu-memory-utilization 0.7  --max-model-len 4096 --quantization awq",  # vllm-project/vllm#188
        {"engine": "vllm", "memory_fraction": 0.7},
        4096,
    ),
    (
        "vllm serve deepseek-ai/DeepSeek-R1-Distill-Qwen-32B --tensor-parallel-size 2 --max-model-len 32768 "
        "--enforce-eager",  # deepseek-ai/DeepSeek-R1 README
        {"engine": "vllm", "tensor_parallel": 2, "launch_mode": "eager"},
        32768,
    ),
    (
        # a public training page on vLLM incidents
        "vllm serve deepseek-ai/DeepSeek-V2-Lite-Chat \\\n  --tensor-parallel-size 4 \\\n  --enable-chunked-prefill "
        "true \\\n  --max-num-batched-tokens 2048 \\\n  --kv-cache-dtype fp8",
        {"engine": "vllm", "tensor_parallel": 4, "prefill_chunk_tokens": 2048, "kv_cache": "fp8_e4m3"},
        None,
    ),
    (
        "vllm serve deepseek-ai/DeepSeek-V3 --tensor-parallel-size 8 --enable-expert-parallel",  # the same kind of page
        {"engine": "vllm", "tensor_parallel": 8, "expert_parallel": 8},
        None,
    ),
    (
        "python3 -m sglang.launch_server --served-model-name ReSearch --model-path xxx/Qwen2.5-1.5B-Instruct --tp 4 "
        "--context-length 6000 --enable-metrics --dtype bfloat16 --host 127.0.0.1 --port 80 --trust-remote-code "
        "--disable-overlap --disable-radix-cache --disable-cuda-graph --mem-fraction-static 0.7",
        # Agent-RL/ReCall#43
        {"engine": "sglang", "tensor_parallel": 4, "memory_fraction": 0.7, "launch_mode": "eager"},
        6000,
    ),
    (
        "docker run --gpus all -p 8000:8000 --ipc=host lmsysorg/sglang:blackwell python -m sglang.launch_server "
        "--model-path Qwen/Qwen3-4B-FP8 --port 8000 --context-length 60000",  # sgl-project/sglang#7227
        {"engine": "sglang"},
        60000,
    ),
    (
        "python3 -m sglang.launch_server --model deepseek-ai/DeepSeek-R1-Distill-Qwen-32B --trust-remote-code --tp 2",
        # deepseek-ai/DeepSeek-R1 README
        {"engine": "sglang", "tensor_parallel": 2},
        None,
    ),
    (
        "./build/bin/llama-server -m ./muse-glimmer-30B-kquant-dynamic.gguf --mmproj ./mmproj-kquant.gguf "
        "-a muse-glimmer -ngl 99 -c 131072 -np 1 --host 127.0.0.1 --port 8080 --api-key muse-glimmer --jinja",
        # meta-models/meta-oss-cookbook#25
        {"engine": "llama.cpp", "max_sequences": 1},
        131072,
    ),
    (
        "llama-server -m model.gguf -ngl 99 --ctx-size 163840 --parallel 5 --batch-size 1024",  # zephel01/CodeRouter#58
        {"engine": "llama.cpp", "max_sequences": 5},
        32768,  # of each of the five slots
    ),
]


@pytest.mark.parametrize(("line", "stated", "context"), REAL)
def test_a_real_command_line_is_read_whole(line, stated, context):
    launch = read_launch(line)

    assert launch.deployment == cap.Deployment(**stated)
    assert launch.context_tokens == context
    assert launch.unknown == ()


def test_every_flag_is_accounted_for():
    launch = read_launch(
        "vllm serve Qwen/Qwen3-32B --max-num-seq 5 --cpu-offload-gb=4 --seed 1 --max_model_len=8k --enforce-eager"
    )

    assert launch.model == "Qwen/Qwen3-32B"
    assert launch.context_tokens == 8000
    assert launch.read == (("--max_model_len=8k", "context_tokens = 8000"), ("--enforce-eager", "launch_mode = eager"))
    assert launch.without_effect == ("--seed 1",)
    assert launch.not_modelled == ("--cpu-offload-gb 4",)
    assert launch.unknown == ("--max-num-seq (nearest: --max-num-seqs)",)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("ollama serve", "'ollama serve' starts no engine that is known"),
        ("", "'' starts no engine"),
        ("vllm serve", "it names no model"),
        ("vllm serve m --max-model-len", "--max-model-len needs a value"),
        ("vllm serve m --max-model-len --port 1", "--max-model-len needs a value"),
        ("vllm serve m --max-model-len -1", "must be a whole number, got '-1'"),
        ("vllm serve m -tp two", "-tp must be a whole number, got 'two'"),
        ("vllm serve m --gpu-memory-utilization lots", "must be a share from 0 to 1, got 'lots'"),
        ("vllm serve m --gpu-memory-utilization 1.5", r"memory_fraction: .*1\.5"),
        ("vllm serve m --kv-cache-dtype int3", "'int3' is not known; known: auto"),
        ("vllm serve 'm", "cannot be split into words"),
        ("vllm serve m " + "x" * 30_000, "characters are more than the 20,000"),
        ("vllm serve " + "m " * 600, "words are more than the 500"),
    ],
)
def test_a_line_that_cannot_be_read_is_one_sentence(line, sentence):
    with pytest.raises(CapacityError, match=sentence):
        read_launch(line)


FIELDS = {
    "tensor_parallel": st.integers(1, 64),
    "pipeline_parallel": st.integers(1, 8),
    "data_parallel": st.integers(1, 16),
    "memory_fraction": st.floats(0.05, 1).map(lambda share: round(share, 3)),
    "max_sequences": st.integers(1, 4096),
    "prefill_chunk_tokens": st.integers(1, 65_536),
    "block_tokens": st.sampled_from([1, 16, 32, 64, 128]),
    "launch_mode": st.just("eager"),
    "kv_cache": st.sampled_from(["bf16", "fp16", "fp8_e4m3", "q8_0"]),
    "weights": st.just("fp8_row"),
}


@st.composite
def launches(draw):
    """An engine, some of the choices that its flags can say, and a context."""
    name = draw(st.sampled_from(launchers()))
    table = package_data.toml(f"data/launch/{name}.toml")["fields"]
    stated = {}
    for field in draw(st.sets(st.sampled_from(sorted(set(table) & set(FIELDS))))):
        value = draw(FIELDS[field])
        if field not in ("kv_cache", "weights") or value in table[field]["words"].values():
            stated[field] = value
    if name == "vllm" and draw(st.booleans()):
        stated["expert_parallel"] = stated.get("tensor_parallel", 1) * stated.get("data_parallel", 1)
    return cap.Deployment(engine=name, **stated), draw(st.none() | st.integers(1, 10**6))


@settings(max_examples=300, deadline=None)
@given(launches())
def test_a_printed_line_is_read_back_to_the_same_deployment(case):
    deploy, context_tokens = case

    launch = read_launch(launch_line("some/model", deploy, context_tokens=context_tokens))

    assert launch.model == "some/model"
    assert launch.deployment == deploy
    assert launch.deployment.model_fields_set - {"engine"} == deploy.model_fields_set - {"engine"}
    assert launch.context_tokens == context_tokens
    assert (*launch.unknown, *launch.not_modelled) == ()


@pytest.mark.parametrize(
    ("deploy", "sentence"),
    [
        (cap.Deployment(engine="reference"), "engine 'reference' has no command line that is known"),
        (cap.Deployment(engine="llama.cpp", tensor_parallel=2), "llama.cpp has no flag for tensor_parallel"),
        (cap.Deployment(engine="vllm", kv_cache="q8_0"), "vllm has no flag for kv_cache = q8_0"),
        (cap.Deployment(engine="vllm", launch_mode="tuned"), "vllm has no flag for launch_mode = tuned"),
    ],
)
def test_a_choice_without_a_flag_is_refused(deploy, sentence):
    with pytest.raises(CapacityError, match=sentence):
        launch_line("m", deploy)
