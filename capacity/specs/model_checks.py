"""Consistency checks between the parts of a network: its vocabulary, tables and widths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Tensor(Protocol):
    """What the checks see of a tensor outside the layers."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def tied(self) -> bool: ...


class Stage(Protocol):
    """What the checks see of a stage."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def layers(self) -> Sequence[Any]: ...
    @property
    def before(self) -> Sequence[Tensor]: ...
    @property
    def after(self) -> Sequence[Tensor]: ...


def contradictions(stages: Sequence[Stage], vocabulary: int) -> Iterator[str]:
    """One sentence per part that does not go with the others, with the stage it belongs to."""
    names = [stage.name for stage in stages]
    if len(set(names)) != len(names):
        yield f"stage names repeat: {', '.join(names)}"
    for stage in stages:
        if stage.role == "decoder":
            yield from (f"stage {stage.name}: {problem}" for problem in _tables(stage, vocabulary))
        yield from (f"stage {stage.name}: {problem}" for problem in _mixers(stage))


def _tables(stage: Stage, vocabulary: int) -> Iterator[str]:
    """Table and head have a row for each token of the vocabulary and, unless projected, the width of the layers."""
    tensors = {tensor.name: tensor for tensor in (*stage.before, *stage.after)}
    table, head = tensors.get("embedding"), tensors.get("lm_head")
    projected = not {"project_in", "project_out"}.isdisjoint(tensors)
    for tensor in (table, head):
        if tensor is None:
            continue
        if len(tensor.shape) != 2 or tensor.shape[0] != vocabulary:
            yield f"{tensor.name} of {_size(tensor)} does not have one row for each of {vocabulary:,} tokens"
        elif tensor.shape[1] != stage.hidden_size and not projected:
            yield f"{tensor.name} has width {tensor.shape[1]:,}, but hidden_size is {stage.hidden_size:,}"
    if head is not None and head.tied and (table is None or table.tied or table.shape != head.shape):
        yield f"lm_head of {_size(head)} is tied, but there is no embedding of that size"


def _mixers(stage: Stage) -> Iterator[str]:
    """A mixer with matrices of its own reads the width of the stage."""
    for group in stage.layers:
        if group.mixer.kind != "state" or not group.mixer.matrices:
            continue
        if all(matrix.columns != stage.hidden_size for matrix in group.mixer.matrices):
            yield f"mixer {group.mixer.name} has no matrix whose input width is hidden_size, {stage.hidden_size:,}"


def _size(tensor: Tensor) -> str:
    return " x ".join(f"{length:,}" for length in tensor.shape)
