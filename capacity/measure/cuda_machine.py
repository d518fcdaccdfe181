"""A CUDA device on which runs are made one after the other, and what it says of itself for their records."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from capacity.measure.environment import code_commit, cpu_model, load_average, now_utc, software
from capacity.measure.nvrtc import compiler_version
from capacity.measure.source import kernel_sha256
from capacity.specs.measured_run import Machine, MeasuredRun

FREE_SHARE = 0.9  # of the free memory that a case may ask for


class Bench:
    """A backend for runs that follow each other: a reading of the clocks ends one run and begins the next.

    Parameters
    ----------
    backend : CudaDevice or Emulator
        Where the kernels run.
    """

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self._clocks, self._load = clocks(), load_average()

    @property
    def device(self) -> str:
        """The device as torch names it."""
        name: str = self.backend.device
        return name

    def record(self, kind: str, *, ran: Mapping[str, Any], **fields: Any) -> MeasuredRun:
        """A sealed record; ``ran`` are the fields of its ``Software`` beside the versions."""
        import torch

        before, load = self._clocks, self._load
        self._clocks, self._load = clocks(), load_average()
        return MeasuredRun(
            kind=kind,
            source="gpu",
            created_utc=now_utc(),
            code_commit=code_commit(),
            kernel_sha256=kernel_sha256(),
            machine=machine(before, self._clocks, load),
            software=software(compiler=compiler_version(), cuda_runtime=torch.version.cuda, **ran),
            **fields,
        ).sealed()


def compiler_name() -> str:
    """What compiles the kernels: nvrtc or nvcc."""
    return compiler_version().split()[0]


def left_out(what: str, needed_bytes: int) -> str | None:
    """Why a case that needs so much memory is left out; None when it fits with some room."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    free += torch.cuda.memory_reserved() - torch.cuda.memory_allocated()  # what torch keeps for later use
    if needed_bytes <= FREE_SHARE * free:
        return None
    return f"{what} left out: it needs {needed_bytes / 1e9:.1f} GB and {free / 1e9:.1f} GB are free"


def machine(before: Mapping[str, float], after: Mapping[str, float], load: float) -> Machine:
    """The present device, and its clocks before and after; the power limit is that after."""
    import torch

    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    driver, ecc = driver_and_ecc(smi_id(facts))
    return Machine(
        device_name=facts.name,
        part=part_of_device(facts.name),
        compute_capability=f"{facts.major}.{facts.minor}",
        units=facts.multi_processor_count,
        l2_bytes=getattr(facts, "L2_cache_size", None),
        memory_bytes=facts.total_memory,
        driver=driver,
        ecc=ecc,
        power_limit_w=after.get("power_limit_w"),
        clock_hz_before={name: before[name] for name in ("sm", "memory") if name in before},
        clock_hz_after={name: after[name] for name in ("sm", "memory") if name in after},
        cpu_model=cpu_model(),
        threads=1,
        load_before=load,
        load_after=load_average(),
    )


def part_of_device(name: str) -> str | None:
    """The part of the catalogue that a device name stands for; None when the table does not know the name."""
    text = files("capacity").joinpath("data/device_names.toml").read_text(encoding="utf-8")
    return tomllib.loads(text).get(name)


def smi_id(facts: Any) -> str:
    """The present device as nvidia-smi knows it: torch numbers only the visible ones, the tool numbers all."""
    import torch

    text = str(getattr(facts, "uuid", "") or "")
    if not text:
        return str(torch.cuda.current_device())
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"


def clocks() -> dict[str, float]:
    """Clocks [Hz] and power limit [W] of the present device; without those that the driver's tool does not tell."""
    import torch

    device = smi_id(torch.cuda.get_device_properties(torch.cuda.current_device()))
    told = smi_text("clocks.sm,clocks.mem,power.limit", device).split(",")
    names = (("sm", 1e6), ("memory", 1e6), ("power_limit_w", 1.0))
    found = {}
    for (name, factor), text in zip(names, told, strict=False):
        try:
            found[name] = float(text) * factor
        except ValueError:
            continue
    return found


@cache
def driver_and_ecc(device: str) -> tuple[str | None, bool | None]:
    """Version of the driver, and whether the memory corrects errors; None where the driver's tool does not tell."""
    driver, _, ecc = smi_text("driver_version,ecc.mode.current", device).partition(",")
    return driver.strip() or None, {"Enabled": True, "Disabled": False}.get(ecc.strip())


def smi_text(query: str, device: str) -> str:
    """What nvidia-smi answers to a query; empty where there is no such program."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", f"--id={device}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
