"""Known targets, run through the teacher-forced graph in a thread of their own.

Running rows are not held up: the operating system shares the cores between this and the workers.
Targets that wait to be scored run together; what is beside one has no part in its scores.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from seqserve_server.engine.cache import Array
from seqserve_server.engine.coverage import covering
from seqserve_server.engine.request import (
    Event,
    Failed,
    Finished,
    Request,
    StopReason,
    Taught,
)
from seqserve_server.errors import DeadlinePassed, Draining, EngineFault, QueueFull, Stage
from seqserve_server.runtime import Runtime

Tell = Callable[[Request, Event], None]
Entry = tuple[Request, Finished | None]
"""A request with a target, or one with its answer, whose attention is wanted."""
Pair = tuple[list[int], list[int]]
"""Source and target."""

_SCORES = "log_probabilities"
_WEIGHTS = ["encoder_attention", "decoder_attention", "cross_attention"]
_RETRY_S = 0.5
# How often an idle thread shows that it does not hang.
_IDLE_S = 0.1
_MOST_TOGETHER = 16
# Padding shows in the last bits of a sum, so only what is padded to the same lengths goes together;
# these are multiples of this.
_LENGTHS_APART = 8

_log = logging.getLogger(__name__)


class Teacher:
    """Takes requests with a target, and answers of others that are to show their attention."""

    def __init__(self, runtime: Runtime, max_queue: int, tell: Tell) -> None:
        """Begins idle.

        Args:
            runtime: The model.
            max_queue: Most requests that wait.
            tell: Told of the last event of each, from the teacher's thread.
        """
        self._runtime = runtime
        limits = runtime.manifest.limits
        self._most_source = limits.max_source_length
        # The end token is scored too.
        self._most_target = limits.max_target_length + 1
        self._max_queue = max_queue
        self._tell = tell
        self._waiting: deque[Entry] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self.beats = 0
        """How often its thread has looked for something to do; one that hangs does not."""
        self._thread = threading.Thread(target=self._work, name="teacher", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Takes a request with a target.

        Raises:
            QueueFull: There is no room to wait.
            Draining: The teacher was stopped.
        """
        with self._changed:
            if self._stopped:
                raise Draining("the server is shutting down; call another one")
            if len(self._waiting) >= self._max_queue:
                raise QueueFull(f"{len(self._waiting)} targets are waiting already", _RETRY_S)
            self._waiting.append((request, None))
            self._changed.notify()

    def annotate(self, request: Request, answer: Finished) -> None:
        """Takes an answer, and tells it once its attention is known."""
        with self._changed:
            self._waiting.append((request, answer))
            self._changed.notify()

    def cancel(self, request: Request) -> bool:
        """Forgets a request that waits; False where it does not."""
        with self._changed:
            left = [entry for entry in self._waiting if entry[0] is not request]
            found = len(left) < len(self._waiting)
            self._waiting = deque(left)
        return found

    def stop(self) -> list[Request]:
        """Ends the thread; gives the requests that still waited."""
        with self._changed:
            self._stopped = True
            left = [request for request, _ in self._waiting]
            self._waiting.clear()
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()
        return left

    def _work(self) -> None:
        while entries := self._next():
            self._teach(entries)

    def _next(self) -> list[Entry]:
        """Waits for what is next, and takes what can be run together with it; none at the end."""
        with self._changed:
            self.beats += 1
            while not (self._waiting or self._stopped):
                self._changed.wait(_IDLE_S)
                self.beats += 1
            if not self._waiting:
                return []
            entries = [self._waiting.popleft()]
            while self._waiting and len(entries) < _MOST_TOGETHER:
                if not (_is_scored(entries[0]) and _is_scored(self._waiting[0])):
                    break
                entries.append(self._waiting.popleft())
            return entries

    def _teach(self, entries: list[Entry]) -> None:
        """Runs entries together; where that fails one by one, so that only the culprit does."""
        began_s = time.monotonic()
        try:
            events = self._events(entries)
        except Exception:
            if len(entries) > 1:
                for entry in entries:
                    self._teach([entry])
                return
            _log.exception("request %s: a target could not be run", entries[0][0].call_id)
            events = [Failed(EngineFault("a target could not be run"))]
        for (request, _), event in zip(entries, events, strict=True):
            if isinstance(event, Taught):
                timeline = request.timeline
                timeline.encode_began_s, timeline.finished_s = began_s, time.monotonic()
            self._tell(request, event)

    def _events(self, entries: list[Entry]) -> list[Event]:
        late = [_lateness(entry) for entry in entries]
        taught = iter(
            self._taught(
                [entry for entry, is_late in zip(entries, late, strict=True) if not is_late]
            )
        )
        return [is_late or next(taught) for is_late in late]

    def _taught(self, entries: list[Entry]) -> list[Event]:
        if not entries:
            return []
        request, answer = entries[0]
        if answer is not None:
            return [self._annotated(request, answer)]
        names = [_SCORES, *_WEIGHTS] if request.weighed else [_SCORES]
        pairs = [(request.source, request.target or []) for request, _ in entries]
        return [
            Taught(scores.tolist(), [array.tobytes() for array in weights])
            for scores, *weights in self._run(pairs, names)
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
        alike: dict[tuple[int, int], list[int]] = {}
        for number, (source, target) in enumerate(pairs):
            shape = _room(source, self._most_source), _room(target, self._most_target)
            alike.setdefault(shape, []).append(number)
        found: dict[int, list[Array]] = {}
        for shape, numbers in alike.items():
            together = self._run_alike([pairs[number] for number in numbers], shape, names)
            found.update(zip(numbers, together, strict=True))
        return [found[number] for number in range(len(pairs))]

    def _run_alike(
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


def _is_scored(entry: Entry) -> bool:
    """Tells whether nothing but the scores of a target is wanted."""
    request, answer = entry
    return answer is None and not request.weighed


def _lateness(entry: Entry) -> Failed | None:
    request, answer = entry
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
