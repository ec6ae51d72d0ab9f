"""The largest logits of each row, found block by block, for use inside modules for export.

ONNX Runtime looks for the largest entries of a long row one by one, but for the maximum of each
block several at a time. So the best blocks are found first, by their maxima, and then the largest
entries within them. That is exact, because no other block can hold one of them.
"""

from typing import Any

from torch import Tensor

from seqserve_export import operators
from seqserve_server.contract.limits import MAX_TOP_K


def block_size(vocabulary_size: int) -> int:
    """Chooses the entries of a block: the divisor of the vocabulary's size nearest to 128.

    At most so many that there are as many blocks as tokens may be listed.
    """
    largest = min(vocabulary_size // MAX_TOP_K, 512)
    divisors = [size for size in range(1, largest + 1) if vocabulary_size % size == 0]
    return min(divisors, key=lambda size: abs(size - 128), default=1)


def block_maxima(logits: Tensor) -> Tensor:
    """Finds the largest logit of each block, ``[B, V]`` to ``[B, N]``."""
    size = logits.size(-1)
    # Axes are counted from the first: from the last, ONNX Runtime fails on zero rows.
    return _blocks(logits, size // block_size(size)).amax(2)


def argmax(logits: Tensor, maxima: Tensor) -> Tensor:
    """Finds the first index of each row's largest logit, ``[B, 1]``.

    Args:
        logits: ``[B, V]``.
        maxima: Of the blocks, ``[B, N]``.
    """
    best = maxima.argmax(1, keepdim=True)  # [B, 1]
    blocks = _blocks(logits, maxima.size(1))
    shape = (logits.size(0), blocks.size(2))
    within = operators.gather_blocks(blocks, best, shape)  # [B, S]
    return best * blocks.size(2) + within.argmax(1, keepdim=True)


def largest(logits: Tensor, maxima: Tensor, count: Any) -> Tensor:
    """Finds the indices of each row's largest logits, the largest first, ``[B, K]``.

    Of equal ones those come first that stand first, as an operator over whole rows would have it.

    Args:
        logits: ``[B, V]``.
        maxima: Of the blocks, ``[B, N]``.
        count: K, at most ``MAX_TOP_K`` and V; known at run time.
    """
    if maxima.size(1) < MAX_TOP_K:
        return logits.topk(count)[1]
    blocks = _blocks(logits, maxima.size(1))
    best = maxima.topk(count)[1].topk(count, largest=False)[0]  # [B, K], rising
    size = blocks.size(2)
    shape = (logits.size(0), count, size)
    within = operators.gather_blocks(blocks, best[..., None], shape)
    index = within.reshape(logits.size(0), count * size).topk(count)[1]  # [B, K]
    number = operators.quotient(index, size)  # of its block among the best
    return index + (best.gather(1, number) - number) * size


def _blocks(logits: Tensor, number: int) -> Tensor:
    """Divides each row into N blocks, ``[B, V]`` to ``[B, N, S]``."""
    return logits.view(-1, number, logits.size(-1) // number)
