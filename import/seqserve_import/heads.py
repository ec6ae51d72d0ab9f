"""Widens heads of a size that the operators of the decoder step do not have.

Zeros are added to each query, key and value. They change neither the product of a query and a key
nor a mean of values; only the root of the size, by which products are divided, needs care.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial

import torch
from torch import Tensor

from seqserve_import.family import Change, Family
from seqserve_model.config import TransformerConfig

_MULTIPLE = 8
"""GroupQueryAttention of ONNX Runtime takes heads of 8, 16, 24, .. numbers."""


def with_wide_heads(family: Family) -> Family:
    """Returns the family whose heads have the next size that can be served."""
    config = family.config
    stacks = {"encoder": config, "decoder": config.decoder}
    sizes = {stack: -(-shape.head_size // _MULTIPLE) * _MULTIPLE for stack, shape in stacks.items()}
    narrow = [stack for stack, shape in stacks.items() if shape.head_size != sizes[stack]]
    if not narrow:
        return family
    changes = {}
    for stack in narrow:
        for name, change in _changes(stacks[stack], sizes[stack]).items():
            pattern = f"{stack}_layers.*_attention.{name}"
            changes[pattern] = _after(family, pattern, change)
    return replace(
        family,
        config=replace(
            config,
            attention_width=config.heads * sizes["encoder"],
            decoder_attention_width=config.decoder.heads * sizes["decoder"],
        ),
        # First, because the first one that fits a name counts.
        changes=changes | dict(family.changes),
    )


def _changes(config: TransformerConfig, size: int) -> dict[str, Change]:
    """Lists what becomes of the projections of an attention."""
    rows = partial(_widened, heads=config.heads, head_size=config.head_size, size=size)
    # Products are divided by the root of the new size.
    root = (size / config.head_size) ** 0.5
    changes: dict[str, Change] = {
        "output.weight": lambda output: rows(output.t()).t().contiguous(),
    }
    for kind in ("weight", "bias"):
        changes[f"query.{kind}"] = lambda query: rows(query) * root
        changes[f"key.{kind}"] = changes[f"value.{kind}"] = rows
    return changes


def _widened(projection: Tensor, *, heads: int, head_size: int, size: int) -> Tensor:
    """Adds zeros to each head of a projection, ``[H·D, ..]`` to ``[H·size, ..]``."""
    if projection.size(0) != heads * head_size:
        return projection  # refused when it is loaded, for its shape
    parts = projection.reshape(heads, head_size, *projection.shape[1:])
    zeros = parts.new_zeros(heads, size - head_size, *parts.shape[2:])
    return torch.cat((parts, zeros), dim=1).flatten(0, 1)


def _after(family: Family, pattern: str, change: Change) -> Change:
    """Joins a change to what the family does to the same weights."""
    own = (done for name, done in family.changes.items() if fnmatchcase(pattern, name))
    first = next(own, None)
    return change if first is None else lambda tensor: change(first(tensor))
