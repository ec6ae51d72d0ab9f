"""Scores given targets and computes attention, in a thread next to the workers.

Running rows do not wait: the operating system shares the cores between this thread and the
workers. Targets that wait to be scored run together; the scores of one do not depend on the others.
"""

import logging
import math
import time
from typing import NamedTuple

import numpy as np

from seqserve_server.contract.errors import DeadlinePassed, EngineFault, Stage
from seqserve_server.contract.events import Failed, Finished, StopReason, TargetScored
from seqserve_server.contract.request import ScoreSpec
from seqserve_server.engine.decoding.hypotheses import ranked_by_coverage
from seqserve_server.engine.packing import Array
from seqserve_server.engine.queue.score_queue import ScoreQueue
from seqserve_server.engine.request import Events, Request
from seqserve_server.engine.runtime import Runtime

_SCORES = "log_probabilities"
_WEIGHTS = ["encoder_attention", "decoder_attention", "cross_attention"]
# Padding shows in the last bits of a sum, so only pairs that are padded to the same lengths run
# together; these lengths are multiples of this.
_LENGTH_STEP = 8
# The graph computes the logits of every target token, and arrays of that size two or three times.
_MAX_LOGITS_BYTES = 8 << 20
# Idle for so long, it gives back the memory of its runs: many megabytes, beside some milliseconds
# that the next long target then takes longer.
_KEEP_S = 1.0

_log = logging.getLogger(__name__)


class Pair(NamedTuple):
    """A source and its target, as token ids."""

    source: list[int]
    target: list[int]
    start_token: int | None = None
    """The token that the decoder reads first; None for that of the model."""


class Scorer:
    """Runs the forced-decoding graph on sources and their targets."""

    def __init__(self, runtime: Runtime, queue: ScoreQueue, *, idle_s: float = 0.1) -> None:
        self._runtime = runtime
        self._queue = queue
        self._idle_s = idle_s
        # When it ran last; None where it has no scratch memory.
        self._ran_s: float | None = None
        limits = runtime.manifest.limits
        self._max_source = limits.max_source_length
        # The end token is scored too.
        self._max_target = limits.max_target_length + 1
        self._vocabulary_size = runtime.manifest.architecture.vocabulary_size

    def warm_up(self) -> None:
        """Runs the graph once, on a target of one token, and frees its memory."""
        end = [self._runtime.manifest.tokens.eos]
        self._run([Pair(end, end)], [_SCORES, *_WEIGHTS])
        self._rest(math.inf)

    def step(self) -> Events:
        """Waits for the next requests and runs them; returns their events."""
        requests = self._queue.take(self._idle_s)
        now_s = time.monotonic()
        if not requests:
            self._rest(now_s)
        events: Events = []
        timely = []
        for request in requests:
            if request.spec.deadline_s is None or request.spec.deadline_s > now_s:
                timely.append(request)
            else:
                stage = Stage.QUEUE if request.answer is None else Stage.DECODE
                events.append((request, Failed(DeadlinePassed(stage))))
        if timely:
            events += self._score(timely)
        self._queue.finish(events)
        return events

    def _rest(self, now_s: float) -> None:
        """Frees scratch memory some time after the last run."""
        if self._ran_s is not None and now_s >= self._ran_s + _KEEP_S:
            self._ran_s = None
            self._runtime.free_scratch()

    def _score(self, requests: list[Request]) -> Events:
        """Runs requests together; after a fault one by one, so that only the faulty one fails."""
        began_s = time.monotonic()
        try:
            events = self._events_of(requests)
        except Exception:
            if len(requests) > 1:
                return [event for request in requests for event in self._score([request])]
            [request] = requests
            _log.exception("request %s: a target could not be run", request.spec.call_id)
            return [(request, Failed(EngineFault("a target could not be run")))]
        for request in requests:
            timeline = request.timeline
            timeline.encode_began_s, timeline.finished_s = began_s, time.monotonic()
        return events

    def _events_of(self, requests: list[Request]) -> Events:
        [first, *_] = requests
        if first.answer is not None:
            return [(first, self._with_attention(first, first.answer))]
        specs = [request.spec for request in requests if isinstance(request.spec, ScoreSpec)]
        names = [_SCORES, *_WEIGHTS] if specs[0].wants_attention else [_SCORES]
        outputs = self._run(
            [Pair(spec.source, spec.target, spec.start_token) for spec in specs], names
        )
        return [
            (request, TargetScored(scores.tolist(), [array.tobytes() for array in weights]))
            for request, (scores, *weights) in zip(requests, outputs, strict=True)
        ]

    def _with_attention(self, request: Request, answer: Finished) -> Finished:
        """Adds the attention of each hypothesis, or ranks by coverage, according to the options."""
        options = request.options
        pairs = list(zip(answer.hypotheses, self._attention(request, answer), strict=True))
        if options.coverage_penalty:
            pairs = ranked_by_coverage(pairs, options)
        hypotheses = [hypothesis for hypothesis, _ in pairs]
        if options.return_attention:
            hypotheses = [
                each._replace(attention=weights[: len(each.token_ids)].tobytes())
                for each, weights in pairs
            ]
        return Finished(hypotheses)

    def _attention(self, request: Request, answer: Finished) -> list[Array]:
        """Computes the attention to the source, ``[T, S]``, the mean of the last layer's heads."""
        eos = self._runtime.manifest.tokens.eos
        # The attention of a step does not depend on the token that it chooses.
        targets = [
            [*each.token_ids, *([eos] if each.stop_reason is StopReason.EOS else [])]
            for each in answer.hypotheses
        ]
        spec = request.spec
        pairs = [Pair(spec.source, target, spec.start_token) for target in targets]
        return [weights[-1].mean(0) for [weights] in self._run(pairs, _WEIGHTS[-1:])]

    def _run(self, pairs: list[Pair], names: list[str]) -> list[list[Array]]:
        """Computes the outputs ``names`` of each pair, without padding."""
        by_shape: dict[tuple[int, int], list[int]] = {}
        for index, pair in enumerate(pairs):
            lengths = (
                _padded_length(pair.source, self._max_source),
                _padded_length(pair.target, self._max_target),
            )
            by_shape.setdefault(lengths, []).append(index)
        by_pair: dict[int, list[Array]] = {}
        for shape, indexes in by_shape.items():
            # The logits of one run stay within bounds, but a pair is not split.
            logits_bytes = 4 * self._vocabulary_size * (shape[1] + 1)
            size = max(1, _MAX_LOGITS_BYTES // logits_bytes)
            for begin in range(0, len(indexes), size):
                group = indexes[begin : begin + size]
                outputs = self._run_padded([pairs[index] for index in group], shape, names)
                by_pair.update(zip(group, outputs, strict=True))
        self._ran_s = time.monotonic()
        return [by_pair[index] for index in range(len(pairs))]

    def _run_padded(
        self, pairs: list[Pair], shape: tuple[int, int], names: list[str]
    ) -> list[list[Array]]:
        bos = self._runtime.manifest.tokens.bos
        sources = _padded([pair.source for pair in pairs], shape[0])
        starts = [bos if pair.start_token is None else pair.start_token for pair in pairs]
        read = [[start, *pair.target] for start, pair in zip(starts, pairs, strict=True)]
        targets = _padded(read, shape[1] + 1)
        lengths = np.array([len(pair.source) for pair in pairs], np.int32)
        outputs = self._runtime.score(sources, lengths, targets, names)
        return [
            [
                _cut(name, array, index, len(pair.source), len(pair.target))
                for name, array in zip(names, outputs, strict=True)
            ]
            for index, pair in enumerate(pairs)
        ]


def _padded_length(token_ids: list[int], max_length: int) -> int:
    return min(-(-max(len(token_ids), 1) // _LENGTH_STEP) * _LENGTH_STEP, max_length)


def _padded(rows: list[list[int]], length: int) -> Array:
    """Pads rows to one length, int64 ``[B, length]``."""
    array = np.zeros((len(rows), length), np.int64)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array


def _cut(name: str, array: Array, index: int, source: int, target: int) -> Array:
    if name == _SCORES:
        return array[index, :target]
    queries = source if name == "encoder_attention" else target
    keys = target if name == "decoder_attention" else source
    return array[:, index, :, :queries, :keys]
