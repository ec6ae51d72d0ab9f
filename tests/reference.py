"""Decoding as naively as it can be written: one sentence, no batch, no cache, in torch.

Every option but terms is written down here a second time, from what it is said to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from tests.reading import Array, Reading, Words

from seqserve_model.transformer import Transformer
from seqserve_server.engine.request import DecodingOptions, Hypothesis, StopReason


class _Said(NamedTuple):
    """A word of a hypothesis; where it is forced, nothing else is known."""

    word: int
    log_probability: float = math.nan
    ranking: Sequence[tuple[int, float]] = ()


_Line = tuple[_Said, ...]


def _words(line: _Line) -> Words:
    return tuple(said.word for said in line)


def _score(line: _Line) -> float:
    return math.fsum(said.log_probability for said in line if not math.isnan(said.log_probability))


class Reference:
    """What a source ought to decode to."""

    def __init__(
        self,
        model: Transformer,
        source: list[int],
        options: DecodingOptions,
        text: Callable[[Sequence[int]], str] = str,
    ) -> None:
        """Decodes a source, which ends with the end token; stops are looked for in a text."""
        self._reading = Reading(model, source, options)
        self._options, self._text = options, text
        self.margin = math.inf
        """How near the nearest decision was; below rounding it may as well be the other way."""
        start = tuple(_Said(word) for word in options.prefix if not options.prefix_bias_beta)
        if options.return_alternatives:
            lines = self._alternatives(start)
            self.hypotheses = [self._best(self._ended(line, 1), 1)[0] for line in lines]
        else:
            count = options.num_hypotheses
            self.hypotheses = self._best(self._ended(start, count), count)

    @property
    def best(self) -> Hypothesis:
        """Gives the first of them."""
        return self.hypotheses[0]

    def _near(self, values: Iterable[float], border: float | None = None) -> None:
        """Takes in how near neighbours of a ranking are, or values to what decides on them."""
        finite = np.array([value for value in values if math.isfinite(value)])
        gaps = np.diff(finite) if border is None else finite - border
        self.margin = min([self.margin, *np.abs(gaps)])

    def _ending(self, line: _Line) -> tuple[StopReason, int, int | None] | None:
        """Tells why a line ends, how many words of it count, and how many characters of a text."""
        words = _words(line)
        if self._reading.ends.intersection(words[-1:]):
            return StopReason.EOS, len(words) - 1, None
        text = self._text(words)
        if places := [text.index(stop) for stop in self._options.stops if stop in text]:
            before = text[: min(places)]
            kept = [self._text(words[:n]).startswith(before) for n in range(len(words) + 1)]
            return StopReason.STOP_SEQUENCE, kept.index(True), len(before)
        is_full = len(words) == self._options.max_decoding_length
        return (StopReason.LENGTH, len(words), None) if is_full else None

    def _best(self, ended: list[_Line], count: int) -> list[Hypothesis]:
        found = [self._hypothesis(line) for line in ended]
        found.sort(key=lambda one: one.normalized_score or 0.0, reverse=True)
        # Equal ones are one and the same drawn twice.
        self._near(np.unique([one.normalized_score for one in found]))
        silent: dict[str, Any] = {"score": None, "normalized_score": None}
        told = {} if self._options.return_scores else silent
        return [one._replace(**told) for one in found[:count]]

    def _hypothesis(self, line: _Line) -> Hypothesis:
        ending, options = self._ending(line), self._options
        assert ending
        reason, kept, characters = ending
        told = line[: kept + (reason is StopReason.EOS)]
        rank = _score(line) / len(line) ** options.length_penalty
        if options.coverage_penalty:
            attended = self._reading.attention(_words(told)).sum(0)
            covered = np.minimum(attended[attended > 0], 1)
            rank += options.coverage_penalty * float(np.log(covered).sum())
        return Hypothesis(
            token_ids=list(_words(line[:kept])),
            score=_score(line),
            stop_reason=reason,
            normalized_score=rank,
            token_scores=[said.log_probability for said in told if options.return_token_scores],
            top_tokens=[list(said.ranking) for said in told if options.return_top_tokens],
            text_length=characters,
        )

    def _likeliest(self, found: Array, count: int) -> list[int]:
        order = np.argsort(-found, kind="stable")
        self._near(found[order[: count + 1]])
        return order[:count].tolist()  # type: ignore[no-any-return]

    def _longer(self, line: _Line, word: int, found: Array) -> _Line:
        listed = self._likeliest(found, self._options.return_top_tokens)
        ranking = [(best, float(found[best])) for best in listed]
        return (*line, _Said(word, float(found[word]), ranking))

    def _alternatives(self, start: _Line) -> list[_Line]:
        """Lets the best words come next that are probable enough; the first one always is."""
        found = self._reading.log_probabilities(_words(start))
        first, *others = self._likeliest(found, self._options.num_hypotheses)
        least, shares = self._options.min_alternative_expansion_prob, np.exp(found)
        self._near(shares[others], least)
        probable = [word for word in others if 0 < shares[word] >= least]
        return [self._longer(start, word, found) for word in (first, *probable)]

    def _ended(self, line: _Line, count: int) -> list[_Line]:
        if self._options.beam_size > 1:
            return self._beam(line, count)
        return [self._alone(line, number) for number in range(count)]

    def _alone(self, line: _Line, number: int) -> _Line:
        """Lets a hypothesis say the best word, or draw one with numbers of its own."""
        sampling = self._options.sampling
        random = np.random.default_rng([sampling.seed if sampling else 0, number])
        while not self._ending(line):
            found = self._reading.log_probabilities(_words(line))
            if sampling:
                word = self._drawn(found, random.random())
            else:
                [word] = self._likeliest(found, 1)
            line = self._longer(line, word, found)
        return line

    def _drawn(self, found: Array, number: float) -> int:
        """Finds the word on which a number from 0 to 1 falls, with all words laid in a row.

        The best one is first; the others are as in the vocabulary, unless their order matters.
        """
        sampling = self._options.sampling
        assert sampling
        order, is_ranked = np.argsort(-found, kind="stable"), sampling.top_k or sampling.top_p < 1
        # Words that are nearly alike may lie the other way round.
        ranked = found[order]
        if not is_ranked:
            order[1:].sort()
        weights = np.exp((found - found.max()) / sampling.temperature)
        words = order[: sampling.top_k or None]
        if sampling.top_p < 1:
            upto = weights[words].cumsum() / weights[words].sum()
            self._near(upto, sampling.top_p)
            words = words[: int((upto < sampling.top_p).sum()) + 1]
        if sampling.min_p:
            self._near(weights[words], sampling.min_p)
            words = words[weights[words] >= sampling.min_p]
        upto = weights[words].cumsum() / weights[words].sum()
        self._near(upto[:-1], number)
        place = int((upto[:-1] <= number).sum())
        self._near(ranked[max(place - 1, 0) : place + 2] if is_ranked else ranked[:2])
        return int(words[place])

    def _beam(self, line: _Line, count: int) -> list[_Line]:
        options, size = self._options, self._options.beam_size
        if self._ending(line):
            return [line]
        # Without a penalty no later hypothesis is better than the one that ends on top.
        penalized = options.length_penalty or options.coverage_penalty
        top_wins = options.patience == 1 and not penalized
        enough = count if top_wins else max(1, math.floor(size * options.patience + 0.5))
        lines, ended, top_ended = [line], list[_Line](), not top_wins
        while not (top_ended and len(ended) >= enough):
            longer = []
            for line in lines:
                found = self._reading.log_probabilities(_words(line))
                words = self._likeliest(found, 2 * size)
                longer += [self._longer(line, word, found) for word in words]
            longer.sort(key=_score, reverse=True)
            self._near([_score(line) for line in longer[: 2 * size + 1]])
            first, others = longer[:size], longer[size : 2 * size]
            ended += [line for line in first if self._ending(line)]
            top_ended |= self._ending(first[0]) is not None
            if len(first[0]) == options.max_decoding_length:
                break
            # Where no other is left, one that has ended goes on, as in CTranslate2.
            spare = iter([line for line in others if not self._ending(line)])
            lines = [next(spare, line) if self._ending(line) else line for line in first]
        return ended
