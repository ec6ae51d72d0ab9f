"""The tokenizers of Marian, as OPUS-MT has them at Hugging Face, and as Marian's own files.

- At Hugging Face ``source.spm`` divides sources, ``target.spm`` targets, and ``vocab.json`` has the
  ids of both sides; separate vocabularies have those of targets in ``target_vocab.json``.
- Of Marian's own: one ``.spm`` that also has the ids, or ids alone as YAML or JSON, with the same
  two files of pieces beside it. Of words there is no such file: texts are divided at spaces.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, models, pre_tokenizers

from seqserve_import.files import AGAIN, CheckpointError, in_order_of_ids, read_object
from seqserve_import.marian_checkpoint import MarianFolder, Vocabularies, is_spm
from seqserve_import.tokenizers.segmentation import controls_of, read_pieces, segmenter
from seqserve_import.tokenizers.special import around, with_added
from seqserve_server.text.vocabulary import EOS, PAD, UNK

TARGET_VOCABULARY = "target_vocab.json"
LANGUAGE = re.compile(r">>\S+<<")
"""The token of a target language."""


def convert(folder: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of sources, which decodes targets too if the vocabulary is shared.

    The target languages of a multilingual model, such as ``>>fra<<``, are one token each.
    """
    return _with_added(folder / "source.spm", rows)


def convert_target(folder: Path, rows: int) -> tokenizers.Tokenizer | None:
    """Returns the tokenizer of targets; None if sources have the same."""
    separate = folder / TARGET_VOCABULARY
    source, target = folder / "source.spm", folder / "target.spm"
    if separate.exists():  # added tokens have the ids of sources
        return side(target, in_order_of_ids(separate, read_object(separate)), rows)
    if read_pieces(source) == read_pieces(target):
        return None
    return _with_added(target, rows)


def _with_added(spm: Path, rows: int) -> tokenizers.Tokenizer:
    vocabulary = spm.with_name("vocab.json")
    tokens = in_order_of_ids(vocabulary, read_object(vocabulary))
    added = with_added(spm.parent, tokens, rows)
    return side(spm, added.tokens, rows, added.symbols, added.hidden)


def side(
    spm: Path,
    tokens: Sequence[str],
    rows: int = 0,
    symbols: Sequence[AddedToken] = (),
    hidden: Sequence[str] = (),
) -> tokenizers.Tokenizer:
    """Returns the tokenizer of one side, whose pieces are in one file and its ids in another.

    ``rows`` is the number of its embeddings, if some may have no token, ``symbols`` are always one
    token, as languages are, and no text spells what is ``hidden``.
    """
    own = {symbol.content for symbol in symbols}
    languages = [
        AddedToken(token, normalized=False)
        for token in tokens
        if LANGUAGE.fullmatch(token) and token not in own
    ]
    special = (PAD, EOS, UNK, *hidden)
    return segmenter(spm, read_pieces(spm), tokens, special, [*languages, *symbols], rows)


def convert_native(folder: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of sources, with the ids of the vocabulary, then ``<pad>``."""
    files = _files(folder)
    vocabularies = Vocabularies.read(files)
    tokens = vocabularies.with_start(vocabularies.source)
    return _native_side(files.source_vocabulary, folder / "source.spm", tokens, rows)


def convert_native_target(folder: Path, rows: int) -> tokenizers.Tokenizer | None:
    """Returns the tokenizer of targets; None if sources have the same."""
    files = _files(folder)
    vocabularies, vocabulary = Vocabularies.read(files), files.target_vocabulary
    source, target = folder / "source.spm", folder / "target.spm"
    is_divided_alike = is_spm(vocabulary) or not source.exists()
    if vocabularies.is_joint and (is_divided_alike or read_pieces(source) == read_pieces(target)):
        return None
    tokens = vocabularies.with_start(vocabularies.target)
    return _native_side(vocabulary, target, tokens, rows)


def native_pieces_of(folder: Path) -> Path | None:
    """Finds the SentencePiece model that divides sources; None if spaces separate words."""
    vocabulary, pieces = _files(folder).source_vocabulary, folder / "source.spm"
    path = vocabulary if is_spm(vocabulary) else pieces
    return path if path.suffix == ".spm" and path.exists() else None


_PIECES = (
    (re.compile(r"▁."), "source.spm", "Copy it and target.spm there"),
    (re.compile(r"^.+@@$"), "source.bpe", "It is of subword-nmt, which is not supported"),
)
# A list of words from the Web may have any text among them.
_FEW = 0.01


def _files(folder: Path) -> MarianFolder:
    files = MarianFolder.find(folder)
    assert files, "a checkpoint of Marian was opened before"
    return files


def _native_side(
    vocabulary: Path, pieces: Path, tokens: Sequence[str], rows: int
) -> tokenizers.Tokenizer:
    if not is_spm(vocabulary):
        return side(pieces, tokens, rows) if pieces.exists() else words(vocabulary, tokens)
    model = read_pieces(vocabulary)
    added = tokens[len(model.pieces) :]
    return segmenter(vocabulary, model, tokens, controls_of(model) | {*added})


def words(path: Path, tokens: Sequence[str]) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a vocabulary of words, which spaces separate.

    Raises:
        CheckpointError: Its tokens are pieces of words, or lack a control token.
    """
    if codes := sorted(path.parent.glob("*.bpe")):
        raise CheckpointError(
            f"{codes[0]}: texts are divided by subword-nmt, which is not supported; only"
            " SentencePiece (source.spm and target.spm) is"
        )
    for mark, file, advice in _PIECES:
        if sum(bool(mark.match(token)) for token in tokens) > _FEW * len(tokens):
            raise CheckpointError(
                f"{path.with_name(file)}: is missing; it divides texts into the pieces of"
                f" {path.name}. {advice}"
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
