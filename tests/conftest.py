"""One tiny model with random weights, exported once, for every test that needs an artifact."""

from __future__ import annotations

import os

# Before any library starts its pool of threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.certificates import Certificates

    from seqserve_export.artifact import Description
    from seqserve_export.quantization import Calibration
    from seqserve_model.transformer import Transformer
    from seqserve_server.offline import Offline
    from seqserve_server.runtime import Runtime
    from seqserve_server.tokenizer import Tokenizer

SUBJECTS = ("The coffee", "A small dog", "My neighbour", "The old train", "Nobody", "Our teacher")
VERBS = ("tastes", "waits for", "reads about", "paints", "forgets", "does not like")
OBJECTS = ("the garden.", "a blue house!", "eleven books?", "water, bread and salt.", "music.")

SENTENCES = [
    f"{subject} {verb} {what}" for subject in SUBJECTS for verb in VERBS for what in OBJECTS
]


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Tokenizer:
    from seqserve_model.vocabulary import learn_vocabulary

    return learn_vocabulary(SENTENCES, size=384, characters=64)


@pytest.fixture(scope="session")
def tiny_model(tiny_tokenizer: Tokenizer) -> Transformer:
    """Decodes to targets that vary, do not repeat one word, and end now and then."""
    import torch
    from tests.random_weights import random_model

    from seqserve_model.config import TransformerConfig

    torch.set_num_threads(1)
    config = TransformerConfig(
        vocabulary_size=tiny_tokenizer.vocabulary_size,
        width=32,
        heads=2,
        feed_forward_width=64,
        encoder_layers=2,
        decoder_layers=1,
        dropout=0.0,
        max_source_length=24,
        max_target_length=20,
    )
    return random_model(config)


@pytest.fixture(scope="session")
def tiny_description() -> Description:
    from seqserve_export.artifact import Description
    from seqserve_server.manifest import Provenance

    return Description(
        name="tiny",
        version=1,
        description="Random weights, for tests",
        licence="Apache-2.0",
        provenance=Provenance(command="", commit="", data_licence="", attribution=""),
    )


@pytest.fixture(scope="session")
def tiny_artifact(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Transformer,
    tiny_tokenizer: Tokenizer,
    tiny_description: Description,
) -> Path:
    """The folder ``models/tiny/1``; its grandparent is a model repository. Not to be changed."""
    from seqserve_export.artifact import write_artifact

    repository = tmp_path_factory.mktemp("repository") / "models"
    return write_artifact(tiny_model, tiny_tokenizer, repository, tiny_description, verify=None)


@pytest.fixture(scope="session")
def tiny_calibration(tiny_model: Transformer, tiny_tokenizer: Tokenizer) -> Calibration:
    from seqserve_export.calibration import calibrate

    return calibrate(tiny_model, [tiny_tokenizer.encode(sentence) for sentence in SENTENCES])


@pytest.fixture(scope="session")
def tiny_int8_artifact(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Transformer,
    tiny_tokenizer: Tokenizer,
    tiny_description: Description,
    tiny_calibration: Calibration,
) -> Path:
    """As ``tiny_artifact``, rounded as ``seqserve export --precision int8`` does unless told."""
    from seqserve_export.artifact import write_artifact
    from seqserve_export.quantization import Caches, Scales, quantize

    model = quantize(tiny_model, tiny_calibration, Scales.STATIC, Caches.FLOAT)
    repository = tmp_path_factory.mktemp("rounded") / "models"
    return write_artifact(model, tiny_tokenizer, repository, tiny_description, verify=None)


@pytest.fixture(scope="session")
def tiny_row_scaled_artifact(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Transformer,
    tiny_tokenizer: Tokenizer,
    tiny_description: Description,
    tiny_calibration: Calibration,
) -> Path:
    """The other kind of int8: a scale for each row, and rounded caches; without a teacher."""
    from tests.step_graphs import steps_only

    from seqserve_export.artifact import write_artifact
    from seqserve_export.quantization import Caches, Scales, quantize

    model = quantize(tiny_model, tiny_calibration, Scales.ROW, Caches.INT8)
    repository = tmp_path_factory.mktemp("row-scaled") / "models"
    with steps_only():
        return write_artifact(model, tiny_tokenizer, repository, tiny_description, verify=None)


@pytest.fixture(scope="session")
def tiny_runtime(tiny_artifact: Path) -> Runtime:
    from seqserve_server.manifest import Manifest
    from seqserve_server.provider import Provider
    from seqserve_server.runtime import Runtime

    return Runtime(tiny_artifact, Manifest.load(tiny_artifact), Provider.CPU, threads=1)


@pytest.fixture(scope="session")
def tiny_offline(tiny_artifact: Path) -> Iterator[Offline]:
    from seqserve_server.offline import Offline

    with Offline(tiny_artifact, slots=8) as offline:
        yield offline


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of a trial authority. Not to be changed."""
    from tests.certificates import make_certificates

    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def other_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of another authority, for the same names. Not to be changed."""
    from tests.certificates import make_certificates

    return make_certificates(tmp_path_factory.mktemp("other-certificates"))
