"""Engines as actors of a Ray cluster, on as many machines as it has.

An actor that is lost, with its machine or alone, is started again wherever there is room for it,
and the others get its texts meanwhile. The order of the answers and the journal are the same as
without a cluster: the process that calls hands out the texts, and each has one future.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from seqserve.errors import OptionError, SeqserveError
from seqserve_server.contract.errors import EngineFault
from seqserve_server.corpus.corpus_file import Answer
from seqserve_server.corpus.engine import Answered, CorpusEngine, EngineSettings

# How often the thread looks for news without being woken.
_INTERVAL_S = 0.1
# A model has mostly loaded by then.
_LONG_S = 15.0


class EngineActor:
    """An engine of a cluster; Ray runs its methods in its process."""

    def __init__(self, settings: EngineSettings) -> None:
        """Loads the model; :meth:`fault` tells whether it could."""
        self._fault: SeqserveError | None = None
        try:
            self._engine = CorpusEngine(settings)
        except SeqserveError as error:
            self._fault = error

    def fault(self) -> SeqserveError | None:
        """Returns why the model could not be loaded; None if it is."""
        return self._fault

    async def answered(self, texts: Sequence[str]) -> Answered:
        """Answers texts."""
        return await asyncio.wrap_future(self._engine.begin(texts))


class _Task(NamedTuple):
    actor: Any
    texts: Sequence[str]
    future: Future[list[Answer]]


class RayPool:
    """Actors with an engine each; :meth:`close` ends them."""

    def __init__(
        self,
        address: str,
        settings: EngineSettings,
        engines: int | None,
        report: Callable[[str], None],
    ) -> None:
        """Connects to a cluster, starts actors, and waits until one of them has loaded the model.

        The address is ``host:port``, ``auto`` for the cluster of this machine, or ``local`` for a
        new one that ends with this process. Without a number of engines, there are as many as the
        cluster has CPUs for. Raises ModuleNotFoundError without Ray, and OptionError if there is no
        such cluster or it has too few CPUs.
        """
        # Ray reads it when it is imported: it is to report nothing to its makers.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self._ray = ray
        try:
            ray.init(address, log_to_driver=False, logging_level="error")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise OptionError(f"--ray: {address}: {' '.join(str(error).split())}") from None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._end: Exception | None = None
        self._is_closed = False
        self._report = report
        try:
            cpus = ray.cluster_resources().get("CPU", 0)
            if not engines and cpus < settings.workers:
                reason = f"the cluster has {cpus:g} CPUs, and an engine needs {settings.workers}"
                raise OptionError(f"--ray: {reason}; see --workers")
            self.engines = engines or int(cpus // settings.workers)
            self._new_actor = ray.remote(EngineActor).options(num_cpus=settings.workers).remote
            self._settings = settings
            self._loading: dict[Any, Any] = {}
            self._pending: dict[Any, int] = {}
            self._tasks: dict[Any, _Task] = {}
            self._left: list[tuple[Sequence[str], Future[list[Answer]]]] = []
            for _ in range(self.engines):
                self._load()
            self._wait(_LONG_S)
            if not self._pending:
                report(f"{self.engines} engines wait for CPUs of the cluster")
            while not self._pending:
                self._wait(_LONG_S)
        except BaseException:
            ray.shutdown()
            raise
        self._thread = threading.Thread(target=self._run, name="seqserve-ray", daemon=True)
        self._thread.start()

    def submit(self, texts: Sequence[str]) -> Future[list[Answer]]:
        """Hands texts to the engine with the fewest."""
        future: Future[list[Answer]] = Future()
        with self._lock:
            if self._end is None:
                self._assign(texts, future)
                self._changed.notify()
                return future
        future.set_exception(self._end)
        return future

    def close(self) -> None:
        """Ends the actors; texts without an answer fail."""
        self._is_closed = True
        self._thread.join()
        self._ray.shutdown()

    def _load(self) -> None:
        actor = self._new_actor(self._settings)
        self._loading[actor.fault.remote()] = actor

    def _assign(self, texts: Sequence[str], future: Future[list[Answer]]) -> None:
        if not self._pending:
            # Until an actor has loaded the model again.
            self._left.append((texts, future))
            return
        actor = min(self._pending, key=self._pending.__getitem__)
        self._pending[actor] += 1
        self._tasks[actor.answered.remote(texts)] = _Task(actor, texts, future)

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._wait(_INTERVAL_S)
            except Exception as error:
                self._fail(error)
                return
        self._fail(EngineFault("the pool was closed"))

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._end = error
            futures = [task.future for task in self._tasks.values()]
            futures += [future for _, future in self._left]
            self._tasks.clear()
            self._left.clear()
        for future in futures:
            future.set_exception(error)

    def _wait(self, timeout_s: float) -> None:
        with self._lock:
            known = [*self._tasks, *self._loading]
            if not known:
                self._changed.wait(timeout_s)
                return
        ready, _ = self._ray.wait(known, num_returns=1, timeout=timeout_s)
        for reference in ready:
            if reference in self._loading:
                self._loaded(reference)
            else:
                self._answered(reference)

    def _loaded(self, reference: Any) -> None:
        actor = self._loading.pop(reference)
        try:
            fault = self._ray.get(reference)
        except self._ray.exceptions.RayActorError:
            self._load()
            return
        if fault is not None:
            raise fault
        with self._lock:
            self._pending[actor] = 0
            left, self._left = self._left, []
            for texts, future in left:
                self._assign(texts, future)

    def _answered(self, reference: Any) -> None:
        with self._lock:
            actor, texts, future = self._tasks.pop(reference)
            if actor in self._pending:
                self._pending[actor] -= 1
        try:
            answered: Answered = self._ray.get(reference)
        except self._ray.exceptions.RayActorError:
            self._lost(actor)
            with self._lock:
                self._assign(texts, future)
            return
        if isinstance(answered, SeqserveError):
            future.set_exception(answered)
        else:
            future.set_result(answered)

    def _lost(self, actor: Any) -> None:
        with self._lock:
            is_known, left = self._pending.pop(actor, None) is not None, len(self._pending)
        if is_known:
            self._report(f"an engine of the cluster has ended, and {left} are left; another starts")
            self._load()
