"""A model with the bytes of its own tensors, where the files of its checkpoint lie beside the configuration."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capacity.errors import SpecError
from capacity.importers.checkpoints.safetensors import read_folder
from capacity.importers.huggingface.facts import facts_of
from capacity.specs.model import ModelSpec

PLAIN_TYPES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
# Masks and rotary tables that older files hold: the library makes them anew, and counts them as no parameters.
BUFFER = re.compile(r"\.(attn|attention)\.(masked_)?bias$|\.inv_freq$")
LAYER = re.compile(r"\blayers\.(\d{1,6})\.")


def with_stored_bytes(model: ModelSpec, config: Mapping[str, Any], folder: Path) -> ModelSpec:
    """``model`` with the bytes that the headers of its files declare; only the headers are read.

    A plain format that the files confirm is published, no longer assumed. Buffers, the second copy of a tied head and
    layers beside the model (multi-token prediction) are not its own.

    Raises
    ------
    SpecError
        If a file is faulty or the files hold no tensor of the model.
    """
    if model.checkpoint is None or not any(folder.glob("*.safetensors")):
        return model
    tied = any(tensor.name == "lm_head" and tensor.tied for tensor in model.decoder.after)
    beside = _layers_beside(config, model.decoder.layer_count)
    sizes: Counter[str] = Counter()
    for name, tensor in read_folder(folder).items():
        layer = LAYER.search(name)
        other = beside and (name.startswith("mtp.") or (layer and int(layer[1]) in beside))
        if not (other or BUFFER.search(name) or (tied and name == "lm_head.weight")):
            sizes[tensor.dtype] += tensor.data_bytes
    if not sizes.total():
        raise SpecError(f"{folder}: the .safetensors files hold no tensor of the model")
    changes: dict[str, Any] = {"total_bytes": sizes.total()}
    notes = [*model.notes, f"headers of the checkpoint were read: {sizes.total()} bytes of tensors"]
    if PLAIN_TYPES.get(sizes.most_common(1)[0][0]) == model.checkpoint.default and not model.checkpoint.parts:
        changes["evidence"] = "published"
        notes = [note for note in notes if not note.startswith("stored format assumed")]
    table = model.model_dump() | {"checkpoint": model.checkpoint.model_dump() | changes, "notes": tuple(notes)}
    return ModelSpec.parse(table, str(folder))


def _layers_beside(config: Mapping[str, Any], first: int) -> range:
    """Numbers of the layers that the files hold beside those of the model, as far as the configuration says so."""
    counts = [config.get(key) for key in facts_of(config["model_type"]).uncounted]
    return range(first, first + sum(count for count in counts if type(count) is int))
