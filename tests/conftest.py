"""Fixtures of all tests: the tiny model, its exported artifacts, certificates."""

from __future__ import annotations

import gc
import os
import sys

# Before any library starts its pool of threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests import tiny
from tests.exported import Exporter

if TYPE_CHECKING:
    from tests.certificates import Certificates

    from seqserve_export.artifact import Description
    from seqserve_export.quantization import Calibration
    from seqserve_model.transformer import Transformer
    from seqserve_server.engine.local_engine import LocalEngine
    from seqserve_server.engine.runtime import Runtime
    from seqserve_server.text.tokenizer import Tokenizer

# Images of containers turn bytecode off; then each worker of pytest would rewrite all assertions in
# each run, and each server that tests start would compile all its modules.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples in each run and on each machine. How long one takes says only how busy it is.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
# `make unit` tries fewer examples.
settings.register_profile("quick", settings.get_profile("repeatable"), max_examples=20)
# `make fuzz` tries others in each run, and more.
settings.register_profile(
    "fuzz", settings.get_profile("repeatable"), derandomize=False, max_examples=1000
)
settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    """Spares later collections of garbage the modules of all libraries: a second for each."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Tokenizer:
    return tiny.make_tokenizer()


@pytest.fixture(scope="session")
def tiny_model(tiny_tokenizer: Tokenizer) -> Transformer:
    """Decodes to targets that vary, do not repeat one token, and end now and then."""
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
) -> Iterator[Exporter]:
    """Exports the artifacts that tests ask for while tests run that ask for none."""
    exporter = Exporter(tmp_path_factory.mktemp("exported"))
    # Unlike a set, it has them in the order in which tests need them.
    wanted = dict.fromkeys(name for item in request.session.items for name in item.fixturenames)
    exporter.begin(*(_EXPORTS[fixture] for fixture in wanted if fixture in _EXPORTS))
    yield exporter
    exporter.end()


_EXPORTS: dict[str, str] = {}
"""The export that each fixture gives."""


def _exported(fixture: str, export: str, place: str = "tiny/1") -> Callable[[Exporter], Path]:
    """Makes a fixture of an exported artifact, which is not to be changed."""
    _EXPORTS[fixture] = export

    @pytest.fixture(scope="session", name=fixture)
    def folder(exporter: Exporter) -> Path:
        return exporter.repository(export) / place

    return folder


# Their grandparents are model repositories.
tiny_artifact = _exported("tiny_artifact", "fp32")
tiny_fp16_artifact = _exported("tiny_fp16_artifact", "fp16")
# With the defaults of ``seqserve export``.
tiny_int8_artifact = _exported("tiny_int8_artifact", "int8")
# In int8 with a scale for each row and int8 caches, without a scorer.
tiny_row_scaled_artifact = _exported("tiny_row_scaled_artifact", "row-scaled")
# With a recurrent decoder.
tiny_ssru_artifact = _exported("tiny_ssru_artifact", "ssru")
imported_marian = _exported("imported_marian", "marian", "marian/1")
# Repositories: of ``endless/1``, and of what ``seqserve import`` makes.
repository = _exported("repository", "endless", "")
imported = _exported("imported", "imported", "")


@pytest.fixture(scope="session")
def tiny_ssru_model(tiny_tokenizer: Tokenizer) -> Transformer:
    return tiny.make_ssru_model(tiny_tokenizer)


@pytest.fixture(scope="session")
def tiny_runtime(tiny_artifact: Path) -> Runtime:
    from seqserve_server.artifact.manifest import Manifest
    from seqserve_server.contract.limits import Provider
    from seqserve_server.engine.runtime import Runtime

    return Runtime(tiny_artifact, Manifest.load(tiny_artifact), Provider.CPU, threads=1)


@pytest.fixture(scope="session")
def tiny_offline(tiny_artifact: Path) -> Iterator[LocalEngine]:
    from seqserve_server.engine.local_engine import LocalEngine

    with LocalEngine(tiny_artifact, slots=8) as offline:
        yield offline


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of a trial authority. Not to be changed."""
    from tests.certificates import make_certificates

    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def other_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of another authority for the same names. Not to be changed."""
    from tests.certificates import make_certificates

    return make_certificates(tmp_path_factory.mktemp("other-certificates"))
