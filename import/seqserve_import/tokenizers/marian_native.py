"""Marian's own vocabularies: one ``.spm`` that also has the ids, or ids alone as YAML or JSON.

A vocabulary of ids has its pieces in ``source.spm`` and ``target.spm`` beside it, as models of
OPUS-MT have them. Without these, words and punctuation must stand between spaces.
"""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import AddedToken, models, pre_tokenizers

from seqserve.errors import OptionError
from seqserve_import.marian.folder import MarianFolder
from seqserve_import.marian.yml import parse
from seqserve_import.tokenizers.files import AGAIN, in_order_of_ids, read_bytes
from seqserve_import.tokenizers.marian import side
from seqserve_import.tokenizers.pieces import Piece, read_pieces
from seqserve_import.tokenizers.segmentation import EOS, PAD, UNK, end_of_text, segmenter


def convert(folder: Path) -> tokenizers.Tokenizer:
    """Returns the tokenizer of sources; its ids are those of the vocabulary, then ``<pad>``."""
    files = _files(folder)
    vocabulary = files.source_vocabulary
    if read_bytes(vocabulary) != read_bytes(files.target_vocabulary):
        raise OptionError(
            f"{files.target_vocabulary}: is not equal to {vocabulary.name}: models with a"
            " vocabulary for each side cannot be served"
        )
    tokens = [*read_tokens(vocabulary), PAD]
    if _is_spm(vocabulary):
        model = read_pieces(vocabulary)
        special = [piece.piece for piece in model.pieces if piece.type in _HIDDEN]
        return segmenter(vocabulary, model, tokens, {*special, PAD})
    spm = folder / "source.spm"
    return side(spm, tokens) if spm.exists() else _words(vocabulary, tokens)


def convert_target(folder: Path) -> tokenizers.Tokenizer | None:
    """Returns the tokenizer of targets; None if it is that of sources."""
    vocabulary = _files(folder).target_vocabulary
    source, target = folder / "source.spm", folder / "target.spm"
    if _is_spm(vocabulary) or not source.exists() or read_pieces(source) == read_pieces(target):
        return None
    return side(target, [*read_tokens(vocabulary), PAD])


def read_tokens(path: Path) -> list[str]:
    """Returns the tokens of a vocabulary in the order of their ids.

    Raises:
        SeqserveError: The file is damaged, or of another kind.
    """
    if _is_spm(path):
        return [piece.piece for piece in read_pieces(path).pieces]
    if path.name.endswith((".fsv", ".fsv.gz")):
        raise OptionError(f"{path}: is a factored vocabulary, which cannot be imported")
    ids = parse(path, read_bytes(path), is_typed=False)
    try:
        numbers = {token: int(number) for token, number in ids.items()}
    except (TypeError, ValueError):
        raise OptionError(f"{path}: does not map each token to its id; {AGAIN}") from None
    return in_order_of_ids(path, numbers)


_HIDDEN = (Piece.CONTROL, Piece.UNKNOWN)


def _files(folder: Path) -> MarianFolder:
    found = MarianFolder.find(folder)
    assert found, "a checkpoint of Marian was found before"
    return found


def _is_spm(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".spm")


def _words(path: Path, tokens: list[str]) -> tokenizers.Tokenizer:
    """Returns what divides texts at white space."""
    if found := sorted(path.parent.glob("*.bpe")):
        raise OptionError(
            f"{found[0]}: texts are divided by subword-nmt, which is not supported; only"
            " SentencePiece (source.spm and target.spm) is"
        )
    special = [EOS, UNK, PAD]
    if absent := [token for token in special if token not in tokens]:
        raise OptionError(f"{path}: has no token {absent[0]}; {AGAIN}")
    ids = {token: number for number, token in enumerate(tokens)}
    result = tokenizers.Tokenizer(models.WordLevel(ids, unk_token=UNK))
    result.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    result.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    result.post_processor = end_of_text(result)
    return result
