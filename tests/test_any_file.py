"""Whatever bytes lie in a file, every reader makes a spec of them or one sentence, never another error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capacity.catalog.cases import read_deployment, read_workload
from capacity.catalog.models import load_model
from capacity.catalog.parts import load_hardware
from capacity.catalog.runs import read_runs
from capacity.catalog.servers import load_server
from capacity.catalog.worlds import load_world_model
from capacity.errors import CapacityError
from capacity.specs.deployment import Deployment
from capacity.specs.measured_run import MeasuredRun
from capacity.specs.workload import Workload

ROOT = Path(__file__).parents[1]
DREAMER = """\
size1m: &size1m
  .*\\.rssm: {deter: 512, hidden: 64, classes: 4}
  .*\\.depth: 4
  .*\\.units: 64
size12m: &size12m
  .*\\.rssm: {deter: 2048, hidden: 256, classes: 16}
  .*\\.depth: 16
  .*\\.units: 256
dmc_proprio:
  <<: *size1m
  task: dmc_walker_walk
"""
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 30,
    "intermediate_size": 8, "max_position_embeddings": 16, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
OURS = 'based_on = "nvidia-l4-pcie-24gb"\nname = "Ours"\nmemory.bytes_per_s = 2.5e11\nassumed = ["power"]\n'
CASE = 'weights = "bf16"\ntensor_parallel = 2\n[[overrides]]\npart = "mlp"\nformat = "int8"\nlayers = "4:"\n'
SHIPPED = ROOT / "hardware_specs"
PRESET = "dreamerv3-12m"
RUN = MeasuredRun.parse(
    {
        "kind": "ceiling",
        "source": "cpu",
        "created_utc": "2026-11-30T00:00:00+00:00",
        "code_commit": "test",
        "kernel_sha256": "0" * 64,
        "machine": {"device_name": "a", "cpu_model": "a", "threads": 1, "load_before": 0.1, "load_after": 0.2},
        "software": {"python": "3", "numpy": "2", "system": "s", "compiler": "c", "backend": "cpu_ref"},
        "values": {"read_bytes_per_s": 1e10},
    },
    "test",
).sealed()

READERS: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    "part": ("ours.toml", (SHIPPED / "nvidia-l4-pcie-24gb.toml").read_text(encoding="utf-8"), load_hardware),
    "part of three lines": ("ours.toml", OURS, load_hardware),
    "server": ("ours.toml", (SHIPPED / "servers/nvidia-hgx-h100-8x80gb.toml").read_text("utf-8"), load_server),
    "deployment": ("case.toml", CASE, lambda path: Deployment.parse(read_deployment(path), "case")),
    "workload": ("case.json", '{"prompt_tokens": 5}', lambda path: Workload.parse(read_workload(path), "case")),
    "configuration": ("config.json", json.dumps(LLAMA), load_model),
    "model": ("ours.json", json.dumps({"name": "ours", "config": LLAMA, "notes": ["tiny"]}), load_model),
    "index": ("model.safetensors.index.json", '{"weight_map": {"a": "1.safetensors"}}', load_model),
    "presets": ("configs.yaml", DREAMER, lambda path: load_world_model(path, name=PRESET)),
    "policy": ("config.json", '{"type": "smolvla", "chunk_size": 20, "n_action_steps": 5}', load_world_model),
    "runs": ("runs.jsonl", json.dumps(RUN.model_dump(mode="json", exclude_defaults=True)), read_runs),
}
PIECES = st.sampled_from(
    ["1" * 5000, "-1", "0", "1e999", "nan", "2001-99-99", "true", "[", "{", '"', "\\u0000", "\\ud800", "\x00", "&a *a",
     "<<: *size12m", "\n", ": ", " = ", ",", "a.b.c = 1\n", "[memory]\n", "'", "#", "../x", "é", "\u2028", "?", "null"]
)  # fmt: skip


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_content_is_a_spec_or_one_sentence(tmp_path, kind, data):
    name, text, read = READERS[kind]
    for _ in range(data.draw(st.integers(1, 3))):
        first = data.draw(st.integers(0, len(text)))
        last = data.draw(st.integers(first, min(len(text), first + 12)))
        text = text[:first] + data.draw(PIECES) + text[last:]
    content = text.encode("utf-8")
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))] + data.draw(st.binary(max_size=2))
    (tmp_path / name).write_bytes(content)
    if kind == "index":
        (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
        (tmp_path / "1.safetensors").write_bytes(b"")

    said = ""
    try:
        read(tmp_path if kind == "index" else tmp_path / name)
    except CapacityError as error:
        said = str(error)

    assert "\n" not in said
    assert len(said) < 1500
