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
    NAMES,
    Change,
    Family,
    activation_of,
    end_token,
    find_embeddings,
    layer_names,
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

_NAMES = NAMES["t5"]
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
    encoder = _NAMES["encoder"]
    names = layer_names("{}.block.*.{}", encoder=encoder, decoder=encoder | _NAMES["decoder"])
    if is_gated:
        for ours in [name for name in names if name.endswith(".up")]:
            theirs = names[ours]
            names |= {ours: f"{theirs}_1", f"{ours.removesuffix('up')}gate": f"{theirs}_0"}
    stacks: dict[str, str] = _NAMES["stacks"]
    return names | stacks
