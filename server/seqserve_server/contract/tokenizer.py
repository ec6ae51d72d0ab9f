"""Turns text into token ids and back, also piece by piece while a model is still generating.

Wraps a Hugging Face ``tokenizer.json``. Whatever a user types is text: the words of control tokens
(``</s>``) inside a source are encoded letter by letter and never become the token itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from seqserve.errors import OptionError

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"

BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Tokenizer:
    """One joint vocabulary for source and target.

    Attributes:
        vocabulary_size: Number of token ids.
        pad_id: Fills up the shorter rows of a batch.
        bos_id: Stands before the first target token.
        eos_id: Ends a source and a target.
        unk_id: Stands for what the vocabulary cannot write.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        pad: str = PAD,
        bos: str = BOS,
        eos: str = EOS,
        unk: str = UNK,
    ) -> None:
        """Wraps a loaded tokenizer.

        Args:
            tokenizer: The tokenizer; its post-processor and its padding are not used.
            pad: The padding token as the vocabulary writes it.
            bos: The token that stands before the first target token.
            eos: The token that ends a text.
            unk: The token for what cannot be written.

        Raises:
            OptionError: A control token is not in the vocabulary.
        """
        tokenizer.encode_special_tokens = True
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.vocabulary_size: int = tokenizer.get_vocab_size()
        self.pad_id = self._id_of(pad)
        self.bos_id = self._id_of(bos)
        self.eos_id = self._id_of(eos)
        self.unk_id = self._id_of(unk)
        self._control_ids = frozenset((self.pad_id, self.bos_id, self.eos_id))
        self._byte_ids = frozenset(map(tokenizer.token_to_id, BYTE_TOKENS)) - {None}
        added = tokenizer.get_added_tokens_decoder()
        self._hidden_ids = frozenset(id_ for id_, token in added.items() if token.special)

    @classmethod
    def load(
        cls, path: Path, *, pad: str = PAD, bos: str = BOS, eos: str = EOS, unk: str = UNK
    ) -> Tokenizer:
        """Reads a ``tokenizer.json``.

        Args:
            path: The file.
            pad: The padding token as the vocabulary writes it.
            bos: The token that stands before the first target token.
            eos: The token that ends a text.
            unk: The token for what cannot be written.

        Raises:
            OptionError: The file cannot be read, or lacks a control token.
        """
        try:
            tokenizer = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise OptionError(f"{path}: cannot be read: {error.strerror}") from None
        except Exception as error:  # the library raises bare Exception for a malformed file
            raise OptionError(f"{path}: is not a tokenizer.json: {error}") from None
        return cls(tokenizer, pad=pad, bos=bos, eos=eos, unk=unk)

    def save(self, path: Path) -> None:
        """Writes the ``tokenizer.json``."""
        path.write_text(self._tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        """Gives the ids of a text, the end token last."""
        return self._closed(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Gives the ids of many texts, each as :meth:`encode` does, on all cores."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [self._closed(encoding.ids) for encoding in encodings]

    def cut(self, ids: list[int], limit: int) -> list[int]:
        """Shortens the ids of a text to so many at most, of which the end token is the last."""
        return ids if len(ids) <= limit else [*ids[: limit - 1], self.eos_id]

    def decode(self, ids: Sequence[int]) -> str:
        """Gives the text of ids; control tokens are left out."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Gives each id as the vocabulary writes it."""
        return [self._tokenizer.id_to_token(id_) or UNK for id_ in ids]

    def id_of(self, token: str) -> int | None:
        """Gives the id of a token as the vocabulary writes it; None where there is none."""
        id_: int | None = self._tokenizer.token_to_id(token)
        return id_

    def stream(self, stops: Sequence[str] = ()) -> TextStream:
        """Starts decoding piece by piece; of texts that stop it no part is given out."""
        return TextStream(self, max((len(stop) - 1 for stop in stops), default=0))

    def is_byte(self, id_: int) -> bool:
        """Tells whether an id is one byte of a character that the vocabulary cannot write whole."""
        return id_ in self._byte_ids

    def is_hidden(self, id_: int) -> bool:
        """Tells whether an id is one that :meth:`decode` leaves out."""
        return id_ in self._hidden_ids

    def _closed(self, ids: list[int]) -> list[int]:
        # A unigram vocabulary lists the control tokens among its pieces, so typed text can match.
        controls, unk = self._control_ids, self.unk_id
        return [*(unk if id_ in controls else id_ for id_ in ids), self.eos_id]

    def _id_of(self, token: str) -> int:
        id_ = self.id_of(token)
        if id_ is None:
            raise OptionError(
                f"tokenizer: {token!r} is not in the vocabulary; name the right token"
            )
        return id_


class TextStream:
    """Text of a growing list of ids, given out as soon as no later id can change it.

    The pieces of :meth:`push`, and the rest from :meth:`flush`, joined, are the text that
    :meth:`Tokenizer.decode` gives for all ids together.
    """

    def __init__(self, tokenizer: Tokenizer, held: int = 0) -> None:
        """Starts with no ids.

        Args:
            tokenizer: Of the ids.
            held: Characters that are held back, since they may be the beginning of what is cut.
        """
        self._tokenizer = tokenizer
        self._held = held
        self._pending = ""
        self._window: list[int] = []
        self._shown = ""
        self._sent_chars = 0

    def push(self, ids: Sequence[int]) -> str:
        """Takes new ids and gives the text that has become final, which may be none.

        Text is held back while it ends within a character: a run of byte tokens may still turn out
        to be no character at all, which would change the whole run.
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
        # Only the latest ids are decoded again, so that a piece costs the same late in a text. Ids
        # without text cannot stand in for the others: what follows would look like a beginning.
        latest = self._tokenizer.decode(visible)
        if latest:
            self._window, self._shown = visible, latest
        sent = max(0, len(self._pending) - self._held)
        piece, self._pending = self._pending[:sent], self._pending[sent:]
        self._sent_chars += len(piece)
        return piece

    def flush(self, text: str) -> str:
        """Gives what :meth:`push` held back.

        Args:
            text: The whole text.
        """
        rest = text[self._sent_chars :]
        self._sent_chars += len(rest)
        return rest
