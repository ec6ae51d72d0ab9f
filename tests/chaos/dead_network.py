"""A network path that can go dead without closing either end."""

from __future__ import annotations

import asyncio

_PIECE = 1 << 16


class Network:
    """Forwards bytes both ways until it is cut; then both ends stay open, and nothing moves.

    That is harder to notice than a cable that is pulled: whatever is sent is taken.
    """

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.target = ""

    async def __aenter__(self) -> Network:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.target = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *given: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._flowing.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection(self._host, int(self._port))
        for source, sink in ((reader, their_writer), (their_reader, writer)):
            task = asyncio.create_task(self._forward(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(_PIECE):
                await self._flowing.wait()
                sink.write(piece)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()
