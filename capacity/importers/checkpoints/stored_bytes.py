"""A model with the exact bytes of its tensors, where the files of its checkpoint lie next to the configuration."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from capacity.errors import SpecError
from capacity.importers.checkpoints.safetensors import read_folder
from capacity.specs.model import ModelSpec

PLAIN_TYPES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
# Masks and rotary tables that older files hold: the library recreates them and does not count them as parameters.
BUFFER = re.compile(r"\.(attn|attention)\.(masked_)?bias$|\.inv_freq$")
LAYER = re.compile(r"\blayers\.(\d{1,6})\.")


def with_stored_bytes(model: ModelSpec, folder: Path, *, other_layers: range) -> ModelSpec:
    """``model`` with the bytes that the headers of its files declare; only the headers are read.

    A plain format that the files confirm is published, no longer assumed. Buffers, the second copy of a tied head and
    ``other_layers`` (numbers of layers for multi-token prediction) are not counted.

    Raises
    ------
    SpecError
        If a file is faulty or the files hold no tensor of the model.
    """
    if model.checkpoint is None or not any(folder.glob("*.safetensors")):
        return model
    tied = any(tensor.name == "lm_head" and tensor.tied for tensor in model.decoder.after)
    sizes: Counter[str] = Counter()
    for name, tensor in read_folder(folder).items():
        layer = LAYER.search(name)
        other = other_layers and (name.startswith("mtp.") or (layer and int(layer[1]) in other_layers))
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
