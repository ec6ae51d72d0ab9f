"""An import compares its tokens with those of SentencePiece itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.unit.import_.tokenizers import checkpoints, corpus

from seqserve_export.tolerance import ParityError
from seqserve_import.tokenizers.convert import convert, pieces_of
from seqserve_import.tokenizers.proof import check_tokens
from seqserve_server.text.tokenizer import Tokenizer

LINES = corpus.lines(100)


def test_tokens_of_every_family_are_compared(tmp_path: Path) -> None:
    folders = {
        "m2m_100": checkpoints.fairseq(tmp_path / "nllb", checkpoints.spm("bpe")),
        "pegasus": checkpoints.t5(tmp_path / "pegasus", checkpoints.t5_spm()),
        "marian": checkpoints.marian(tmp_path / "marian", languages=(">>fra<<",)),
    }
    for model_type, folder in folders.items():
        path = pieces_of(folder, model_type)
        assert path is not None
        raw = convert(folder, model_type)
        # Pieces of Marian that have no id come after all others.
        tokenizer = Tokenizer(raw, raw.token_to_id("<pad>") + 1 if model_type == "marian" else None)
        line = check_tokens(path, tokenizer, (), LINES)
        assert line.endswith("of 100, divided by SentencePiece")
        assert int(line.split()[2]) >= 98, line


def test_a_symbol_stands_for_itself(tmp_path: Path) -> None:
    folder = checkpoints.t5(tmp_path, checkpoints.t5_spm())
    size = convert(folder, "t5").get_vocab_size()
    checkpoints.write(folder, added_tokens_json={"<term>": size})
    tokenizer = Tokenizer(convert(folder, "t5", size + 1), size + 1)
    texts = ["a <term> b", "<term>", "c"]
    line = check_tokens(folder / "spiece.model", tokenizer, {"<term>"}, texts)
    assert line == "tokens equal          3 of 3, divided by SentencePiece"


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = checkpoints.t5(tmp_path / "t5", checkpoints.t5_spm())
    other = checkpoints.t5(tmp_path / "other", checkpoints.t5_spm(kind="bpe"))
    tokenizer = Tokenizer(convert(other, "t5"))
    with pytest.raises(ParityError, match=r"spiece\.model: only \d+ of 100 sentences get "):
        check_tokens(folder / "spiece.model", tokenizer, (), LINES)


def test_nothing_is_compared_where_the_tokenizer_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = checkpoints.t5(tmp_path, checkpoints.t5_spm())
    convert(folder, "t5").save(str(folder / "tokenizer.json"))
    assert pieces_of(folder, "t5") is None


def test_nothing_is_compared_without_sentencepiece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoints.t5(tmp_path, checkpoints.t5_spm())
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    tokenizer = Tokenizer(convert(folder, "t5"))
    assert check_tokens(folder / "spiece.model", tokenizer, (), LINES) == ""
