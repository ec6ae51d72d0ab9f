"""The shape of a network of CTranslate2, as its variables tell it."""

from typing import Any

from seqserve_import.checkpoint import MAX_LAYERS
from seqserve_import.ctranslate2_checkpoint import CTranslate2Checkpoint
from seqserve_import.families.t5 import GATED
from seqserve_import.files import CheckpointError
from seqserve_model.config import Activation, Norm, NormPosition, PositionScheme

STACKS = ("encoder", "decoder")
TABLE = "position_encodings/encodings"
BUCKETS = "self_attention/relative_attention_bias"
DISTANCES = "self_attention/relative_position_{}"
GATE = "encoder/layer_0/ffn/linear_0_noact/weight"
"""Is there if feed-forward layers are gated."""

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
"""They have no effect unless another setting, which is refused, is set."""
_LENGTH = {PositionScheme.LEARNED: 1024, PositionScheme.RELATIVE: 1024, PositionScheme.T5: 512}
"""Tokens of a source or target, unless a table is shorter. CTranslate2 cuts sources at 1,024."""
_MAX_DISTANCE = 1024


def check_supported(checkpoint: CTranslate2Checkpoint) -> None:
    """Refuses what has no counterpart here."""
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
    for stack in STACKS:
        first = f"{stack}/layer_0/{BUCKETS}"
        others = (name for name in checkpoint.names if name.endswith(BUCKETS))
        for name in sorted(others):
            if name.startswith(stack) and not checkpoint.are_equal(first, name):
                raise CheckpointError(
                    f"{bin_}: {name} differs from the first layer's, which is not supported"
                )


def _layers(checkpoint: CTranslate2Checkpoint, stack: str) -> int:
    count = 0
    while f"{stack}/layer_{count}/ffn/linear_0/weight" in checkpoint.names:
        count += 1
    if not 0 < count <= MAX_LAYERS:
        raise checkpoint.fault(f"{stack} has {count} layers")
    return count


def shape_of(checkpoint: CTranslate2Checkpoint) -> dict[str, Any]:
    """Returns the values of a configuration, without the vocabulary's."""
    names, first = checkpoint.names, "encoder/layer_0"
    buckets, distances = f"{first}/{BUCKETS}", f"{first}/{DISTANCES.format('keys')}"
    positions = PositionScheme.RELATIVE if distances in names else PositionScheme.LEARNED
    if buckets in names:
        positions = PositionScheme.T5
    pre_norm, activation = _flags(checkpoint)
    encoder, decoder = (_sizes(checkpoint, stack) for stack in STACKS)
    of_decoder = decoder if decoder != encoder else {}
    norm = Norm.LAYER if f"{first}/ffn/layer_norm/beta" in names else Norm.RMS
    length = _LENGTH[positions]
    tables = [f"{stack}/{TABLE}" for stack in STACKS if f"{stack}/{TABLE}" in names]
    if positions is PositionScheme.LEARNED:
        length = min(length, *(_matrix(checkpoint, name)[0] for name in tables), length)
    values: dict[str, Any] = {
        "width": checkpoint.shape("decoder/embeddings/weight")[1],
        **encoder,
        **{f"decoder_{name}": size for name, size in of_decoder.items()},
        **{f"{stack}_layers": _layers(checkpoint, stack) for stack in STACKS},
        "norm_position": NormPosition.PRE if pre_norm else NormPosition.POST,
        "norm": norm,
        "norm_epsilon": checkpoint.config.real("layer_norm_epsilon", 0.0),
        "embedding_norm": "encoder/layernorm_embedding/gamma" in names,
        "projection_bias": any(name.endswith("/bias") and "layer_" in name for name in names),
        "activation": activation,
        "positions": positions,
        "logits_bias": "decoder/projection/bias" in names,
        "scaled_embeddings": _is_scaled(checkpoint),
        "max_source_length": length,
        "max_target_length": max(1, length - 1),
    }
    if positions is PositionScheme.T5:
        values["relative_buckets"] = _matrix(checkpoint, buckets)[0]
        name = f"{first}/self_attention/relative_attention_max_distance"
        values["relative_bucket_distance"] = int(checkpoint.attributes.get(name, 128))
    if positions is PositionScheme.RELATIVE:
        values["relative_distance"] = distance = (_matrix(checkpoint, distances)[0] - 1) // 2
        if distance > _MAX_DISTANCE:
            raise checkpoint.fault(
                f"{distances} has {distance:,} distances; at most {_MAX_DISTANCE:,} are supported"
            )
    return values


def _sizes(checkpoint: CTranslate2Checkpoint, stack: str) -> dict[str, int]:
    first = f"{stack}/layer_0"
    return {
        "heads": int(checkpoint.attribute(stack, "num_heads", 8)),
        "attention_width": _matrix(checkpoint, f"{first}/self_attention/linear_1/weight")[1],
        "feed_forward_width": _matrix(checkpoint, f"{first}/ffn/linear_0/weight")[0],
    }


def _flags(checkpoint: CTranslate2Checkpoint) -> tuple[int, Activation]:
    """Returns whether the norm comes first, and the activation, which both stacks share."""
    flags = {
        name: {int(checkpoint.attribute(stack, name, default)) for stack in STACKS}
        for name, default in {"pre_norm": 1, "activation": 0}.items()
    }
    for name, found in flags.items():
        if len(found) > 1:
            raise checkpoint.fault(f"decoder/{name} differs from the encoder's")
    [pre_norm], [activation] = flags.values()
    plain = dict(enumerate(_ACTIVATIONS)).get(activation)
    is_gated = GATE in checkpoint.names
    known = GATED if is_gated else {each: each for each in _ACTIVATIONS}
    if plain not in known:
        gated = ", gated," if is_gated else ""
        raise checkpoint.fault(f"encoder/activation {activation}{gated} is not supported")
    return pre_norm, known[plain]


def _matrix(checkpoint: CTranslate2Checkpoint, name: str) -> tuple[int, ...]:
    shape = checkpoint.shape(name)
    if len(shape) != 2:
        raise checkpoint.fault(f"{name} has the shape {list(shape)}; it must be a matrix")
    return shape


def _is_scaled(checkpoint: CTranslate2Checkpoint) -> bool:
    """Returns whether embeddings are multiplied by √width, which a whole number marks."""
    root = checkpoint.shape("decoder/embeddings/weight")[1] ** 0.5
    found = {}
    for stack in STACKS:
        older = checkpoint.attribute(stack, "embeddings/multiply_by_sqrt_depth", 1)
        scale = checkpoint.attribute(stack, "scale_embeddings", older)
        factor = (root if scale else 1.0) if isinstance(scale, int) else scale
        found[stack] = abs(factor / root - 1) < 1e-4
        if (not found[stack] and factor != 1.0) or len({*found.values()}) > 1:
            raise checkpoint.fault(
                f"{stack}/scale_embeddings is {factor:g}; it must be 1 or {root:g} in both stacks"
            )
    return bool(found["encoder"])
