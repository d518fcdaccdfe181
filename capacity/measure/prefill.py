"""Prefill of the reference decoder in plain torch, written so that what is alive at each moment can be read off.

Per layer and token, nothing is freed before the layer returns. At the end of attention are alive: the residual,
the normed input, query, key, value, rotated query and key, the attended values, the projection, the new residual:
4 D + (3 H + 3 H_kv) d elements. At the end of the feed-forward: residual, normed input, gate, up, their activation,
the product, the projection, the new residual: 4 D + 4 F. After the layers: the residual of all tokens, the last rows
normed, their logits, a 32-bit copy of logits in 16 bits, and the 32-bit probabilities. Weights, rotary table and
cache are there before and not counted.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import ref

from capacity.errors import CapacityError
from capacity.measure.shape import DecoderShape

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class Prefill:
    """A decoder with random weights that takes whole prompts, [batch, tokens] of token numbers."""

    def __init__(self, shape: DecoderShape, *, device: str = "cpu", seed: int = 0, max_tokens: int = 0) -> None:
        import torch

        if shape.weight_format not in DTYPES:
            raise CapacityError(f"prefill runs in {', '.join(DTYPES)}, not {shape.weight_format}")
        self.shape, self.device = shape, device
        self.dtype = getattr(torch, DTYPES[shape.weight_format])
        self.source = torch.Generator(device).manual_seed(seed)
        self.embedding = self._random(shape.vocabulary, shape.hidden_size)
        self.head = self.embedding if shape.tied else self._random(shape.vocabulary, shape.hidden_size)
        self.gain = torch.ones(shape.hidden_size, dtype=self.dtype, device=device)
        self.layers = [self._layer() for _ in range(shape.layers)]
        self.rotary = self._rotary(max_tokens)

    def _random(self, rows: int, columns: int) -> Tensor:
        import torch

        size = (rows, columns)
        values = torch.empty(size, dtype=self.dtype, device=self.device)
        return values.normal_(0.0, columns**-0.5, generator=self.source)

    def _layer(self) -> dict[str, Tensor]:
        import torch

        s = self.shape
        matrices = {
            "query": self._random(s.query_size, s.hidden_size),
            "key": self._random(s.kv_size, s.hidden_size),
            "value": self._random(s.kv_size, s.hidden_size),
            "output": self._random(s.hidden_size, s.query_size),
            "gate": self._random(s.intermediate_size, s.hidden_size),
            "up": self._random(s.intermediate_size, s.hidden_size),
            "down": self._random(s.hidden_size, s.intermediate_size),
        }
        gains = {name: torch.ones(s.hidden_size, dtype=self.dtype, device=self.device) for name in ("gain_1", "gain_2")}
        return matrices | gains

    def _rotary(self, tokens: int) -> Tensor:
        """Cosine and sine of each pair as one complex number a position. [tokens, head_size / 2]"""
        import torch

        half = self.shape.head_size // 2
        rate = self.shape.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.outer(torch.arange(tokens, dtype=torch.float64), rate)
        return torch.stack([angle.cos(), angle.sin()], -1).to(self.device, self.dtype)

    def first_layers(self, count: int) -> Prefill:
        """The same decoder cut after ``count`` layers; weights are shared."""
        cut = copy(self)
        cut.layers = self.layers[:count]
        cut.shape = replace(self.shape, layers=len(cut.layers))
        return cut

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights; a tied head counts once. [B]"""
        tables = [self.embedding, self.gain] + ([] if self.shape.tied else [self.head])
        return sum(t.nbytes for t in [*tables, *(m for layer in self.layers for m in layer.values())])

    def __call__(self, tokens: Tensor) -> Tensor:
        """Probabilities of the next token of each prompt, fp32 [batch, vocabulary]."""
        import torch
        from torch.nn import functional

        with torch.no_grad():
            if self.rotary.shape[0] < tokens.shape[1]:
                self.rotary = self._rotary(tokens.shape[1])
            x = functional.embedding(tokens, self.embedding)
            for layer in self.layers:
                x = self._attend(layer, x)
                x = self._feed_forward(layer, x)
            last = functional.rms_norm(x[:, -1], (self.shape.hidden_size,), self.gain, self.shape.norm_eps)
            logits = functional.linear(last, self.head)
            wide = logits.float()
            return torch.softmax(wide, -1)

    def _attend(self, layer: dict[str, Tensor], x: Tensor) -> Tensor:
        from torch.nn import functional

        s, (batch, count, _) = self.shape, x.shape
        normed = functional.rms_norm(x, (s.hidden_size,), layer["gain_1"], s.norm_eps)
        query = functional.linear(normed, layer["query"]).view(batch, count, s.query_heads, s.head_size)
        key = functional.linear(normed, layer["key"]).view(batch, count, s.kv_heads, s.head_size)
        value = functional.linear(normed, layer["value"]).view(batch, count, s.kv_heads, s.head_size)
        turned_query, turned_key = self._rotate(query), self._rotate(key)
        attended = functional.scaled_dot_product_attention(
            turned_query.transpose(1, 2),
            turned_key.transpose(1, 2),
            value.transpose(1, 2),
            is_causal=True,
            enable_gqa=s.query_heads != s.kv_heads,
        )
        rows = attended.transpose(1, 2).reshape(batch, count, s.query_size)
        projected = functional.linear(rows, layer["output"])
        return x + projected

    def _rotate(self, heads: Tensor) -> Tensor:
        """Rotate each half pair by its position, into one new tensor."""
        import torch

        table = self.rotary[: heads.shape[1], None]
        cosine, sine = table[..., 0], table[..., 1]
        half = heads.shape[-1] // 2
        turned = torch.empty_like(heads)
        torch.mul(heads[..., :half], cosine, out=turned[..., :half])
        turned[..., :half].addcmul_(heads[..., half:], sine, value=-1)
        torch.mul(heads[..., half:], cosine, out=turned[..., half:])
        turned[..., half:].addcmul_(heads[..., :half], sine)
        return turned

    def _feed_forward(self, layer: dict[str, Tensor], x: Tensor) -> Tensor:
        from torch.nn import functional

        s = self.shape
        normed = functional.rms_norm(x, (s.hidden_size,), layer["gain_2"], s.norm_eps)
        gate = functional.linear(normed, layer["gate"])
        up = functional.linear(normed, layer["up"])
        active = functional.silu(gate)
        product = active * up
        projected = functional.linear(product, layer["down"])
        return x + projected


class LiveStorage:
    """Peak bytes of the storages that operators make inside a ``with``: what is alive, not what an allocator keeps.

    It cannot see memory that an operator takes and gives back within itself, nor that of the caching allocator.
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

    def saw(self, tensor: Any) -> None:
        """Count the storage of a tensor that an operator returned, once."""
        storage = tensor.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if size == 0 or key in self._storages:
            return

        def gone(_: object) -> None:
            self.alive_bytes -= size
            self._storages.pop(key, None)

        self._storages[key] = ref(storage, gone)
        self.alive_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.alive_bytes)


def _tracking_mode(live: LiveStorage) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Tracking(TorchDispatchMode):
        """Shows every tensor that an operator returns to ``live``, unless it was an argument."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            import torch

            given = {
                leaf.untyped_storage().data_ptr()
                for leaf in tree_leaves((args, kwargs or {}))
                if isinstance(leaf, torch.Tensor)
            }
            made = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(made):
                if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().data_ptr() not in given:
                    live.saw(leaf)
            return made

    return Tracking()
