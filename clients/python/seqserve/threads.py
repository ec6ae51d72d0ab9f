"""Threads: starting them, waiting for events, futures and items; the twin of ``tasks``."""

import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future as Future
from contextvars import copy_context
from functools import partial
from threading import Event as Event
from threading import Lock as Lock
from threading import Semaphore as Semaphore
from threading import Thread
from typing import Any, TypeAlias, TypeVar

Queue = queue.SimpleQueue
A = TypeVar("A")

Failure: TypeAlias = BaseException
"""Errors that a worker reports instead of raising, because a thread ends unseen."""
Worker: TypeAlias = Thread


def start(work: Callable[[], None], name: str) -> Worker:
    """Starts a thread in the context of its caller, which may hold a trace."""
    # A daemon, because a thread that reads standard input may hang there when the program ends.
    worker = Thread(target=partial(copy_context().run, work), name=name, daemon=True)
    worker.start()
    return worker


def stop(*workers: Worker) -> None:
    """Returns at once: threads cannot be cancelled, they end when their wait is over."""


def finished(worker: Worker) -> None:
    """Returns at once: a thread may still wait for its input."""


def fail(future: Future[Any], error: BaseException) -> None:
    """Fails a future."""
    future.set_exception(error)


def settled(future: Future[Any]) -> None:
    """Returns when a future has its result or exception."""
    future.exception()


def items_of(items: Iterable[A]) -> Iterator[A]:
    """Returns the iterator of an iterable."""
    return iter(items)
