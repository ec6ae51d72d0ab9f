"""A server of a model with a shortlist: on, and off by request."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests import tiny
from tests.support.process import ServerProcess

from seqserve import Client, Result
from seqserve_export.parity import HeldOut
from seqserve_export.shortlist import NewShortlist, attach_shortlist
from seqserve_model.data import Pair
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.engine.shortlist import Shortlist

FREQUENT = range(24)
SOURCES = tiny.SENTENCES[::9]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def repository(tiny_artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model without a shortlist as version 1, with one as version 2."""
    versions = tmp_path_factory.mktemp("models") / "tiny"
    shutil.copytree(tiny_artifact, versions / "1")
    shutil.copytree(tiny_artifact, versions / "2")
    manifest = replace(Manifest.read(versions / "2"), version=2)
    size = manifest.architecture.vocabulary_size
    translations = {token: [(7 * token) % size, (11 * token + 5) % size] for token in range(size)}
    shortlist = NewShortlist(Shortlist.of(FREQUENT, translations), "a rule")
    held_out = HeldOut(pairs=[Pair(source, "") for source in SOURCES], name="tiny")
    attach_shortlist(versions / "2", manifest, shortlist, held_out)
    return versions.parent


@pytest.fixture(scope="module")
def client(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    options = ("--slots", "8", "--workers", "2", "--keep-versions", "2")
    folder = tmp_path_factory.mktemp("server")
    with ServerProcess(repository, folder, *options) as server, Client(server.target) as client:
        yield client


def translations(client: Client, *, version: int, shortlist: bool = True) -> list[Result]:
    ask = partial(client.generate, version=version, shortlist=shortlist)
    with ThreadPoolExecutor(len(SOURCES)) as pool:
        return list(pool.map(ask, SOURCES))


def test_a_request_without_it_decodes_as_a_version_without_it(client: Client) -> None:
    off, none, on = (
        [result.hypotheses for result in translations(client, version=version, shortlist=one)]
        for version, one in ((2, False), (1, True), (2, True))
    )
    assert off == none != on
    assert {model.version: model.has_shortlist for model in client.models()} == {1: False, 2: True}
