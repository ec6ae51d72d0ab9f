"""Marian from its own files, and the students of Bergamot in Firefox."""

from torch import Tensor

from seqserve_import.checkpoint import MAX_LAYERS, MAX_WIDTH, Checkpoint, Settings
from seqserve_import.families.bart import fairseq_sinusoids
from seqserve_import.family import (
    NAMES,
    Change,
    Family,
    activation_of,
    end_token,
    layer_names,
    with_extra_position,
)
from seqserve_import.marian_checkpoint import MarianCheckpoint, Vocabularies
from seqserve_model.config import DecoderCell, NormPosition, PositionScheme, TransformerConfig

_NAMES = NAMES["marian"]
_PROJECTION = {"weight": "W", "bias": "b"}
_NORM = {"weight": "scale", "bias": "bias"}

_NORMS = {("", "an", ""): NormPosition.POST, ("n", "a", "n"): NormPosition.PRE}
"""By the operations before, after and above the layers, without dropout, ``d``."""
_CELL = "transformer-decoder-autoreg"
CELLS = {"self-attention": DecoderCell.ATTENTION, "rnn": DecoderCell.SSRU}
"""By Marian's names; without one it has the first."""
EPSILON = 1e-9
"""Added to the variance by each norm."""
FIRST_LAYER = 1
"""Marian counts layers from one."""
_LENGTH = 512
"""Tokens of a source or target; Marian itself has no limit."""


def marian_native(checkpoint: Checkpoint) -> Family:
    """Reads Marian: as OPUS-MT, but with other sinusoids and, in Firefox, another decoder cell.

    The vocabulary gets a token whose embedding is zero, from which targets start.
    """
    config = checkpoint.config
    if not isinstance(checkpoint, MarianCheckpoint):
        raise config.wrong("model_type", "is the type of Marian's own files, which name none")
    _check_supported(config)
    vocabularies = checkpoint.vocabularies
    _check_sizes(config, vocabularies)
    rows, start = vocabularies.rows, vocabularies.start
    norm_position = _norm_position(config)
    cell = CELLS[config.text(_CELL, "self-attention")]
    activation = "transformer-ffn-activation"
    source, target, output = _tables(checkpoint)
    width = config.size("dim-emb", maximum=MAX_WIDTH)
    positions = with_extra_position(fairseq_sinusoids(_LENGTH, width))
    return Family(
        config=TransformerConfig(
            vocabulary_size=rows,
            source_vocabulary_size=0 if vocabularies.is_joint else rows,
            width=width,
            heads=config.size("transformer-heads"),
            feed_forward_width=config.size("transformer-dim-ffn"),
            decoder_feed_forward_width=config.size("transformer-decoder-dim-ffn", 0),
            encoder_layers=config.size("enc-depth", maximum=MAX_LAYERS),
            decoder_layers=config.size("dec-depth", maximum=MAX_LAYERS),
            decoder_cell=cell,
            norm_position=norm_position,
            norm_epsilon=EPSILON,
            embedding_norm="n" in config.text("transformer-postprocess-emb", "d"),
            activation=activation_of(config, activation, config.text(activation, "swish")),
            positions=PositionScheme.LEARNED,
            shared_embeddings=source == target,
            tied_output=target == output,
            logits_bias=not config.flag("output-omit-bias", False),
            max_source_length=_LENGTH,
            max_target_length=_LENGTH,
            pad_id=start,
            bos_id=start,
            eos_id=end_token(checkpoint),
            unk_id=start,
        ),
        names={
            **weight_names(norm_position, cell),
            "source_embedding.weight": source,
            "target_embedding.weight": target,
            "output_projection.weight": output,
            "logits_bias": "decoder_ff_logit_out_b",
        },
        changes=_changes(vocabularies, is_transposed=output.endswith("_W")),
        computed=dict.fromkeys(("encoder_positions.table", "decoder_positions.table"), positions),
        first_layer=FIRST_LAYER,
    )


def _check_supported(config: Settings) -> None:
    for name, supported in (_NAMES["supported"] | {_CELL: [*CELLS]}).items():
        if config.some([name]).get(name, supported[0]) not in supported:
            listed = " or ".join(str(value).lower() for value in supported)
            raise config.wrong(name, f"is not supported; {listed} can be imported")
    if config.text(_CELL, "") == "rnn" and config.text("dec-cell") != "ssru":
        raise config.wrong("dec-cell", "is not supported; ssru can be imported")


def _check_sizes(config: Settings, vocabularies: Vocabularies) -> None:
    sizes = config.numbers("dim-vocabs")
    tokens = [len(vocabularies.source), len(vocabularies.target)]
    if len(sizes) != 2 or any(size < needed for size, needed in zip(sizes, tokens, strict=True)):
        raise config.wrong("dim-vocabs", f"is less than the tokens of the vocabularies, {tokens}")


def _norm_position(config: Settings) -> NormPosition:
    defaults = {"preprocess": "", "postprocess": "dan", "postprocess-top": ""}
    operations = {name: config.text(f"transformer-{name}", defaults[name]) for name in defaults}
    before, after, top = (spelled.replace("d", "") for spelled in operations.values())
    if (before, after, top) not in _NORMS:
        raise config.wrong(
            "transformer-postprocess",
            "is not supported with these transformer-preprocess and transformer-postprocess-top:"
            f" {operations}; the norm can come after each layer (preprocess none, postprocess dan,"
            " top none), or before it (n, da, n)",
        )
    return _NORMS[before, after, top]


def _tables(checkpoint: Checkpoint) -> tuple[str, str, str]:
    config = checkpoint.config
    is_one = config.flag("tied-embeddings-all", False)
    is_shared = is_one or config.flag("tied-embeddings-src", False)
    source, target = ("Wemb", "Wemb") if is_shared else ("encoder_Wemb", "decoder_Wemb")
    if is_one or config.flag("tied-embeddings", False):
        return source, target, target
    output = "decoder_ff_logit_out_Wt"
    return source, target, output if output in checkpoint.names else output.removesuffix("t")


def weight_names(norm_position: NormPosition, cell: DecoderCell) -> dict[str, str]:
    """Returns Marian's names of all weights but tables and biases of tokens, by ours."""
    ssru = _NAMES["ssru"] | {"self_residual.norm": _NAMES["ssru_norm"][norm_position.value]}
    feed_forward = _NAMES["feed_forward"]
    encoder = _NAMES["self"] | feed_forward
    own = ssru if cell is DecoderCell.SSRU else _NAMES["self"]
    layers = layer_names("{}_l*_{}", encoder=encoder, decoder=own | _NAMES["cross"] | feed_forward)
    suffix = "_pre" if norm_position is NormPosition.PRE else ""
    names = {ours: theirs + suffix * ("_ln_" in theirs) for ours, theirs in layers.items()}
    return {
        f"{ours}.{leaf}": theirs.format(spelled)
        for ours, theirs in (names | _NAMES["stacks"]).items()
        for leaf, spelled in (_NORM if "_ln_" in theirs else _PROJECTION).items()
    }


def _changes(vocabularies: Vocabularies, *, is_transposed: bool) -> dict[str, Change]:
    """Turns weights into ours: tables get rows of zeros, projections are transposed, vectors lose
    an axis. The output of older versions ``is_transposed``, which newer ones spare.
    """

    def table(weight: Tensor) -> Tensor:
        rows = weight.new_zeros(vocabularies.rows, weight.size(1))
        known = weight[: vocabularies.start]
        rows[: len(known)] = known
        return rows

    def transposed(weight: Tensor) -> Tensor:
        return weight.t().contiguous()

    return {
        "*_embedding.weight": table,
        "output_projection.weight": (lambda weight: table(weight.t())) if is_transposed else table,
        "logits_bias": lambda bias: table(bias.t()).flatten(),
        "*norm.*": Tensor.flatten,
        "*.bias": Tensor.flatten,
        "*.weight": transposed,
    }
