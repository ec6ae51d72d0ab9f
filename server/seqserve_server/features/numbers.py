"""Numbers, dates, times and codes: an answer that differs from its source in them gets a warning,
and is decoded again if the request says so."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice

from seqserve.v1 import generation_pb2
from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.contract.options import fault_of_term
from seqserve_server.front.generate.records import (
    ID_BYTES,
    STRING_BYTES,
    Asked,
    Check,
    Part,
    links_of,
)
from seqserve_server.text.quantities.comparison import Difference, differences
from seqserve_server.text.quantities.reading import has_digit
from seqserve_server.text.quantities.writing import written
from seqserve_server.text.splitting import Span

MOST_LISTED = 8
"""Differences that an answer lists."""
_MOST_SHOWN = 32
_CHARACTER_BYTES = 4
_CONFIDENCE = 0.5
_BEAM_SIZE = 8
_MOST_LOST = 0.5
"""How much less probable, as a logarithm, a token of the second try may be on average."""
# Each takes a part of the beam.
_MOST_TERMS = 16


def numbers(asked: Asked) -> Check | None:
    """Returns the check of a request; it reads parts with a digit.

    A model without languages may leave numbers out, as summaries do: it is checked on request.
    """
    if not (any(asked.languages) or asked.options.verify_numbers):
        return None
    return _Numbers(asked, *asked.languages)


class _Numbers(Check):
    field = "options.verify_numbers"

    def __init__(self, asked: Asked, source: str, target: str) -> None:
        self._languages = source, target
        # The answer is written with the differences that the second try has found.
        self._compared = lru_cache(maxsize=2)(partial(_compared, self._languages))
        decoding = asked.decoding
        # Others cannot be decoded again with terms.
        takes_terms = not (
            decoding.sampling or decoding.return_alternatives or decoding.prefix_bias_beta
        )
        self.repairs = asked.options.verify_numbers and takes_terms
        self._returns_scores = decoding.return_scores
        self._tokenizer = asked.model.tokenizer
        ids = map(asked.model.tokenizer.target.id_of, "0123456789")
        self._digits = [each for each in ids if each is not None]
        self._max_rows = asked.model.engine.capacity.max_rows
        self._ends = asked.ends

    def read(self, part: Part) -> Part:
        if not (part.tokens and has_digit(part.original)):
            return part
        part = part._replace(check=self)
        # Which answer is better depends on both scores, also if the caller wants none.
        if not self.repairs or part.decoding.return_scores:
            return part
        return part._replace(decoding=replace(part.decoding, return_scores=True))

    def max_bytes(self, part: Part) -> int:
        shown = 2 * (_CHARACTER_BYTES * _MOST_SHOWN + STRING_BYTES)
        return MOST_LISTED * (shown + STRING_BYTES + 6 * ID_BYTES)

    def write(self, part: Part, hypothesis: Hypothesis, message: generation_pb2.Hypothesis) -> None:
        if not self._returns_scores:
            for name in ("score", "normalized_score", "confidence"):
                message.ClearField(name)
        # Text that a stop sequence cuts off does not count.
        if message.stop_reason == generation_pb2.STOP_REASON_STOP_SEQUENCE:
            return
        found = self._compared(part.original, message.text)
        for each in found[:MOST_LISTED]:
            _write(message, part.original, each)
        if found and message.HasField("confidence"):
            message.confidence *= _CONFIDENCE

    def second_try(self, part: Part, answer: Finished) -> Part | None:
        if not self.repairs or answer.best.stop_reason is not StopReason.EOS:
            return None
        missing = [each.source for each in self._differences(part, answer) if each.source]
        decoding = part.decoding
        forms = islice(written(missing, part.text, *self._languages), _MOST_TERMS)
        tokenized = (tuple(self._tokenizer.encode_target(form)[:-1]) for form in forms)
        found = [
            each for each in tokenized if each and not fault_of_term(each, decoding, self._ends)
        ]
        terms = (*decoding.terms, *found)
        needed = len(decoding.prefix) + sum(map(len, terms))
        if not found or needed > decoding.max_decoding_length:
            return None
        beam_size = max(decoding.beam_size, min(_BEAM_SIZE, self._max_rows))
        # No digit makes another number of a term.
        ends = tuple((*term, digit) for term in found for digit in self._digits)
        suppressed = (*decoding.suppressed, *ends)
        decoding = replace(decoding, terms=terms, beam_size=beam_size, suppressed=suppressed)
        return part._replace(decoding=decoding, draft=())

    def is_better(self, part: Part, answer: Finished, other: Finished) -> bool:
        # A text of hardly more than numbers is not better.
        if _mean_score(other) < _mean_score(answer) - _MOST_LOST:
            return False
        return len(self._differences(part, answer)) > len(self._differences(part, other))

    def _differences(self, part: Part, answer: Finished) -> list[Difference]:
        """Compares what the model has read and written; what is protected is put back anyway."""
        best = answer.best
        text = self._tokenizer.decode(best.token_ids)[: best.text_length]
        found = self._compared(part.text, text)
        return [each for each in found if not _is_protected(each, part.protected)]


def _compared(languages: tuple[str, str], source: str, target: str) -> tuple[Difference, ...]:
    return tuple(differences(source, target, *languages))


def _mean_score(answer: Finished) -> float:
    best = answer.best
    return (best.score or 0.0) / (len(best.token_ids) + 1)


def _is_protected(difference: Difference, spans: Sequence[Span]) -> bool:
    source = difference.source
    return source is not None and any(
        begin <= source.begin and source.end <= end for begin, end in spans
    )


def _write(message: generation_pb2.Hypothesis, source_text: str, difference: Difference) -> None:
    source, target = difference
    warning = message.warnings.add(kind=generation_pb2.TEXT_WARNING_KIND_NUMBERS_DIFFER)
    if source:
        warning.source_text = source_text[source.begin : source.end][:_MOST_SHOWN]
        warning.source_begin, warning.source_end = source.begin, source.end
    if target:
        warning.target_text = message.text[target.begin : target.end][:_MOST_SHOWN]
        warning.target_begin, warning.target_end = target.begin, target.end
    elif source and message.HasField("alignment"):
        places = [
            link.target
            for link in links_of(message.alignment)
            if link.source.begin < source.end and source.begin < link.source.end
        ]
        if places:
            warning.target_begin = min(place.begin for place in places)
            warning.target_end = max(place.end for place in places)
