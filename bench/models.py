"""The models that are compared: the shipped one, and shapes with random weights.

The usual one has Marian's base shape: six layers on each side, post-norm and swish, as the
translation models of OPUS-MT have them. Token ids are all that it reads and writes; its vocabulary
is numbered words.
"""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import models, pre_tokenizers
from torch import Tensor

from bench.drivers import Rows
from seqserve_export.artifact import Description
from seqserve_export.pipeline import NO_ROUNDING, Rounding, write_artifact
from seqserve_model.config import (
    Activation,
    DecoderCell,
    Norm,
    NormPosition,
    PositionScheme,
    TransformerConfig,
)
from seqserve_model.transformer import Transformer
from seqserve_model.vocabulary import CONTROL_TOKENS
from seqserve_server.artifact.manifest import FILE as MANIFEST
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import Provenance
from seqserve_server.text.tokenizer import Tokenizer
from seqserve_server.text.vocabulary import UNK

SHIPPED = Path("models/en-de")
"""Folder of the versions of the shipped model."""

MARIAN_BASE = TransformerConfig(
    vocabulary_size=32_000,
    width=512,
    heads=8,
    feed_forward_width=2048,
    encoder_layers=6,
    decoder_layers=6,
    dropout=0.0,
    norm_position=NormPosition.POST,
    activation=Activation.SWISH,
    max_source_length=128,
    max_target_length=128,
)
"""60 million weights, 16 million of them the one table of embeddings."""

_LARGE = replace(
    MARIAN_BASE, width=1024, heads=16, feed_forward_width=4096, encoder_layers=12, decoder_layers=12
)
BART_LARGE = replace(
    _LARGE,
    vocabulary_size=50_264,
    activation=Activation.GELU,
    positions=PositionScheme.LEARNED,
    embedding_norm=True,
    scaled_embeddings=False,
)
"""404 million weights. The real one has a token more, which makes no multiple of eight."""
NLLB_600M = replace(
    _LARGE,
    vocabulary_size=256_206,
    activation=Activation.RELU,
    norm_position=NormPosition.PRE,
)
"""615 million weights, 262 million of them the one table of embeddings."""
BART_LARGE_CNN = replace(BART_LARGE, max_source_length=1024)
"""Summarises sources of up to 1,024 tokens."""
T5_BASE = TransformerConfig(
    vocabulary_size=32_128,
    width=768,
    heads=12,
    feed_forward_width=3072,
    encoder_layers=12,
    decoder_layers=12,
    dropout=0.0,
    norm=Norm.RMS,
    projection_bias=False,
    activation=Activation.RELU,
    positions=PositionScheme.T5,
    scaled_embeddings=False,
    max_source_length=128,
    max_target_length=128,
)
"""223 million weights."""
T5_SMALL = replace(
    T5_BASE, width=512, heads=8, feed_forward_width=2048, encoder_layers=6, decoder_layers=6
)
FLAN_T5_BASE = replace(
    T5_BASE, feed_forward_width=2048, activation=Activation.GEGLU_TANH, tied_output=False
)
"""248 million weights; its feed-forward layers are gated."""

_SHORTEST, _LONGEST = 8, 32
_TYPICAL, _SPREAD = 16, 0.4


@torch.no_grad()
def marian_base(config: TransformerConfig = MARIAN_BASE, *, seed: int = 7) -> Transformer:
    """Makes a model whose greedy targets vary with the source and seldom repeat a word.

    The end token never wins, so every engine's targets are as long as they are allowed to be.
    """
    torch.manual_seed(seed)
    model = Transformer(config).eval()
    is_pre = config.norm_position is NormPosition.PRE
    norm = model.decoder_norm if is_pre else model.decoder_layers[-1].feed_forward_residual.norm
    last = norm.weight
    # With a tied output and a last norm of ones, a token is most like itself and repeats for ever.
    assert isinstance(last, Tensor)
    last.normal_()
    # The content of the sources is the same at every step and must not drown the last word, which
    # is scrambled by the last feed-forward layer: from there the next one follows.
    for layer in model.decoder_layers:
        if config.decoder_cell is DecoderCell.ATTENTION:
            layer.self_attention.output.weight *= 0.2
        layer.cross_attention.output.weight *= 0.2
    model.decoder_layers[-1].feed_forward.down.weight *= 4.0
    # Short vectors have small products with everything: no control token is ever the likeliest.
    model.target_embedding.weight[: len(CONTROL_TOKENS)] *= 0.1
    return model


def random_sources(
    count: int,
    seed: int = 7,
    config: TransformerConfig = MARIAN_BASE,
    *,
    cum_weights: Sequence[float] | None = None,
) -> Rows:
    """Draws token ids, the end token last in each row, as many as sentences have.

    Lengths are log-normal around 16 tokens and cut at 8 and 32.

    Args:
        cum_weights: How often words occur, summed up from the first on; all alike where not given.
    """
    draw = random.Random(seed)
    words = range(len(CONTROL_TOKENS), config.vocabulary_size)
    return [
        [*draw.choices(words, cum_weights=cum_weights, k=_length(draw) - 1), config.eos_id]
        for _ in range(count)
    ]


def _length(draw: random.Random) -> int:
    length = round(draw.lognormvariate(math.log(_TYPICAL), _SPREAD))
    return min(max(length, _SHORTEST), _LONGEST)


def numbered_words(size: int) -> tokenizers.Tokenizer:
    """Makes a vocabulary in which the word of id 17 is ``t17``; spaces separate words."""
    words = [*CONTROL_TOKENS, *(f"t{number}" for number in range(len(CONTROL_TOKENS), size))]
    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(numbers, unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(CONTROL_TOKENS)
    return tokenizer


def write_unproven(
    model: Transformer,
    repository: Path,
    name: str,
    tokenizer: Tokenizer | None = None,
    rounding: Rounding = NO_ROUNDING,
) -> Path:
    """Exports a model for measurements of speed into ``repository/<name>/1``.

    Args:
        tokenizer: Of its texts; numbered words where not given.
    """
    description = Description(
        name=name,
        version=1,
        description="For benchmarks",
        licence="Apache-2.0",
        provenance=Provenance(command="", commit="", data_licence="", attribution=""),
    )
    tokenizer = tokenizer or Tokenizer(numbered_words(model.config.vocabulary_size))
    return write_artifact(
        lambda: model, tokenizer, repository, description, held_out=None, rounding=rounding
    )


def newest(model: Path, precision: str) -> Path:
    """Finds the highest version of a model at a precision, in the folder of its versions."""
    versions = [
        folder
        for folder in (model.iterdir() if model.is_dir() else ())
        if folder.name.isdecimal() and Manifest.read(folder).precision == precision
    ]
    if not versions:
        raise SystemExit(f"{model}: holds no {precision} version")
    return max(versions, key=lambda folder: int(folder.name))


def shipped_artifacts() -> tuple[Path, Path]:
    """Finds the shipped model at int8 and fp32."""
    return newest(SHIPPED, "int8"), newest(SHIPPED, "fp32")


def amend(artifact: Path, **facts: Any) -> None:
    """Changes facts of an artifact's manifest."""
    path = artifact / MANIFEST
    known = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(known | facts), encoding="utf-8")
