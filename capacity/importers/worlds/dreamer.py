"""DreamerV3: ``configs.yaml`` (as a table, presets applied by name) made into encoder, recurrent core and policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.importers.huggingface.config import Config

SOURCE = "danijar/dreamerv3 dreamerv3/configs.yaml at 05699cd1, dreamerv3/rssm.py at f8817c40"
_MAX_WIDTH = 10**6
# Of the defaults of configs.yaml; the size of a picture and the actions belong to the task.
_DEFAULTS = {"stoch": 32, "blocks": 8, "actions": 18, "image_px": 64}
_ONLY = {"imglayers": (2,), "obslayers": (1,), "dynlayers": (1,)}
_HARMLESS = ("act", "norm", "unimix", "outscale", "winit", "absolute", "free_nats")


def is_dreamer(data: Mapping[str, Any]) -> bool:
    """Whether a table looks like one size preset of DreamerV3, or the whole file."""
    return any(str(key).endswith(".rssm") for key in data) or "size12m" in data


def dreamer_table(data: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """The table of a `WorldModelSpec` for the acting loop: encode, observe, act.

    ``data`` is a size preset, or the whole file with ``name`` ending in a size such as ``200m``. Image of 64 x 64
    with three channels and 18 discrete actions, as in its Atari tasks, unless ``image_px`` or ``actions`` is given.

    Raises
    ------
    SpecError
        If there is no such preset, a width is missing, or a key may change memory and is not understood.
    """
    config = _config(data, name, where)
    deter, hidden, classes, depth, units, actions, image, stoch, blocks = (
        config.count(key, maximum=_MAX_WIDTH)
        for key in ("deter", "hidden", "classes", "depth", "units", "actions", "image_px", "stoch", "blocks")
    )
    if deter % blocks:
        raise SpecError(f"{where}: deter {deter} does not divide into {blocks} blocks")
    for key, allowed in _ONLY.items():
        config.require(key, allowed)
    config.finish()
    channels = [3, *(depth * mult for mult in (2, 3, 4, 4))]
    embedded = channels[-1] * (image // 16) ** 2
    convolutions = [
        _tensor(f"conv_{i}", [channels[i + 1], channels[i], 5, 5], "vision") for i in range(len(channels) - 1)
    ]
    positions = {f"conv_{i}": (image >> i) ** 2 for i in range(4)}
    vision_vectors = _tensor("vectors", [2 * sum(channels[1:])], "vision")
    return {
        "name": name,
        "model": {
            "name": name,
            "stages": [
                {
                    "name": "cnn",
                    "role": "encoder",
                    "hidden_size": channels[-1],
                    "before": [*convolutions, vision_vectors],
                },
                _core(deter, hidden, classes * stoch, blocks, actions, embedded)
                | {"after": _policy(deter + classes * stoch, units, actions)},
                _prior(deter, hidden, classes * stoch),
            ],
            "checkpoint": {"default": "bf16", "evidence": "assumed"},
        },
        "encoders": [
            {
                "stage": "cnn",
                "tokens": {"height_px": image, "width_px": image, "patch_px": 16},
                "feeds_core": False,
                "positions": positions,
            }
        ],
        "core": "core",
        "state_tokens": 1,
        "head": {"kind": "none"},
        "sources": [{"fields": ["*"], "cite": SOURCE, "confidence": "A"}],
        "notes": (
            "acting only: image decoder, reward, continuation and value heads are training parts and not counted",
            "the prior is in memory and not read while acting",
            *config.notes,
        ),
        "assumed": tuple(config.assumed),
    }


def _preset(data: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    if any(str(key).endswith(".rssm") for key in data):
        preset: Any = data
    else:
        sizes = [key for key in data if str(key).startswith("size")]
        preset_name = "size" + name.rsplit("-", 1)[-1].lower()
        if preset_name not in sizes:
            raise SpecError(f"{where}: {unknown_name('size preset', preset_name, sizes)}")
        preset = data[preset_name]
    if not isinstance(preset, Mapping) or not isinstance(preset.get(".*\\.rssm"), Mapping):
        raise SpecError(f"{where}: a size preset has a table '.*\\.rssm' with deter, hidden and classes")
    return preset


def _config(data: Mapping[str, Any], name: str, where: str) -> Config:
    """The numbers of a preset under short names, with those that no preset changes as defaults."""
    preset = _preset(data, name, where)
    plain = {key: preset[f".*\\.{key}"] for key in ("depth", "units") if f".*\\.{key}" in preset}
    task = {key: data[key] for key in ("actions", "image_px") if key in data}
    return Config({**preset[".*\\.rssm"], **plain, **task}, where, _DEFAULTS, "dreamerv3", _HARMLESS)


def _core(deter: int, hidden: int, stoch: int, blocks: int, actions: int, embedded: int) -> dict[str, Any]:
    """One recurrent step: three inputs, two block matrices of the gated unit, the posterior.

    A block matrix of ``blocks`` parts has rows x columns / blocks weights.
    """
    inner = deter // blocks + 3 * hidden  # inputs of one block
    matrices = {
        "deter_in": (hidden, deter),
        "stoch_in": (hidden, stoch),
        "action_in": (hidden, actions),
        "dynamics": (deter, inner),
        "gates": (3 * deter, deter // blocks),
        "posterior": (hidden, deter + embedded),
        "posterior_logits": (stoch, hidden),
    }
    biases = sum(rows for rows, _ in matrices.values())
    norms = 3 * hidden + deter + hidden
    return {
        "name": "core",
        "role": "decoder",
        "hidden_size": deter,
        "layers": [
            {
                "indices": [0],
                "mixer": {
                    "kind": "state",
                    "name": "block-gated recurrence",
                    "matrices": [{"name": key, "rows": r, "columns": c} for key, (r, c) in matrices.items()],
                    "vector_parameters": biases + norms,
                    "state": [
                        {"name": "deter", "elements": deter, "kind": "recurrent"},
                        {"name": "stoch", "elements": stoch, "kind": "recurrent"},
                    ],
                },
                "feed_forward": {"kind": "none"},
                "norms": {"kind": "none", "count": 0},
            }
        ],
    }


def _policy(inputs: int, units: int, actions: int) -> list[dict[str, Any]]:
    widths = [inputs, units, units, units, actions]
    tensors = [_tensor(f"policy_{i}", [widths[i + 1], widths[i]], "mlp") for i in range(4)]
    return [*tensors, _tensor("policy_vectors", [6 * units + actions], "mlp")]


def _prior(deter: int, hidden: int, stoch: int) -> dict[str, Any]:
    shapes = {"prior_1": [hidden, deter], "prior_2": [hidden, hidden], "prior_logits": [stoch, hidden]}
    tensors = [_tensor(key, shape, "mlp", read="never") for key, shape in shapes.items()]
    return {
        "name": "prior",
        "role": "resident",
        "hidden_size": hidden,
        "after": [*tensors, _tensor("prior_vectors", [4 * hidden + stoch], "mlp", read="never")],
    }


def _tensor(name: str, shape: list[int], part: str, *, read: str = "whole") -> dict[str, Any]:
    return {"name": name, "shape": shape, "part": part, "read": read}
