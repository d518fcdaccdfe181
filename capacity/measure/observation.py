"""What one forward pass of a user's own torch module holds: weights, peak, and the output of each part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from capacity.errors import CapacityError
from capacity.measure.prefill import LiveStorage
from capacity.units import format_bytes

BLIND_SPOTS = (
    "live storage: sees tensors that operators return, not memory an operator takes and gives back within itself",
    "torch.cuda.max_memory_allocated: sees the caching allocator, not the CUDA context nor blocks kept but free",
    "nvidia-smi: sees one total for the process, context and free blocks included; it cannot tell weights from "
    "activations",
    "forward hooks: see what a module returns, not what lives inside it; outputs of nested modules are counted at "
    "each level",
)


@dataclass(frozen=True)
class PartOutput:
    """Outputs of one module over the pass: calls and bytes returned. [B]"""

    name: str
    kind: str
    calls: int
    output_bytes: int


@dataclass(frozen=True)
class Observation:
    """Memory of one forward pass. ``cuda_peak_bytes`` is None on a CPU. [B]"""

    parameter_count: int
    weight_bytes: int
    buffer_bytes: int
    input_bytes: int
    live_peak_bytes: int
    cuda_peak_bytes: int | None
    parts: tuple[PartOutput, ...]
    blind_spots: tuple[str, ...] = BLIND_SPOTS

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        from dataclasses import asdict

        return asdict(self)

    def __str__(self) -> str:
        rows = [
            ("weights", f"{format_bytes(self.weight_bytes)} in {self.parameter_count:,} parameters"),
            ("buffers", format_bytes(self.buffer_bytes)),
            ("inputs", format_bytes(self.input_bytes)),
            ("peak alive", format_bytes(self.live_peak_bytes)),
        ]
        if self.cuda_peak_bytes is not None:
            rows.append(("peak of the allocator", format_bytes(self.cuda_peak_bytes)))
        largest = sorted(self.parts, key=lambda part: -part.output_bytes)[:8]
        rows += [(f"output of {part.name or '(whole)'}", format_bytes(part.output_bytes)) for part in largest]
        rows += [("cannot see", text) for text in self.blind_spots]
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)


def observe(module: Any, *inputs: Any) -> Observation:
    """Run ``module(*inputs)`` once without gradients and count what it holds.

    Parameters
    ----------
    module : torch.nn.Module
        The module, in the mode (train or eval) that is wanted.
    *inputs : object
        Arguments of the forward pass; tensors inside are counted.

    Returns
    -------
    Observation
        Bytes of weights, buffers and inputs, the peak of what is alive beside them, and outputs by module. [B]

    Raises
    ------
    CapacityError
        If torch is missing or ``module`` is not a module.
    """
    try:
        import torch
        from torch.utils._pytree import tree_leaves
    except ImportError:
        raise CapacityError("observing a module needs torch: install capacity-planner[measure]") from None
    if not isinstance(module, torch.nn.Module):
        raise CapacityError(f"observe takes a torch.nn.Module, got {type(module).__name__}")
    given = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    on_cuda = any(tensor.is_cuda for tensor in [*given, *module.parameters()])
    parts, handles = _hooked(module, tree_leaves, torch)
    if on_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
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
        cuda_peak_bytes=torch.cuda.max_memory_allocated() - base if on_cuda else None,
        parts=tuple(PartOutput(name, kind, calls, size) for name, (kind, calls, size) in parts.items()),
    )


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
