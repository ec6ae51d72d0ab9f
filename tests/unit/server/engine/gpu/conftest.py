"""Artifacts as a GPU takes them: their steps gather the weights of candidates themselves.

They stay in fp32, so that answers can be compared with those of a CPU.
"""

from pathlib import Path

import pytest
from tests.exported import Exporter
from tests.step_graphs import with_gathering_steps


@pytest.fixture(scope="session")
def tiny_artifact(
    tiny_artifact: Path, exporter: Exporter, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    place = tmp_path_factory.mktemp("tiny") / "1"
    return with_gathering_steps(tiny_artifact, exporter.traced_decoder("fp32"), place)


@pytest.fixture(scope="session")
def tiny_ssru_artifact(
    tiny_ssru_artifact: Path, exporter: Exporter, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    place = tmp_path_factory.mktemp("tiny-ssru") / "1"
    return with_gathering_steps(tiny_ssru_artifact, exporter.traced_decoder("ssru"), place)
