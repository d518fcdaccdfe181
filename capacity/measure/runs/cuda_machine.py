"""A CUDA device on which runs are made one after another, and its description for their records."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any

from capacity.files import package_data
from capacity.measure.decoder.cuda.nvrtc import compiler_version
from capacity.measure.decoder.cuda.source import kernel_sha256
from capacity.measure.runs.environment import code_commit, cpu_model, load_average, now_utc, software
from capacity.specs.measured_run import Machine, MeasuredRun

FREE_SHARE = 0.9  # of the free memory that a case may need


class Bench:
    """A backend for consecutive runs: one reading of the clocks ends a run and begins the next.

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
        """A sealed record; ``ran`` are the fields of its ``Software`` other than versions."""
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
    """The compiler of the kernels: nvrtc or nvcc."""
    return compiler_version().split()[0]


def skip_reason(case: str, needed_bytes: int) -> str | None:
    """Why a case that needs this much memory is skipped; None when it fits with some margin."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    free += torch.cuda.memory_reserved() - torch.cuda.memory_allocated()  # cached by torch for reuse
    if needed_bytes <= FREE_SHARE * free:
        return None
    return f"{case} skipped: it needs {needed_bytes / 1e9:.1f} GB and {free / 1e9:.1f} GB are free"


def machine(before: Mapping[str, float], after: Mapping[str, float], load: float) -> Machine:
    """The current device, with its clocks before and after a run, and the power limit after it."""
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
    """Id of the part in the catalogue for a device name; None when the table lacks the name."""
    return package_data.toml("data/device_names.toml").get(name)


def smi_id(facts: Any) -> str:
    """Id of the current device for nvidia-smi, which numbers all devices, while torch numbers the visible ones."""
    import torch

    text = str(getattr(facts, "uuid", "") or "")
    if not text:
        return str(torch.cuda.current_device())
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"


def clocks() -> dict[str, float]:
    """Clocks [Hz] and power limit [W] of the current device, as far as nvidia-smi reports them."""
    import torch

    device = smi_id(torch.cuda.get_device_properties(torch.cuda.current_device()))
    fields = smi_text("clocks.sm,clocks.mem,power.limit", device).split(",")
    names = (("sm", 1e6), ("memory", 1e6), ("power_limit_w", 1.0))
    readings = {}
    for (name, factor), text in zip(names, fields, strict=False):
        try:
            readings[name] = float(text) * factor
        except ValueError:
            continue
    return readings


@cache
def driver_and_ecc(device: str) -> tuple[str | None, bool | None]:
    """Version of the driver, and whether ECC is enabled; None where nvidia-smi does not report it."""
    driver, _, ecc = smi_text("driver_version,ecc.mode.current", device).partition(",")
    return driver.strip() or None, {"Enabled": True, "Disabled": False}.get(ecc.strip())


def smi_text(query: str, device: str) -> str:
    """The output of nvidia-smi for a query; empty where the program is missing or fails."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", f"--id={device}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def device_responds() -> bool:
    """Whether the device still works: after an illegal access every further call of this process fails."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True
