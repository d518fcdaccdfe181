"""Peak of the bytes of live torch tensors, independent of the allocator."""

from __future__ import annotations

from typing import Any
from weakref import ref


class LiveStorage:
    """Peak bytes of the storages that operators create inside a ``with``: live tensors, not what an allocator reserves.

    Memory that an operator allocates and frees internally, and that of the caching allocator, are not seen.
    """

    def __init__(self) -> None:
        self.alive_bytes = self.peak_bytes = 0
        self._storages: dict[int, Any] = {}
        self._mode: Any = None

    def __enter__(self) -> LiveStorage:
        self._mode = _tracking_mode(self)
        self._mode.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._mode.__exit__(*error)

    def count(self, tensor: Any) -> None:
        """Count the storage of a tensor that an operator returned, once."""
        storage = tensor.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if size == 0 or key in self._storages:
            return

        def freed(_: object) -> None:
            self.alive_bytes -= size
            self._storages.pop(key, None)

        self._storages[key] = ref(storage, freed)
        self.alive_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.alive_bytes)


def _tracking_mode(live: LiveStorage) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Tracking(TorchDispatchMode):
        """Passes every tensor that an operator returns to ``live``, unless it was an argument."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            import torch

            argument_storages = {
                leaf.untyped_storage().data_ptr()
                for leaf in tree_leaves((args, kwargs or {}))
                if isinstance(leaf, torch.Tensor)
            }
            result = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().data_ptr() not in argument_storages:
                    live.count(leaf)
            return result

    return Tracking()
