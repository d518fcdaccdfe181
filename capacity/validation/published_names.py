"""What the words of a table of published speeds mean: parts, models and number formats, by committed rules.

A rule reads the words of a row, never its value: names are compared with those of the shipped parts and models word by
word, so that a row of another table is read like those of the shipped ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from capacity.catalog.models import model_ids
from capacity.catalog.parts import hardware_ids
from capacity.files import package_data

_MEMORY = re.compile(r"\d+gb")
_ASIDE = re.compile(r"\(([^()]*)\)")


class LeftOut(Exception):
    """A row that cannot be compared, and why."""


def rules() -> dict[str, Any]:
    """The reading of words, from ``data/published/speed_names.toml``."""
    return package_data.toml("data/published/speed_names.toml")


@lru_cache(maxsize=1024)
def parts_of_label(label: str) -> tuple[str, ...]:
    """Shipped parts that a label may mean; several where it leaves the variant open.

    A part is meant where the label has all words that tell the part from others, and no word that the part lacks.
    Words in parentheses choose among what the others mean, where they can.

    Raises
    ------
    LeftOut
        If no shipped part is meant.

    Examples
    --------
    >>> parts_of_label("RTX 3090")
    ('nvidia-rtx-3090-24gb',)
    >>> parts_of_label("A100 40GB")
    ('nvidia-a100-pcie-40gb', 'nvidia-a100-sxm4-40gb')
    """
    if not label.strip():
        raise LeftOut("part not stated")
    outside, inside = _words(_ASIDE.sub(" ", label)), _words(" ".join(_ASIDE.findall(label)))
    alias = rules()["parts"]["alias"].get(" ".join(outside))
    meant = [part for part in hardware_ids() if _may_mean(part, _words(alias) if alias else outside)]
    if not meant:
        raise LeftOut("part not shipped")
    return tuple([part for part in meant if set(inside) & set(part.split("-"))] or meant)


def _words(text: str) -> tuple[str, ...]:
    """Words of a label of a part in lower case, without a number of devices before it."""
    text = re.sub(r"^\s*\d+\s*x\s*(?=[a-z])", "", text.lower())
    return tuple(re.findall(r"[a-z0-9.]+", text))


def _may_mean(part: str, words: tuple[str, ...]) -> bool:
    reading = rules()["parts"]
    vendor, *own = part.split("-")
    telling = {word for word in own if not _may_be_missing(word)}
    open_memory = vendor in reading["memory_sold_in_several_sizes"]
    extra = [word for word in words if word not in (vendor, *own) and not _same_form(word, own)]
    strange = [word for word in extra if not _says_nothing(word) and not (open_memory and _MEMORY.fullmatch(word))]
    return bool(telling) and telling <= set(words) and not strange


def _may_be_missing(word: str) -> bool:
    reading = rules()["parts"]
    return word in reading["filler"] or word.rstrip("0123456789") in reading["forms"] or bool(_MEMORY.fullmatch(word))


def _same_form(word: str, own: list[str]) -> bool:
    """Whether a word is a form factor that a part has, with its generation or without: sxm and sxm5."""
    form = word.rstrip("0123456789")
    return form in rules()["parts"]["forms"] and form in {part_word.rstrip("0123456789") for part_word in own}


def _says_nothing(word: str) -> bool:
    reading = rules()["parts"]
    return word in reading["filler"] or bool(re.fullmatch(reading["cores"], word))


@lru_cache(maxsize=1024)
def model_of_label(label: str) -> str:
    """The shipped model that a label means: a Hub id, or its last part in any spelling.

    What a fine-tune or a format adds to a name is left out; then dates and version numbers, in that order, where no
    shipped name has them.

    Raises
    ------
    LeftOut
        If no shipped model is meant, with its type where that is known not to be read.

    Examples
    --------
    >>> model_of_label("meta-llama/Meta-Llama-3-8B-Instruct")
    'llama-3-8b'
    """
    meant = _meant_by(model_ids())
    for key in _spellings(label):
        if key in meant:
            return meant[key]
    for rule in rules()["models"]["unread"]:
        if re.search(rule["pattern"], label.lower()):
            raise LeftOut(f"model of a type that is not read: {rule['type']}")
    raise LeftOut("model not shipped")


@lru_cache(maxsize=8)
def _meant_by(shipped: tuple[str, ...]) -> dict[str, str]:
    """Models by name as names are compared: the shipped ones by their own, others by that of the same network."""
    same_network = {_squeezed([name]): str(meant) for name, meant in rules()["models"]["same_network"].items()}
    return same_network | {_squeezed([name]): name for name in shipped}


def _spellings(label: str) -> Iterator[str]:
    """A label as names are compared: with all that may tell a model, then without dates, versions and both."""
    reading = rules()["models"]
    bare = _ASIDE.sub(" ", label.rsplit("/", 1)[-1].lower())
    words = [word for word in re.split(r"[\s-]+", bare) if word and not re.fullmatch(reading["variant"], word)]
    date, version = re.compile(reading["date"]), re.compile(reading["version"])
    for dropped in ((), (date,), (version,), (date, version)):
        yield _squeezed([word for word in words if not any(pattern.fullmatch(word) for pattern in dropped)])


def _squeezed(words: list[str]) -> str:
    return re.sub(r"[^a-z0-9.]", "", "".join(words))


def formats_of_label(label: str) -> dict[str, str]:
    """Formats of ``weights``, ``head`` and ``attention`` that a label states, or the narrowest of what it leaves open.

    Raises
    ------
    LeftOut
        If no format is known that is at most as wide.

    Examples
    --------
    >>> formats_of_label("GGUF Q4_K_M")
    {'weights': 'q4_k', 'head': 'q6_k'}
    """
    for rule in rules()["formats"]:
        if re.search(rule["pattern"], label.strip().lower()):
            if "unread" in rule:
                break
            return {key: rule[key] for key in ("weights", "head", "attention", "stored_so") if key in rule}
    raise LeftOut("format of the weights not expressed")


def cache_format_of_label(label: str) -> str:
    """Format of the cache that a label states, or the narrowest in common use where it states none.

    Raises
    ------
    LeftOut
        If the label is not known.
    """
    for rule in rules()["kv_cache"]:
        if re.fullmatch(rule["pattern"], label.strip().lower()):
            return str(rule["format"])
    raise LeftOut("format of the cache not read")


def runs_eagerly(engine: str) -> bool:
    """Whether an engine launches kernels one by one from Python, by what ``engines_eager.toml`` cites."""
    rows = package_data.toml("data/published/engines_eager.toml")["engine"]
    return any(re.search(row["pattern"], engine.lower()) for row in rows)
