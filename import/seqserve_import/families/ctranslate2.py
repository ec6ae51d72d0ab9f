"""CTranslate2's encoder-decoder models, whatever they were converted from."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from seqserve_import.checkpoint import MAX_WIDTH, Checkpoint
from seqserve_import.ctranslate2_checkpoint import CTranslate2Checkpoint
from seqserve_import.families.bart import fairseq_sinusoids
from seqserve_import.families.ctranslate2_shape import (
    BUCKETS,
    DISTANCES,
    GATE,
    STACKS,
    TABLE,
    check_supported,
    shape_of,
)
from seqserve_import.family import (
    HEAD_MULTIPLE,
    NAMES,
    Change,
    Family,
    layer_names,
    times,
    with_extra_position,
)
from seqserve_model.config import PositionScheme, TransformerConfig

_NAMES = NAMES["ctranslate2"]
_PROJECTION = {"weight": "weight", "bias": "bias"}
_NORM = {"weight": "gamma", "bias": "beta"}


def ctranslate2(checkpoint: Checkpoint) -> Family:
    """Reads a model by its variables, whose names are the same for all converters.

    The vocabulary gets a token whose embedding is zero, if it has none that pads.
    """
    if not isinstance(checkpoint, CTranslate2Checkpoint):
        raise checkpoint.config.wrong("model_type", "is the type of CTranslate2's own files")
    check_supported(checkpoint)
    source, target, output = _tables(checkpoint)
    names = weight_names(is_gated=GATE in checkpoint.names)
    built = TransformerConfig(
        **shape_of(checkpoint),
        shared_embeddings=checkpoint.are_equal(source, target),
        tied_output=checkpoint.are_equal(target, output),
        **_tokens(checkpoint, {"source": source, "target": target}),
    )
    positions = built.positions
    changes: dict[str, Change] = _queries(checkpoint, built)
    if checkpoint.adds_start:
        widened = partial(_with_rows, checkpoint.vocabularies.start, built.vocabulary_size)
        changes |= dict.fromkeys(("*_embedding.weight", "output_projection.weight"), widened)
        changes["logits_bias"] = widened
    scale = checkpoint.attribute("decoder", "scale_outputs", 1.0)
    if scale != 1.0:
        changes["decoder_norm.*"] = partial(times, scale)
    if positions is PositionScheme.LEARNED:
        changes["*_positions.table"] = partial(_cut, built.max_source_length + 1)
    return Family(
        config=built,
        names={
            **names,
            **{f"{stack}_positions.table": _table(stack, positions) for stack in STACKS},
            "source_embedding.weight": source,
            "target_embedding.weight": target,
            "output_projection.weight": output,
            "logits_bias": "decoder/projection/bias",
        },
        changes=changes,
        computed=_computed(checkpoint, built, names),
        unused=(f"*/{BUCKETS}", f"*/{DISTANCES.format('*')}", source, target, output),
    )


def _tables(checkpoint: CTranslate2Checkpoint) -> tuple[str, str, str]:
    source = "encoder/embeddings_0/weight"
    if source not in checkpoint.names:
        source = "encoder/embeddings/weight"
    tables = source, "decoder/embeddings/weight", "decoder/projection/weight"
    tokens = len(checkpoint.vocabularies.source), *[len(checkpoint.vocabularies.target)] * 2
    width = checkpoint.shape(source)[-1]
    for name, needed in zip(tables, tokens, strict=True):
        shape = checkpoint.shape(name)
        if len(shape) != 2 or shape[0] < needed or shape[1] != width or not 4 <= width <= MAX_WIDTH:
            raise checkpoint.fault(
                f"the variable {name} has the shape {list(shape)}; the"
                f" vocabulary has {needed:,} tokens"
            )
    return tables


def _tokens(checkpoint: CTranslate2Checkpoint, tables: Mapping[str, str]) -> dict[str, Any]:
    vocabularies, generation = checkpoint.vocabularies, checkpoint.generation
    added = checkpoint.adds_start
    rows = {
        side: vocabularies.rows if added else checkpoint.shape(name)[0]
        for side, name in tables.items()
    }
    pad = vocabularies.start if added else checkpoint.pad_id or 0
    return {
        "vocabulary_size": rows["target"],
        "source_vocabulary_size": 0 if vocabularies.is_joint else rows["source"],
        "pad_id": pad,
        "bos_id": generation.number("decoder_start_token_id"),
        "eos_id": generation.number("eos_token_id"),
        "unk_id": pad,
    }


def _table(stack: str, positions: PositionScheme) -> str:
    is_t5 = positions is PositionScheme.T5
    return f"{stack}/layer_0/{BUCKETS}" if is_t5 else f"{stack}/{TABLE}"


def weight_names(*, is_gated: bool) -> dict[str, str]:
    """Returns the names of the weights of both stacks, by ours."""
    layer = {**_NAMES["layer"], **_NAMES["gated" if is_gated else "plain"]}
    modules = layer_names("{}/layer_*/{}", encoder=layer, decoder=layer | _NAMES["cross"])
    for stack in STACKS:
        modules[f"{stack}_norm"] = f"{stack}/layer_norm"
        modules[f"{stack}_embedding_norm"] = f"{stack}/layernorm_embedding"
    return {
        f"{ours}.{leaf}": f"{theirs}/{spelled}"
        for ours, theirs in modules.items()
        for leaf, spelled in (_NORM if ours.endswith("norm") else _PROJECTION).items()
    }


def _queries(checkpoint: CTranslate2Checkpoint, config: TransformerConfig) -> dict[str, Change]:
    """Brings queries to our scale, one over the root of the size of a head."""
    changes: dict[str, Change] = {}
    for stack, shape in zip(STACKS, (config, config.decoder), strict=True):
        attentions = ("self_attention", "attention")[: 1 + (stack == "decoder")]
        prefixes = [f"{stack}/layer_0/{attention}" for attention in attentions]
        found = {
            name: value
            for name, value in checkpoint.attributes.items()
            if name.startswith(f"{stack}/") and name.endswith("/queries_scale")
        }
        default = (config.width / shape.heads) ** -0.5
        scales = {checkpoint.attributes.get(f"{each}/queries_scale", default) for each in prefixes}
        different = next((name for name, value in found.items() if value not in scales), None)
        if len(scales) > 1 or different:
            name = different or f"{prefixes[-1]}/queries_scale"
            raise checkpoint.fault(f"{name} differs from the others")
        factor = scales.pop() * shape.head_size**0.5
        if abs(factor - 1) > 1e-6:
            changes[f"{stack}_layers.*.query.*"] = partial(times, factor)
    return changes


def _with_rows(known: int, rows: int, table: Tensor) -> Tensor:
    """Fills a table, or a bias, with zeros after its first ``known`` rows."""
    filled = table.new_zeros(rows, *table.shape[1:])
    filled[: min(known, len(table))] = table[:known]
    return filled


def _cut(rows: int, table: Tensor) -> Tensor:
    return table[:rows] if len(table) >= rows else with_extra_position(table)


def _computed(
    checkpoint: CTranslate2Checkpoint, config: TransformerConfig, names: Mapping[str, str]
) -> dict[str, Tensor]:
    """Returns the weights that the file may leave out, or has in another shape."""
    computed: dict[str, Tensor] = {}
    for stack, shape in zip(STACKS, (config, config.decoder), strict=True):
        layers = config.encoder_layers if stack == "encoder" else config.decoder_layers
        if (
            config.positions is PositionScheme.LEARNED
            and f"{stack}/{TABLE}" not in checkpoint.names
        ):
            # Those of CTranslate2 begin at one.
            table = fairseq_sinusoids(config.max_source_length + 2, config.width)[1:]
            computed[f"{stack}_positions.table"] = table
        if config.positions is PositionScheme.RELATIVE:
            for ours, theirs in {"keys": "keys", "averages": "values"}.items():
                own = [f"{stack}/layer_{n}/{DISTANCES.format(theirs)}" for n in range(layers)]
                computed[f"{stack}_positions.{ours}"] = _distances(checkpoint, own, shape)
        if config.projection_bias:
            computed |= _zero_biases(checkpoint, names, stack, layers)
    return computed


def _distances(
    checkpoint: CTranslate2Checkpoint, names: Sequence[str], shape: TransformerConfig
) -> Tensor:
    """Returns the vectors of distances of all layers, which heads share: ``[L, H, 2R + 1, D]``."""
    wanted = 2 * shape.relative_distance + 1, shape.head_size
    for name in names:
        if checkpoint.shape(name) != wanted:
            raise checkpoint.fault(
                f"{name} has the shape {list(checkpoint.shape(name))}; it must be {list(wanted)}"
            )
    tables = torch.stack([checkpoint.tensor(name) for name in names])
    # As wide as heads will be.
    tables = pad(tables, (0, -shape.head_size % HEAD_MULTIPLE))
    return tables[:, None].repeat(1, shape.heads, 1, 1)


def _zero_biases(
    checkpoint: CTranslate2Checkpoint, names: Mapping[str, str], stack: str, layers: int
) -> dict[str, Tensor]:
    """Returns a bias for each projection that has none while others have one."""
    zeros = {}
    for pattern, theirs in names.items():
        if pattern.startswith(f"{stack}_layers") and theirs.endswith("/bias"):
            for layer in range(layers):
                weight = theirs.replace("*", str(layer)).removesuffix("bias") + "weight"
                name = pattern.replace("*", str(layer))
                zeros[name] = torch.zeros(checkpoint.shape(weight)[0])
    return zeros
