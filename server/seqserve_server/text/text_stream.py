"""Converts token ids to text while they come."""

from collections.abc import Sequence
from typing import Protocol

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Stands at the end of a text whose last bytes are not a whole character yet."""


class Detokenizer(Protocol):
    """The part of a tokenizer that a stream needs."""

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids to text without control tokens."""

    def is_byte(self, id_: int) -> bool:
        """Returns whether a token is one byte of a character."""

    def is_hidden(self, id_: int) -> bool:
        """Returns whether :meth:`decode` omits a token."""


class TextStream:
    """Incremental decoder that returns text as soon as no later id can change it.

    The pieces of :meth:`push` and the rest from :meth:`flush`, joined, equal what
    :meth:`Detokenizer.decode` returns for all ids together.
    """

    def __init__(self, tokenizer: Detokenizer, held: int = 0) -> None:
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
        if text.endswith(REPLACEMENT) or len(text) <= len(self._shown):
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
