"""Prefill of the reference decoder in plain torch, written so that the source shows which tensors are alive when.

No tensor of a layer is freed before the layer returns. At the end of attention are alive, per token: the residual,
the normed input, query, key, value, rotated query and key, the attended values, the projection, the new residual:
4 D + (3 H + 3 H_kv) d elements. At the end of the feed-forward: residual, normed input, gate, up, their activation,
the product, the projection, the new residual: 4 D + 4 F. After the layers: the residual of all tokens, the last rows
normed, their logits, a 32-bit copy of 16-bit logits, and the 32-bit probabilities. Weights, rotary table and cache
exist before the prefill and are not counted.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from capacity.errors import CapacityError
from capacity.measure.decoder.weights import DecoderWeights, LayerWeights, StoredMatrix, torch_dtype
from capacity.measure.shape import DecoderShape

if TYPE_CHECKING:
    from torch import Tensor

FORMATS = ("fp32", "bf16", "fp16")


class Prefill:
    """A decoder with random weights that takes whole prompts of token ids, [batch, tokens]."""

    def __init__(self, shape: DecoderShape, *, device: str = "cpu", seed: int = 0, max_tokens: int = 0) -> None:
        import torch

        if shape.weight_format not in FORMATS:
            raise CapacityError(f"prefill runs in {', '.join(FORMATS)}, not {shape.weight_format}")
        self.shape, self.device = shape, device
        self.dtype = torch_dtype(shape.weight_format)
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
        """Cosine and sine of each pair at each position. [tokens, head_size / 2, 2]"""
        import torch

        half = self.shape.head_size // 2
        rate = self.shape.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.outer(torch.arange(tokens, dtype=torch.float64), rate)
        return torch.stack([angle.cos(), angle.sin()], -1).to(self.device, self.dtype)

    def first_layers(self, count: int) -> Prefill:
        """The same decoder with its first ``count`` layers only; weights are shared."""
        cut = copy(self)
        cut.layers = self.layers[:count]
        cut.shape = replace(self.shape, layers=len(cut.layers))
        return cut

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights; a tied head counts once. [B]"""
        tables = [self.embedding, self.gain] + ([] if self.shape.tied else [self.head])
        return sum(t.nbytes for t in [*tables, *(m for layer in self.layers for m in layer.values())])

    def stored_weights(self) -> DecoderWeights:
        """The weights as the oracle reads them."""
        import torch

        def matrix(layer: dict[str, Tensor], *names: str) -> StoredMatrix:
            return StoredMatrix(torch.cat([layer[name] for name in names]))

        layers = tuple(
            LayerWeights(
                attention_norm=layer["gain_1"],
                qkv=matrix(layer, "query", "key", "value"),
                output=matrix(layer, "output"),
                mlp_norm=layer["gain_2"],
                gate_up=matrix(layer, "gate", "up"),
                down=matrix(layer, "down"),
            )
            for layer in self.layers
        )
        return DecoderWeights(StoredMatrix(self.embedding), layers, self.gain, StoredMatrix(self.head))

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
        """Rotate each pair (i, i + head_size / 2) by its position, into one new tensor."""
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
