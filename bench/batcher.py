"""A gRPC server with dynamic batching, as a peer: each batch runs to completion.

    python -m bench.batcher --engine ctranslate2 --precision int8 --artifact models/en-de/1

It speaks ``seqserve.v1``. Requests wait until a batch is full or the oldest has waited some
milliseconds; a batch is answered when its longest row is done, so GenerateStream is not offered:
its first token would come with its last. Each worker of the engine takes the next batch as soon as
it is free, so all cores are busy while there is work.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc
import torch
import uvloop

from bench.batch_queue import BatchQueue
from bench.garbage import freeze_objects
from bench.load import MAX_DECODING_LENGTH
from bench.peers import CTranslate2Converter, CTranslate2Peer, Peer, TorchPeer
from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_export.restore import restore
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.front.cores import available_cores

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Item(Generic[S, T]):
    source: S
    answer: asyncio.Future[T]


class Batcher(Generic[S, T]):
    """Threads that decode batches of one queue; used from the event loop it was made in."""

    def __init__(
        self,
        decode: Callable[[Sequence[S]], Sequence[T]],
        *,
        workers: int,
        rows: int,
        delay_s: float,
    ) -> None:
        """Starts the workers.

        Args:
            decode: Decodes a batch; called from every worker.
            workers: Batches that run at once.
            rows: Most rows of a batch.
            delay_s: How long a request waits for others.
        """
        self._decode = decode
        self._loop = asyncio.get_running_loop()
        self._queue: BatchQueue[_Item[S, T]] = BatchQueue(rows, delay_s)
        self._workers = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        for worker in self._workers:
            worker.start()

    async def decode(self, source: S) -> T:
        """Waits for the target of a source, in whatever batch it comes."""
        item: _Item[S, T] = _Item(source, self._loop.create_future())
        self._queue.put(item)
        return await item.answer

    def close(self) -> None:
        """Stops the workers once what was asked is decoded."""
        self._queue.close()
        for worker in self._workers:
            worker.join()

    def _work(self) -> None:
        while batch := self._queue.take():
            # Callers that gave up while they waited cost nothing more.
            wanted = [item for item in batch if not item.answer.cancelled()]
            if not wanted:
                continue
            try:
                targets: Sequence[T | Exception]
                targets = self._decode([item.source for item in wanted])
            except Exception as error:
                targets = [error] * len(wanted)
            self._loop.call_soon_threadsafe(_deliver, wanted, targets)


def _deliver(items: Sequence[_Item[S, T]], targets: Sequence[T | Exception]) -> None:
    for item, target in zip(items, targets, strict=True):
        if item.answer.done():
            continue
        if isinstance(target, Exception):
            item.answer.set_exception(target)
        else:
            item.answer.set_result(target)


class BatchServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Text in, generated text out, a batch at a time."""

    def __init__(
        self, manifest: Manifest, tokenizer: Tokenizer, batcher: Batcher[list[int], list[int]]
    ) -> None:
        """Takes the parts."""
        self._manifest = manifest
        self._tokenizer = tokenizer
        self._batcher = batcher

    async def Generate(
        self,
        request: generation_pb2.GenerateRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> generation_pb2.GenerateResponse:
        """Answers when the batch of the request is done."""
        await check_length(request, context)
        began_s = time.monotonic()
        source = self._tokenizer.encode(request.source)
        target = await self._batcher.decode(source)
        hypothesis = generation_pb2.Hypothesis(
            text=self._tokenizer.decode(target),
            tokens=self._tokenizer.tokens(target),
            token_ids=target,
        )
        total_ms = 1e3 * (time.monotonic() - began_s)
        return generation_pb2.GenerateResponse(
            model=self._manifest.name,
            version=self._manifest.version,
            hypotheses=[hypothesis],
            source_tokens=len(source),
            generated_tokens=len(target),
            timings=generation_pb2.Timings(first_token_ms=total_ms, total_ms=total_ms),
        )


async def check_length(
    request: generation_pb2.GenerateRequest, context: grpc.aio.ServicerContext[Any, Any]
) -> None:
    """Refuses other lengths than that of all: the rows of a batch share one."""
    if request.options.max_decoding_length != MAX_DECODING_LENGTH:
        message = f"max_decoding_length must be {MAX_DECODING_LENGTH}"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)


def main() -> int:
    """Serves until SIGTERM or Ctrl-C."""
    options = _options()
    workers = available_cores()
    peer = _engine(options, workers)
    uvloop.run(_run(options, peer, workers))
    peer.close()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serves dynamic batches of another engine.")
    parser.add_argument("--engine", choices=["ctranslate2", "torch"], required=True)
    parser.add_argument("--precision", choices=["float32", "int8"], default="float32",
                        help="of CTranslate2")  # fmt: skip
    parser.add_argument("--artifact", type=Path, required=True,
                        help="fp32 artifact that the weights are taken from")  # fmt: skip
    parser.add_argument("--port", type=int, default=0, help="0 for any free")
    add_batch_options(parser)
    return parser.parse_args()


def add_batch_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of every batch server."""
    parser.add_argument("--rows", type=int, default=32, help="rows of a full batch")
    parser.add_argument("--delay-ms", type=float, default=5.0,
                        help="how long a request waits for others")  # fmt: skip


def _engine(options: argparse.Namespace, workers: int) -> Peer:
    """Loads the engine; its batches run in threads of ours, each on one core, which is best here.

    One batch on all cores is slower with both engines.
    """
    torch.set_num_threads(1)
    model = restore(options.artifact)
    if options.engine == "torch":
        return TorchPeer(model, options.rows, MAX_DECODING_LENGTH)
    with tempfile.TemporaryDirectory() as folder:
        CTranslate2Converter(model).convert(folder, force=True)
        return CTranslate2Peer(
            Path(folder),
            options.precision,
            (workers, 1),
            options.rows,
            DecodingOptions(max_decoding_length=MAX_DECODING_LENGTH),
        )


async def _run(options: argparse.Namespace, peer: Peer, workers: int) -> None:
    manifest = Manifest.read(options.artifact)
    tokenizer = Tokenizer.load(options.artifact / "tokenizer.json")
    batcher = Batcher(
        peer.decode, workers=workers, rows=options.rows, delay_s=options.delay_ms / 1e3
    )
    await serve(BatchServicer(manifest, tokenizer, batcher), batcher, peer.name, options.port)


async def serve(
    servicer: generation_pb2_grpc.GenerationServiceServicer,
    batcher: Batcher[S, T],
    name: str,
    port: int = 0,
) -> None:
    """Serves on this machine until SIGTERM or Ctrl-C, and prints where."""
    server = grpc.aio.server()
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await server.start()
    freeze_objects()
    print(f"{name} ready on 127.0.0.1:{port}", flush=True)
    await stop.wait()
    await server.stop(grace=1.0)
    await asyncio.to_thread(batcher.close)


if __name__ == "__main__":
    sys.exit(main())
