"""Artifacts at fp16 of small models of all shapes."""

from pathlib import Path

from bench.models import numbered_words, write_unproven
from tests.step_graphs import steps_only
from tests.unit.export.test_graphs import SHAPES, make_model

from seqserve_export.fp16_conversion import halve
from seqserve_server.text.tokenizer import Tokenizer


def halved_artifact(shape: str, repository: Path) -> Path:
    """Exports a model of a shape, whose steps are all that is traced."""
    model = halve(make_model(**SHAPES[shape]))
    tokenizer = Tokenizer(numbered_words(model.config.vocabulary_size))
    with steps_only():
        return write_unproven(model, repository, "halved", tokenizer)
