"""One tiny model with random weights, exported once, for every test that needs an artifact."""

from __future__ import annotations

import os

# Before any library starts its pool of threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests import tiny

if TYPE_CHECKING:
    from tests.certificates import Certificates

    from seqserve_export.artifact import Description
    from seqserve_export.quantization import Calibration
    from seqserve_model.transformer import Transformer
    from seqserve_server.contract.tokenizer import Tokenizer
    from seqserve_server.engine.offline import Offline
    from seqserve_server.engine.runtime import Runtime

# How long an example takes says only how busy the machine is.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Tokenizer:
    return tiny.make_tokenizer()


@pytest.fixture(scope="session")
def tiny_model(tiny_tokenizer: Tokenizer) -> Transformer:
    """Decodes to targets that vary, do not repeat one word, and end now and then."""
    return tiny.make_model(tiny_tokenizer)


@pytest.fixture(scope="session")
def tiny_description() -> Description:
    return tiny.make_description()


@pytest.fixture(scope="session")
def tiny_calibration(tiny_model: Transformer, tiny_tokenizer: Tokenizer) -> Calibration:
    return tiny.make_calibration(tiny_model, tiny_tokenizer)


@pytest.fixture(scope="session", autouse=True)
def exporter(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tiny.Exporter]:
    """Exports what tests will ask for while those run that do not."""
    exporter = tiny.Exporter(tmp_path_factory.mktemp("exported"))
    wanted = {name for item in request.session.items for name in item.fixturenames}
    fixtures = {"fp32": "tiny_artifact", "int8": "tiny_int8_artifact"}
    exporter.begin(*(name for name, fixture in fixtures.items() if fixture in wanted))
    yield exporter
    exporter.end()


@pytest.fixture(scope="session")
def repository(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_tokenizer: Tokenizer,
    tiny_description: Description,
) -> Path:
    """A folder of models that holds ``babble/1``. Not to be changed."""
    from tests.e2e.babble import export_babble

    folder = tmp_path_factory.mktemp("babble") / "models"
    export_babble(folder, tiny_tokenizer, tiny_description)
    return folder


@pytest.fixture(scope="session")
def tiny_artifact(exporter: tiny.Exporter) -> Path:
    """The folder ``tiny/1``; its grandparent is a model repository. Not to be changed."""
    return exporter.artifact("fp32")


@pytest.fixture(scope="session")
def tiny_int8_artifact(exporter: tiny.Exporter) -> Path:
    """As ``tiny_artifact``, rounded as ``seqserve export --precision int8`` does unless told."""
    return exporter.artifact("int8")


@pytest.fixture(scope="session")
def tiny_row_scaled_artifact(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Transformer,
    tiny_tokenizer: Tokenizer,
    tiny_description: Description,
    tiny_calibration: Calibration,
) -> Path:
    """The other kind of int8: a scale for each row, and rounded caches; without a scorer.

    What needs it is marked ``parity``, for it takes ten seconds to trace.
    """
    from tests.step_graphs import steps_only

    from seqserve_export.artifact import write_artifact
    from seqserve_export.precision import Caches, Scales
    from seqserve_export.quantization import quantize

    model = quantize(tiny_model, tiny_calibration, Scales.ROW, Caches.INT8)
    repository = tmp_path_factory.mktemp("row-scaled") / "models"
    with steps_only():
        return write_artifact(model, tiny_tokenizer, repository, tiny_description, verify=None)


@pytest.fixture(scope="session")
def tiny_runtime(tiny_artifact: Path) -> Runtime:
    from seqserve_server.contract.manifest import Manifest
    from seqserve_server.contract.provider import Provider
    from seqserve_server.engine.runtime import Runtime

    return Runtime(tiny_artifact, Manifest.load(tiny_artifact), Provider.CPU, threads=1)


@pytest.fixture(scope="session")
def tiny_offline(tiny_artifact: Path) -> Iterator[Offline]:
    from seqserve_server.engine.offline import Offline

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
