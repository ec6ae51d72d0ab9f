"""A running detector of languages, and the front's end of its socket."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess

from seqserve_server.process import child_process, logs

_END_TIMEOUT_S = 2.0


class DetectorProcess:
    """A process that answers each line with one."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Takes what :meth:`start` has made."""
        self._process, self._reader, self._writer = process, reader, writer

    @classmethod
    async def start(cls, module: str) -> DetectorProcess:
        """Runs a module with Python.

        Raises:
            OSError: The system has no room for another process or file.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            end = theirs.fileno()
            try:
                # Not by the loop: uvloop forks, and gRPC's handlers of a fork may crash the child.
                process = child_process.start(module, stdin=end, stdout=end)
            except OSError:
                writer.close()
                raise
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def ask(self, line: bytes) -> bytes:
        """Sends a line and returns the answer.

        Raises:
            ConnectionError: The process has ended.
        """
        try:
            self._writer.write(line)
            await self._writer.drain()
            answer = await self._reader.readuntil()
        except (OSError, EOFError, RuntimeError) as error:
            # RuntimeError: what uvloop raises for a socket that is closed.
            raise ConnectionError("the detector has ended") from error
        return answer

    async def end(self) -> None:
        """Waits until the process has ended, and kills it after a timeout."""
        self._writer.close()
        status = await asyncio.to_thread(child_process.end, self._process, _END_TIMEOUT_S)
        if status:
            logs.event("language detector ended abnormally", {"status": status}, logging.ERROR)
