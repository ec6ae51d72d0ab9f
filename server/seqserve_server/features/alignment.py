"""Finds for each token of an answer the place in the source that it attends to most.

It is the attention of the last layer, averaged over its heads. Source: Bahdanau et al. 2015,
"Neural Machine Translation by Jointly Learning to Align and Translate", section 3.1.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from seqserve.v1 import generation_pb2
from seqserve_server.contract.events import Hypothesis
from seqserve_server.front.generate.languages import Affixes
from seqserve_server.front.generate.records import Asked, Feature, Link, Part, message_of
from seqserve_server.text.splitting import Span
from seqserve_server.text.tokenizer import REPLACEMENT, Tokenizer


def alignment(asked: Asked) -> Feature | None:
    """Returns the feature of a request that has it."""
    return Alignment(asked) if asked.options.return_alignment else None


class Alignment(Feature):
    """Finds the source places of the tokens of an answer."""

    def __init__(self, asked: Asked) -> None:
        self._tokenizer, self._affixes = asked.model.tokenizer, asked.affixes

    def write(self, part: Part, hypothesis: Hypothesis, message: generation_pb2.Hypothesis) -> None:
        """Writes the alignment of a hypothesis, if its attention is known."""
        if not hypothesis.attention:
            return
        rows = hypothesis.attention_rows(len(part.tokens))
        source = TokenSpans.of(part.text, part.tokens, self._affixes, self._tokenizer)
        ids, tokenizer = hypothesis.token_ids, self._tokenizer
        message.alignment.CopyFrom(alignment_of(message.text, ids, rows, source, tokenizer))


class TokenSpans(NamedTuple):
    """Where the tokens of a source are in its text."""

    first: int
    """Index of the first token of the text; others may come before it."""
    spans: list[Span]
    """Place of each token of the text; a lone space has the place of the next token."""
    num_affixes: int
    """Number of special tokens before the text."""

    @classmethod
    def of(
        cls, text: str, ids: Sequence[int], affixes: Affixes, tokenizer: Tokenizer
    ) -> TokenSpans:
        """Finds the tokens of a source."""
        whole = affixes.text + text
        offsets = tokenizer.pieces(whole).offsets
        spans = [_trimmed(whole, *each) for each in offsets]
        for index in range(len(spans) - 2, -1, -1):
            if spans[index].begin == spans[index].end:
                spans[index] = spans[index + 1]
        shift = len(affixes.text)
        spans = [Span(max(0, begin - shift), max(0, end - shift)) for begin, end in spans]
        begin = sum(end <= shift for _, end in offsets)
        return cls(len(ids) - len(affixes.after) - 1 - len(spans), spans, begin)

    def of_text(self) -> range:
        """Returns the indexes of the tokens of the text, without those that are added."""
        return range(self.first + self.num_affixes, self.first + len(self.spans))

    def attended(self, weights: array[float]) -> Span | None:
        """Returns the place with the most weight; None where the model attends to no text."""
        own = weights[self.first : self.first + len(self.spans)]
        span = self.spans[own.index(max(own))] if own else Span(0, 0)
        return span if span.begin < span.end else None


def alignment_of(
    text: str,
    ids: Sequence[int],
    attention: Sequence[array[float]],
    source: TokenSpans,
    tokenizer: Tokenizer,
) -> generation_pb2.Alignment:
    """Aligns the tokens of a target."""
    targets = zip(_spans(text, ids, tokenizer), attention, strict=True)
    return message_of(
        [
            Link(place, target)
            for target, weights in targets
            if (place := source.attended(weights)) and target.begin < target.end
        ]
    )


def _spans(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> list[Span]:
    """Finds the place of each token; tokens that spell a character together have the same."""
    stream = tokenizer.stream()
    spans = [Span(0, 0)] * len(ids)
    waiting: list[int] = []
    begin = 0
    for index, id_ in enumerate(ids):
        if id_ not in tokenizer.target.hidden_ids:
            waiting.append(index)
        if piece := stream.push([id_]):
            _place(spans, waiting, text, begin, begin + len(piece), ids, tokenizer)
            begin, waiting = begin + len(piece), []
    _place(spans, waiting, text, begin, len(text), ids, tokenizer)
    return spans


def _place(
    spans: list[Span],
    indexes: list[int],
    text: str,
    begin: int,
    end: int,
    ids: Sequence[int],
    tokenizer: Tokenizer,
) -> None:
    """Divides the text between ``begin`` and ``end`` among tokens that came together."""
    together: list[int] = []
    for index in indexes:
        together.append(index)
        own_end = end
        if index != indexes[-1]:
            own_end = min(end, len(tokenizer.decode(ids[: index + 1]).rstrip(REPLACEMENT)))
        if own_end > begin or index == indexes[-1]:
            for each in together:
                spans[each] = _trimmed(text, begin, own_end)
            begin, together = own_end, []


def _trimmed(text: str, begin: int, end: int) -> Span:
    part = text[begin:end]
    left = len(part) - len(part.lstrip())
    return Span(begin + left, begin + max(left, len(part.rstrip())))


def unknowns(asked: Asked) -> Feature | None:
    """Returns the feature of a request that has it."""
    return _Unknowns(asked) if asked.options.replace_unknowns else None


class _Unknowns(Feature):
    """Replaces each unknown token by the source token that it attends to most.

    Source: Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine Translation";
    by attention as in Jean et al. 2015, section 4.1.
    """

    def __init__(self, asked: Asked) -> None:
        self._unknown_id = asked.model.manifest.tokens.unk
        self._tokenizer, self._affixes = asked.model.tokenizer, asked.affixes

    def rewrites(self, part: Part) -> bool:
        return True

    def replace_tokens(self, part: Part, hypothesis: Hypothesis) -> Hypothesis:
        if self._unknown_id not in hypothesis.token_ids:
            return hypothesis
        ids, source = list(hypothesis.token_ids), part.tokens
        spans = TokenSpans.of(part.text, source, self._affixes, self._tokenizer)
        candidates = spans.of_text()
        for index, weights in enumerate(hypothesis.attention_rows(len(source))):
            if ids[index] == self._unknown_id and candidates:
                ids[index] = source[max(candidates, key=weights.__getitem__)]
        length = hypothesis.text_length
        if length is not None:
            # The same number of characters stays cut off: the stop sequence.
            decode = self._tokenizer.decode
            length += len(decode(ids)) - len(decode(hypothesis.token_ids))
        return hypothesis._replace(token_ids=ids, text_length=length)
