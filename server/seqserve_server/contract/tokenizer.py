"""Converts text to token ids and back, also incrementally for streams.

Wraps a Hugging Face ``tokenizer.json``. Text never becomes a control token: ``</s>`` in a source is
encoded as ordinary characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import tokenizers

from seqserve.errors import OptionError
from seqserve_server.contract.manifest import Manifest

FILE = "tokenizer.json"
TARGET_FILE = "target_tokenizer.json"
"""Divides targets where ``tokenizer.json`` divides only sources, as Marian's two files do."""
PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"

BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
# Ends the tokens that text of this side cannot become: no divided text contains a space.
_OTHER_SIDE = " "
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Pieces(NamedTuple):
    """The tokens of a text."""

    ids: list[int]
    offsets: list[tuple[int, int]]
    """Where each begins and ends in the text as it was given, in Unicode code points."""


class Tokenizer:
    """Tokenizer with one joint vocabulary for source and target, which may be divided by two rules.

    Attributes:
        vocabulary_size: Number of tokens.
        pad_id: Pads the shorter rows of a batch.
        bos_id: Precedes the first target token; the padding where the vocabulary has no ``<s>``, as
            in Marian and T5.
        eos_id: Ends a source and a target.
        unk_id: Replaces characters that the vocabulary does not have.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        size: int | None = None,
        target: tokenizers.Tokenizer | None = None,
    ) -> None:
        """Wraps a loaded tokenizer; its padding is not used.

        Of its post-processor, only what it puts in front of a source is used: the end token always
        follows.

        Args:
            tokenizer: The loaded tokenizer.
            size: Number of tokens of the model; that of the tokenizer by default. Special tokens
                may be beyond: pieces that a text is divided into, but that have no id.
            target: Divides targets, and spells tokens, over the same ids; ``tokenizer`` if None.

        Raises:
            OptionError: A control token is not in the vocabulary, or another token is beyond
                ``size``.
        """
        self._tokenizer = _plain(tokenizer)
        self._target = _plain(target) if target else tokenizer
        self.vocabulary_size: int = tokenizer.get_vocab_size()
        self._size = self.vocabulary_size if size is None else size
        self.pad_id = self._id_of(PAD)
        begin = self.id_of(BOS)
        self.bos_id = self.pad_id if begin is None else begin
        self.eos_id = self._id_of(EOS)
        self.unk_id = self._id_of(UNK)
        controls = frozenset((self.pad_id, self.bos_id, self.eos_id))
        self._byte_ids = frozenset(map(tokenizer.token_to_id, BYTE_TOKENS)) - {None}
        self._hidden_ids = _special_ids(tokenizer) | _special_ids(self._target)
        self._unwritten_ids = controls | self._hidden_ids
        self._front = _front_of(tokenizer, self.eos_id)
        if not all(map(self.is_hidden, range(self._size, self.vocabulary_size))):
            raise OptionError(f"tokenizer: has more tokens than the model, which has {size}")

    @classmethod
    def load(cls, path: Path, size: int | None = None, *, has_target: bool = False) -> Tokenizer:
        """Reads a ``tokenizer.json`` for a model of ``size`` tokens.

        Args:
            path: The file.
            size: As for the class.
            has_target: Whether ``target_tokenizer.json`` beside it divides targets.

        Raises:
            OptionError: A file cannot be read, a control token is missing, or the model has fewer
                tokens.
        """
        target = _read(path.with_name(TARGET_FILE)) if has_target else None
        return cls(_read(path), size, target)

    @classmethod
    def of_artifact(cls, folder: Path, manifest: Manifest) -> Tokenizer:
        """Reads the tokenizer of an artifact, as :meth:`load` does.

        Files that the manifest does not list, and so nobody has checked, are not opened.
        """
        size, has_target = manifest.architecture.vocabulary_size, TARGET_FILE in manifest.files
        return cls.load(folder / FILE, size, has_target=has_target)

    def save(self, path: Path) -> list[str]:
        """Writes the ``tokenizer.json``, and beside it that of targets if there is one.

        Returns:
            The names of the files.
        """
        files = {path: self._tokenizer}
        if self._target is not self._tokenizer:
            files[path.with_name(TARGET_FILE)] = self._target
        for file, tokenizer in files.items():
            file.write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
        return [file.name for file in files]

    def encode(self, text: str) -> list[int]:
        """Encodes a source; the last id is the end token."""
        return self._front + self._divided(self._tokenizer, text)

    def encode_target(self, text: str) -> list[int]:
        """Encodes a target; the last id is the end token."""
        return self._divided(self._target, text)

    def pieces(self, text: str, *, is_target: bool = False) -> Pieces:
        """Divides a source, or a target, without the tokens that are added to it."""
        encoding = (self._target if is_target else self._tokenizer).encode(
            text, add_special_tokens=False
        )
        return Pieces(self._without_controls(encoding.ids), encoding.offsets)

    def _divided(self, tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
        return self._with_end(tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes many sources as :meth:`encode` does, on all cores."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._front + self._with_end(encoding.ids) for encoding in encodings]

    def truncate(self, ids: list[int], limit: int) -> list[int]:
        """Truncates the ids of a text to ``limit``, keeping the end token last."""
        return ids if len(ids) <= limit else [*ids[: limit - 1], self.eos_id]

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids to text without control tokens."""
        text: str = self._target.decode(list(ids), skip_special_tokens=True)
        return text

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Returns each token as spelled in the vocabulary."""
        spelled = self._spelled
        return [spelled.get(id_, UNK) for id_ in ids]

    @cached_property
    def token_bytes(self) -> int:
        """Bytes of the longest token in UTF-8, as spelled in the vocabulary."""
        return max(len(token.encode()) for token in self._spelled.values())

    @cached_property
    def _spelled(self) -> dict[int, str]:
        vocabulary = self._target.get_vocab()
        return {id_: token.removesuffix(_OTHER_SIDE) for token, id_ in vocabulary.items()}

    def id_of(self, token: str) -> int | None:
        """Returns the id of a token as spelled in the vocabulary; None if it has none."""
        found = map(self._target.token_to_id, (token, f"{token}{_OTHER_SIDE}"))
        id_: int | None = next((each for each in found if each is not None), None)
        return id_ if id_ is not None and id_ < self._size else None

    def stream(self, stops: Sequence[str] = ()) -> TextStream:
        """Starts incremental decoding that holds back what may be part of a stop sequence."""
        return TextStream(self, max((len(stop) - 1 for stop in stops), default=0))

    def is_byte(self, id_: int) -> bool:
        """Tells whether a token is one byte of a character that the vocabulary does not have."""
        return id_ in self._byte_ids

    def is_hidden(self, id_: int) -> bool:
        """Tells whether :meth:`decode` omits a token."""
        return id_ in self._hidden_ids

    def _with_end(self, ids: list[int]) -> list[int]:
        return [*self._without_controls(ids), self.eos_id]

    def _without_controls(self, ids: list[int]) -> list[int]:
        # A unigram vocabulary lists special tokens among its pieces, so text can match them.
        unwritten, unk = self._unwritten_ids, self.unk_id
        return [unk if id_ in unwritten else id_ for id_ in ids]

    def _id_of(self, token: str) -> int:
        id_ = self.id_of(token)
        if id_ is None:
            raise OptionError(f"tokenizer: {token!r} is not in the vocabulary")
        return id_


def _read(path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"{path}: cannot be read: {error.strerror}") from None
    except Exception as error:  # the library raises bare Exception for a malformed file
        raise OptionError(f"{path}: is not a tokenizer.json: {error}") from None


def _plain(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Lets no text become a special token, and no text be padded or cut."""
    tokenizer.encode_special_tokens = True
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _special_ids(tokenizer: tokenizers.Tokenizer) -> frozenset[int]:
    added = tokenizer.get_added_tokens_decoder()
    return frozenset(id_ for id_, token in added.items() if token.special)


def _front_of(tokenizer: tokenizers.Tokenizer, eos: int) -> list[int]:
    """Gives the special tokens that the post-processor puts in front of a text, as BART's does."""
    encoding = tokenizer.encode("")
    pairs = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
    special = [id_ for id_, is_special in pairs if is_special]
    return special[: special.index(eos)] if eos in special else []


class TextStream:
    """Incremental decoder that returns text as soon as no later id can change it.

    The pieces of :meth:`push` and the rest from :meth:`flush`, joined, equal what
    :meth:`Tokenizer.decode` returns for all ids together.
    """

    def __init__(self, tokenizer: Tokenizer, held: int = 0) -> None:
        """Starts with no ids; holds back ``held`` characters, as they may begin a stop sequence."""
        self._tokenizer = tokenizer
        self._held = held
        self._pending = ""
        self._window: list[int] = []
        self._shown = ""
        self._sent_chars = 0

    def push(self, ids: Sequence[int]) -> str:
        """Appends ids and returns the text that has become final, which may be empty.

        Text that ends within a character is held back: if a run of byte tokens turns out to be
        invalid UTF-8, the whole run decodes differently.
        """
        visible = [id_ for id_ in ids if not self._tokenizer.is_hidden(id_)]
        self._window.extend(visible)
        if not self._window or self._tokenizer.is_byte(self._window[-1]):
            return ""
        text = self._tokenizer.decode(self._window)
        if text.endswith(_REPLACEMENT) or len(text) <= len(self._shown):
            return ""
        self._pending += text[len(self._shown) :]
        self._shown = text
        # Only the latest ids are decoded again, so the cost of a piece does not grow with the text.
        # If they have no text they cannot be the context: the next ids would decode as a beginning.
        latest = self._tokenizer.decode(visible)
        if latest:
            self._window, self._shown = visible, latest
        sent = max(0, len(self._pending) - self._held)
        piece, self._pending = self._pending[:sent], self._pending[sent:]
        self._sent_chars += len(piece)
        return piece

    def flush(self, text: str) -> str:
        """Returns what :meth:`push` held back of ``text``, the text of all ids."""
        rest = text[self._sent_chars :]
        self._sent_chars += len(rest)
        return rest
