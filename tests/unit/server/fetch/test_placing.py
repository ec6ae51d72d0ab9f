import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from seqserve.errors import OptionError
from seqserve_server.artifact.manifest import FILE, Manifest
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.fetch.command import place
from seqserve_server.fetch.source import Files, opened

from .conftest import make_artifact


def files_of(folder: Path) -> Files:
    with opened(folder, "source", 1 << 20) as files:
        return files


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder, hidden ones too."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_version_is_placed_by_its_manifest(source: Path, models: Path) -> None:
    placed = place(files_of(source), "source", models)
    assert [each.manifest.label for each in placed] == ["toy/1", "toy/2"]
    assert all(each.is_new for each in placed)
    assert tree(models) == tree(source)
    assert Manifest.load(models / "toy" / "2").version == 2


def test_the_folder_of_one_version_is_a_source_too(source: Path, models: Path) -> None:
    [placed] = place(files_of(source / "toy" / "2"), "source", models)
    assert placed.folder == models / "toy" / "2"


def test_a_file_that_no_manifest_names_stays_behind(source: Path, models: Path) -> None:
    (source / "toy" / "1" / "setup.py").write_text("")
    (source / "README.md").write_text("")
    place(files_of(source), "source", models)
    assert not list(models.rglob("setup.py"))
    assert not list(models.rglob("README.md"))


def test_another_model_is_never_replaced(source: Path, models: Path, tmp_path: Path) -> None:
    other = make_artifact(tmp_path / "other")
    manifest = other / FILE
    manifest.write_text(manifest.read_text().replace("Tatoeba", "elsewhere"))
    place(files_of(other), "other", models)
    before = tree(models)
    with pytest.raises(OptionError, match="toy/1 already exists with another model"):
        place(files_of(source), "source", models)
    assert tree(models) == before


def named_outside(folder: Path) -> None:
    text = (folder / FILE).read_text()
    (folder / FILE).write_text(text.replace('"weights.bin"', '"../../../weights.bin"', 1))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda folder: (folder / "weights.bin").write_bytes(b"weights.bin of toy/3"),
            r"^archive: toy/2/weights.bin: sha256 is ",
        ),
        (
            lambda folder: (folder / "weights.bin").unlink(),
            "toy/2/manifest.json names weights.bin, which is",
        ),
        (named_outside, "files: "),
        (lambda folder: make_artifact(folder.parents[1] / "again"), "holds toy/1 twice"),
    ],
    ids=["damaged", "missing", "a name outside the folder", "twice"],
)
def test_what_is_not_sound_is_named_and_nothing_is_placed(
    spoil: Callable[[Path], object], says: str, source: Path, models: Path
) -> None:
    spoil(source / "toy" / "2")
    with pytest.raises(ArtifactError, match=says):
        place(files_of(source), "archive", models)
    assert tree(models) == {}
    assert not (models / "toy").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"{}"])
def test_what_is_no_manifest_is_named(content: bytes, models: Path) -> None:
    files = {"a/manifest.json": partial(io.BytesIO, content)}
    with pytest.raises(ArtifactError, match=r"^source: a/manifest.json: "):
        place(files, "source", models)


def test_a_source_without_a_model_is_refused(tmp_path: Path, models: Path) -> None:
    with pytest.raises(ArtifactError, match=r"holds no manifest\.json"):
        place({}, "source", models)
    assert not models.exists()
