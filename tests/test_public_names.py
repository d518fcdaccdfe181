"""The public names, and what importing the package loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import capacity as cap

HEAVY = ("torch", "pandas", "matplotlib", "rich", "typer", "jinja2", "transformers")


def loaded_after(statement):
    """Modules of ``HEAVY`` and numpy that a fresh interpreter has loaded after ``statement``."""
    code = f"import sys\n{statement}\nprint(*[m for m in {(*HEAVY, 'numpy')!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_after("import capacity") == []


def test_every_public_name_can_be_had_without_anything_heavy():
    assert loaded_after("import capacity\n[getattr(capacity, name) for name in capacity.__all__]") == ["numpy"]


def test_a_sizing_loads_nothing_heavy():
    statement = (
        "import capacity as cap\n"
        "cap.size(cap.load_model('llama-3-8b'), cap.load_hardware('nvidia-h100-sxm5-80gb')).to_dict()"
    )
    assert loaded_after(statement) == ["numpy"]


def test_json_on_the_command_line_loads_no_table_library():
    statement = (
        "import contextlib, io\nfrom capacity.cli import run\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    run(['size', 'llama-3-8b', 'nvidia-h100-sxm5-80gb', '--json'])"
    )
    assert not {"rich", "pandas", "torch", "matplotlib"} & set(loaded_after(statement))


@pytest.mark.parametrize("name", cap.__all__)
def test_every_public_name_exists_and_is_documented(name):
    value = getattr(cap, name)

    assert name == "__version__" or (value.__doc__ or "").strip()


# DESIGN.md, section 3, of what exists.
PROMISED = [
    *("load_model", "load_hardware", "load_world_model", "load_server", "load_deployment", "load_workload"),
    *("hardware_ids", "model_ids", "world_model_ids", "server_ids", "parameter_count", "weight_bytes"),
    *("kv_cache_bytes", "state_bytes", "activation_bytes", "max_batch", "max_context", "ridge_point"),
    *("tpot", "ttft", "request_latency", "size", "control", "frames", "observe", "Deployment", "Workload", "Draft"),
    *("Estimate", "Ledger", "Sizing", "ModelSpec", "HardwareSpec", "WorldModelSpec", "ServerSpec", "Checkpoint"),
    *("CapacityError", "SpecError", "DoesNotFit"),
]


def test_promised_names_are_public():
    assert [name for name in PROMISED if name not in cap.__all__] == []


def test_a_deployment_and_a_workload_are_loaded_from_files_and_tables(tmp_path):
    deploy, work = tmp_path / "deploy.toml", tmp_path / "work.json"
    deploy.write_text('weights = "bf16"\ntensor_parallel = 2\n[launch_mode]\ndecode = "graph"\n')
    work.write_text('{"prompt_tokens": 500, "concurrency": 3}')

    assert cap.load_deployment(deploy) == cap.load_deployment(
        {"weights": "bf16", "tensor_parallel": 2, "launch_mode": {"decode": "graph"}}
    )
    assert cap.load_workload(str(work)) == cap.Workload(prompt_tokens=500, concurrency=3)
    with pytest.raises(cap.SpecError, match="unknown field 'tensor_paralel'; nearest: tensor_parallel"):
        cap.load_deployment({"tensor_paralel": 2})
    with pytest.raises(cap.SpecError, match=r"none\.toml: no such file"):
        cap.load_workload(tmp_path / "none.toml")


def test_nothing_else_leaks():
    assert dir(cap) == sorted(cap.__all__)
    public = {name for name in vars(cap) if not name.startswith("_")}
    submodules = {name for name in public if f"capacity.{name}" in sys.modules}
    assert public - submodules - set(cap.__all__) <= {"annotations", "import_module", "TYPE_CHECKING", "Any"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'sise'"):
        cap.sise  # noqa: B018


@pytest.mark.parametrize("name", [n for n in cap.__all__ if n in ("max_batch", "max_context", "tpot", "ttft", "size")])
def test_numbers_are_keyword_only(name):
    import inspect

    parameters = inspect.signature(getattr(cap, name)).parameters.values()
    numbers = [p for p in parameters if p.name in ("batch", "context_tokens", "prompt_tokens", "tokens")]
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in numbers)
