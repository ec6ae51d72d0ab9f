"""Models of SentencePiece, whose pieces get ids by the rule of their family; and ByT5.

- T5, mT5 and MADLAD: the places of pieces are their ids, and extra ids follow. ByT5 has no file.
- Pegasus: pieces follow 103 tokens that only its training used.
- M2M-100, NLLB and mBART: ids are fairseq's: its four control tokens come first, and languages
  follow the pieces. Texts are encoded without one: which is wanted, and where it is put, is up to
  each request.
"""

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from seqserve_import.files import AGAIN, CheckpointError, in_order_of_ids, read_object
from seqserve_import.tokenizers.pieces_pb2 import Model
from seqserve_import.tokenizers.segmentation import Piece, controls_of, read_pieces, segmenter
from seqserve_import.tokenizers.special import (
    LANGUAGES,
    agrees,
    around,
    read_settings,
    read_size,
    respelled,
    with_added,
)
from seqserve_server.text.vocabulary import EOS, PAD, UNK


def convert_t5(path: Path, rows: int, extra_ids: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a checkpoint whose pieces have their places in the model as ids.

    Args:
        rows: Embeddings of the checkpoint; 0 if they are not known.
        extra_ids: Number of tokens ``<extra_id_0>`` and so on after the pieces, if the checkpoint
            does not say it.
    """
    model = read_pieces(path)
    count = read_size(path.parent, "extra_ids", extra_ids)
    # The first extra id is the last token.
    extra = [f"<extra_id_{number}>" for number in reversed(range(count))]
    added = with_added(path.parent, [piece.piece for piece in model.pieces] + extra, rows)
    spelled = respelled(path.parent, added.tokens)
    tokens = [spelled.get(token, token) for token in added.tokens]
    special = {*controls_of(model), *spelled.values(), *extra, *added.hidden}
    return segmenter(path, model, tokens, special, added.symbols)


def convert_byt5(folder: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of ByT5, where each byte of UTF-8 is a token.

    Bytes that are not UTF-8 are left out of decoded text.
    """
    controls = [PAD, EOS, UNK]
    extra = [f"<extra_id_{number}>" for number in range(read_size(folder, "extra_ids", 125))]
    added = with_added(folder, [*controls, *_spellings(), *extra], rows)
    ids = {token: id_ for id_, token in enumerate(added.tokens)}
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, []))
    tokenizer.add_special_tokens([*controls, *extra, *added.hidden])
    tokenizer.add_tokens(added.symbols)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), decoders.Replace("\N{REPLACEMENT CHARACTER}", "")]
    )
    tokenizer.post_processor = around(tokenizer)
    return tokenizer


def _spellings() -> list[str]:
    """Returns the character of each byte.

    It is the byte's own in Latin-1 where that is visible, else the next one above Latin-1.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    own = {ord(character): character for character in alphabet if ord(character) < 256}
    above = (character for character in alphabet if ord(character) >= 256)
    return [own[byte] if byte in own else next(above) for byte in range(256)]


_MASKS = ["<mask_1>", "<mask_2>"]


def convert_pegasus(path: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a Pegasus checkpoint."""
    model = read_pieces(path)
    offset = read_size(path.parent, "offset", 103)
    special = [PAD, EOS, *_MASKS, *(f"<unk_{number}>" for number in range(2, offset))]
    # The model file has <pad> and </s> in the first two places.
    tokens = [*special, *(piece.piece for piece in model.pieces[2:])]
    added = with_added(path.parent, tokens, rows)
    special += added.hidden
    return segmenter(path, model, added.tokens, {*special, UNK}, added.symbols)


_CONTROLS = ["<s>", PAD, EOS, UNK]
_MASK = "<mask>"


def convert_m2m100(path: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of M2M-100, whose ids are in ``vocab.json``."""
    vocabulary = path.with_name("vocab.json")
    is_wmt21 = read_settings(path.parent).get("language_codes") == "wmt21"
    languages = [f"__{code}__" for code in LANGUAGES["wmt21" if is_wmt21 else "m2m100"]]
    tokens = in_order_of_ids(vocabulary, read_object(vocabulary)) + languages
    if 0 < rows < len(tokens):
        raise CheckpointError(
            f"{vocabulary}: has {len(tokens):,} tokens with those of {len(languages)} languages,"
            f" but the model has only {rows:,} embeddings"
        )
    added = with_added(path.parent, tokens, rows)
    special = {*_CONTROLS, *languages, *added.hidden}
    return segmenter(path, read_pieces(path), added.tokens, special, added.symbols, rows)


def convert_nllb(path: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of NLLB."""
    return _convert(path, read_pieces(path), LANGUAGES["nllb"], rows)


def convert_mbart(path: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of mBART, with 52 languages if it has embeddings for them, else 25.

    Classes of tokenizers are named wrongly too often. A table may have rows without a token, so
    that both would fit: there the ids of tokens decide, if a file has them.
    """
    model = read_pieces(path)
    tokens = _tokens(path, model, LANGUAGES["mbart50"])
    has_52 = rows >= len(tokens) and agrees(path.parent, tokens)
    return _convert(path, model, LANGUAGES["mbart50" if has_52 else "mbart"], rows)


def _convert(path: Path, model: Model, languages: list[str], rows: int) -> tokenizers.Tokenizer:
    added = with_added(path.parent, _tokens(path, model, languages), rows)
    special = {*_CONTROLS, *languages, _MASK, *added.hidden}
    return segmenter(path, model, added.tokens, special, added.symbols)


def _tokens(path: Path, model: Model, languages: list[str]) -> list[str]:
    return [*_CONTROLS, *_pieces(path, model), *languages, _MASK]


def _pieces(path: Path, model: Model) -> list[str]:
    """Returns the pieces after the first three, which are control tokens with other ids."""
    if any(piece.type == Piece.NORMAL for piece in model.pieces[:3]):
        raise CheckpointError(f"{path}: does not begin with <unk>, <s> and </s>; {AGAIN}")
    return [piece.piece for piece in model.pieces[3:]]
