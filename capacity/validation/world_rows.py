"""Published rows of world models and robot policies as cases: model, part, formats, launch mode, what was timed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from capacity.catalog.parts import load_hardware
from capacity.catalog.worlds import load_world_model
from capacity.demand.decisions import decision_phases
from capacity.demand.stage_phase import Phase
from capacity.files import package_data
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import WorldModelSpec
from capacity.validation.published_table import count, positive, read_table

Row = Mapping[str, str]
COLUMNS = ("case_id", "model", "hardware", "precision", "runtime", "component", "metric", "value", "unit", "source")
TIME_METRICS = ("latency", "latency_p50", "latency_mean", "tpot", "action_rate", "rate")
_SECONDS = {"ms": 1e-3, "s": 1.0}
_PREPROCESSING = re.compile(r"\bdata (\d+(?:\.\d+)?)")
_SPLIT = re.compile(r"\bbackbone (\d+(?:\.\d+)?)(?: \+)? action head (\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class PublishedCase:
    """One row that can be judged. ``preprocessing_s`` is what the row itself says and is an input, not estimated.

    ``least`` are the phases for the bound: a row that does not say how many views may have had one.
    """

    case_id: str
    world: WorldModelSpec
    hardware: HardwareSpec
    deploy: Deployment
    timed: tuple[Phase, ...]
    least: tuple[Phase, ...]
    measured_s: float
    preprocessing_s: float
    format_stated: bool
    source: str
    configuration: str
    note: str

    @property
    def mode(self) -> str:
        """Launch mode of the phases that are not named apart."""
        return self.mode_of("default")

    def mode_of(self, phase: str) -> str:
        """Launch mode of one phase."""
        return self.deploy.launch_mode_of(phase) or ""

    def split(self) -> list[tuple[tuple[Phase, ...], float]]:
        """Groups of phases that the row times apart, each with its time; one group of all where it does not. [s]"""
        match = _SPLIT.search(self.note)
        head = tuple(phase for phase in self.timed if phase.name in ("project", "denoise"))
        backbone = tuple(phase for phase in self.timed if phase not in head)
        if match is None or not head or not backbone:
            return [(self.timed, self.measured_s - self.preprocessing_s)]
        return [(backbone, float(match[1]) * 1e-3), (head, float(match[2]) * 1e-3)]


def names() -> dict[str, Any]:
    """The reading of words, from ``data/published/world_names.toml``."""
    return package_data.toml("data/published/world_names.toml")


def read_rows(file: str | Path | None) -> list[dict[str, str]]:
    """Rows of the shipped table, or of another with the same columns.

    Raises
    ------
    CapacityError
        If the file cannot be read or lacks columns.
    """
    return read_table(file, shipped="world_truth.csv", columns=COLUMNS)


def read_cases(rows: list[dict[str, str]]) -> tuple[list[PublishedCase], dict[str, list[str]]]:
    """The cases that can be judged, and the ids of the rest by the reason why not."""
    cases: list[PublishedCase] = []
    rest: dict[str, list[str]] = {}
    for row in rows:
        case = _case(row)
        if isinstance(case, str):
            rest.setdefault(case, []).append(row["case_id"])
        else:
            cases.append(case)
    return cases, rest


def _case(row: Row) -> PublishedCase | str:
    rules = names()
    model = model_id(row["model"])
    part = _looked_up(rules["hardware"], row["hardware"])
    components = rules["components"].get(row["component"])
    runtime = _runtime(row["runtime"], model, part)
    formats = rules["precisions"].get(row["precision"])
    if model is None:
        return "model not shipped"
    if row["metric"] not in TIME_METRICS or row["component"] == "memory":
        return "not a time"
    if part is None or components is None or runtime is None or formats is None:
        unread = {"part": part, "component": components, "launch mode": runtime, "number format": formats}
        return f"{next(name for name, value in unread.items() if value is None)} not known"
    measured = _measured_s(row)
    if measured is None:
        return "value not readable"
    world = _adapted(load_world_model(model), row)
    if world is None:
        return "images of another size"
    unsure = "all" in components and "head.tokens_per_action" in load_world_model(model).assumed
    if unsure and _number(row, "action_tokens", None) is None:
        return "length of the answer not stated"
    return _built(row, world, load_hardware(part), runtime, formats, components, measured)


def _built(
    row: Row,
    world: WorldModelSpec,
    hardware: HardwareSpec,
    runtime: Mapping[str, Any],
    formats: Mapping[str, Any],
    components: list[str],
    measured_s: float,
) -> PublishedCase | str:
    modes = {"default": runtime["mode"], **runtime.get("phases", {})}
    deploy = deployment_of(row, world, formats).replace(launch_mode=modes)
    if deploy.activations is not None and hardware.peak(deploy.activations) is None:
        return "part has no path for the format"
    batch = _number(row, "batch", 1) or 1
    timed = _timed(row, decision_phases(world, deploy, batch=batch), components)
    if not timed:
        return "component not in this model"
    fewest = world if _number(row, "views", None) or not world.encoders else world.replace(views=1)
    return PublishedCase(
        case_id=row["case_id"],
        world=world,
        hardware=hardware,
        deploy=deploy,
        timed=timed,
        least=_timed(row, decision_phases(fewest, deploy, batch=batch), components),
        measured_s=measured_s,
        preprocessing_s=_preprocessing_s(row.get("note", ""), measured_s) if "all" in components else 0.0,
        format_stated=bool(formats["stated"]),
        source=row["source"],
        configuration=_configuration(row, world, hardware, runtime["mode"]),
        note=row.get("note", ""),
    )


def _preprocessing_s(note: str, measured_s: float) -> float:
    """Time outside the model that a note states, or leaves over between the whole and its parts. [s]"""
    if match := _PREPROCESSING.search(note):
        return float(match[1]) * 1e-3
    parts = _SPLIT.search(note)
    return max(0.0, measured_s - (float(parts[1]) + float(parts[2])) * 1e-3) if parts else 0.0


def _runtime(label: str, model: str | None, part: str | None) -> Mapping[str, Any] | None:
    """The first line of the runtimes whose pattern, model and part fit."""
    for item in names()["runtimes"]:
        here = item.get("model", model) == model and item.get("hardware", part) == part
        if here and item["pattern"].lower() in label.lower():
            return dict(item)
    return None


def _timed(row: Row, phases: tuple[Phase, ...], components: list[str]) -> tuple[Phase, ...]:
    timed = [phase for phase in phases if "all" in components or phase.name in components]
    if row["component"] in names()["single_pass"]["components"]:
        timed = [replace(phase, passes=1) for phase in timed]
    return tuple(timed)


def model_id(label: str) -> str | None:
    """The shipped world model that a row's label means, or None."""
    bare = re.split(r"\s[+(]", label.strip())[0]
    return _looked_up(names()["models"], bare)


def _looked_up(table: Mapping[str, str], label: str) -> str | None:
    plain = {_plain(key): value for key, value in table.items()}
    return plain.get(_plain(label))


def _plain(label: str) -> str:
    return re.sub(r"[\s_]+", "-", label.strip().lower())


def _configuration(row: Row, world: WorldModelSpec, hardware: HardwareSpec, mode: str) -> str:
    return (
        f"{world.name}, {hardware.name}, {row['precision']}, {mode}, {row['component']}, {world.views} views, "
        f"{world.prompt_tokens} prompt tokens, chunk {world.head.chunk_actions}, {world.head.steps} steps"
    )


def _measured_s(row: Row) -> float | None:
    value = positive(row["value"])
    if value is None:
        return None
    if row["unit"] in ("Hz", "fps"):
        return 1.0 / value
    return value * _SECONDS[row["unit"]] if row["unit"] in _SECONDS else None


def _number(row: Row, column: str, default: int | None) -> int | None:
    return count(row.get(column, "")) or default


def _adapted(world: WorldModelSpec, row: Row) -> WorldModelSpec | None:
    """The shipped model with the row's views, chunk, steps, answer and prompt; None for images of another size."""
    sizes = {encoder.tokens.height_px for encoder in world.encoders}
    pixels = _number(row, "image_px", None)
    if pixels is not None and sizes and pixels not in sizes:
        return None
    changes = dict(_changes(world, row))
    return world.replace(**changes) if changes else world


def _changes(world: WorldModelSpec, row: Row) -> Iterator[tuple[str, Any]]:
    if (views := _number(row, "views", None)) is not None and world.encoders:
        yield "views", views
    for item in names()["prompts"]:
        if item["pattern"] in row.get("note", ""):
            yield "text_tokens", item["text_tokens"]
    if (steps := _number(row, "denoise_steps", None)) and world.head.kind in ("flow", "diffusion"):
        yield "head.steps", steps
    chunk = _number(row, "action_chunk", None)
    tokens = _number(row, "action_tokens", None)
    if tokens and world.head.kind == "autoregressive":
        yield "head.chunk_actions", 1
        yield "head.tokens_per_action", float(tokens)
    elif chunk and world.head.kind != "autoregressive":
        yield "head.chunk_actions", chunk


def deployment_of(row: Row, world: WorldModelSpec, formats: Mapping[str, Any]) -> Deployment:
    """Number formats of a row; 8-bit and 4-bit weights of bitsandbytes are dequantised and computed in bf16."""
    narrow_weights_only = "bitsandbytes" in row["runtime"]
    vision = formats.get("vision")
    overrides = ({"part": "vision", "format": vision},) if vision and world.encoders else ()
    return Deployment(
        weights=formats["weights"],
        activations="bf16" if narrow_weights_only else formats["activations"],
        overrides=overrides,
    )
