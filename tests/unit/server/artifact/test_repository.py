import errno
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.logged import logged

from seqserve.errors import OptionError
from seqserve_server.artifact import repository as layout
from seqserve_server.artifact.repository import (
    MODELS,
    Listing,
    check_inside,
    files_of,
    list_folders,
    model_folder,
    standard_repository,
)
from seqserve_server.contract.errors import ArtifactError, StartupError


def folder(repository: Path, *parts: str) -> Path:
    made = repository.joinpath(*parts)
    made.mkdir(parents=True)
    return made


def version_folders(repository: Path) -> list[Path]:
    return list_folders(repository).versions


def test_versions_are_listed(tmp_path: Path) -> None:
    folders = [folder(tmp_path, name, version) for name, version in (("a", "2"), ("b.c-d", "10"))]
    assert version_folders(tmp_path) == folders


@pytest.mark.parametrize(
    "name", ["0", "02", "007", "v9", "-1", "1.0", "1a", "²", "1 ", "latest", "1" * 10, "1\n"]
)
def test_odd_versions_are_ignored_with_the_reason(tmp_path: Path, name: str) -> None:
    odd = folder(tmp_path, "m", name)
    listing = list_folders(tmp_path)
    assert listing.versions == []
    reason = "a version is a number from 1 to 999999999, without leading zeros"
    assert listing.ignored == {odd: reason}


def test_odd_models_are_ignored_with_the_reason(tmp_path: Path) -> None:
    unprintable = [folder(tmp_path, "two\nlines"), folder(tmp_path, os.fsdecode(b"\xff"))]
    for model in unprintable:
        folder(model, "1")
    high = folder(tmp_path, "en-de")
    (high / "manifest.json").write_text("{}")
    listing = list_folders(tmp_path)
    assert listing.versions == []
    assert listing.ignored == {
        **dict.fromkeys(unprintable, "the name of a model must be printable"),
        high: "manifest.json belongs into a folder <name>/<version>/",
    }


def test_what_is_no_folder_of_a_model_is_passed_over(tmp_path: Path) -> None:
    folder(tmp_path, ".git", "1")
    (tmp_path / "README.md").write_text("of the models")
    model = folder(tmp_path, "m")
    folder(model, ".1")
    folder(model, ".export-x1")
    (model / "3").write_text("a file")
    (tmp_path / "circle").symlink_to("circle")
    (model / "4").symlink_to("nowhere")
    assert list_folders(tmp_path) == Listing(versions=[], ignored={}, has_models=True)


def test_folder_without_models_is_told_from_one_without_versions(tmp_path: Path) -> None:
    folder(tmp_path, ".snapshot")
    (tmp_path / "README.md").write_text("of the models")
    assert not list_folders(tmp_path).has_models
    folder(tmp_path, "m")
    assert list_folders(tmp_path).has_models


@pytest.mark.parametrize(
    ("function", "place"),
    [("listdir", "closed"), ("stat", "closed"), ("stat", "closed/1")],
    ids=["not listed", "not searched", "a link into such a place"],
)
def test_folder_that_is_not_for_us_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, place: str
) -> None:
    version = folder(tmp_path, "m", "1")
    folder(tmp_path, "closed", "1")
    fail(monkeypatch, function, tmp_path / place)
    assert version_folders(tmp_path) == [version]


@pytest.mark.parametrize(
    ("function", "places", "error"),
    [("stat", ["m", "."], errno.EACCES), ("listdir", ["", "m"], errno.EIO)],
    ids=["may not be looked at", "disk fails"],
)
def test_repository_that_cannot_be_read_is_no_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, places: list[str], error: int
) -> None:
    folder(tmp_path, "m", "1")
    for place in places:
        fail(monkeypatch, function, os.path.join(tmp_path, place) if place else tmp_path, error)
    with pytest.raises(OSError) as caught:
        version_folders(tmp_path)
    assert caught.value.errno == error


def fail(
    monkeypatch: pytest.MonkeyPatch, function: str, place: str | Path, error: int = errno.EACCES
) -> None:
    """Lets a function of ``os`` fail at a place."""
    real = getattr(os, function)

    def failing(path: Any, *arguments: Any, **settings: Any) -> Any:
        if isinstance(path, str | Path) and str(path) == str(place):
            raise OSError(error, os.strerror(error))
        return real(path, *arguments, **settings)

    monkeypatch.setattr(os, function, failing)


def test_files_are_equal_as_long_as_nobody_writes(tmp_path: Path) -> None:
    assert files_of(tmp_path) == ()
    (tmp_path / "weights.bin").write_bytes(b"12")
    seen = [files_of(tmp_path)]
    (tmp_path / "weights.bin").write_bytes(b"123")
    seen.append(files_of(tmp_path))
    (tmp_path / "manifest.json").write_text("{}")
    seen.append(files_of(tmp_path))
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "other").write_text("{}")
    (tmp_path / "other").rename(tmp_path / "manifest.json")
    seen.append(files_of(tmp_path))
    assert len(set(seen)) == 4
    assert files_of(tmp_path) == seen[3]
    (tmp_path / "dangling").symlink_to("nowhere")
    assert files_of(tmp_path) == seen[3]
    assert files_of(tmp_path / "nowhere") == ()


def test_file_that_is_given_other_permissions_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    file.touch(mode=0o600)
    seen = files_of(tmp_path)
    # Clocks of file systems are coarse.
    for _ in range(1000):
        file.chmod(0o644)
        if files_of(tmp_path) != seen:
            break
        time.sleep(0.001)
    else:
        pytest.fail("looks as it did before")


def test_links_lead_where_they_may(tmp_path: Path) -> None:
    repository = folder(tmp_path, "models")
    version = folder(repository, "m", "1")
    check_inside(version, repository)
    (repository / "m" / "2").symlink_to("1")
    check_inside(repository / "m" / "2", repository)
    outside = folder(tmp_path, "elsewhere", "1")
    (repository / "m" / "3").symlink_to(outside)
    (repository / "n").symlink_to(outside.parent)
    for place in ("m/3", "n/1"):
        with pytest.raises(ArtifactError, match="leads out of the repository"):
            check_inside(repository / place, repository)
    # The repository itself may be a link, as volumes are.
    (tmp_path / "linked").symlink_to(repository)
    check_inside(tmp_path / "linked" / "m" / "1", tmp_path / "linked")


@pytest.mark.parametrize(
    ("beside", "found"),
    [
        ("models/mine/1/", MODELS),
        ("", Path("shipped")),
        # A folder of that name without models is not meant.
        ("models/user.py", Path("shipped")),
    ],
    ids=["the folder beside", "the shipped model", "a folder without models"],
)
def test_standard_repository(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    beside: str,
    found: Path,
) -> None:
    caplog.set_level(logging.INFO, "seqserve")
    monkeypatch.chdir(tmp_path)
    folder(Path("shipped"), "en-de", "4")
    monkeypatch.setattr(layout, "shipped", lambda: Path("shipped"))
    place = Path(beside)
    (place if beside.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
    if place.suffix:
        place.touch()
    assert standard_repository() == found
    told = [("shipped model", {"folder": found})]
    assert logged(caplog) == (told if found.name == "shipped" else [])


def test_without_any_the_error_tells_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartupError, match="seqserve models fetch"):
        standard_repository()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for label in ("en-de/2", "en-de/10", "en-ko/1"):
        (tmp_path / label).mkdir(parents=True)
        (tmp_path / label / "manifest.json").touch()
    # Its files are being copied.
    (tmp_path / "en-de/11").mkdir()
    return tmp_path


@pytest.mark.parametrize("model", ["en-de", "en-de/10"])
def test_the_highest_version_that_is_complete(repository: Path, model: str) -> None:
    assert model_folder(model, repository) == repository / "en-de/10"
    assert model_folder(repository / model, Path("nowhere")) == repository / "en-de/10"


def test_a_version_may_be_named(repository: Path) -> None:
    assert model_folder("en-de/2", repository) == repository / "en-de/2"


def test_the_default_is_that_of_the_repository(repository: Path) -> None:
    with pytest.raises(OptionError, match=r"name a model: .* has no file `default`, but en-de, en"):
        model_folder(None, repository)
    (repository / "default").write_text("en-ko\n", encoding="utf-8")
    assert model_folder(None, repository) == repository / "en-ko/1"


def test_the_only_model_is_the_default(repository: Path) -> None:
    (repository / "en-ko/1/manifest.json").unlink()
    assert model_folder(None, repository) == repository / "en-de/10"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("fr-de", "there is no model 'fr-de'; .* holds en-de, en-ko"),
        ("en-de/11", "there is no model 'en-de/11'; .* holds en-de/[0-9]+, en-de/[0-9]+$"),
    ],
)
def test_an_unknown_model_is_named(repository: Path, model: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        model_folder(model, repository)


@pytest.mark.parametrize(
    ("model", "said"), [("en-de", "en-de is not a folder of a model, and "), (None, "")]
)
def test_a_folder_that_is_not_there_is_named(tmp_path: Path, model: str | None, said: str) -> None:
    with pytest.raises(OptionError, match=f"^{said}.*/nowhere is not a folder of models"):
        model_folder(model, tmp_path / "nowhere")
