"""Marian's own vocabularies: one ``.spm`` that also has the ids, or ids alone as YAML or JSON.

A vocabulary of ids has its pieces in ``source.spm`` and ``target.spm`` beside it, as models of
OPUS-MT have them. Without these, words and punctuation must stand between spaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, models, pre_tokenizers

from seqserve_import.files import AGAIN, CheckpointError
from seqserve_import.marian.folder import MarianFolder
from seqserve_import.marian.vocabulary import Vocabularies, is_spm
from seqserve_import.tokenizers.control_tokens import around
from seqserve_import.tokenizers.marian import side
from seqserve_import.tokenizers.segmentation import Piece, read_pieces, segmenter
from seqserve_server.text.vocabulary import EOS, PAD, UNK


def convert(folder: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of sources; its ids are those of the vocabulary, then ``<pad>``."""
    files = _files(folder)
    vocabularies = Vocabularies.read(files)
    tokens = vocabularies.with_start(vocabularies.source)
    return _side(files.source_vocabulary, folder / "source.spm", tokens, rows)


def convert_target(folder: Path, rows: int) -> tokenizers.Tokenizer | None:
    """Returns the tokenizer of targets; None if it is that of sources."""
    files = _files(folder)
    vocabularies, vocabulary = Vocabularies.read(files), files.target_vocabulary
    source, target = folder / "source.spm", folder / "target.spm"
    is_divided_alike = is_spm(vocabulary) or not source.exists()
    if vocabularies.is_joint and (is_divided_alike or read_pieces(source) == read_pieces(target)):
        return None
    tokens = vocabularies.with_start(vocabularies.target)
    return _side(vocabulary, target, tokens, rows)


def pieces_of(folder: Path) -> Path | None:
    """Finds the SentencePiece model that divides sources; None if words stand between spaces."""
    vocabulary, pieces = _files(folder).source_vocabulary, folder / "source.spm"
    path = vocabulary if is_spm(vocabulary) else pieces
    return path if path.suffix == ".spm" and path.exists() else None


_HIDDEN = (Piece.CONTROL, Piece.UNKNOWN)


def _files(folder: Path) -> MarianFolder:
    files = MarianFolder.find(folder)
    assert files, "a checkpoint of Marian was opened before"
    return files


def _side(vocabulary: Path, pieces: Path, tokens: Sequence[str], rows: int) -> tokenizers.Tokenizer:
    if not is_spm(vocabulary):
        return side(pieces, tokens, rows) if pieces.exists() else _words(vocabulary, tokens)
    model = read_pieces(vocabulary)
    added = tokens[len(model.pieces) :]
    special = [piece.piece for piece in model.pieces if piece.type in _HIDDEN]
    return segmenter(vocabulary, model, tokens, {*special, *added})


def _words(path: Path, tokens: Sequence[str]) -> tokenizers.Tokenizer:
    """Returns what divides texts at white space."""
    if codes := sorted(path.parent.glob("*.bpe")):
        raise CheckpointError(
            f"{codes[0]}: texts are divided by subword-nmt, which is not supported; only"
            " SentencePiece (source.spm and target.spm) is"
        )
    special = [EOS, UNK, PAD]
    if absent := [token for token in special if token not in tokens]:
        raise CheckpointError(f"{path}: has no token {absent[0]}; {AGAIN}")
    ids = {token: number for number, token in enumerate(tokens)}
    result = tokenizers.Tokenizer(models.WordLevel(ids, unk_token=UNK))
    result.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    result.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    result.post_processor = around(result)
    return result
