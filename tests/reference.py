"""Decoding as naively as it can be written: one sentence, no batch, no cache, in torch.

Every option is written down here a second time, from what it is said to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from seqserve_model.transformer import Transformer
from seqserve_server.engine.request import DecodingOptions, Hypothesis, StopReason

Array = NDArray[np.float64]
Detokenize = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a source ought to decode to."""

    hypotheses: list[Hypothesis]
    margin: float
    """How near the nearest decision was; below rounding it may as well be the other way."""

    @property
    def token_ids(self) -> list[int]:
        return self.hypotheses[0].token_ids

    @property
    def score(self) -> float | None:
        return self.hypotheses[0].score

    @property
    def stop_reason(self) -> StopReason:
        return self.hypotheses[0].stop_reason


def decode(
    model: Transformer,
    source: list[int],
    options: DecodingOptions,
    detokenize: Detokenize = str,
) -> Reference:
    """Decodes a source.

    Args:
        model: The model.
        source: Token ids, the end token last.
        options: How to decode.
        detokenize: Gives the text in which stop sequences are looked for.
    """
    decoder = _Decoder(model, source, options, detokenize)
    if options.beam_size > 1:
        ended = decoder.beam()
    else:
        ended = [decoder.alone(number) for number in range(options.num_hypotheses)]
    ended.sort(key=lambda line: -decoder.rank(line))
    # Equal ones are one and the same drawn twice.
    decoder.note(np.unique([decoder.rank(line) for line in ended]))
    hypotheses = [decoder.hypothesis(line) for line in ended[: options.num_hypotheses]]
    return Reference(hypotheses=hypotheses, margin=decoder.margin)


@dataclass(frozen=True, slots=True)
class _Line:
    """Words said so far; those of a prefix have no log-probability and nothing beside them."""

    words: tuple[int, ...] = ()
    log_probabilities: tuple[float, ...] = ()
    rankings: tuple[list[tuple[int, float]], ...] = ()

    @property
    def score(self) -> float:
        return math.fsum(value for value in self.log_probabilities if not math.isnan(value))

    def plus(self, word: int, found: float, ranking: list[tuple[int, float]]) -> _Line:
        more = (*self.log_probabilities, found)
        return _Line((*self.words, word), more, (*self.rankings, ranking))


class _Decoder:
    def __init__(
        self,
        model: Transformer,
        source: list[int],
        options: DecodingOptions,
        detokenize: Detokenize,
    ) -> None:
        self.model, self.source, self.options = model, source, options
        self.detokenize = detokenize
        self.ends = set(options.end_ids or [model.config.eos_id])
        self.margin = math.inf

    def note(self, values: Sequence[float] | Array) -> None:
        """Takes in how near neighbours of a ranking are."""
        finite = np.array([value for value in values if math.isfinite(value)])
        self.margin = min([self.margin, *np.abs(np.diff(finite))])

    @torch.inference_mode()
    def log_probabilities(self, words: tuple[int, ...]) -> Array:
        """Reads the whole target again for every word."""
        target = torch.tensor([[self.model.config.bos_id, *words]])
        length = torch.tensor([len(self.source)])
        read = self.model(torch.tensor([self.source]), length, target)
        scores: Array = read[0, -1].double().numpy()
        for word in set(words):
            penalty = self.options.repetition_penalty
            scores[word] *= penalty if scores[word] < 0 else 1 / penalty
        scores[self.banned(words)] = -np.inf
        scores -= scores.max()
        return scores - np.log(np.exp(scores).sum())

    def banned(self, words: tuple[int, ...]) -> list[int]:
        never, size = list(self.options.suppressed), self.options.no_repeat_ngram_size
        if len(words) < self.options.min_decoding_length:
            never += [(end,) for end in self.ends]
        if size:
            never += [words[place : place + size] for place in range(len(words) - size + 1)]
        return [last for *before, last in never if [*words[len(words) - len(before) :]] == before]

    def ending(self, words: tuple[int, ...]) -> tuple[StopReason, int, int | None] | None:
        """Tells why words end, how many of them count, and how many characters of a text."""
        if words[-1] in self.ends:
            return StopReason.EOS, len(words) - 1, None
        text = self.detokenize(words)
        if places := [text.index(stop) for stop in self.options.stops if stop in text]:
            before = text[: min(places)]
            kept = [self.detokenize(words[:n]).startswith(before) for n in range(len(words) + 1)]
            return StopReason.STOP_SEQUENCE, kept.index(True), len(before)
        is_full = len(words) == self.options.max_decoding_length
        return (StopReason.LENGTH, len(words), None) if is_full else None

    def rank(self, line: _Line) -> float:
        return line.score / len(line.words) ** self.options.length_penalty

    def hypothesis(self, line: _Line) -> Hypothesis:
        ending, options = self.ending(line.words), self.options
        assert ending
        reason, kept, characters = ending
        told = kept + (reason is StopReason.EOS)
        return Hypothesis(
            token_ids=list(line.words[:kept]),
            score=line.score if options.return_scores else None,
            stop_reason=reason,
            normalized_score=self.rank(line) if options.return_scores else None,
            token_scores=line.log_probabilities[:told] if options.return_token_scores else (),
            top_tokens=line.rankings[:told] if options.return_top_tokens else (),
            text_length=characters,
        )

    def start(self) -> _Line:
        prefix = self.options.prefix
        return _Line(prefix, (math.nan,) * len(prefix), ([],) * len(prefix))

    def ranking(self, found: Array) -> list[tuple[int, float]]:
        best = np.argsort(-found, kind="stable")[: self.options.return_top_tokens + 1]
        self.note(found[best])
        return [(int(word), float(found[word])) for word in best[:-1]]

    def alone(self, number: int) -> _Line:
        """Lets one hypothesis say the best word, or draw one with numbers of its own."""
        sampling, line = self.options.sampling, self.start()
        random = np.random.default_rng([sampling.seed if sampling else 0, number])
        while True:
            found = self.log_probabilities(line.words)
            if sampling:
                word = self.drawn(found, random.random())
            else:
                word = int(found.argmax())
                self.note(np.sort(found)[-2:])
            line = line.plus(word, float(found[word]), self.ranking(found))
            if self.ending(line.words):
                return line

    def drawn(self, found: Array, number: float) -> int:
        """Finds the word on which a number from 0 to 1 falls, with all words laid in a row.

        They lie as in the vocabulary, or best first where it matters which ones are the best.
        """
        sampling = self.options.sampling
        assert sampling
        weights = np.exp((found - found.max()) / sampling.temperature)
        sorts = sampling.top_k > 0 or sampling.top_p < 1
        order = np.argsort(-weights, kind="stable") if sorts else np.arange(len(weights))
        words = order[: sampling.top_k or None]
        if sampling.top_p < 1:
            upto = weights[words].cumsum() / weights[words].sum()
            self.margin = min([self.margin, *np.abs(upto - sampling.top_p)])
            words = words[: int((upto < sampling.top_p).sum()) + 1]
        if sampling.min_p:
            self.margin = min([self.margin, *np.abs(weights[words] - sampling.min_p)])
            words = words[weights[words] >= sampling.min_p]
        upto = weights[words].cumsum() / weights[words].sum()
        self.margin = min([self.margin, *np.abs(upto[:-1] - number)])
        place = int((upto[:-1] <= number).sum())
        if sorts:
            self.note(found[order[max(place - 1, 0) : place + 2]])
        return int(words[place])

    def beam(self) -> list[_Line]:
        options, size = self.options, self.options.beam_size
        lines, ended = [self.start()], list[_Line]()
        # Where nothing speaks for length, none that ends later is better than the best.
        first_wins = (options.length_penalty, options.patience, options.num_hypotheses) == (0, 1, 1)
        while True:
            longer = []
            for line in lines:
                found = self.log_probabilities(line.words)
                ranking = self.ranking(found)
                best = np.argsort(-found, kind="stable")[: 2 * size + 1].tolist()
                longer += [line.plus(word, float(found[word]), ranking) for word in best]
            longer.sort(key=lambda line: -line.score)
            self.note([line.score for line in longer[: 2 * size + 1]])
            first, others = longer[:size], iter(longer[size : 2 * size])
            going_on = (line for line in others if not self.ending(line.words))
            ends = [self.ending(line.words) is not None for line in first]
            ended += [line for line, is_end in zip(first, ends, strict=True) if is_end]
            # Where no other is left, one that has ended goes on, as in CTranslate2.
            lines = [
                next(going_on, line) if is_end else line
                for line, is_end in zip(first, ends, strict=True)
            ]
            enough = len(ended) >= math.floor(size * options.patience + 0.5)
            if first_wins:
                enough = ends[0]
            if enough or len(first[0].words) == options.max_decoding_length:
                return ended
