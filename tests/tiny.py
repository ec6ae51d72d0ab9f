"""The tiny model that most tests share: its sentences, vocabulary, weights and description."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqserve_export.artifact import Description
    from seqserve_export.quantization import Calibration
    from seqserve_model.config import TransformerConfig
    from seqserve_model.transformer import Transformer
    from seqserve_server.text.tokenizer import Tokenizer

SUBJECTS = ("The coffee", "A small dog", "My neighbour", "The old train", "Nobody", "Our teacher")
VERBS = ("tastes", "waits for", "reads about", "paints", "forgets", "does not like")
OBJECTS = ("the garden.", "a blue house!", "eleven books?", "water, bread and salt.", "music.")

SENTENCES = [
    f"{subject} {verb} {what}" for subject in SUBJECTS for verb in VERBS for what in OBJECTS
]


def make_tokenizer() -> Tokenizer:
    from seqserve_model.vocabulary import learn_vocabulary

    return learn_vocabulary(SENTENCES, size=384, characters=64)


def make_model(tokenizer: Tokenizer, **changes: Any) -> Transformer:
    """Makes a model whose targets vary, do not repeat one token, and end now and then."""
    import torch
    from tests.random_weights import random_model

    from seqserve_model.config import TransformerConfig

    torch.set_num_threads(1)
    shape: dict[str, Any] = {
        "vocabulary_size": tokenizer.vocabulary_size,
        "width": 32,
        "heads": 2,
        "feed_forward_width": 64,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "dropout": 0.0,
        "max_source_length": 24,
        "max_target_length": 20,
    }
    return random_model(TransformerConfig(**shape | changes))


def cut_down(shape: TransformerConfig) -> TransformerConfig:
    """Makes the sizes of a shape tiny; its other properties stay."""
    return replace(
        shape,
        vocabulary_size=400,
        width=64,
        heads=4,
        feed_forward_width=128,
        encoder_layers=1,
        decoder_layers=1,
    )


def make_ssru_model(tokenizer: Tokenizer) -> Transformer:
    """Makes a model with a recurrent decoder and the other conventions of Marian's students."""
    from seqserve_model.config import DecoderCell, PositionScheme

    return make_model(
        tokenizer,
        encoder_layers=1,
        decoder_layers=2,
        decoder_cell=DecoderCell.SSRU,
        positions=PositionScheme.MARIAN,
        zero_start=True,
    )


def make_description() -> Description:
    from seqserve_export.artifact import Description
    from seqserve_server.artifact.records import Provenance

    return Description(
        name="tiny",
        version=1,
        description="Random weights, for tests",
        licence="Apache-2.0",
        provenance=Provenance(command="", commit="", data_licence="", attribution=""),
    )


def make_calibration(model: Transformer, tokenizer: Tokenizer) -> Calibration:
    from seqserve_export.calibration import calibrate

    return calibrate(model, [tokenizer.encode(sentence) for sentence in SENTENCES])
