"""Names that are neither a file nor a shipped id: Hub ids of shipped models, and advice for all others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from capacity.errors import nearest_names, unknown_name
from capacity.files import package_data

_HUB_ID = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,95})/([A-Za-z0-9][A-Za-z0-9._-]{0,95})")


def is_hub_id(name: str) -> bool:
    """Whether a name is written as the Hub writes ids, and is no file or folder here.

    >>> is_hub_id("Qwen/Qwen3-32B"), is_hub_id("folder/config.json"), is_hub_id("a/b/c")
    (True, False, False)
    """
    return bool(_HUB_ID.fullmatch(name)) and not name.endswith((".json", ".yaml", ".yml")) and not os.path.exists(name)


def shipped_under(name: str, shipped: Iterable[str]) -> str | None:
    """The shipped id of a Hub id, None where its organisation published no shipped model of that name.

    >>> shipped_under("meta-llama/Meta-Llama-3-8B-Instruct", ["llama-3-8b"])
    'llama-3-8b'
    >>> shipped_under("Qwen/Qwen3-32B-FP8", ["qwen3-32b"])
    """
    match = _HUB_ID.fullmatch(name)
    organisation = _table()["organisations"].get(match[1].lower()) if match else None
    if match is None or organisation is None:
        return None
    words = [word for word in re.split(r"[-_]", match[2].lower()) if word not in _table()["variants"]]
    dropped = organisation.get("dropped", "$^")
    spellings = ("-".join(words), "-".join(word for word in words if not re.fullmatch(dropped, word)))
    own = {one: one for one in shipped if one.startswith(tuple(organisation["published"]))}
    return next((own[spelling] for spelling in spellings if spelling in own), None)


def not_shipped(name: str, shipped: Iterable[str]) -> str:
    """One sentence for a model that is neither here nor shipped: how to give it, and names that are near.

    >>> not_shipped("qwen2.5-vl-7b", ["qwen2.5-7b"])[:58]
    "unknown model 'qwen2.5-vl-7b': no model of this kind is sh"
    """
    names = tuple(shipped)
    if is_hub_id(name):
        folder = name.rpartition("/")[2].lower()
        near = nearest_names(folder, names)
        hint = f"; nearest shipped: {', '.join(near)}" if near else ""
        return (
            f"no file at {name!r}, and no shipped model has this Hub id; nothing is downloaded: fetch its config.json, "
            f"as with `hf download {name} config.json --local-dir {folder}`, and give the folder {folder}{hint}"
        )
    for word, part in _table()["kinds"].items():
        if word in re.split(r"[-_ ]", name.lower()):
            others = ", ".join(nearest_names(name, names)) or "none"
            return (
                f"unknown model {name[:80]!r}: no model of this kind is shipped; it has {part}, which models with near "
                f"names ({others}) lack; give its config.json, or the text_config in it for the text part alone"
            )
    return unknown_name("model", name, names)


def _table() -> dict[str, Any]:
    return package_data.toml("data/hub_ids.toml")
