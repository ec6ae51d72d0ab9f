"""Decoding as naively as it can be written: one sentence, no batch, no cache, in torch.

Every option but terms is written down here a second time, from what it is said to do. A line is the
words of a hypothesis and nothing else: what else is to be known of it is found again from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from tests.drawing import drawn
from tests.reading import Reading, Words

from seqserve_server.contract.events import Finished, Hypothesis, StopReason


class Reference:
    """What a source ought to decode to."""

    def __init__(self, reading: Reading, text: Callable[[Sequence[int]], str] = str) -> None:
        """Decodes what is read; stop sequences are looked for in a text."""
        self._reading, self._text = reading, text
        self._options = options = reading.options
        self.margin = math.inf
        """How near the nearest decision was; below rounding it may as well be the other way."""
        is_one = not options.return_alternatives
        starts = [reading.forced] if is_one else self._alternatives(reading.forced)
        count = options.num_hypotheses if is_one else 1
        self.answer = Finished([best for line in starts for best in self._best(line, count)])

    def _near(self, values: Iterable[float], border: float | None = None) -> None:
        """Takes in how near neighbours of a ranking are, or values to what decides on them."""
        finite = np.array([value for value in values if math.isfinite(value)])
        gaps = np.diff(finite) if border is None else finite - border
        self.margin = min([self.margin, *np.abs(gaps)])

    def _likeliest(self, line: Words, count: int) -> list[tuple[int, float]]:
        found = self._reading.log_probabilities(line)
        order = np.argsort(-found, kind="stable")
        self._near(found[order[: count + 1]])
        return [(int(word), float(found[word])) for word in order[:count] if found[word] > -np.inf]

    def _ending(self, line: Words) -> tuple[StopReason, Words, int | None] | None:
        """Tells why a line ends, which words of it were chosen, and how long their text is."""
        if self._reading.ends.intersection(line[-1:]):
            return StopReason.EOS, line, None
        text, begin = self._text(line), len(self._text(self._reading.forced))
        stops = [stop for stop in self._options.stops if stop in text[begin:]]
        if places := [text.index(stop, begin) for stop in stops]:
            before = text[: min(places)]
            is_enough = [self._text(line[:n]).startswith(before) for n in range(len(line) + 1)]
            return StopReason.STOP_SEQUENCE, line[: is_enough.index(True)], len(before)
        is_full = len(line) == self._options.max_decoding_length
        return (StopReason.LENGTH, line, None) if is_full else None

    def _hypothesis(self, line: Words) -> Hypothesis:
        ending, options, score = self._ending(line), self._options, self._reading.score(line)
        assert ending
        reason, chosen, characters = ending
        gain = options.coverage_penalty * self._reading.coverage(chosen)
        top, begin = options.return_top_tokens, len(self._reading.forced)
        ranked = [self._likeliest(chosen[:n], top) for n in range(begin, len(chosen)) if top]
        return Hypothesis(
            token_ids=list(chosen[: len(chosen) - (reason is StopReason.EOS)]),
            score=score,
            stop_reason=reason,
            normalized_score=score / len(line) ** options.length_penalty + gain,
            token_scores=self._reading.scores(chosen) if options.return_token_scores else (),
            top_tokens=[[] for _ in chosen[:begin] if top] + ranked,
            text_length=characters,
        )

    def _best(self, line: Words, count: int) -> list[Hypothesis]:
        """Lets a line go on until there are as many hypotheses; gives them, best first."""
        if self._options.beam_size > 1:
            ended = self._beam(line, count)
        else:
            ended = [self._alone(line, number) for number in range(count)]
        found = sorted(map(self._hypothesis, ended), key=lambda one: -(one.normalized_score or 0))
        # Equal ones are one and the same drawn twice.
        self._near(np.unique([one.normalized_score for one in found]))
        if not self._options.return_scores:
            found = [one._replace(score=None, normalized_score=None) for one in found]
        return found[:count]

    def _alternatives(self, line: Words) -> list[Words]:
        """Lets the best words come next that are probable enough; the first one always is."""
        (first, _), *others = self._likeliest(line, self._options.num_hypotheses)
        least = self._options.min_alternative_expansion_prob
        shares = {word: math.exp(found) for word, found in others}
        self._near(shares.values(), least)
        return [(*line, first), *((*line, word) for word in shares if 0 < shares[word] >= least)]

    def _alone(self, line: Words, number: int) -> Words:
        """Lets a hypothesis say the best word, or draw one with numbers of its own."""
        sampling = self._options.sampling
        random = np.random.default_rng([sampling.seed if sampling else 0, number])
        while not self._ending(line):
            if sampling:
                found = self._reading.log_probabilities(line)
                word = drawn(found, sampling, random.random(), self._near)
            else:
                [(word, _)] = self._likeliest(line, 1)
            line = (*line, word)
        return line

    def _beam(self, line: Words, count: int) -> list[Words]:
        options, score = self._options, self._reading.score
        size, most = options.beam_size, 2 * options.beam_size
        if self._ending(line):
            return [line]
        # Without a penalty no later hypothesis is better than the one that ends on top.
        goes_on = bool(options.patience != 1 or options.length_penalty or options.coverage_penalty)
        enough = max(1, math.floor(size * options.patience + 0.5)) if goes_on else count
        lines, ended, top_ended = [line], list[Words](), goes_on
        while not (top_ended and len(ended) >= enough):
            longer = [(*line, word) for line in lines for word, _ in self._likeliest(line, most)]
            longer.sort(key=score, reverse=True)
            self._near(score(line) for line in longer[: most + 1])
            first, others = longer[:size], longer[size:most]
            ended += [line for line in first if self._ending(line)]
            top_ended |= self._ending(first[0]) is not None
            if len(first[0]) == options.max_decoding_length:
                break
            spare = [line for line in others if not self._ending(line)]
            # Nothing takes the place of one that has ended, where fewer are possible than looked
            # at. Where all have ended, it goes on, as in CTranslate2.
            spares = iter([*spare, *[()] * (most - len(longer))])
            lines = [next(spares, line) if self._ending(line) else line for line in first]
            lines = [line for line in lines if line]
            if not lines:
                break
        return ended
