"""Which version is taken, and a repository of one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bench.artifacts import newest, repository_of

from seqserve_server.contract.manifest import Manifest


def test_newest_is_the_highest_number(tmp_path: Path) -> None:
    for name in ("9", "10", "README.md", ".hidden"):
        (tmp_path / name).mkdir()
    assert newest(tmp_path).name == "10"


def test_newest_of_a_precision(tiny_artifact: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_artifact, tmp_path / "1")
    assert newest(tmp_path, "fp32") == tmp_path / "1"
    with pytest.raises(SystemExit, match="holds no int8 version"):
        newest(tmp_path, "int8")


def test_newest_with_a_kind_of_decoder(
    tiny_artifact: Path, tiny_ssru_artifact: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_artifact, tmp_path / "1")
    with pytest.raises(SystemExit, match="holds no fp32 version with a recurrent decoder"):
        newest(tmp_path, "fp32", is_recurrent=True)
    shutil.copytree(tiny_ssru_artifact, tmp_path / "2")
    assert newest(tmp_path, "fp32", is_recurrent=True) == tmp_path / "2"
    assert newest(tmp_path, "fp32", is_recurrent=False) == tmp_path / "1"
    assert newest(tmp_path, "fp32") == tmp_path / "2"


def test_newest_of_a_model_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="missing: holds no"):
        newest(tmp_path / "missing")


def test_repository_holds_the_artifact_alone(tiny_artifact: Path, tmp_path: Path) -> None:
    repository = repository_of(tiny_artifact, tmp_path / "models")
    assert [folder.name for folder in repository.iterdir()] == ["tiny"]
    assert Manifest.load(repository / "tiny" / "1").label == "tiny/1"
