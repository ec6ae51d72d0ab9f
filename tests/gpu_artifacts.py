"""Artifacts at fp16 that a GPU is tested with; exporting them needs none, and takes minutes.

python -m tests.gpu_artifacts        writes those that are not there yet
"""

from pathlib import Path
from typing import Any

from bench.models import numbered_words, write_unproven
from tests.random_weights import random_model

from seqserve_export.fp16_conversion import halve
from seqserve_export.restore import restore
from seqserve_model.config import (
    Activation,
    DecoderCell,
    Norm,
    NormPosition,
    PositionScheme,
    TransformerConfig,
)
from seqserve_server.text.tokenizer import FILE, Tokenizer

SIZE = 400
"""Of the vocabulary."""
SHIPPED = "shipped"
_FOLDER = Path("build/gpu-artifacts")

T5: dict[str, Any] = {"positions": PositionScheme.T5, "norm": Norm.RMS, "projection_bias": False}
SHAPES: dict[str, dict[str, Any]] = {
    "sinusoidal-positions": {},
    "learned-positions": {"positions": PositionScheme.LEARNED},
    "rotary-positions": {"positions": PositionScheme.ROTARY},
    "post-norm": {"norm_position": NormPosition.POST},
    "recurrent-decoder": {"decoder_cell": DecoderCell.SSRU},
    "alibi-positions": {"positions": PositionScheme.ALIBI},
    "t5": T5,
    "flan-t5": {**T5, "activation": Activation.GEGLU_TANH, "tied_output": False},
}


def artifact(name: str) -> Path:
    """Returns the artifact of a shape, or of the shipped model; exports it if it is not there."""
    repository = _FOLDER / name
    place = repository / "model" / "1"
    if place.exists():
        return place
    if name == SHIPPED:
        newest = max(Path("models/en-de").iterdir(), key=lambda folder: int(folder.name))
        model, tokenizer = restore(newest), Tokenizer.load(newest / FILE)
    else:
        config = TransformerConfig(
            vocabulary_size=SIZE,
            width=64,
            heads=4,
            feed_forward_width=128,
            encoder_layers=2,
            decoder_layers=2,
            dropout=0.0,
            max_source_length=64,
            max_target_length=64,
            **SHAPES[name],
        )
        model, tokenizer = random_model(config), Tokenizer(numbered_words(SIZE))
    return write_unproven(halve(model), repository, "model", tokenizer)


if __name__ == "__main__":
    for shape in (*SHAPES, SHIPPED):
        print(artifact(shape), flush=True)
