"""Converts text to token ids and back.

Wraps a Hugging Face ``tokenizer.json``. Text never becomes a control token: ``</s>`` in a source is
encoded as ordinary characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from seqserve.errors import OptionError
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.text.library import read_library
from seqserve_server.text.spelling import Spelling
from seqserve_server.text.vocabulary import BOS, EOS, Alphabet, Pieces, Vocabulary

FILE = "tokenizer.json"
TARGET_FILE = "target_tokenizer.json"
"""Divides targets where ``tokenizer.json`` divides only sources, as Marian's two files do."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Stands at the end of a text whose last bytes are not a whole character yet."""


class Tokenizer:
    """Tokenizer of sources and targets.

    Both share one vocabulary, which may be divided by two rules, or each has its own.

    Attributes:
        source: Vocabulary of sources, which spells their tokens and knows their ids.
        target: Vocabulary of targets, often the same one.
        vocabulary_size: Number of tokens of targets.
        pad_id: Pads the shorter rows of a batch.
        bos_id: Precedes the first target token; the padding where the vocabulary has no ``<s>``, as
            in Marian and T5.
        eos_id: Ends a source and a target.
        unk_id: Replaces characters of a target that the vocabulary does not have.
        is_joint: Whether sources and targets have one vocabulary.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        size: int | None = None,
        target: tokenizers.Tokenizer | None = None,
        *,
        source_size: int | None = None,
    ) -> None:
        """Wraps a loaded tokenizer; its padding is not used.

        Of its post-processor, only what it puts in front of a source is used, and whether the end
        token follows. Special tokens may be beyond ``size``, the target tokens of the model.
        ``target`` divides targets. With a ``source_size`` sources have a separate vocabulary.

        Raises OptionError if a control token is not in a vocabulary, if another token is beyond
        ``size``, or if the vocabularies have different end tokens.
        """
        self.is_joint = source_size is None
        self.source = Vocabulary(tokenizer, size if source_size is None else source_size)
        is_one = target is None and source_size in (None, size)
        self.target = self.source if is_one else Vocabulary(target or tokenizer, size)
        self.vocabulary_size = self.target.vocabulary_size
        self.pad_id = self.target.pad_id
        begin = self.target.id_of(BOS)
        self.bos_id = self.pad_id if begin is None else begin
        self.eos_id = self.target.eos_id
        self.unk_id = self.target.unk_id
        self._front, self._has_end = _added_by(tokenizer, self.eos_id)
        if self.source.eos_id != self.eos_id:
            raise OptionError(
                f"tokenizer: {EOS} is token {self.source.eos_id} of sources and {self.eos_id} of"
                " targets; it must be the same one"
            )

    @classmethod
    def load(
        cls,
        path: Path,
        size: int | None = None,
        *,
        has_target: bool = False,
        source_size: int | None = None,
    ) -> Tokenizer:
        """Reads a ``tokenizer.json`` for a model of ``size`` tokens, as the class says.

        With ``has_target``, ``target_tokenizer.json`` in the same folder divides targets. Raises
        OptionError also if a file cannot be read, or may make too much of a text.
        """
        target = read_library(path.with_name(TARGET_FILE)) if has_target else None
        return cls(read_library(path), size, target, source_size=source_size)

    @classmethod
    def of_artifact(cls, folder: Path, manifest: Manifest) -> Tokenizer:
        """Reads the tokenizer of an artifact, as :meth:`load` does.

        Files that the manifest does not list were not checked, so they are not opened.
        """
        shape = manifest.architecture
        return cls.load(
            folder / FILE,
            shape.vocabulary_size,
            has_target=TARGET_FILE in manifest.files,
            source_size=shape.source_vocabulary_size,
        )

    @property
    def num_added(self) -> int:
        """Tokens that :meth:`encode` adds to a text's."""
        return len(self._front) + self._has_end

    def encode(self, text: str) -> list[int]:
        """Encodes a source; the last id is the end token, unless the model reads none."""
        return self._read(self.source.divide(self.spelled(text).text))

    def encode_target(self, text: str) -> list[int]:
        """Encodes a target; the last id is the end token."""
        return self.target.divide(text)

    def pieces(self, text: str, *, is_target: bool = False) -> Pieces:
        """Divides a source, or a target, without the tokens that are added to it."""
        if is_target:
            return self.target.pieces(text)
        spelled = self.spelled(text)
        ids, offsets = self.source.pieces(spelled.text)
        return Pieces(ids, [spelled.span(*place) for place in offsets])

    @cached_property
    def spelled(self) -> Spelling:
        """Spells a source with the characters of its vocabulary."""
        return Spelling(self.reads)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes many sources as :meth:`encode` does, on all cores."""
        spelled = [self.spelled(text).text for text in texts]
        return [self._read(ids) for ids in self.source.divide_all(spelled)]

    def _read(self, ended: list[int]) -> list[int]:
        return self._front + (ended if self._has_end else ended[:-1])

    def truncate(self, ids: list[int], limit: int) -> list[int]:
        """Truncates the ids of a source to ``limit``, keeping its end token last."""
        if len(ids) <= limit:
            return ids
        return [*ids[: limit - 1], self.eos_id] if self._has_end else ids[:limit]

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes ids of a target to text without control tokens."""
        return self.target.join(ids)

    @cached_property
    def joins_spaces(self) -> bool:
        """Whether it reads several spaces as one."""
        return self.encode("a  a") == self.encode("a a")

    @cached_property
    def token_bytes(self) -> int:
        """Bytes of the longest token in UTF-8, as spelled in the vocabulary."""
        spelled = (*self.source.spelled.values(), *self.target.spelled.values())
        return max(len(token.encode()) for token in spelled)

    @cached_property
    def alphabet(self) -> Alphabet:
        """Characters that the vocabulary of sources can spell."""
        return Alphabet.of(self.source.spelled, self.source.byte_ids | {self.source.unk_id})

    def reads(self, character: str) -> bool:
        """Returns whether the vocabulary of sources has a character, perhaps as another one."""
        if self.alphabet.spells(character):
            return True
        changed = self.source.normalized(character)
        return changed != character and self.alphabet.spells(changed)

    def stream(self, stops: Sequence[str] = ()) -> TextStream:
        """Starts incremental decoding that holds back what may be part of a stop sequence."""
        return TextStream(self.target, max((len(stop) - 1 for stop in stops), default=0))


def _added_by(tokenizer: tokenizers.Tokenizer, eos: int) -> tuple[list[int], bool]:
    """Returns the special tokens in front of a source, as in BART, and whether an end follows."""
    if tokenizer.post_processor is None:
        return [], True
    encoding = tokenizer.encode("")
    pairs = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
    special = [id_ for id_, is_special in pairs if is_special]
    return (special[: special.index(eos)], True) if eos in special else (special, False)


class TextStream:
    """Incremental decoder that returns text as soon as no later id can change it.

    Its pieces, joined, equal what :meth:`Tokenizer.decode` returns for all ids together.
    """

    def __init__(self, vocabulary: Vocabulary, held: int = 0) -> None:
        """Starts with no ids; holds back ``held`` characters, as they may begin a stop sequence."""
        self._vocabulary = vocabulary
        self._held = held
        self._pending = ""
        self._window: list[int] = []
        self._shown = ""
        self._sent_chars = 0

    def push(self, ids: Sequence[int]) -> str:
        """Appends ids and returns the text that has become final, which may be empty.

        Text that ends within a character is held back: invalid UTF-8 decodes as a whole.
        """
        hidden_ids = self._vocabulary.hidden_ids
        visible = [id_ for id_ in ids if id_ not in hidden_ids]
        self._window.extend(visible)
        # A byte of a character that the vocabulary does not have.
        if not self._window or self._window[-1] in self._vocabulary.byte_ids:
            return ""
        text = self._vocabulary.join(self._window)
        if text.endswith(REPLACEMENT) or len(text) <= len(self._shown):
            return ""
        self._pending += text[len(self._shown) :]
        self._shown = text
        # Only the latest ids are decoded again, so the cost of a piece does not grow with the text.
        # If they have no text they cannot be the context: the next ids would decode as a beginning.
        latest = self._vocabulary.join(visible)
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
