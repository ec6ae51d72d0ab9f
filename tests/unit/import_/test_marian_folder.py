import gzip
from pathlib import Path

import pytest
import yaml

from seqserve_import.files import CheckpointError
from seqserve_import.marian_checkpoint import MarianFolder

BERGAMOT = ["lex.50.50.enpt.s2t.bin", "model.enpt.intgemm.alphas.bin", "vocab.enpt.spm"]


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_bytes(gzip.compress(b"") if name.endswith(".gz") else b"")
    return folder


def describe(folder: Path, name: str = "decoder.yml", **values: object) -> Path:
    (folder / name).write_text(yaml.safe_dump(values))
    return folder


def names_of(files: MarianFolder | None) -> tuple[str, ...]:
    assert files
    shortlist = files.shortlist.name if files.shortlist else ""
    return files.model.name, files.source_vocabulary.name, files.target_vocabulary.name, shortlist


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_folder_of_firefox_is_known_by_the_names(tmp_path: Path, ending: str) -> None:
    lex, model, vocabulary = (name + ending for name in BERGAMOT)
    fill(tmp_path, lex, model, vocabulary, "metadata.json")
    assert names_of(MarianFolder.find(tmp_path)) == (model, vocabulary, vocabulary, lex)


def test_each_side_may_have_a_vocabulary(tmp_path: Path) -> None:
    fill(tmp_path, BERGAMOT[1], "srcvocab.enja.spm", "trgvocab.enja.spm")
    names = names_of(MarianFolder.find(tmp_path))
    assert names == (BERGAMOT[1], "srcvocab.enja.spm", "trgvocab.enja.spm", "")


def test_a_description_names_the_files_wherever_they_lay(tmp_path: Path) -> None:
    fill(tmp_path, "opus.npz", "opus.vocab.yml.gz", "model.npz.optimizer.npz", "other.spm")
    (tmp_path / "other.yml").write_text("beam-size: 3")
    vocabulary = "/home/them/opus.vocab.yml"
    describe(tmp_path, models=["../them/opus.npz"], vocabs=[vocabulary, vocabulary])
    files = MarianFolder.find(tmp_path)
    assert names_of(files)[:2] == ("opus.npz", "opus.vocab.yml.gz")


def test_a_training_is_known_without_its_optimizer(tmp_path: Path) -> None:
    fill(tmp_path, "model.npz", "model.npz.optimizer.npz", "vocab.spm")
    (tmp_path / "model.npz.yml").write_text("type: transformer")
    assert names_of(MarianFolder.find(tmp_path))[0] == "model.npz"


@pytest.mark.parametrize(
    "names",
    [
        ("config.json", "model.safetensors", "model.npz", "vocab.spm"),
        ("config.json", "pytorch_model.bin", "source.spm"),
        ("config.json", "model.bin", "shared_vocabulary.json"),  # of CTranslate2
        (),
    ],
)
def test_a_folder_of_another_kind_is_left_alone(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert MarianFolder.find(fill(tmp_path, *names)) is None


def test_several_models_are_refused_by_name(tmp_path: Path) -> None:
    fill(tmp_path, "vocab.spm", "b.npz", "model.ende.bin")
    with pytest.raises(CheckpointError, match=r"several models \(model\.ende\.bin, b\.npz\); put"):
        MarianFolder.find(tmp_path)
    for name in ("one.yml", "two.yml"):
        describe(tmp_path, name, models=["b.npz"])
    with pytest.raises(CheckpointError, match=r"several models \(one\.yml, two\.yml\)"):
        MarianFolder.find(tmp_path)


def test_a_missing_or_ambiguous_vocabulary_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "model.npz")
    with pytest.raises(CheckpointError, match=r"the vocabulary of model\.npz is missing: copy"):
        MarianFolder.find(tmp_path)
    fill(tmp_path, "vocab.en.spm", "vocab.pt.spm")
    with pytest.raises(CheckpointError, match=r"vocabularies \(vocab\.en\.spm, vocab\.pt\.spm\)"):
        MarianFolder.find(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"models": ["a.npz", "b.npz"]}, r"decoder\.yml: models must name one model: ensembles"),
        ({"models": "a.npz"}, r"decoder\.yml: models is not of type list"),
        ({"models": ["a.npz"]}, r"decoder\.yml: vocabs must name two vocabularies"),
        ({"models": ["a.npz"], "vocabs": ["v.spm"] * 2}, r"v\.spm: is missing; decoder\.yml names"),
    ],
)
def test_a_description_that_does_not_fit_is_named(
    tmp_path: Path, values: dict[str, object], message: str
) -> None:
    fill(tmp_path, "a.npz")
    with pytest.raises(CheckpointError, match=message):
        MarianFolder.find(describe(tmp_path, **values))


@pytest.mark.parametrize("text", ["models: [", "- models", "a: b: c"])
def test_a_description_that_is_no_yaml_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "decoder.yml").write_text(text)
    with pytest.raises(CheckpointError, match=r"decoder\.yml: is not"):
        MarianFolder.find(tmp_path)
