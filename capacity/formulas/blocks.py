"""Blocks of a cache that n sequences hold: named functions of one signature, none of which ever falls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from capacity.arrays import ArrayLike


class BlockRule(NamedTuple):
    """Numbers by which blocks are counted; 0 where a rule has no use for one. [token], [block], [slot]

    A layer keeps ``window_tokens`` and the ``extra_tokens`` of a pass; ``spare_blocks`` come on top of each sequence.
    ``slots`` of ``slot_tokens`` are reserved from the start. All sequences share one copy of ``shared_tokens``.
    """

    block_tokens: int = 1
    window_tokens: int = 0
    extra_tokens: int = 0
    spare_blocks: int = 0
    slots: int = 0
    slot_tokens: int = 0
    shared_tokens: int = 0

    def by_token(self) -> BlockRule:
        """The same tokens in blocks of one, nothing spare or reserved: what the blocks really contain."""
        return self._replace(block_tokens=1, spare_blocks=0, slots=0, slot_tokens=0)


def all_blocks(sequences: ArrayLike, context_tokens: ArrayLike, rule: BlockRule) -> Any:
    r"""Every token is kept: :math:`n \lceil c / b \rceil`, the whole blocks of a shared prefix only once.

    A shared prefix is held whole even where the context is shorter.

    Parameters
    ----------
    sequences, context_tokens : array_like
        n and c. [sequence], [token]
    rule : BlockRule
        Of which b and the shared tokens count. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [block]

    Examples
    --------
    >>> int(all_blocks(3, 33, BlockRule(16))), int(all_blocks(3, 33, BlockRule(16, shared_tokens=20)))
    (9, 7)
    """
    each = _ceil(context_tokens, rule.block_tokens)
    if not rule.shared_tokens:
        return np.multiply(sequences, each)
    shared = rule.shared_tokens // rule.block_tokens
    return shared + np.multiply(sequences, np.maximum(each - shared, 0))


def windowed_blocks(sequences: ArrayLike, context_tokens: ArrayLike, rule: BlockRule) -> Any:
    r"""A window of the last tokens: :math:`n (\lceil \min(c, w + u) / b \rceil + s)` [1]_.

    Parameters
    ----------
    sequences, context_tokens : array_like
        n and c. [sequence], [token]
    rule : BlockRule
        Of which b, w, the tokens u that a pass may add before it drops old ones, and the spare blocks s count. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [block]

    Examples
    --------
    >>> int(windowed_blocks(1, 131_072, BlockRule(16, window_tokens=127, extra_tokens=8192, spare_blocks=1)))
    521

    References
    ----------
    .. [1] vLLM 0.11, ``SlidingWindowSpec.max_memory_usage_bytes``: window - 1, the most tokens of a pass, one block.
    """
    held_tokens = np.minimum(context_tokens, rule.window_tokens + rule.extra_tokens)
    return np.multiply(sequences, _ceil(held_tokens, rule.block_tokens) + rule.spare_blocks)


def unified_blocks(sequences: ArrayLike, context_tokens: ArrayLike, rule: BlockRule) -> Any:
    r"""One buffer for the windows of all sequences: :math:`\lceil \min(n c, n w + u) / b \rceil` [1]_.

    Parameters
    ----------
    sequences, context_tokens : array_like
        n and c. [sequence], [token]
    rule : BlockRule
        Of which the padding b, w and the tokens u of a pass count. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [block]

    Examples
    --------
    >>> 256 * int(unified_blocks(1, 131_072, BlockRule(256, window_tokens=128, extra_tokens=512)))
    768

    References
    ----------
    .. [1] llama.cpp, ``llama_kv_cache_iswa``: padded to 256 cells.
    """
    windows = np.multiply(sequences, rule.window_tokens) + rule.extra_tokens
    return _ceil(np.minimum(np.multiply(sequences, context_tokens), windows), rule.block_tokens)


def preallocated_blocks(sequences: ArrayLike, context_tokens: ArrayLike, rule: BlockRule) -> Any:
    r"""Slots reserved from the start, used or not: :math:`\max(n, s) \lceil \max(c, l) / b \rceil`.

    A slot of a layer with a window has at most :math:`w + u` tokens.

    Parameters
    ----------
    sequences, context_tokens : array_like
        n and c. [sequence], [token]
    rule : BlockRule
        Of which b, the slots s, the tokens l of a slot, w and the tokens u of a pass count. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [block]

    Examples
    --------
    >>> int(preallocated_blocks(2, 100, BlockRule(16, slots=8, slot_tokens=4096)))
    2048
    """
    longest: Any = np.maximum(context_tokens, rule.slot_tokens)
    if rule.window_tokens:
        longest = np.minimum(longest, rule.window_tokens + rule.extra_tokens)
    return np.multiply(np.maximum(sequences, rule.slots), _ceil(longest, rule.block_tokens))


def _ceil(tokens: ArrayLike, block_tokens: int) -> Any:
    count = np.asarray(tokens)
    return count if block_tokens == 1 else -(-count // block_tokens)


BLOCKS: dict[str, Callable[[ArrayLike, ArrayLike, BlockRule], Any]] = {
    "all": all_blocks,
    "windowed": windowed_blocks,
    "unified": unified_blocks,
    "preallocated": preallocated_blocks,
}
