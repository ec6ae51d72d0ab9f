"""The processes that send a load, and what it cost them."""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from seqserve.errors import SeqserveError
from seqserve.load.answer import Answer, Caller
from seqserve.load.event_loop import precise_loop
from seqserve.load.load import Load, Share
from seqserve.processes import leave_interrupts, spawn

# Until all processes have read when they begin.
_HEAD_START_S = 0.1
_REPORT_S = 0.2


@dataclass(frozen=True, slots=True)
class Sent:
    """All that was sent, in the order in which it was due."""

    answers: list[Answer]
    cpu_s: float
    """CPU time of the generator."""
    cpu_share: float
    """CPU seconds a second of its busiest process, which cannot have more than one."""


def send(load: Load, caller: Caller, processes: int, answered: Callable[[int], None]) -> Sent:
    """Sends a load, and waits for the end of all its requests.

    Args:
        load: What to send.
        caller: Whom to call.
        processes: How many send; one is this process.
        answered: Called with the number of requests that have ended since it was called last.

    Raises:
        SeqserveError: There is no connection, or a process has ended.
    """
    if processes == 1:
        return _sum([_run(load, caller, Share(), time.perf_counter, lambda _: answered(1))])
    children: list[tuple[Any, Connection]] = []
    try:
        for index in range(processes):
            here, there = multiprocessing.Pipe()
            child = spawn(_child, there, load, caller, Share(index, processes))
            there.close()
            children.append((child, here))
        pipes = [pipe for _, pipe in children]
        for pipe in pipes:
            _received(pipe)
        began_s = time.perf_counter() + _HEAD_START_S
        for pipe in pipes:
            pipe.send(began_s)
        return _sum(_collected(pipes, answered))
    finally:
        for child, pipe in children:
            pipe.close()
            child.terminate()
            child.join()


def _collected(pipes: list[Connection], answered: Callable[[int], None]) -> list[Sent]:
    parts: list[Sent] = []
    at_work: set[Any] = {*pipes}
    while at_work:
        for pipe in multiprocessing.connection.wait(at_work):
            message = _received(pipe)
            if isinstance(message, int):
                answered(message)
            else:
                parts.append(message)
                at_work.remove(pipe)
    return parts


def _received(pipe: Any) -> Any:
    try:
        message = pipe.recv()
    except (EOFError, OSError):
        raise SeqserveError("a process of the load has ended before its load") from None
    if isinstance(message, SeqserveError):
        raise message
    return message


def _child(pipe: Connection, load: Load, caller: Caller, share: Share) -> None:
    leave_interrupts()
    count, next_s = 0, 0.0

    def begin() -> float:
        pipe.send(0)
        began_s: float = pipe.recv()
        return began_s

    def answered(_: Answer) -> None:
        nonlocal count, next_s
        count += 1
        if time.perf_counter() >= next_s:
            pipe.send(count)
            count, next_s = 0, time.perf_counter() + _REPORT_S

    try:
        sent = _run(load, caller, share, begin, answered)
        pipe.send(count)
        pipe.send(sent)
    except SeqserveError as error:
        pipe.send(error)
    except (BrokenPipeError, EOFError):
        # Nobody waits for it.
        pass


def _run(
    load: Load,
    caller: Caller,
    share: Share,
    begin: Callable[[], float],
    answered: Callable[[Answer], None],
) -> Sent:
    # Not the result of the task, which a runner turns into text when it looks at its interrupts.
    sent: list[Sent] = []

    async def run() -> None:
        async with caller:
            await load.warm_up(caller, share)
            began_s = begin()
            at_s, cpu_s = time.perf_counter(), time.process_time()
            answers = await load.send(caller, share, began_s, answered)
            wall_s, cpu_s = time.perf_counter() - at_s, time.process_time() - cpu_s
        sent.append(Sent(answers, cpu_s, cpu_s / wall_s))

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(run())
    return sent[0]


def _sum(parts: list[Sent]) -> Sent:
    answers = sorted((answer for part in parts for answer in part.answers), key=_due)
    return Sent(answers, sum(part.cpu_s for part in parts), max(part.cpu_share for part in parts))


def _due(answer: Answer) -> float:
    return answer.due_s
