import hashlib
import tarfile
from pathlib import Path

import pytest

from seqserve_server.artifact.manifest import Manifest

from .conftest import fetch


@pytest.fixture
def archive(source: Path, tmp_path: Path) -> Path:
    path = tmp_path / "toy.tar.gz"
    with tarfile.open(path, "w:gz") as parts:
        parts.add(source / "toy", "toy")
    return path


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_archive_becomes_versions(
    archive: Path, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(archive, models, "--sha256", digest_of(archive)) == 0
    assert Manifest.load(models / "toy" / "1").label == "toy/1"
    assert capsys.readouterr().out.splitlines() == [
        f"{models}/toy/1 (int8, 0.0 MB): ready to serve",
        f"{models}/toy/2 (int8, 0.0 MB): ready to serve",
        f"try: seqserve serve --model-repository {models}",
    ]
    assert fetch(archive, models) == 0
    assert "toy/2 (int8, 0.0 MB): was there already" in capsys.readouterr().out


def test_the_file_beside_an_archive_is_believed(
    archive: Path, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = archive.with_name("toy.tar.gz.sha256")
    beside.write_text(f"{'0' * 64}  toy.tar.gz\n")
    assert fetch(archive, models) == 1
    assert f"not {'0' * 64}" in capsys.readouterr().err
    beside.write_text(f"{digest_of(archive)} *toy.tar.gz\n")
    assert fetch(archive, models) == 0


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--sha256", "12"], "--sha256: '12' is not 64 hexadecimal digits"),
        (["--sha256", "0" * 64], "--sha256: "),
        (["--max-gb", "-1"], "--max-gb: "),
        (["more"], "source: is not an index (.json)"),
        (["--list"], "source: is not an index (.json)"),
        (["--languages", "en-de"], "source: is not an index (.json)"),
    ],
)
def test_wrong_options_are_named(
    source: Path, models: Path, options: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(source, models, *options) == 2
    assert shown in capsys.readouterr().err
    assert not models.exists()


def test_what_unpacks_to_too_much_is_refused(
    archive: Path, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(archive, models, "--max-gb", "0") == 2
    assert "see --max-gb" in capsys.readouterr().err


def test_a_repository_that_cannot_be_written_is_named(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = tmp_path / "file"
    models.write_text("")
    assert fetch(archive, models) == 1
    assert f"seqserve: {models}: " in capsys.readouterr().err
