"""A gRPC server with dynamic batching on another engine: each batch runs to completion.

    python -m bench.drivers.batch_server ctranslate2 --precision int8 --artifact models/en-de/1
    python -m bench.drivers.batch_server marian -- OPTIONS OF marian-decoder

It speaks ``seqserve.v1``. Requests wait until a batch is full or the oldest has waited some
milliseconds; a batch is answered when its longest row is done, so GenerateStream is not offered:
its first token would come with its last. Each worker of the engine takes the next batch as soon as
it is free, so all cores are busy while there is work.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc
import uvloop

from bench.drivers import Driver, Row, gc_freeze
from bench.requests import MAX_DECODING_LENGTH
from seqserve.processes import available_cores
from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.text.tokenizer import Tokenizer

T = TypeVar("T")


class BatchQueue(Generic[T]):
    """A batch leaves when it is full or its oldest item has waited; first come, first served."""

    def __init__(self, max_items: int, delay_s: float) -> None:
        """Begins empty; an item waits longer than ``delay_s`` only while every consumer is busy."""
        self._max_items = max_items
        self._delay_s = delay_s
        self._items: deque[tuple[float, T]] = deque()
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, item: T) -> None:
        """Adds an item; never waits."""
        with self._changed:
            self._items.append((time.monotonic(), item))
            # Between the first and the last item of a batch, no waiter needs to wake.
            if len(self._items) in (1, self._max_items):
                self._changed.notify()

    def take(self) -> list[T]:
        """Waits for a batch; an empty one means that the queue is closed."""
        with self._changed:
            while True:
                left_s = self._time_left()
                if left_s == 0.0:
                    return self._next()
                self._changed.wait(left_s)

    def close(self) -> None:
        """Lets consumers take the rest at once, and then empty batches."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _time_left(self) -> float | None:
        if self._is_closed or len(self._items) >= self._max_items:
            return 0.0
        if not self._items:
            return None
        return max(0.0, self._items[0][0] + self._delay_s - time.monotonic())

    def _next(self) -> list[T]:
        count = min(self._max_items, len(self._items))
        batch = [self._items.popleft()[1] for _ in range(count)]
        if self._items:
            # Waiters for a first item were not notified of these.
            self._changed.notify()
        return batch


@dataclass(frozen=True, slots=True, eq=False)
class _Item(Generic[Row]):
    source: Row
    target: asyncio.Future[Row]


class Batcher(Generic[Row]):
    """Threads that decode batches of one queue; used from the event loop it was made in."""

    def __init__(
        self,
        decode: Callable[[Sequence[Row]], Sequence[Row]],
        *,
        workers: int,
        rows: int,
        delay_s: float,
    ) -> None:
        """Starts the workers, each of which decodes batches of up to ``rows`` rows."""
        self._decode = decode
        self._loop = asyncio.get_running_loop()
        self._queue: BatchQueue[_Item[Row]] = BatchQueue(rows, delay_s)
        self._workers = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        for worker in self._workers:
            worker.start()

    async def decode(self, source: Row) -> Row:
        """Waits for the target of a source, in whatever batch it comes."""
        item: _Item[Row] = _Item(source, self._loop.create_future())
        self._queue.put(item)
        return await item.target

    def close(self) -> None:
        """Stops the workers once all waiting sources are decoded."""
        self._queue.close()
        for worker in self._workers:
            worker.join()

    def _work(self) -> None:
        while batch := self._queue.take():
            # Callers that gave up while they waited cost nothing more.
            wanted = [item for item in batch if not item.target.cancelled()]
            if not wanted:
                continue
            try:
                targets: Sequence[Row | Exception]
                targets = self._decode([item.source for item in wanted])
            except Exception as error:
                targets = [error] * len(wanted)
            self._loop.call_soon_threadsafe(_deliver, wanted, targets)


def _deliver(items: Sequence[_Item[Row]], targets: Sequence[Row | Exception]) -> None:
    for item, target in zip(items, targets, strict=True):
        if item.target.done():
            continue
        if isinstance(target, Exception):
            item.target.set_exception(target)
        else:
            item.target.set_result(target)


class BatchServicer(generation_pb2_grpc.GenerationServiceServicer, Generic[Row]):
    """Text in, generated text out, a batch at a time."""

    def __init__(
        self,
        batcher: Batcher[Row],
        encode: Callable[[str], Row],
        respond: Callable[[Row, Row], generation_pb2.GenerateResponse],
    ) -> None:
        self._batcher, self._encode, self._respond = batcher, encode, respond

    async def Generate(
        self,
        request: generation_pb2.GenerateRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> generation_pb2.GenerateResponse:
        """Answers when the batch of the request is done."""
        # The rows of a batch share one length.
        if request.options.max_decoding_length != MAX_DECODING_LENGTH:
            message = f"max_decoding_length must be {MAX_DECODING_LENGTH}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        began_s = time.monotonic()
        source = self._encode(request.source)
        response = self._respond(source, await self._batcher.decode(source))
        total_ms = 1e3 * (time.monotonic() - began_s)
        response.timings.first_token_ms = response.timings.total_ms = total_ms
        return response


def text_response(_source: str, target: str) -> generation_pb2.GenerateResponse:
    """Makes the response of an engine that reads and writes text; words are counted as tokens."""
    return generation_pb2.GenerateResponse(
        hypotheses=[generation_pb2.Hypothesis(text=target)], generated_tokens=len(target.split())
    )


def token_response(
    manifest: Manifest, tokenizer: Tokenizer, source: list[int], target: list[int]
) -> generation_pb2.GenerateResponse:
    """Makes the response of an engine that reads and writes token ids."""
    hypothesis = generation_pb2.Hypothesis(
        text=tokenizer.decode(target), tokens=tokenizer.target.tokens(target), token_ids=target
    )
    return generation_pb2.GenerateResponse(
        model=manifest.name,
        version=manifest.version,
        hypotheses=[hypothesis],
        source_tokens=len(source),
        generated_tokens=len(target),
    )


def main() -> int:
    """Serves until SIGTERM or Ctrl-C."""
    options = _options()
    if options.engine == "marian":
        from bench.drivers.marian import MarianDriver

        with MarianDriver(options.marian, available_cores()) as marian:
            uvloop.run(_serve(options, marian, str, text_response))
        return 0
    tokenizer = Tokenizer.load(options.artifact / "tokenizer.json")
    respond = partial(token_response, Manifest.read(options.artifact), tokenizer)
    with _token_driver(options) as driver:
        uvloop.run(_serve(options, driver, tokenizer.encode, respond))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serves dynamic batches of another engine.")
    parser.add_argument("engine", choices=["ctranslate2", "torch", "marian"])
    parser.add_argument("marian", nargs="*", help="options of marian-decoder, after --")
    add = parser.add_argument
    add("--precision", choices=["float32", "int8"], default="float32", help="of CTranslate2")
    add("--artifact", type=Path, help="that the weights are taken from")
    add("--rows", type=int, default=32, help="rows of a full batch")
    add("--delay-ms", type=float, default=5.0, help="how long a request waits for others")
    options = parser.parse_args()
    if options.engine != "marian" and options.artifact is None:
        parser.error(f"{options.engine} needs --artifact")
    return options


def _token_driver(options: argparse.Namespace) -> Driver[list[int]]:
    """Loads the engine; its batches run in threads of ours, each on one core, which is best here.

    One batch on all cores is slower with both engines.
    """
    import torch

    from bench.drivers.ctranslate2 import CTranslate2Converter, CTranslate2Driver
    from seqserve_export.restore import restore

    torch.set_num_threads(1)
    model = restore(options.artifact)
    if options.engine == "torch":
        from bench.drivers.transformers import TorchDriver

        return TorchDriver(model, options.rows, MAX_DECODING_LENGTH)
    with tempfile.TemporaryDirectory() as folder:
        CTranslate2Converter(model).convert(folder, force=True)
        greedy = DecodingOptions(max_decoding_length=MAX_DECODING_LENGTH)
        layout = (available_cores(), 1)
        return CTranslate2Driver(Path(folder), options.precision, layout, options.rows, greedy)


async def _serve(
    options: argparse.Namespace,
    driver: Driver[Row],
    encode: Callable[[str], Row],
    respond: Callable[[Row, Row], generation_pb2.GenerateResponse],
) -> None:
    delay_s, cores = options.delay_ms / 1e3, available_cores()
    batcher = Batcher(driver.decode_batch, workers=cores, rows=options.rows, delay_s=delay_s)
    server = grpc.aio.server()
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(
        BatchServicer(batcher, encode, respond), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await server.start()
    gc_freeze()
    print(f"{driver.name} ready on 127.0.0.1:{port}", flush=True)
    await stop.wait()
    await server.stop(grace=1.0)
    await asyncio.to_thread(batcher.close)


if __name__ == "__main__":
    sys.exit(main())
