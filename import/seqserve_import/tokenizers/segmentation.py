"""Divides text into the pieces of a SentencePiece model, under the ids of a checkpoint.

Sources: Kudo 2018, "Subword Regularization" (unigram); Sennrich et al. 2016, "Neural Machine
Translation of Rare Words with Subword Units" (BPE). Scores and ties are the same as in
SentencePiece.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import tokenizers
from google.protobuf.message import DecodeError
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from seqserve_import.files import AGAIN, CheckpointError, read_bytes
from seqserve_import.tokenizers.normalization import SPACE, decoder, normalizer
from seqserve_import.tokenizers.pieces_pb2 import Model
from seqserve_import.tokenizers.special import NEEDED, around
from seqserve_server.text.vocabulary import UNK

Piece, Trainer = Model.Piece, Model.Trainer


def read_pieces(path: Path) -> Model:
    """Reads a SentencePiece model file."""
    try:
        model = Model.FromString(read_bytes(path))
    except DecodeError:
        raise CheckpointError(f"{path}: is not a SentencePiece model; {AGAIN}") from None
    # Protobuf gives the bytes of a text that is damaged.
    if not all(isinstance(piece.piece, str) for piece in model.pieces):
        raise CheckpointError(f"{path}: has a piece that is not UTF-8; {AGAIN}")
    if not any(piece.type == Piece.NORMAL for piece in model.pieces):
        raise CheckpointError(f"{path}: has no pieces; {AGAIN}")
    if sum(piece.type == Piece.UNKNOWN for piece in model.pieces) != 1:
        raise CheckpointError(f"{path}: does not have one unknown token; {AGAIN}")
    for is_set, what in _unsupported(model):
        if is_set:
            raise CheckpointError(
                f"{path}: was trained with {what}, which is not supported; save the tokenizer as "
                "tokenizer.json with the library that made it, and import again"
            )
    return model


def _unsupported(model: Model) -> list[tuple[bool, str]]:
    trainer, bpe = model.trainer_spec, model.trainer_spec.model_type == Trainer.BPE
    defined = any(piece.type == Piece.USER_DEFINED for piece in model.pieces)
    return [
        (trainer.model_type in (Trainer.WORD, Trainer.CHAR), "words or characters as pieces"),
        (trainer.treat_whitespace_as_suffix, "treat_whitespace_as_suffix"),
        (not model.normalizer_spec.escape_whitespaces, "escape_whitespaces=false"),
        (bool(model.denormalizer_spec.precompiled_charsmap), "a denormalizer"),
        (bpe and defined, "user-defined symbols of BPE"),
    ]


def controls_of(model: Model) -> set[str]:
    """Returns the pieces that no text spells."""
    hidden = (Piece.CONTROL, Piece.UNKNOWN)
    return {piece.piece for piece in model.pieces if piece.type in hidden}


# No text has it: it is not a character.
_UNKNOWN = "\U0010ffff"


def segmenter(
    path: Path,
    model: Model,
    tokens: Sequence[str],
    special: Collection[str],
    symbols: Sequence[AddedToken] = (),
    rows: int = 0,
) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a SentencePiece model, with the ids of a checkpoint.

    Pieces without an id in the checkpoint come after its embeddings, as special tokens:
    SentencePiece's division of a text needs them, and the encoder replaces them with ``<unk>``.
    Tokens that are not pieces of this model end in a space. No text contains it, because spaces
    have become ``▁``, and decoding drops it.

    Args:
        tokens: The checkpoint's tokens; the place of each is its id.
        special: Pieces without text, such as ``</s>`` and languages.
        symbols: Pieces that are always one token wherever a text spells them.
        rows: Embeddings of the checkpoint; those without a token are named ``<unused0>`` and so on.

    Raises:
        CheckpointError: A token is there twice, or ``<pad>``, ``</s>`` or ``<unk>`` is not there.
    """
    _check(path, tokens)
    scores = _scores(model, special)
    known = {*tokens}
    missing = [piece for piece in scores if piece not in known]
    if missing:
        tokens = [*tokens, *(f"<unused{number}>" for number in range(rows - len(tokens)))]
    hidden = {*special, *tokens[len(known) :]}
    own = {symbol.content for symbol in symbols}
    strange = _strange(tokens, scores)
    letters = {piece.piece for piece in model.pieces if piece.type == Piece.BYTE}
    plain = {*scores, *hidden, *own, *strange, *letters}
    listed = [token if token in plain else f"{token} " for token in tokens] + missing
    # Special tokens at the end need no place in the model, where text could be taken for them.
    end = len(listed)
    while listed[end - 1] in hidden:
        end -= 1
    bpe = model.trainer_spec.model_type == Trainer.BPE
    result = tokenizers.Tokenizer((_bpe if bpe else _unigram)(model, listed[:end], scores))
    result.add_special_tokens(
        [AddedToken(token, normalized=False) for token in listed if token in hidden] + missing
    )
    result.add_tokens(list(symbols))
    result.normalizer = normalizer(path, model.normalizer_spec)
    if strange:
        result.normalizer = normalizers.Sequence([result.normalizer, _runs(scores)])
    splits = _words(scores)
    if not bpe:  # which finds nothing that it has no merges for
        splits += _breaks(token for token in listed[:end] if token not in scores)
    if splits:
        result.pre_tokenizer = pre_tokenizers.Sequence(splits)
    result.decoder = decoder(byte_fallback=model.trainer_spec.byte_fallback)
    result.post_processor = around(result)
    return result


def _check(path: Path, tokens: Sequence[str]) -> None:
    for token in NEEDED:
        if token not in tokens:
            raise CheckpointError(f"{path.parent}: its tokenizer has no token {token}; {AGAIN}")
    if len({*tokens}) < len(tokens):
        twice = next(token for at, token in enumerate(tokens) if token in tokens[:at])
        raise CheckpointError(f"{path.parent}: its tokenizer has two ids for {twice!r}; {AGAIN}")


def _scores(model: Model, special: Collection[str]) -> dict[str, float]:
    """Returns the score of each piece that is found in text.

    SentencePiece lets a user-defined symbol win over all other pieces of its text; its score says
    so, but is never the lowest: that one decides what an unknown character costs.
    """
    scores = {
        piece.piece: piece.score
        for piece in model.pieces
        if piece.type == Piece.NORMAL and piece.piece not in special
    }
    lowest, highest = min(scores.values()), max(scores.values())
    for piece in model.pieces:
        if piece.type == Piece.USER_DEFINED and piece.piece not in special:
            winning = len(piece.piece.encode()) * highest - 0.1
            scores[piece.piece] = max(winning, lowest)
    return scores


def _strange(tokens: Sequence[str], scores: Collection[str]) -> set[str]:
    """Returns the tokens that are one character of which no piece has any.

    SentencePiece returns unknown text as it is, so that such a character alone is its token.
    """
    known = set().union(*scores)
    return {token for token in tokens if len(token) == 1 and token not in known}


def _runs(scores: Collection[str]) -> normalizers.Normalizer:
    """Returns the step that merges unknown characters in a row into one, which is not a token."""
    known = "".join(sorted(f"\\x{{{ord(letter):x}}}" for letter in set().union(*scores)))
    return normalizers.Replace(Regex(f"[^{known}]{{2,}}"), _UNKNOWN)


def _unigram(model: Model, tokens: Sequence[str], scores: dict[str, float]) -> models.Model:
    return models.Unigram(
        [(token, scores.get(token, 0.0)) for token in tokens],
        unk_id=tokens.index(UNK),
        byte_fallback=model.trainer_spec.byte_fallback,
    )


def _bpe(model: Model, tokens: Sequence[str], scores: dict[str, float]) -> models.Model:
    merges = [
        (piece[:at], piece[at:])
        for piece in sorted(scores, key=scores.__getitem__, reverse=True)
        for at in range(1, len(piece))
        if piece[:at] in scores and piece[at:] in scores
    ]
    return models.BPE(
        vocab={token: id_ for id_, token in enumerate(tokens)},
        merges=merges,
        unk_token=UNK,
        fuse_unk=True,
        byte_fallback=model.trainer_spec.byte_fallback,
    )


def _words(scores: Collection[str]) -> list[pre_tokenizers.PreTokenizer]:
    """Returns what divides a text into words, where no piece is part of two; it is faster."""
    if SPACE not in scores or any(SPACE in piece[1:] for piece in scores):
        return []
    return [pre_tokenizers.Split(SPACE, "merged_with_next")]


def _breaks(tokens: Iterable[str]) -> list[pre_tokenizers.PreTokenizer]:
    """Returns what breaks the spellings of tokens that no text may become, such as ``</s>``.

    It breaks them after their first character, so that text is never searched for the whole.
    """
    rests: dict[str, list[str]] = defaultdict(list)
    for token in tokens:
        if len(token) > 1 and " " not in token:
            rests[token[0]].append(re.escape(token[1:]))
    return [
        pre_tokenizers.Split(
            Regex(f"{re.escape(first)}(?={'|'.join(rest)})"), "merged_with_previous"
        )
        for first, rest in rests.items()
    ]
