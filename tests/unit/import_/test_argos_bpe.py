"""Argos' ``bpe.model``: texts are divided and joined as by Argos itself, but for what is listed.

``argos_bpe.json`` is what Argos 1.11.0 makes of the texts; ``make_argos_bpe.py`` wrote it.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests import ctranslate2_files

from seqserve_import.files import CheckpointError
from seqserve_import.loading import load, open_checkpoint
from seqserve_import.tokenizers.subword_nmt import convert_bpe
from seqserve_model.vocabulary import save_tokenizer
from seqserve_server.text.tokenizer import Tokenizer

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "argos_bpe.json").read_text(encoding="utf-8")
)
CONTROLS = ["<unk>", "<blank>", "<s>", "</s>"]
DIVIDED_OTHERWISE = ("Mr. Smith", "St. Gallen", "A & B")
"""Abbreviations of Moses' lists; characters whose XML is several pieces of the vocabulary."""
JOINED_OTHERWISE = ('"', "‘", "Dogs' ")
"""Quotation marks keep their spaces."""


def package(folder: Path, codes: list[str], language: str = "en") -> Path:
    """Writes an installed package of Argos; a model of 20 tokens has the first of them."""
    tokens = [*CONTROLS, *GOLDEN["vocabulary"]][: len(ctranslate2_files.TOKENS)]
    model = ctranslate2_files.write(folder / "model", tokens=tokens)
    (model / "sentencepiece.model").unlink()
    (folder / "bpe.model").write_text("\n".join([*codes, ""]), encoding="utf-8")
    facts = {"from_code": language, "to_code": "de"}
    (folder / "metadata.json").write_text(json.dumps(facts))
    return folder


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("bpe") / "bpe.model"
    path.write_text("\n".join([*GOLDEN["codes"], ""]), encoding="utf-8")
    tokens = [*CONTROLS, *GOLDEN["vocabulary"], "<pad>"]
    return Tokenizer(convert_bpe(path, tokens, len(tokens) + 3, "en", "en"), len(tokens) + 3)


@pytest.mark.parametrize(("text", "tokens", "joined"), GOLDEN["sentences"])
def test_texts_are_divided_and_joined_as_by_argos(
    tokenizer: Tokenizer, text: str, tokens: list[str], joined: str
) -> None:
    vocabulary = [*CONTROLS, *GOLDEN["vocabulary"]]
    ids = [vocabulary.index(token) for token in tokens]
    is_divided_alike = tokenizer.pieces(text).ids == ids
    assert is_divided_alike == (not any(part in text for part in DIVIDED_OTHERWISE))
    is_joined_alike = tokenizer.decode(ids) == joined
    assert is_joined_alike == (not any(part in text for part in JOINED_OTHERWISE))


def test_a_package_with_merges_is_read(tmp_path: Path) -> None:
    imported = load(open_checkpoint(package(tmp_path, GOLDEN["codes"])))
    first = GOLDEN["vocabulary"][0]
    assert first == "!"
    assert imported.tokenizer.encode("!") == [4]
    assert imported.tokenizer.decode([4, 4]) == "!!"
    save_tokenizer(imported.tokenizer, tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json", imported.model.config.vocabulary_size)
    assert again.encode("!") == [4], "a server reads it, and adds no end token either"


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (["#version: 0.1", "a b"], "does not begin with `#version: 0.2`"),
        ([""], "does not begin with"),
        (["#version: 0.2", "a b", "a"], "line 3 is not a pair of pieces"),
    ],
)
def test_merges_of_another_kind_are_refused(tmp_path: Path, codes: list[str], message: str) -> None:
    with pytest.raises(CheckpointError, match=rf"bpe\.model: {message}"):
        load(open_checkpoint(package(tmp_path, codes)))
