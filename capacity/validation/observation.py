"""What one forward pass of a user's own torch module holds: weights, peak, and the output of each part of it; with a
model, the estimates beside it. This is the one place of ``measure`` that asks the estimators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from capacity.demand import memory
from capacity.errors import CapacityError
from capacity.inputs import whole
from capacity.measure.prefill import LiveStorage
from capacity.specs.base import LARGEST_COUNT
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec
from capacity.units import format_bytes

BLIND_SPOTS = (
    "live storage: sees tensors that operators return, not memory an operator takes and gives back within itself",
    "torch.cuda.max_memory_allocated: sees the caching allocator, not the CUDA context nor blocks kept but free",
    "nvidia-smi: sees one total for the process, context and free blocks included; it cannot tell weights from "
    "activations",
    "forward hooks: see what a module returns, not what lives inside it; outputs of nested modules are counted at "
    "each level",
)
SCHEDULE = (
    "estimate of the activation peak: knows the schedule of the reference decoder, which frees after each layer and "
    "makes logits of the last token only; a module that keeps more holds more"
)


@dataclass(frozen=True)
class PartOutput:
    """Outputs of one module over the pass: calls and bytes returned. [B]"""

    name: str
    kind: str
    calls: int
    output_bytes: int


@dataclass(frozen=True)
class Beside:
    """An estimate, and what a counter saw. [B]"""

    quantity: str
    counter: str
    estimated_bytes: int
    observed_bytes: int

    @property
    def ratio(self) -> float | None:
        """Estimated over observed; None where nothing was seen. [1]"""
        return self.estimated_bytes / self.observed_bytes if self.observed_bytes else None


@dataclass(frozen=True)
class Observation:
    """Memory of one forward pass. ``cuda_peak_bytes`` is None on a CPU; ``estimates`` need a model. [B]"""

    parameter_count: int
    weight_bytes: int
    buffer_bytes: int
    input_bytes: int
    live_peak_bytes: int
    cuda_peak_bytes: int | None
    parts: tuple[PartOutput, ...]
    estimates: tuple[Beside, ...] = ()
    blind_spots: tuple[str, ...] = BLIND_SPOTS

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the ratio of each estimate."""
        return asdict(self) | {"estimates": [asdict(item) | {"ratio": item.ratio} for item in self.estimates]}

    def __str__(self) -> str:
        rows = [
            ("weights", f"{format_bytes(self.weight_bytes)} in {self.parameter_count:,} parameters"),
            ("buffers", format_bytes(self.buffer_bytes)),
            ("inputs", format_bytes(self.input_bytes)),
            ("peak alive", format_bytes(self.live_peak_bytes)),
        ]
        if self.cuda_peak_bytes is not None:
            rows.append(("peak of the allocator", format_bytes(self.cuda_peak_bytes)))
        rows += [(f"estimate of {item.quantity}", _beside_text(item)) for item in self.estimates]
        largest = sorted(self.parts, key=lambda part: -part.output_bytes)[:8]
        rows += [(f"output of {part.name or '(whole)'}", format_bytes(part.output_bytes)) for part in largest]
        rows += [("cannot see", text) for text in self.blind_spots]
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)


def _beside_text(item: Beside) -> str:
    seen = f"{format_bytes(item.estimated_bytes)} beside {format_bytes(item.observed_bytes)} of {item.counter}"
    return seen if item.ratio is None else f"{seen}, ratio {item.ratio:.3f}"


def observe(
    module: Any,
    *inputs: Any,
    model: ModelSpec | None = None,
    deploy: Deployment | None = None,
    batch: int | None = None,
    tokens: int | None = None,
) -> Observation:
    """Run ``module(*inputs)`` once without gradients and count what it holds; with a model, beside its estimate.

    Parameters
    ----------
    module : torch.nn.Module
        The module, in the mode (train or eval) that is wanted.
    *inputs : object
        Arguments of the forward pass; tensors inside are counted.
    model : ModelSpec, optional
        What the module is; then weights and activation peak stand beside their estimates.
    deploy : Deployment, optional
        Number formats of the module, one device; needed with ``model``.
    batch, tokens : int, optional
        Sequences of the pass, and tokens of each; needed with ``model``. [sequence], [token]

    Returns
    -------
    Observation
        Bytes of weights, buffers and inputs, the peak of what is alive beside them, and outputs by module. [B]

    Raises
    ------
    CapacityError
        If torch is missing, ``module`` is not a module, or the estimate lacks something it needs.
    """
    estimated = _estimated(model, deploy, batch, tokens)
    seen = _observed(module, inputs)
    if estimated is None:
        return seen
    weights, peak = estimated
    found = [
        Beside("weights", "parameters", weights, seen.weight_bytes),
        Beside("activation peak", "live storage", peak, seen.live_peak_bytes),
    ]
    if seen.cuda_peak_bytes is not None:
        found.append(Beside("activation peak", "the allocator", peak, seen.cuda_peak_bytes))
    return replace(seen, estimates=tuple(found), blind_spots=(*BLIND_SPOTS, SCHEDULE))


def _estimated(
    model: ModelSpec | None, deploy: Deployment | None, batch: int | None, tokens: int | None
) -> tuple[int, int] | None:
    """Weights and activation peak of one pass that is not cut into chunks; None without a model. [B]"""
    given = {"model": model, "deploy": deploy, "batch": batch, "tokens": tokens}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
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
    uncut = deploy.replace(prefill_chunk_tokens=max(deploy.prefill_chunk_tokens, sequences * each))
    peak = int(memory.activation_bytes(model, uncut, rank_batch=sequences, tokens=each))
    return sum(memory.weight_bytes_by_rank(model, uncut)[0].values()), peak


def _observed(module: Any, inputs: tuple[Any, ...]) -> Observation:
    """One pass, and what the counters saw of it."""
    try:
        import torch
        from torch.utils._pytree import tree_leaves
    except ImportError:
        raise CapacityError("observing a module needs torch: install capacity-planner[measure]") from None
    if not isinstance(module, torch.nn.Module):
        raise CapacityError(f"observe takes a torch.nn.Module, got {type(module).__name__}")
    given = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    parts, handles = _hooked(module, tree_leaves, torch)
    allocator = CudaPeak(torch.cuda, [*given, *module.parameters(), *module.buffers()])
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
        input_bytes=sum(t.nbytes for t in given),
        live_peak_bytes=live.peak_bytes,
        cuda_peak_bytes=allocator.peak_bytes,
        parts=tuple(PartOutput(name, kind, calls, size) for name, (kind, calls, size) in parts.items()),
    )


class CudaPeak:
    """Peak of the caching allocator from here on, on the devices that hold the tensors."""

    def __init__(self, cuda: Any, tensors: Iterable[Any]) -> None:
        self._cuda = cuda
        self._before = {}
        for device in {tensor.device for tensor in tensors if tensor.is_cuda}:
            cuda.synchronize(device)
            cuda.reset_peak_memory_stats(device)
            self._before[device] = cuda.memory_allocated(device)

    @property
    def peak_bytes(self) -> int | None:
        """Sum over the devices of what came on top; None without one. [B]"""
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
