"""The front's end of the process that detects languages."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
from collections.abc import Iterable, Sequence
from functools import partial

from seqserve.language_codes import folded
from seqserve.v1.generation_pb2 import DetectedLanguage
from seqserve_server.contract.errors import ModelUnavailable, QueueFull
from seqserve_server.contract.limits import DETECTED_CHARACTERS
from seqserve_server.front.overload.memory import FairShare
from seqserve_server.front.overload.turns import Turns
from seqserve_server.process import logs, processes

_TRIES = 2
"""Processes that are tried: one may end through no fault of the text."""
# A caller that is alone may have half of them, which take some seconds together.
_MAX_WAITING = 1024
_CALLER_SHARE = 0.5
_RETRY_S = 1.0
_END_TIMEOUT_S = 2.0


class _DetectorProcess:
    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self.pid = process.pid

    @classmethod
    async def start(cls, module: str) -> _DetectorProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            end = theirs.fileno()
            try:
                # Not by the loop: uvloop forks, and gRPC's handlers of a fork may crash the child.
                process = processes.start(module, stdin=end, stdout=end)
            except OSError:
                writer.close()
                raise
        return cls(process, reader, writer)

    async def ask(self, line: bytes) -> bytes:
        try:
            self._writer.write(line)
            await self._writer.drain()
            answer = await self._reader.readuntil()
        except (OSError, EOFError, RuntimeError, asyncio.LimitOverrunError) as error:
            # RuntimeError is what uvloop raises for a socket that is closed. After an answer
            # that is too long, the next one would be for another question.
            raise ConnectionError("the detector has ended") from error
        return answer

    async def end(self) -> None:
        self._writer.close()
        status = await asyncio.to_thread(processes.end, self._process, _END_TIMEOUT_S)
        if status:
            logs.event("language detector ended abnormally", {"status": status}, logging.ERROR)


class LanguageDetector:
    """Detects languages in a separate process, which starts when it is first needed.

    The process starts in about a second. It answers one request at a time, in about a millisecond,
    with callers in turn. If it ends, it is replaced. Used in the event loop.
    """

    def __init__(self, module: str = "seqserve_server.detector") -> None:
        self._module = module
        self._turns = Turns()
        self._places = FairShare(_MAX_WAITING, _CALLER_SHARE)
        self._process: _DetectorProcess | None = None
        self._tasks: set[asyncio.Task[dict[str, float]]] = set()

    @property
    def pid(self) -> int | None:
        """The id of the process; None if it does not run."""
        return self._process.pid if self._process else None

    async def detect(
        self, text: str, codes: Iterable[str], caller: str = ""
    ) -> list[DetectedLanguage]:
        """Returns the probable languages of a text among some, the most probable first.

        Of several codes of a language the first counts. The result is empty if the first
        ``DETECTED_CHARACTERS`` reveal none. Raises QueueFull if too many texts of the caller wait,
        and ModelUnavailable if the process has failed, and the one that replaced it too.
        """
        if not self._places.fits(caller, 1):
            raise QueueFull(f"{self._places.used} texts wait for the language detector", _RETRY_S)
        names: dict[str, str] = {}
        for code in codes:
            names.setdefault(folded(code).name, code)
        # To its end even if the caller leaves: the next answer must be for the next request.
        task = asyncio.create_task(self._answer(text[:DETECTED_CHARACTERS], list(names), caller))
        self._tasks.add(task)
        self._places.take(caller, 1)
        task.add_done_callback(partial(self._forget, caller))
        answer = await asyncio.shield(task)
        return [
            DetectedLanguage(language=names[name], confidence=confidence)
            for name, confidence in answer.items()
        ]

    async def close(self) -> None:
        """Ends the process, and with it the calls that wait."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._end()

    def _forget(self, caller: str, task: asyncio.Task[dict[str, float]]) -> None:
        self._tasks.discard(task)
        self._places.give(caller, 1)
        # Seen, also where the caller has left.
        if not task.cancelled():
            task.exception()

    async def _answer(self, text: str, languages: Sequence[str], caller: str) -> dict[str, float]:
        question = json.dumps([text, languages]).encode() + b"\n"
        await self._turns.take(caller)
        try:
            for _ in range(_TRIES):
                try:
                    self._process = self._process or await _DetectorProcess.start(self._module)
                    answer: dict[str, float] = json.loads(await self._process.ask(question))
                except OSError as error:
                    logs.event("language detector failed", {"error": str(error)}, logging.WARNING)
                    await self._end()
                else:
                    return answer
            raise ModelUnavailable("the language detector has failed; call again")
        finally:
            self._turns.give()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.end()
