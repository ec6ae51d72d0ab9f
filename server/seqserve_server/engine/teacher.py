"""Known targets, run through the teacher-forced graph in a thread of their own.

Running rows are not held up: the operating system shares the cores between this and the workers.
Each target runs alone, so that nothing beside it has a part in its scores.
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
    Hypothesis,
    Request,
    StopReason,
    Taught,
)
from seqserve_server.errors import DeadlinePassed, Draining, EngineFault, QueueFull, Stage
from seqserve_server.runtime import Runtime

Tell = Callable[[Request, Event], None]

_SCORES = "log_probabilities"
_WEIGHTS = ["encoder_attention", "decoder_attention", "cross_attention"]
_RETRY_S = 0.5

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
        self._max_queue = max_queue
        self._tell = tell
        self._waiting: deque[tuple[Request, Finished | None]] = deque()
        self._changed = threading.Condition()
        self._stopped = False
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
        while (entry := self._next()) is not None:
            request, answer = entry
            try:
                event = self._event(request, answer)
            except Exception:
                _log.exception("a target could not be run")
                event = Failed(EngineFault("a target could not be run"))
            self._tell(request, event)

    def _next(self) -> tuple[Request, Finished | None] | None:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting) or self._stopped)
            return self._waiting.popleft() if self._waiting else None

    def _event(self, request: Request, answer: Finished | None) -> Event:
        if request.deadline_s is not None and request.deadline_s <= time.monotonic():
            return Failed(DeadlinePassed(Stage.QUEUE if answer is None else Stage.DECODE))
        if answer is not None:
            return self._annotated(request, answer)
        assert request.target is not None
        names = [_SCORES, *_WEIGHTS] if request.weighed else [_SCORES]
        scores, *weights = self._run(request.source, request.target, names)
        return Taught(scores[0].tolist(), [array[:, 0].tobytes() for array in weights])

    def _annotated(self, request: Request, answer: Finished) -> Finished:
        """Adds what was attended to, or ranks by it, as is asked for."""
        options = request.options
        seen = [(each, self._attention(request.source, each)) for each in answer.hypotheses]
        if options.coverage_penalty:
            seen = covering(seen, options)
        hypotheses = [hypothesis for hypothesis, _ in seen]
        if options.return_attention:
            hypotheses = [
                each._replace(attention=weights[: len(each.token_ids)].tobytes())
                for each, weights in seen
            ]
        return Finished(hypotheses)

    def _attention(self, source: list[int], hypothesis: Hypothesis) -> Array:
        """Gives the attention to the source, the mean over the last layer's heads.

        Returns:
            Of each token, and of the end token where it was generated, float32 ``[T, S]``.
        """
        ended = hypothesis.stop_reason is StopReason.EOS
        # What a step attends to does not depend on the token that it chooses.
        target = [*hypothesis.token_ids, *([self._runtime.manifest.tokens.eos] if ended else [])]
        [weights] = self._run(source, target, ["cross_attention"])
        return weights[-1, 0].mean(0)  # type: ignore[no-any-return]

    def _run(self, source: list[int], target: list[int], names: list[str]) -> list[Array]:
        bos = self._runtime.manifest.tokens.bos
        return self._runtime.teach(
            np.array([source], np.int64),
            np.array([len(source)], np.int32),
            np.array([[bos, *target]], np.int64),
            names,
        )
