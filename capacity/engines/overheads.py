"""What an engine takes apart from weights, caches and activations: policies that make fixed rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from capacity.demand import mixers
from capacity.engines.table import MemoryRow
from capacity.specs.deployment import Deployment
from capacity.specs.engine import EngineSpec
from capacity.specs.model import ModelSpec

PROCESS, GRAPHS, ROTARY = "non-torch memory", "CUDA graphs", "rotary table"
Policy = Callable[[EngineSpec, ModelSpec, Deployment], Iterator[MemoryRow]]


def process(engine: EngineSpec, model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """What a worker takes outside its allocator, by its tensor-parallel degree."""
    sizes = [one.held_bytes for one in engine.process if one.tensor_parallel <= deploy.tensor_parallel]
    for rank in range(deploy.pipeline_parallel if sizes else 0):
        yield MemoryRow(PROCESS, rank, evidence="published", loaded=True, fixed_bytes=sizes[-1])


def graphs(engine: EngineSpec, model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """The pool of captured graphs, in the budget of the engine or next to it; none where kernels are not captured."""
    if engine.graphs is None or deploy.launch_mode_of("decode") == "eager":
        return
    for rank in range(deploy.pipeline_parallel):
        yield MemoryRow(
            GRAPHS, rank, evidence="published", inside=engine.graphs.inside, fixed_bytes=engine.graphs.held_bytes
        )


def rotary_table(engine: EngineSpec, model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """Cosines and sines of all positions in 16 bits, whole on every rank and loaded with the weights.

    Its width is that of the rotated part of a head: the rotary key of latent attention, else the whole head.
    """
    widths = [mixers.of(group.mixer).rotary_size(group.mixer) for group in model.decoder.layers]
    if not model.positions or not any(widths):
        return
    for rank in range(deploy.pipeline_parallel):
        yield MemoryRow(ROTARY, rank, loaded=True, fixed_bytes=model.positions * max(widths) * 2)


OVERHEADS: dict[str, Policy] = {"process": process, "graphs": graphs, "rotary_table": rotary_table}
