"""Known targets, run through the scorer-forced graph in a thread of their own.

Running rows are not held up: the operating system shares the cores between this and the workers.
Targets that wait to be scored run together; what is beside one has no part in its scores.
"""

from __future__ import annotations

import logging
import time

import numpy as np

from seqserve_server.contract.errors import DeadlinePassed, EngineFault, Stage
from seqserve_server.contract.events import Event, Failed, Finished, StopReason, TargetScored
from seqserve_server.contract.request import Events, Request
from seqserve_server.engine.decoding.coverage import covering
from seqserve_server.engine.packing import Array
from seqserve_server.engine.queue.score_queue import Entry, ScoreQueue
from seqserve_server.engine.runtime import Runtime

Pair = tuple[list[int], list[int]]
"""Source and target."""

_SCORES = "log_probabilities"
_WEIGHTS = ["encoder_attention", "decoder_attention", "cross_attention"]
# How often an idle thread shows that it does not hang.
_IDLE_S = 0.1
# Padding shows in the last bits of a sum, so only what is padded to the same lengths goes together;
# these are multiples of this.
_LENGTHS_APART = 8

_log = logging.getLogger(__name__)


class Scorer:
    """Scores targets, and finds what they and answers attended to."""

    def __init__(self, runtime: Runtime, waiting: ScoreQueue) -> None:
        """Begins idle.

        Args:
            runtime: The model.
            waiting: Where targets and answers wait.
        """
        self._runtime = runtime
        self._waiting = waiting
        limits = runtime.manifest.limits
        self._most_source = limits.max_source_length
        # The end token is scored too.
        self._most_target = limits.max_target_length + 1

    def warm_up(self) -> None:
        """Runs the graph once, on a target of one token."""
        end = [self._runtime.manifest.tokens.eos]
        self._run([(end, end)], [_SCORES, *_WEIGHTS])

    def turn(self) -> Events:
        """Waits for what is next and runs it; gives what there is to tell."""
        entries = self._waiting.take(_IDLE_S)
        late = [(request, _late(request, answer)) for request, answer in entries]
        events: Events = [(request, event) for request, event in late if event is not None]
        ended = {request for request, _ in events}
        timely = [entry for entry in entries if entry[0] not in ended]
        if timely:
            events += self._teach(timely)
        self._waiting.finish(events)
        return events

    def _teach(self, entries: list[Entry]) -> Events:
        """Runs entries together; where that fails one by one, so that only the culprit does."""
        began_s = time.monotonic()
        try:
            events = self._taught(entries)
        except Exception:
            if len(entries) > 1:
                return [told for entry in entries for told in self._teach([entry])]
            [(request, _)] = entries
            _log.exception("request %s: a target could not be run", request.call_id)
            return [(request, Failed(EngineFault("a target could not be run")))]
        for request, event in events:
            if isinstance(event, TargetScored):
                timeline = request.timeline
                timeline.encode_began_s, timeline.finished_s = began_s, time.monotonic()
        return events

    def _taught(self, entries: list[Entry]) -> Events:
        request, answer = entries[0]
        if answer is not None:
            return [(request, self._annotated(request, answer))]
        names = [_SCORES, *_WEIGHTS] if request.wants_attention else [_SCORES]
        requests = [request for request, _ in entries]
        found = self._run([(request.source, request.target or []) for request in requests], names)
        return [
            (request, TargetScored(scores.tolist(), [array.tobytes() for array in weights]))
            for request, (scores, *weights) in zip(requests, found, strict=True)
        ]

    def _annotated(self, request: Request, answer: Finished) -> Finished:
        """Adds what was attended to, or ranks by it, as is asked for."""
        options = request.options
        seen = list(zip(answer.hypotheses, self._attention(request, answer), strict=True))
        if options.coverage_penalty:
            seen = covering(seen, options)
        hypotheses = [hypothesis for hypothesis, _ in seen]
        if options.return_attention:
            hypotheses = [
                each._replace(attention=weights[: len(each.token_ids)].tobytes())
                for each, weights in seen
            ]
        return Finished(hypotheses)

    def _attention(self, request: Request, answer: Finished) -> list[Array]:
        """Gives the attention to the source, the mean over the last layer's heads.

        Returns:
            For each hypothesis that of its tokens, and of the end token where it was generated,
            float32 ``[T, S]``.
        """
        eos = self._runtime.manifest.tokens.eos
        # What a step attends to does not depend on the token that it chooses.
        targets = [
            [*each.token_ids, *([eos] if each.stop_reason is StopReason.EOS else [])]
            for each in answer.hypotheses
        ]
        found = self._run([(request.source, target) for target in targets], _WEIGHTS[-1:])
        return [weights[-1].mean(0) for [weights] in found]

    def _run(self, pairs: list[Pair], names: list[str]) -> list[list[Array]]:
        """Gives what the graph says of each pair, without its padding."""
        by_shape: dict[tuple[int, int], list[int]] = {}
        for number, (source, target) in enumerate(pairs):
            shape = _room(source, self._most_source), _room(target, self._most_target)
            by_shape.setdefault(shape, []).append(number)
        found: dict[int, list[Array]] = {}
        for shape, numbers in by_shape.items():
            together = self._run_padded([pairs[number] for number in numbers], shape, names)
            found.update(zip(numbers, together, strict=True))
        return [found[number] for number in range(len(pairs))]

    def _run_padded(
        self, pairs: list[Pair], shape: tuple[int, int], names: list[str]
    ) -> list[list[Array]]:
        bos = self._runtime.manifest.tokens.bos
        sources = _padded([source for source, _ in pairs], shape[0])
        targets = _padded([[bos, *target] for _, target in pairs], shape[1] + 1)
        lengths = np.array([len(source) for source, _ in pairs], np.int32)
        outputs = self._runtime.teach(sources, lengths, targets, names)
        return [
            [
                _part(name, array, index, len(source), len(target))
                for name, array in zip(names, outputs, strict=True)
            ]
            for index, (source, target) in enumerate(pairs)
        ]


def _late(request: Request, answer: Finished | None) -> Event | None:
    """Gives what a request is told whose deadline has passed; None to any other."""
    if request.deadline_s is None or request.deadline_s > time.monotonic():
        return None
    return Failed(DeadlinePassed(Stage.QUEUE if answer is None else Stage.DECODE))


def _room(words: list[int], most: int) -> int:
    """Gives the length that words are padded to."""
    return min(-(-max(len(words), 1) // _LENGTHS_APART) * _LENGTHS_APART, most)


def _padded(rows: list[list[int]], length: int) -> Array:
    """Lays rows out, int64 ``[B, length]``."""
    array = np.zeros((len(rows), length), np.int64)
    for place, row in enumerate(rows):
        array[place, : len(row)] = row
    return array


def _part(name: str, array: Array, index: int, source: int, target: int) -> Array:
    """Cuts what belongs to one pair out of an output of the graph."""
    if name == _SCORES:
        return array[index, :target]
    queries = source if name == "encoder_attention" else target
    keys = target if name == "decoder_attention" else source
    return array[:, index, :, :queries, :keys]
