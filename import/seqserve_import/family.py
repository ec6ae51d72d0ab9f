"""Facts about a family of models."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqserve.errors import OptionError
from seqserve_import.checkpoint import Checkpoint, Settings
from seqserve_model.config import Activation, PositionScheme, TransformerConfig

Change = Callable[[Tensor], Tensor]
"""Turns a weight of the checkpoint into ours."""

NAMES: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("families").joinpath("names.toml").read_text(encoding="utf-8")
)
"""The names of modules in the checkpoints of each family, and what else is a table."""
_NEVER = -1e30
"""Bias of a logit that makes a token impossible, and is finite, so that sums with it are too."""

_ACTIVATIONS = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "silu": Activation.SWISH,
    "swish": Activation.SWISH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How a checkpoint becomes our model. An asterisk in a name matches any text."""

    config: TransformerConfig
    names: Mapping[str, str]
    """The name that each of our modules and weights has in the checkpoint."""
    changes: Mapping[str, Change] = field(default_factory=dict)
    """Changes of weights, by our names."""
    computed: Mapping[str, Tensor] = field(default_factory=dict)
    """Weights that the checkpoint need not hold, by our names."""
    unused: Sequence[str] = ()
    """Weights that a checkpoint may hold and that its own model does not read either."""
    first_layer: int = 0
    """The number of the first layer in the names of the checkpoint."""

    def with_max_source_length(self, length: int) -> Family:
        """Returns the family of a model that reads sources of up to ``length`` tokens.

        Raises:
            OptionError: Its table of positions decides.
        """
        config = self.config
        if config.positions not in (PositionScheme.T5, PositionScheme.T5_LAYERS):
            raise OptionError(
                f"--max-source-length: the positions of this model are a table for"
                f" {config.max_source_length} tokens; leave the option out"
            )
        return replace(self, config=replace(config, max_source_length=length))

    def suppress_tokens(self, tokens: Sequence[int], unk_id: int) -> Family:
        """Returns the family with these tokens suppressed: the model never generates them.

        Only the tokenizer knows the id of the unknown token.
        """
        config = replace(self.config, unk_id=unk_id)
        if not tokens:
            return replace(self, config=config)

        def suppress(bias: Tensor) -> Tensor:
            return bias.index_fill(0, torch.tensor(tokens), _NEVER)

        bias = self.changes.get("logits_bias", torch.clone)
        return replace(
            self,
            config=replace(config, logits_bias=True),
            changes={**self.changes, "logits_bias": lambda stored: suppress(bias(stored))},
            computed={
                **self.computed,
                "logits_bias": suppress(torch.zeros(config.vocabulary_size)),
            },
        )


def activation_of(config: Settings, name: str, value: str) -> Activation:
    """Finds our name of an activation."""
    if value not in _ACTIVATIONS:
        raise config.wrong(name, f"is not one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[value]


def end_token(checkpoint: Checkpoint) -> int:
    """Returns the one token that ends a target.

    Raises:
        CheckpointError: The settings name several, or none.
    """
    ends = checkpoint.generation.numbers("eos_token_id")
    if len(ends) != 1:
        raise checkpoint.generation.wrong("eos_token_id", "must name one token")
    return ends[0]


def start_token(checkpoint: Checkpoint) -> int:
    """Returns the token that the decoder reads first."""
    generation = checkpoint.generation
    default = generation.optional_number("bos_token_id")
    return generation.number("decoder_start_token_id", default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """The names of the tables of tokens, and which are one table."""

    names: dict[str, str]
    shared_embeddings: bool
    tied_output: bool
    others: tuple[str, ...]
    """Names of tables that nothing reads, or that hold the same numbers as one of ``names``."""


def find_embeddings(
    checkpoint: Checkpoint, *, shared: str, source: str, target: str, output: str
) -> Embeddings:
    """Finds the tables of source, target and output among the weights.

    A file may hold a tied table once, under any of its names, or several times. Equal numbers
    decide, not config.json, which is not always right.
    """
    is_tied = checkpoint.config.flag("tie_word_embeddings", True)
    present = [name for name in (shared, source, target, output) if name in checkpoint.names]
    if not present:
        raise checkpoint.fault(f"the weight {shared} is missing")
    if not is_tied and output not in present and not checkpoint.config.has("scale_decoder_outputs"):
        raise checkpoint.fault(
            f"the weight {output} is missing, and tie_word_embeddings of config.json is false"
        )
    tables: dict[str, str] = {}
    for name in present:
        equal = (table for table in tables.values() if checkpoint.are_equal(table, name))
        tables[name] = next(equal, name)

    def table(*candidates: str) -> str:
        return next(tables[name] for name in (*candidates, *present) if name in tables)

    chosen = {
        "source_embedding.weight": table(source, shared),
        "target_embedding.weight": table(target, shared),
        "output_projection.weight": table(output, shared, target),
    }
    of_source, of_target, of_output = chosen.values()
    return Embeddings(
        names=chosen,
        shared_embeddings=of_source == of_target,
        tied_output=of_target == of_output,
        others=tuple(set(present) - set(chosen.values())),
    )


def with_extra_position(table: Tensor) -> Tensor:
    """Appends a row to a table of positions: ours has one more than any sequence reads."""
    return torch.cat((table, table.new_zeros(1, table.size(1))))


def times(factor: float, weight: Tensor) -> Tensor:
    """Multiplies a weight."""
    return weight * factor


def layer_names(theirs: str, **stacks: Mapping[str, str]) -> dict[str, str]:
    """Returns the names of the modules of layers; ``theirs`` has a place for stack and module."""
    return {
        f"{stack}_layers.*.{ours}": theirs.format(stack, name)
        for stack, layer in stacks.items()
        for ours, name in layer.items()
    }


HEAD_MULTIPLE = 8
"""GroupQueryAttention of ONNX Runtime takes heads of 8, 16, 24, .. numbers."""


def with_wide_heads(family: Family) -> Family:
    """Returns the family whose heads have the next size that can be served."""
    config = family.config
    stacks = {"encoder": config, "decoder": config.decoder}
    sizes = {
        stack: -(-shape.head_size // HEAD_MULTIPLE) * HEAD_MULTIPLE
        for stack, shape in stacks.items()
    }
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
    """Adds zeros to each head of a projection, ``[H·D, ..]`` to ``[H·size, ..]``.

    Raises:
        IndexError: It is for other heads.
    """
    if projection.size(0) != heads * head_size:
        raise IndexError("the heads are not of this size")
    parts = projection.reshape(heads, head_size, *projection.shape[1:])
    zeros = parts.new_zeros(heads, size - head_size, *parts.shape[2:])
    return torch.cat((parts, zeros), dim=1).flatten(0, 1)


def _after(family: Family, pattern: str, change: Change) -> Change:
    own = (done for name, done in family.changes.items() if fnmatchcase(pattern, name))
    first = next(own, None)
    return change if first is None else lambda tensor: change(first(tensor))
