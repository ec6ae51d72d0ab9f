"""Runs one front in a separate process; the main process tells it what to serve."""

import asyncio
import gc
import os
import socket
import sys

from prometheus_client.core import Metric

from seqserve_server.front.config import ServeOptions
from seqserve_server.front.fronts.peer import Peer, handlers_of
from seqserve_server.front.fronts.shared_versions import SharedVersions
from seqserve_server.front.models.loader import loader_of
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.process import processes
from seqserve_server.serve.app import run_loop, trim_memory
from seqserve_server.serve.server import Server, read_files, tracing_of


class FrontProcess:
    """Methods that the main process calls in this order: open, .., serve, .., drain."""

    def __init__(self, door: socket.socket) -> None:
        """Sockets to engines come through ``door``."""
        self._over = asyncio.Event()
        self._drained = False
        self._metrics = Metrics()
        self._server: Server
        self._handlers = handlers_of(self.open, self.serve, self.counted, self.drain)
        self._door, self.main = door, Peer(self._handlers, self._over.set)

    async def until_over(self) -> None:
        """Waits until the main process closes the socket; exits if that is before a drain."""
        await self._over.wait()
        if not self._drained:
            # The main process was killed, and the engines end with it.
            os._exit(1)

    async def open(self, number: int, options: ServeOptions) -> int:
        """Reads what the options name and binds the port, which it returns."""
        security, glossaries = await asyncio.to_thread(read_files, options)
        loader = loader_of(options, self._metrics.cache_counts)
        versions = SharedVersions(loader, self._metrics, number, self.main, self._door)
        self._handlers.update(versions.handlers())
        self._server = Server(
            options, versions, self._metrics, security, tracing_of(options), glossaries
        )
        return self._server.port

    async def serve(self) -> None:
        """Answers calls from now on."""
        await self._server.start()
        gc.collect()
        gc.freeze()

    def counted(self) -> list[Metric]:
        """Returns the metrics of this front."""
        return list(self._metrics.calls.collect())

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new calls and finishes the others, as :meth:`Server.drain`."""
        finished = await self._server.drain(timeout_s)
        self._drained = True
        return finished


async def _serve(channel: socket.socket, door: socket.socket) -> None:
    trimming = asyncio.create_task(trim_memory())
    front = FrontProcess(door)
    await front.main.connect(channel)
    await front.until_over()
    trimming.cancel()


def main(arguments: list[str]) -> None:
    """Serves until the main process closes its socket."""
    channel, door = processes.begin(arguments)
    run_loop(_serve(channel, door))


if __name__ == "__main__":
    main(sys.argv[1:])
