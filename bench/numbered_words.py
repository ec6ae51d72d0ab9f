"""A vocabulary of numbered words for Marian, so that it reads and writes the token ids of another.

Marian divides a text at spaces if its vocabulary is a table of words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench.peers import TextPeer
from seqserve_model.config import TransformerConfig
from seqserve_server.contract.tokenizer import EOS, UNK, Tokenizer


def words(size: int, eos_id: int, unk_id: int) -> list[str]:
    """Lists the words by their ids, that of id 17 as ``t17``, but for two that Marian names."""
    names = {eos_id: EOS, unk_id: UNK}
    return [names.get(id_, f"t{id_}") for id_ in range(size)]


def write_vocabulary(config: TransformerConfig, path: Path) -> None:
    """Writes the vocabulary of a model as Marian reads it."""
    listed = words(config.vocabulary_size, config.eos_id, config.unk_id)
    path.write_text(json.dumps({word: id_ for id_, word in enumerate(listed)}, indent=0))


class TokenizedPeer:
    """A peer whose vocabulary is numbered words; a tokenizer divides and joins texts for it."""

    def __init__(self, peer: TextPeer, tokenizer: Tokenizer) -> None:
        """Takes the peer and the tokenizer of its model."""
        self._peer, self._tokenizer = peer, tokenizer
        self._words = words(tokenizer.vocabulary_size, tokenizer.eos_id, tokenizer.unk_id)
        self._ids = {word: id_ for id_, word in enumerate(self._words)}

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Gives the translations in order."""
        # The peer adds the end token itself.
        sources = [self._tokenizer.encode(text)[:-1] for text in texts]
        lines = self._peer.translate([" ".join(map(self._word, source)) for source in sources])
        return [
            self._tokenizer.decode([self._ids[word] for word in line.split()]) for line in lines
        ]

    def close(self) -> None:
        """Closes the peer."""
        self._peer.close()

    def _word(self, id_: int) -> str:
        return self._words[id_]
