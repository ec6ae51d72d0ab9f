"""Folders of many checkpoints: which there are, what their models are called, what fails."""

from collections.abc import Callable
from pathlib import Path

import pytest

from seqserve.errors import OptionError
from seqserve_import import collection
from seqserve_import.collection import checkpoints_below, import_all, names_of
from seqserve_import.files import CheckpointError
from seqserve_import.importing import import_checkpoint
from seqserve_import.options import ImportOptions

FILES = ("model.{0}.intgemm.alphas.bin", "vocab.{0}.spm", "lex.50.50.{0}.s2t.bin")


def firefox(folder: Path, pair: str) -> Path:
    """Makes the files of a model of Firefox, without content."""
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name.format(pair)).touch()
    return folder


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[ImportOptions]:
    """What was imported; names with "bad" fail."""
    calls: list[ImportOptions] = []

    def import_checkpoint(options: ImportOptions) -> Path:
        if "bad" in options.folder.name:
            raise CheckpointError(f"{options.folder}: is damaged")
        calls.append(options)
        place = options.model_repository / options.name / "1"
        place.mkdir(parents=True)
        return place

    monkeypatch.setattr(collection, "import_checkpoint", import_checkpoint)
    monkeypatch.setattr(ImportOptions, "ready", lambda options, place: f"{options.name} is ready")
    return calls


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    def run(folder: Path, **options: object) -> str:
        return import_all(
            ImportOptions(folder=folder, model_repository=tmp_path / "models", **options)  # type: ignore[arg-type]
        )

    return run


def test_checkpoints_are_found_at_any_depth_but_not_within_one(tmp_path: Path) -> None:
    first = firefox(tmp_path / "prod" / "ende", "ende")
    second = firefox(tmp_path / "prod" / "enfr", "enfr")
    hugging_face = tmp_path / "opus"
    hugging_face.mkdir()
    (hugging_face / "config.json").touch()
    (tmp_path / "empty").mkdir()
    assert checkpoints_below(tmp_path) == [hugging_face, first, second]
    assert checkpoints_below(first) == []


def test_models_are_called_by_their_paths_where_they_do_not_tell_their_pair(tmp_path: Path) -> None:
    folders = [firefox(tmp_path / "tiny" / "a b", "ende"), firefox(tmp_path / "base", "ende")]
    # Without content a checkpoint tells nothing.
    assert names_of(tmp_path, folders, prefix="ff-") == ["ff-tiny-a-b", "ff-base"]


def test_models_are_called_by_their_pairs_unless_several_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = {"1": ("en", "de"), "2": ("en", "fr"), "3": ("en", "de")}
    monkeypatch.setattr(collection, "languages_in", lambda folder: pairs[folder.name])
    folders = [tmp_path / name for name in pairs]
    assert names_of(tmp_path, folders) == ["1", "en-fr", "3"]


def test_each_checkpoint_is_imported_once(
    tmp_path: Path, imported: list[ImportOptions], run: Callable[..., str]
) -> None:
    for pair in ("ende", "enfr"):
        firefox(tmp_path / "all" / pair, pair)
    assert run(tmp_path / "all").startswith("2 models: ready to serve")
    firefox(tmp_path / "all" / "enit", "enit")
    run(tmp_path / "all")
    pairs = ["ende", "enfr", "enit"]
    assert [(each.folder.name, each.name) for each in imported] == [*zip(pairs, pairs, strict=True)]


def test_what_fails_is_named_after_the_others_are_imported(
    tmp_path: Path, imported: list[ImportOptions], run: Callable[..., str]
) -> None:
    for name in ("bad", "ende"):
        firefox(tmp_path / "all" / name, "ende")
    with pytest.raises(CheckpointError, match=r"1 of 2 were not imported:\n.*bad: is damaged"):
        run(tmp_path / "all")
    assert [(each.folder.name, each.name) for each in imported] == [("ende", "ende")]


def test_sentences_are_those_of_the_source_language(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    imported: list[ImportOptions],
    run: Callable[..., str],
) -> None:
    pairs = {"1": ("en", "de"), "2": ("de", "en"), "3": ("fr", "en")}
    monkeypatch.setattr(collection, "languages_in", lambda folder: pairs[folder.name])
    for name in pairs:
        firefox(tmp_path / "all" / name, "xx")
    sentences = tmp_path / "sentences"
    sentences.mkdir()
    for name in ("en.txt", "de.tsv"):
        (sentences / name).touch()
    run(tmp_path / "all", data=sentences)
    used = {each.name: each.data for each in imported}
    assert used == {"en-de": sentences / "en.txt", "de-en": sentences / "de.tsv", "fr-en": None}
    with pytest.raises(OptionError, match="name a folder with a file for each source language"):
        run(tmp_path / "all", data=sentences / "en.txt")


@pytest.mark.parametrize("option", ["source_language", "description"])
def test_what_describes_one_model_is_refused_for_many(
    tmp_path: Path, run: Callable[..., str], option: str
) -> None:
    firefox(tmp_path / "all" / "ende", "ende")
    with pytest.raises(OptionError, match=f"--{option.replace('_', '-')}: is for one model"):
        run(tmp_path / "all", **{option: "x"})


@pytest.mark.parametrize(
    ("name", "reason"), [("tiny", "exists already"), ("../tiny", "is not a model name")]
)
def test_a_place_that_cannot_be_is_refused_before_the_checkpoint_is_read(
    tmp_path: Path, name: str, reason: str
) -> None:
    models = tmp_path / "models"
    (models / "tiny" / "1").mkdir(parents=True)
    options = ImportOptions(folder=tmp_path / "nowhere", name=name, model_repository=models)
    with pytest.raises(OptionError, match=reason):
        import_checkpoint(options)
