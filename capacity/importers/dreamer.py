"""DreamerV3: ``configs.yaml`` (as a table, presets applied by name) made into encoder, recurrent core and policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capacity.errors import SpecError, unknown_name

SOURCE = "danijar/dreamerv3 dreamerv3/configs.yaml at 05699cd1, dreamerv3/rssm.py at f8817c40"


def is_dreamer(data: Mapping[str, Any]) -> bool:
    """Whether a table looks like one size preset of DreamerV3, or the whole file."""
    return any(str(key).endswith(".rssm") for key in data) or "size12m" in data


def dreamer_table(data: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """The table of a `WorldModelSpec` for the acting loop: encode, observe, act.

    ``data`` is a size preset, or the whole file with ``name`` ending in a size such as ``200m``. Image of 64 x 64
    with three channels and 18 discrete actions, as in its Atari tasks, unless ``image_px``, ``actions`` say so.

    Raises
    ------
    SpecError
        If there is no such preset or a width is missing.
    """
    preset = _preset(data, name, where)
    rssm = preset[".*\\.rssm"]
    deter, hidden, classes = (_width(rssm, key, where) for key in ("deter", "hidden", "classes"))
    depth, units = _width(preset, ".*\\.depth", where), _width(preset, ".*\\.units", where)
    stoch, blocks = 32, 8
    actions, image = (_width({"actions": 18, "image_px": 64, **data}, key, where) for key in ("actions", "image_px"))
    if deter % blocks:
        raise SpecError(f"{where}: deter {deter} does not divide into {blocks} blocks")
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
        "notes": [
            "acting only: image decoder, reward, continuation and value heads are training parts and not counted",
            "the prior is held and not read while acting",
        ],
        "assumed": ["encoders.0.tokens", "model.stages.core.actions"],
    }


def _preset(data: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    if any(str(key).endswith(".rssm") for key in data):
        preset: Any = data
    else:
        sizes = [key for key in data if str(key).startswith("size")]
        wanted = "size" + name.rsplit("-", 1)[-1].lower()
        if wanted not in sizes:
            raise SpecError(f"{where}: {unknown_name('size preset', wanted, sizes)}")
        preset = data[wanted]
    if not isinstance(preset, Mapping) or not isinstance(preset.get(".*\\.rssm"), Mapping):
        raise SpecError(f"{where}: a size preset has a table '.*\\.rssm' with deter, hidden and classes")
    return preset


def _width(table: Mapping[str, Any], key: str, where: str) -> int:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**6:
        raise SpecError(f"{where}: {key} must be a whole number from 1 to 1,000,000, got {str(value)[:40]!r}")
    return value


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
