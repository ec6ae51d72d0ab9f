"""Artifacts at fp16 of small models of all shapes."""

from pathlib import Path
from unittest import mock

from bench.models import numbered_words, write_unproven
from tests.step_graphs import steps_only
from tests.unit.export.test_graphs import SHAPES, make_model

from seqserve_export import graph_files
from seqserve_export.fp16_conversion import halve
from seqserve_export.program import PROGRAMS
from seqserve_server.artifact.manifest import ENCODER
from seqserve_server.text.tokenizer import Tokenizer


def halved_artifact(shape: str, repository: Path) -> Path:
    """Exports a model of a shape, whose steps are all that is traced."""
    model = halve(make_model(**SHAPES[shape]))
    tokenizer = Tokenizer(numbered_words(model.config.vocabulary_size))
    with steps_only():
        return write_unproven(model, repository, "halved", tokenizer)


def halved_encoder(shape: str, folder: Path) -> Path:
    """Exports nothing but the encoder of a model of a shape."""
    with mock.patch.object(graph_files, "PROGRAMS", {ENCODER: PROGRAMS[ENCODER]}):
        graph_files.write_graphs(halve(make_model(**SHAPES[shape])), folder)
    return folder
