"""CTranslate2's encoder-decoder models, whatever they were converted from."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from seqserve_import.checkpoint import MAX_LAYERS, MAX_WIDTH, Checkpoint
from seqserve_import.ctranslate2.checkpoint import CTranslate2Checkpoint
from seqserve_import.families.bart import fairseq_sinusoids
from seqserve_import.families.t5 import GATED
from seqserve_import.family import Change, Family, times, with_extra_position
from seqserve_import.files import CheckpointError
from seqserve_model.config import (
    Activation,
    Norm,
    NormPosition,
    PositionScheme,
    TransformerConfig,
)

# fmt: off
_LAYER = {
    "self_attention.query":       "self_attention/linear_0[query]",
    "self_attention.key":         "self_attention/linear_0[key]",
    "self_attention.value":       "self_attention/linear_0[value]",
    "self_attention.output":      "self_attention/linear_1",
    "self_residual.norm":         "self_attention/layer_norm",
    "feed_forward.down":          "ffn/linear_1",
    "feed_forward_residual.norm": "ffn/layer_norm",
}
_CROSS = {
    "cross_attention.query":      "attention/linear_0",
    "cross_attention.key":        "attention/linear_1[key]",
    "cross_attention.value":      "attention/linear_1[value]",
    "cross_attention.output":     "attention/linear_2",
    "cross_residual.norm":        "attention/layer_norm",
}
_PLAIN = {"feed_forward.up": "ffn/linear_0"}
_GATE = {"feed_forward.gate": "ffn/linear_0", "feed_forward.up": "ffn/linear_0_noact"}
# fmt: on
_STACKS = ("encoder", "decoder")
_PROJECTION = {"weight": "weight", "bias": "bias"}
_NORM = {"weight": "gamma", "bias": "beta"}

_ACTIVATIONS = (Activation.RELU, Activation.GELU_TANH, Activation.SWISH, Activation.GELU)
"""By CTranslate2's number of each."""
_READ = {
    *("num_heads", "pre_norm", "activation", "scale_embeddings", "multiply_by_sqrt_depth"),
    *("scale_outputs", "start_from_zero_embedding", "queries_scale"),
    *("relative_attention_max_distance", "with_source_bos", "with_source_eos", "with_target_bos"),
}
_WITHOUT_EFFECT = {
    *("alignment_layer", "alignment_heads", "embeddings_merge", "with_relative_position"),
    *("alibi_use_positive_positions", "scale_alibi"),
}
"""They change nothing where nothing else does that is refused."""
_LENGTH = {PositionScheme.LEARNED: 1024, PositionScheme.RELATIVE: 1024, PositionScheme.T5: 512}
"""Tokens of a source or target, unless a table is shorter. CTranslate2 cuts sources at 1,024."""
_TABLE = "position_encodings/encodings"
_BUCKETS = "self_attention/relative_attention_bias"
_DISTANCES = "self_attention/relative_position_{}"


def ctranslate2(checkpoint: Checkpoint) -> Family:
    """Reads a model by its variables, whose names are the same for all converters.

    The vocabulary gets a token whose embedding is zero, if it has none that pads.

    Raises:
        CheckpointError: A variable is missing, or has no counterpart here; the message names it.
    """
    if not isinstance(checkpoint, CTranslate2Checkpoint):
        raise checkpoint.config.wrong("model_type", "stands for CTranslate2's own files")
    _check_supported(checkpoint)
    source, target, output = _tables(checkpoint)
    is_gated = "encoder/layer_0/ffn/linear_0_noact/weight" in checkpoint.names
    layers = {stack: _layers(checkpoint, stack) for stack in _STACKS}
    names = _names(_GATE if is_gated else _PLAIN)
    positions = _positions(checkpoint)
    config = _config(checkpoint, layers, is_gated=is_gated, positions=positions)
    tables = {"source": source, "target": target}
    config |= {
        "shared_embeddings": checkpoint.are_equal(source, target),
        "tied_output": checkpoint.are_equal(target, output),
        **_tokens(checkpoint, tables),
    }
    built = TransformerConfig(**config)  # type: ignore[arg-type]
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
            **{f"{stack}_positions.table": _table(stack, positions) for stack in _STACKS},
            "source_embedding.weight": source,
            "target_embedding.weight": target,
            "output_projection.weight": output,
            "logits_bias": "decoder/projection/bias",
        },
        changes=changes,
        computed=_computed(checkpoint, built, names),
        unused=(f"*/{_BUCKETS}", f"*/{_DISTANCES.format('*')}", source, target, output),
    )


def _check_supported(checkpoint: CTranslate2Checkpoint) -> None:
    bin_ = checkpoint.model / "model.bin"
    if checkpoint.config.has("quantization_type"):
        raise checkpoint.config.wrong("quantization_type", "is not supported")
    for name, value in sorted(checkpoint.attributes.items()):
        own = name.rpartition("/")[2]
        if own not in _READ | _WITHOUT_EFFECT and (value or own.startswith("rotary")):
            raise CheckpointError(f"{bin_}: {name} is {value:g}, which is not supported")
    if "encoder/embeddings_1/weight" in checkpoint.names:
        raise CheckpointError(
            f"{bin_}: encoder/embeddings_1/weight: features of source tokens are not supported"
        )
    for stack in _STACKS:
        first = f"{stack}/layer_0/{_BUCKETS}"
        others = (name for name in checkpoint.names if name.endswith(_BUCKETS))
        for name in sorted(others):
            if name.startswith(stack) and not checkpoint.are_equal(first, name):
                raise CheckpointError(
                    f"{bin_}: {name} differs from that of the first layer, which is not supported"
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
        if len(shape) != 2 or shape[0] < needed or shape[1] != width or width > MAX_WIDTH:
            raise CheckpointError(
                f"{checkpoint.model}: the variable {name} has the shape {list(shape)}; the"
                f" vocabulary has {needed:,} tokens"
            )
    return tables


def _layers(checkpoint: CTranslate2Checkpoint, stack: str) -> int:
    count = 0
    while f"{stack}/layer_{count}/ffn/linear_0/weight" in checkpoint.names:
        count += 1
    if not 0 < count <= MAX_LAYERS:
        raise CheckpointError(f"{checkpoint.model}: {stack} has {count} layers")
    return count


def _positions(checkpoint: CTranslate2Checkpoint) -> PositionScheme:
    first = "encoder/layer_0/"
    if first + _BUCKETS in checkpoint.names:
        return PositionScheme.T5
    if first + _DISTANCES.format("keys") in checkpoint.names:
        return PositionScheme.RELATIVE
    return PositionScheme.LEARNED


def _config(
    checkpoint: CTranslate2Checkpoint,
    layers: Mapping[str, int],
    *,
    is_gated: bool,
    positions: PositionScheme,
) -> dict[str, object]:
    """Returns what the variables of the layers say."""
    names, first = checkpoint.names, "{}/layer_0/{}"
    flags = {
        name: {int(checkpoint.attribute(stack, name, default)) for stack in _STACKS}
        for name, default in {"pre_norm": 1, "activation": 0}.items()
    }
    for name, found in flags.items():
        if len(found) > 1:
            raise CheckpointError(f"{checkpoint.model}: decoder/{name} is not that of the encoder")
    [pre_norm], [activation] = flags.values()
    plain = dict(enumerate(_ACTIVATIONS)).get(activation)
    known = GATED if is_gated else {each: each for each in _ACTIVATIONS}
    if plain not in known:
        gated = ", gated," if is_gated else ""
        raise CheckpointError(
            f"{checkpoint.model}: encoder/activation {activation}{gated} is not supported"
        )
    own = {
        stack: {
            "heads": int(checkpoint.attribute(stack, "num_heads", 8)),
            "attention_width": _size(checkpoint, first.format(stack, "self_attention/linear_1"), 1),
            "feed_forward_width": _size(checkpoint, first.format(stack, "ffn/linear_0"), 0),
        }
        for stack in _STACKS
    }
    of_decoder = own["decoder"] if own["decoder"] != own["encoder"] else {}
    norm = Norm.LAYER if first.format("encoder", "ffn/layer_norm/beta") in names else Norm.RMS
    length = _LENGTH[positions]
    tables = [f"{stack}/{_TABLE}" for stack in _STACKS if f"{stack}/{_TABLE}" in names]
    if positions is PositionScheme.LEARNED:
        length = min(length, *(checkpoint.shape(name)[0] for name in tables), length)
    values: dict[str, object] = {
        "width": checkpoint.shape("decoder/embeddings/weight")[1],
        **own["encoder"],
        **{f"decoder_{name}": size for name, size in of_decoder.items()},
        **{f"{stack}_layers": count for stack, count in layers.items()},
        "norm_position": NormPosition.PRE if pre_norm else NormPosition.POST,
        "norm": norm,
        "norm_epsilon": checkpoint.config.real("layer_norm_epsilon", 0.0),
        "embedding_norm": "encoder/layernorm_embedding/gamma" in names,
        "projection_bias": any(name.endswith("/bias") and "layer_" in name for name in names),
        "activation": known[plain],
        "positions": positions,
        "logits_bias": "decoder/projection/bias" in names,
        "scaled_embeddings": _is_scaled(checkpoint),
        "max_source_length": length,
        "max_target_length": max(1, length - 1),
    }
    if positions is PositionScheme.T5:
        values["relative_buckets"] = checkpoint.shape(first.format("encoder", _BUCKETS))[0]
        distance = f"{first.format('encoder', 'self_attention')}/relative_attention_max_distance"
        values["relative_bucket_distance"] = int(checkpoint.attributes.get(distance, 128))
    if positions is PositionScheme.RELATIVE:
        keys = first.format("encoder", _DISTANCES.format("keys"))
        values["relative_distance"] = (checkpoint.shape(keys)[0] - 1) // 2
    return values


def _size(checkpoint: CTranslate2Checkpoint, linear: str, axis: int) -> int:
    shape = checkpoint.shape(f"{linear}/weight")
    if len(shape) != 2:
        raise CheckpointError(
            f"{checkpoint.model}: {linear}/weight has the shape {list(shape)}; it must be a matrix"
        )
    return shape[axis]


def _is_scaled(checkpoint: CTranslate2Checkpoint) -> bool:
    """Tells whether embeddings are multiplied by √width; a whole number is a flag for it."""
    root = checkpoint.shape("decoder/embeddings/weight")[1] ** 0.5
    found = {}
    for stack in _STACKS:
        older = checkpoint.attribute(stack, "embeddings/multiply_by_sqrt_depth", 1)
        scale = checkpoint.attribute(stack, "scale_embeddings", older)
        factor = (root if scale else 1.0) if isinstance(scale, int) else scale
        found[stack] = abs(factor / root - 1) < 1e-4
        if (not found[stack] and factor != 1.0) or len({*found.values()}) > 1:
            raise CheckpointError(
                f"{checkpoint.model}: {stack}/scale_embeddings is {factor:g}; it must be 1 or"
                f" {root:g} in both stacks"
            )
    return bool(found["encoder"])


def _tokens(checkpoint: CTranslate2Checkpoint, tables: Mapping[str, str]) -> dict[str, int]:
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
    return f"{stack}/layer_0/{_BUCKETS}" if is_t5 else f"{stack}/{_TABLE}"


def _names(feed_forward: Mapping[str, str]) -> dict[str, str]:
    """Returns CTranslate2's names of all weights but tables of tokens, by ours."""
    layer = {**_LAYER, **feed_forward}
    modules = {
        f"{stack}_layers.*.{ours}": f"{stack}/layer_*/{theirs}"
        for stack, own in zip(_STACKS, (layer, layer | _CROSS), strict=True)
        for ours, theirs in own.items()
    }
    for stack in _STACKS:
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
    for stack, shape in zip(_STACKS, (config, config.decoder), strict=True):
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
            raise CheckpointError(f"{checkpoint.model}: {name} differs from the others")
        factor = scales.pop() * shape.head_size**0.5
        if abs(factor - 1) > 1e-6:
            changes[f"{stack}_layers.*.query.*"] = partial(times, factor)
    return changes


def _with_rows(known: int, rows: int, table: Tensor) -> Tensor:
    """Fills a table, or a bias, with zeros behind its first ``known`` rows."""
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
    for stack, shape in zip(_STACKS, (config, config.decoder), strict=True):
        layers = config.encoder_layers if stack == "encoder" else config.decoder_layers
        if config.positions is PositionScheme.LEARNED:
            # Those of CTranslate2 begin at one.
            table = fairseq_sinusoids(config.max_source_length + 2, config.width)[1:]
            computed[f"{stack}_positions.table"] = table
        if config.positions is PositionScheme.RELATIVE:
            for ours, theirs in {"keys": "keys", "averages": "values"}.items():
                own = [
                    checkpoint.tensor(f"{stack}/layer_{layer}/{_DISTANCES.format(theirs)}")
                    for layer in range(layers)
                ]
                # Heads share theirs: [L, H, 2R + 1, D].
                distances = torch.stack(own)[:, None].repeat(1, shape.heads, 1, 1)
                computed[f"{stack}_positions.{ours}"] = distances
        if config.projection_bias:
            computed |= _zero_biases(checkpoint, names, stack, layers)
    return computed


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
