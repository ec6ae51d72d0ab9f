"""A second, naive decoder: one sentence, no batch, no cache, in torch.

It implements every option but terms from its description alone. A hypothesis is a tuple of tokens
and nothing else; scores and ends are computed from it again where they are needed.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from tests.reference_log_probs import Array, ReferenceLogProbs, TokenIds

from seqserve_server.contract.events import Finished, Hypothesis, StopReason, TopTokens
from seqserve_server.contract.options import Sampling


class Reference:
    """The expected answer to a request."""

    def __init__(
        self, log_probs: ReferenceLogProbs, text: Callable[[Sequence[int]], str] = str
    ) -> None:
        """Decodes one request.

        Args:
            log_probs: The probabilities of the request.
            text: Gives the text of tokens, in which stop sequences are searched.
        """
        self._log_probs, self._text = log_probs, text
        self._options = options = log_probs.options
        self.margin = math.inf
        """How close the closest decision was; rounding may turn one that is close enough."""
        is_one = not options.return_alternatives
        starts = [log_probs.forced] if is_one else self._alternatives(log_probs.forced)
        count = options.num_hypotheses if is_one else 1
        self.answer = Finished([best for start in starts for best in self._best(start, count)])

    def _near(self, values: Iterable[float], border: float | None = None) -> None:
        """Takes in a decision: values of a ranking, or values on both sides of a border."""
        finite = np.array([value for value in values if math.isfinite(value)])
        gaps = np.diff(finite) if border is None else finite - border
        self.margin = min([self.margin, *np.abs(gaps)])

    def _top(self, output: TokenIds, count: int) -> list[tuple[int, float]]:
        """Returns the most probable next tokens and their log-probabilities."""
        found = self._log_probs.log_probabilities(output)
        order = np.argsort(-found, kind="stable")
        self._near(found[order[: count + 1]])
        return [
            (int(token), float(found[token])) for token in order[:count] if found[token] > -np.inf
        ]

    def _end(self, output: TokenIds) -> tuple[StopReason, TokenIds, int | None] | None:
        """Returns why a hypothesis ends, its tokens that count, and the length of their text."""
        is_full = len(output) == self._options.max_decoding_length
        if is_full and self._options.force_end_token:
            return StopReason.LENGTH, output[:-1], None
        if self._log_probs.ends.intersection(output[-1:]):
            return StopReason.EOS, output, None
        text, begin = self._text(output), len(self._text(self._log_probs.forced))
        stops = [stop for stop in self._options.stops if stop in text[begin:]]
        if found := [text.index(stop, begin) for stop in stops]:
            before = text[: min(found)]
            is_enough = [self._text(output[:n]).startswith(before) for n in range(len(output) + 1)]
            return StopReason.STOP_SEQUENCE, output[: is_enough.index(True)], len(before)
        return (StopReason.LENGTH, output, None) if is_full else None

    def _hypothesis(self, output: TokenIds) -> Hypothesis:
        end, options, score = self._end(output), self._options, self._log_probs.score(output)
        assert end
        reason, tokens, text_length = end
        gain = options.coverage_penalty * self._log_probs.coverage(tokens)
        top, forced = options.return_top_tokens, len(self._log_probs.forced)
        listed = [
            TopTokens.of(self._top(tokens[:n], top)) for n in range(forced, len(tokens)) if top
        ]
        return Hypothesis(
            token_ids=list(tokens[: len(tokens) - (reason is StopReason.EOS)]),
            score=score,
            stop_reason=reason,
            normalized_score=score / len(output) ** options.length_penalty + gain,
            token_scores=self._log_probs.token_scores(tokens)
            if options.return_token_scores
            else (),
            top_tokens=[TopTokens.of() for _ in tokens[:forced] if top] + listed,
            text_length=text_length,
        )

    def _best(self, start: TokenIds, count: int) -> list[Hypothesis]:
        """Decodes after some tokens; gives ``count`` hypotheses, best first."""
        if self._options.beam_size > 1:
            ended = self._beam(start, count)
        else:
            ended = [self._single(start, index) for index in range(count)]
        found = sorted(map(self._hypothesis, ended), key=lambda one: -(one.normalized_score or 0))
        # Equal scores belong to one hypothesis that was sampled twice.
        self._near(np.unique([one.normalized_score for one in found]))
        if not self._options.return_scores:
            found = [one._replace(score=None, normalized_score=None) for one in found]
        return found[:count]

    def _alternatives(self, prefix: TokenIds) -> list[TokenIds]:
        """Returns the starts of the alternatives: the best token, and others probable enough."""
        (first, _), *others = self._top(prefix, self._options.num_hypotheses)
        minimum = self._options.min_alternative_expansion_prob
        shares = {token: math.exp(found) for token, found in others}
        self._near(shares.values(), minimum)
        probable = [token for token, share in shares.items() if 0 < share >= minimum]
        return [(*prefix, token) for token in (first, *probable)]

    def _single(self, output: TokenIds, index: int) -> TokenIds:
        """Decodes greedily, or samples with the random numbers of the sample."""
        sampling = self._options.sampling
        random = np.random.default_rng([sampling.seed if sampling else 0, index])
        while not self._end(output):
            if sampling:
                found = self._log_probs.log_probabilities(output)
                token = sample(found, sampling, random.random(), self._near)
            else:
                [(token, _)] = self._top(output, 1)
            output = (*output, token)
        return output

    def _is_hopeless(self, beams: list[TokenIds], ended: list[TokenIds], enough: int) -> bool:
        """Returns whether no beam is expected to rank above the last of those that are enough."""
        options, score, length = self._options, self._log_probs.score, len(beams[0])
        if len(ended) < enough:
            return False
        ranked = sorted(score(each) / len(each) ** options.length_penalty for each in ended)
        if options.early_stopping == "never" and options.length_penalty > 0:
            length = options.max_decoding_length
        hope = max(map(score, beams)) / length**options.length_penalty
        self._near([hope], ranked[-enough])
        return hope <= ranked[-enough]

    def _beam(self, start: TokenIds, count: int) -> list[TokenIds]:
        options, score = self._options, self._log_probs.score
        size, width = options.beam_size, 2 * options.beam_size
        if self._end(start):
            return [start]
        rule = options.early_stopping
        persists = rule in ("false", "never") and not options.coverage_penalty
        # Without a penalty no later hypothesis is better than the first one that ends on top.
        penalties = options.length_penalty or options.coverage_penalty
        waits = bool(rule or options.patience != 1 or penalties)
        enough = max(1, math.floor(size * options.patience + 0.5)) if waits else count
        beams, ended, top_ended = [start], list[TokenIds](), waits
        while persists or not (top_ended and len(ended) >= enough):
            longer = [(*beam, token) for beam in beams for token, _ in self._top(beam, width)]
            longer.sort(key=score, reverse=True)
            self._near(score(beam) for beam in longer[: width + 1])
            first, others = longer[:size], longer[size:width]
            ended += [beam for beam in first if self._end(beam)]
            top_ended |= self._end(first[0]) is not None
            if len(first[0]) == options.max_decoding_length:
                break
            spare = [beam for beam in others if not self._end(beam)]
            # An ended beam is not replaced where fewer continuations are possible than looked at.
            # Where all have ended, the ended ones stay, as in CTranslate2, not in transformers.
            spares = iter([*spare, *[()] * (width - len(longer))])
            beams = [next(spares, beam) if self._end(beam) else beam for beam in first]
            beams = [beam for beam in beams if beam and not (rule and self._end(beam))]
            if not beams or (persists and self._is_hopeless(beams, ended, enough)):
                break
        return ended


def sample(found: Array, sampling: Sampling, number: float, near: Callable[..., None]) -> int:
    """Finds the token on which a random number falls; each option by its formula.

    Tokens follow each other in the order of the vocabulary, or by probability where top k or top p
    needs that order.

    Args:
        found: Log-probabilities of all tokens.
        sampling: The options.
        number: A random number in [0, 1).
        near: Called with the values that decide, and with the border between them.
    """
    is_ranked = sampling.top_k or sampling.top_p < 1
    order = np.argsort(-found, kind="stable") if is_ranked else np.arange(len(found))
    weights = np.exp((found[order] - found.max()) / sampling.temperature)
    weights[sampling.top_k or len(order) :] = 0
    if sampling.top_p < 1:
        before = (weights.cumsum() - weights) / weights.sum()
        near(before, sampling.top_p)
        weights[before >= sampling.top_p] = 0
    if sampling.min_p:
        near(weights, sampling.min_p)
        weights[weights < sampling.min_p] = 0
    cumulative = weights.cumsum() / weights.sum()
    near(cumulative, number)
    index = int((cumulative <= number).sum())
    if is_ranked:
        # Tokens of nearly the same probability may come in the other order.
        near(found[order[max(index - 1, 0) : index + 2]])
    return int(order[index])
