"""What one forward pass of a user's own torch module holds, compared with the estimates when a model is given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from capacity.engines.builder import memory_table
from capacity.errors import CapacityError
from capacity.estimate.usage import activation_bytes
from capacity.inputs import LARGEST_COUNT, whole
from capacity.measure.runs.live_storage import LiveStorage
from capacity.results import Result
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec

BLIND_SPOTS = (
    "live storage: sees tensors that operators return, not memory that an operator allocates and frees internally",
    "torch.cuda.max_memory_allocated: sees the caching allocator, not the CUDA context nor cached free blocks",
    "nvidia-smi: sees one total per process, context and free blocks included; it cannot distinguish weights from "
    "activations",
    "forward hooks: see what a module returns, not tensors inside it; outputs of nested modules are counted at each "
    "level",
)
SCHEDULE = (
    "estimate of the activation peak: assumes the schedule of the reference decoder, which frees after each layer and "
    "computes logits of the last token only; a module that keeps more tensors holds more"
)


@dataclass(frozen=True)
class PartOutput:
    """Outputs of one module over the pass: calls and bytes returned. [B]"""

    name: str
    kind: str
    calls: int
    output_bytes: int


@dataclass(frozen=True)
class MemoryComparison:
    """An estimate, and the bytes that a counter observed. [B]"""

    DERIVED: ClassVar = ("ratio",)

    quantity: str
    counter: str
    estimated_bytes: int
    observed_bytes: int

    @property
    def ratio(self) -> float | None:
        """Estimated over observed; None where 0 was observed. [1]"""
        return self.estimated_bytes / self.observed_bytes if self.observed_bytes else None


@dataclass(frozen=True, repr=False, eq=False)
class Observation(Result):
    """Memory of one forward pass. ``cuda_peak_bytes`` is None on a CPU; ``estimates`` need a model. [B]

    ``blind_spots`` is what the counters cannot see.
    """

    parameter_count: int
    weight_bytes: int
    buffer_bytes: int
    input_bytes: int
    live_peak_bytes: int
    cuda_peak_bytes: int | None
    parts: tuple[PartOutput, ...]
    estimates: tuple[MemoryComparison, ...] = ()
    blind_spots: tuple[str, ...] = BLIND_SPOTS


def observe(
    module: Any,
    *inputs: Any,
    model: ModelSpec | None = None,
    deploy: Deployment | None = None,
    batch: int | None = None,
    tokens: int | None = None,
) -> Observation:
    """Run ``module(*inputs)`` once without gradients and count its memory; with a model, compare the estimates.

    Parameters
    ----------
    module : torch.nn.Module
        The module, in the mode (train or eval) to be observed.
    *inputs : object
        Arguments of the forward pass; tensors inside are counted.
    model : ModelSpec, optional
        The spec of the module; weights and activation peak are then compared with their estimates.
    deploy : Deployment, optional
        Number formats of the module, one device; required with ``model``.
    batch, tokens : int, optional
        Sequences of the pass, and tokens per sequence; required with ``model``. [sequence], [token]

    Returns
    -------
    Observation
        Bytes of weights, buffers and inputs, peak of all other live tensors, and outputs by module. [B]

    Raises
    ------
    CapacityError
        If torch is missing, ``module`` is not a module, or an argument of the estimate is missing or wrong.

    Examples
    --------
    >>> import torch
    >>> observe(torch.nn.Linear(4, 2), torch.ones(3, 4)).weight_bytes  # ten parameters in fp32
    40
    """
    estimated = _estimated(model, deploy, batch, tokens)
    observed = _observed(module, inputs)
    if estimated is None:
        return observed
    weights, peak = estimated
    comparisons = [
        MemoryComparison("weights", "parameters", weights, observed.weight_bytes),
        MemoryComparison("activation peak", "live storage", peak, observed.live_peak_bytes),
    ]
    if observed.cuda_peak_bytes is not None:
        comparisons.append(MemoryComparison("activation peak", "the allocator", peak, observed.cuda_peak_bytes))
    return replace(observed, estimates=tuple(comparisons), blind_spots=(*BLIND_SPOTS, SCHEDULE))


def _estimated(
    model: ModelSpec | None, deploy: Deployment | None, batch: int | None, tokens: int | None
) -> tuple[int, int] | None:
    """Weights and activation peak of one pass that is not divided into chunks; None without a model. [B]"""
    arguments = {"model": model, "deploy": deploy, "batch": batch, "tokens": tokens}
    missing = [name for name, value in arguments.items() if value is None]
    if len(missing) == len(arguments):
        return None
    if missing:
        raise CapacityError(
            f"observe: an estimate needs model, deploy, batch and tokens; missing: {', '.join(missing)}"
        )
    if not isinstance(model, ModelSpec) or not isinstance(deploy, Deployment):
        kinds = f"{type(model).__name__} and {type(deploy).__name__}"
        raise CapacityError(f"observe: model must be a ModelSpec and deploy a Deployment, got {kinds}")
    if deploy.devices > 1:
        raise CapacityError(f"observe: the module is whole, so deploy must be of one device, got {deploy.devices}")
    sequences, each = int(whole("batch", batch)), int(whole("tokens", tokens))
    if sequences * each > LARGEST_COUNT:
        raise CapacityError(f"observe: batch x tokens must be at most {LARGEST_COUNT:,}, got {sequences * each:,}")
    unchunked = deploy.replace(prefill_chunk_tokens=max(deploy.prefill_chunk_tokens, sequences * each))
    table = memory_table(model, unchunked)
    (kind,) = table.kinds
    return kind.totals.fixed_bytes, int(activation_bytes(kind.totals, sequences=sequences, context_tokens=each))


def _observed(module: Any, inputs: tuple[Any, ...]) -> Observation:
    """Run one pass under all counters."""
    try:
        import torch
        from torch.utils._pytree import tree_leaves
    except ImportError:
        raise CapacityError("observing a module needs torch: install capacity-planner[measure]") from None
    if not isinstance(module, torch.nn.Module):
        raise CapacityError(f"observe takes a torch.nn.Module, got {type(module).__name__}")
    tensors = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    parts, handles = _hooked(module, tree_leaves, torch)
    allocator = CudaPeak(torch.cuda, [*tensors, *module.parameters(), *module.buffers()])
    try:
        with torch.no_grad(), LiveStorage() as live:
            module(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return Observation(
        parameter_count=sum(p.numel() for p in module.parameters()),
        weight_bytes=sum(p.nbytes for p in module.parameters()),
        buffer_bytes=sum(b.nbytes for b in module.buffers()),
        input_bytes=sum(t.nbytes for t in tensors),
        live_peak_bytes=live.peak_bytes,
        cuda_peak_bytes=allocator.peak_bytes,
        parts=tuple(PartOutput(name, kind, calls, size) for name, (kind, calls, size) in parts.items()),
    )


class CudaPeak:
    """Peak of the caching allocator from now on, on the devices that hold the tensors."""

    def __init__(self, cuda: Any, tensors: Iterable[Any]) -> None:
        self._cuda = cuda
        self._before = {}
        for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
            cuda.synchronize(device)
            cuda.reset_peak_memory_stats(device)
            self._before[device] = cuda.memory_allocated(device)

    @property
    def peak_bytes(self) -> int | None:
        """Increase since then, summed over the devices; None without one. [B]"""
        grown = [self._cuda.max_memory_allocated(device) - before for device, before in self._before.items()]
        return sum(grown) if grown else None


def _hooked(module: Any, tree_leaves: Any, torch: Any) -> tuple[dict[str, tuple[str, int, int]], list[Any]]:
    """Forward hooks on every module, and the table that they fill."""
    parts: dict[str, tuple[str, int, int]] = {}

    def watch(name: str) -> Any:
        def hook(part: Any, _: Any, output: Any) -> None:
            size = sum(leaf.nbytes for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor))
            _, calls, before = parts.get(name, ("", 0, 0))
            parts[name] = (type(part).__name__, calls + 1, before + size)

        return hook

    return parts, [part.register_forward_hook(watch(name)) for name, part in module.named_modules()]
