"""T5 and its kin: T5 1.1, Flan-T5, mT5, umT5, ByT5, MADLAD."""

from functools import partial

from seqserve_import.checkpoint import (
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_WIDTH,
    Checkpoint,
    Settings,
)
from seqserve_import.family import (
    Change,
    Family,
    activation_of,
    end_token,
    find_embeddings,
    start_token,
    times,
)
from seqserve_model.config import (
    Activation,
    Norm,
    NormPosition,
    PositionScheme,
    TransformerConfig,
)

# fmt: off
_ENCODER = {
    "self_attention.query":  "layer.0.SelfAttention.q",
    "self_attention.key":    "layer.0.SelfAttention.k",
    "self_attention.value":  "layer.0.SelfAttention.v",
    "self_attention.output": "layer.0.SelfAttention.o",
    "self_residual.norm":    "layer.0.layer_norm",
    "feed_forward.up":       "layer.1.DenseReluDense.wi",
    "feed_forward.down":     "layer.1.DenseReluDense.wo",
    "feed_forward_residual.norm": "layer.1.layer_norm",
}
_DECODER = {
    "cross_attention.query":  "layer.1.EncDecAttention.q",
    "cross_attention.key":    "layer.1.EncDecAttention.k",
    "cross_attention.value":  "layer.1.EncDecAttention.v",
    "cross_attention.output": "layer.1.EncDecAttention.o",
    "cross_residual.norm":    "layer.1.layer_norm",
    "feed_forward.up":        "layer.2.DenseReluDense.wi",
    "feed_forward.down":      "layer.2.DenseReluDense.wo",
    "feed_forward_residual.norm": "layer.2.layer_norm",
}
_BUCKETS = "layer.0.SelfAttention.relative_attention_bias.weight"
_STACKS = {
    "encoder_positions.table": f"encoder.block.0.{_BUCKETS}",
    "decoder_positions.table": f"decoder.block.0.{_BUCKETS}",
    # umT5's, for each layer.
    "encoder_positions.of_layers.*.table": f"encoder.block.*.{_BUCKETS}",
    "decoder_positions.of_layers.*.table": f"decoder.block.*.{_BUCKETS}",
    "encoder_norm":            "encoder.final_layer_norm",
    "decoder_norm":            "decoder.final_layer_norm",
}
# fmt: on
GATED = {
    Activation.GELU: Activation.GEGLU,
    Activation.GELU_TANH: Activation.GEGLU_TANH,
    Activation.SWISH: Activation.SWIGLU,
}  # fmt: skip
"""The gated form of an activation."""
# Never read: cross-attention has no positions.
_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
# T5 has no limit; it was trained on this many tokens.
_LENGTH = 512


def t5(checkpoint: Checkpoint) -> Family:
    """Reads T5: no biases, RMS norms, positions in the attention logits, which are not scaled."""
    config = checkpoint.config
    activation, is_gated = _activation(config)
    is_umt5 = config.text("model_type") == "umt5"
    embeddings = find_embeddings(
        checkpoint,
        shared="shared.weight",
        source="encoder.embed_tokens.weight",
        target="decoder.embed_tokens.weight",
        output="lm_head.weight",
    )
    sizes = (config.size(name, maximum=MAX_WIDTH) for name in ("d_model", "num_heads", "d_kv"))
    width, heads, head_size = sizes
    if not head_size:
        raise config.wrong("d_kv", "is not at least 1")
    layers = config.size("num_layers", maximum=MAX_LAYERS)
    # Ours divides each query by the root of its size.
    changes: dict[str, Change] = {"*.query.weight": partial(times, head_size**0.5)}
    if _scales_output(config):
        changes["decoder_norm.weight"] = partial(times, width**-0.5)
    length = config.size("n_positions", _LENGTH, maximum=MAX_POSITIONS)
    return Family(
        config=TransformerConfig(
            vocabulary_size=config.size("vocab_size"),
            width=width,
            heads=heads,
            attention_width=heads * head_size,
            feed_forward_width=config.size("d_ff"),
            encoder_layers=layers,
            decoder_layers=config.size("num_decoder_layers", layers, maximum=MAX_LAYERS),
            dropout=config.real("dropout_rate", 0.1),
            norm_position=NormPosition.PRE,
            norm=Norm.RMS,
            norm_epsilon=config.real("layer_norm_epsilon", 1e-6),
            projection_bias=False,
            activation=activation,
            positions=PositionScheme.T5_LAYERS if is_umt5 else PositionScheme.T5,
            relative_buckets=config.size("relative_attention_num_buckets", 32),
            relative_bucket_distance=config.size("relative_attention_max_distance", 128),
            shared_embeddings=embeddings.shared_embeddings,
            tied_output=embeddings.tied_output,
            scaled_embeddings=False,
            max_source_length=length,
            max_target_length=length,
            pad_id=config.size("pad_token_id"),
            bos_id=start_token(checkpoint),
            eos_id=end_token(checkpoint),
            unk_id=config.number("pad_token_id"),
        ),
        names={**embeddings.names, **_names(is_gated)},
        changes=changes,
        unused=(*embeddings.others, _UNUSED),
    )


def _scales_output(config: Settings) -> bool:
    """Returns whether the decoder's output is divided by √width: in T5 if it ties tables."""
    is_mt5 = config.text("model_type") == "mt5"
    tied = config.flag("tie_word_embeddings", True)
    return not is_mt5 and config.flag("scale_decoder_outputs", tied)


def _activation(config: Settings) -> tuple[Activation, bool]:
    """Returns the activation and whether it is gated; ``dense_act_fn`` goes before the name."""
    name, inner = "feed_forward_proj", "dense_act_fn"
    default = "relu" if config.text("model_type") == "t5" else "gated-gelu"
    kind, _, named = config.text(name, default).rpartition("-")
    if kind not in ("", "gated"):
        raise config.wrong(name, "is not known")
    is_gated = config.flag("is_gated_act", kind == "gated")
    # The one name that does not mean what it says.
    named = "gelu_new" if kind and named == "gelu" else named
    plain = activation_of(config, inner if config.has(inner) else name, config.text(inner, named))
    if is_gated and plain not in GATED:
        raise config.wrong(name, "is not known")
    return GATED[plain] if is_gated else plain, is_gated


def _names(is_gated: bool) -> dict[str, str]:
    """Lists the names; a gated layer has two projections up, the gate first."""
    stacks = {"encoder": _ENCODER, "decoder": _ENCODER | _DECODER}
    names = {
        f"{stack}_layers.*.{ours}": f"{stack}.block.*.{theirs}"
        for stack, layer in stacks.items()
        for ours, theirs in layer.items()
    }
    if is_gated:
        for ours in [name for name in names if name.endswith(".up")]:
            theirs = names[ours]
            names |= {ours: f"{theirs}_1", f"{ours.removesuffix('up')}gate": f"{theirs}_0"}
    return names | _STACKS
