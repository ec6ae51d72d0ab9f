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
import gc
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import torch
import uvloop

from bench.batch_queue import BatchQueue
from bench.load import MAX_DECODING_LENGTH
from bench.peers import CTranslate2Converter, CTranslate2Peer, Peer, Rows, TorchPeer
from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_export.restore import restore
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.front.cores import available_cores

Decode = Callable[[Sequence[list[int]]], Rows]


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    source: list[int]
    answer: asyncio.Future[list[int]]


class Batcher:
    """Threads that decode batches of one queue; used from the event loop it was made in."""

    def __init__(self, decode: Decode, *, workers: int, rows: int, delay_s: float) -> None:
        """Starts the workers.

        Args:
            decode: Decodes a batch of token ids; called from every worker.
            workers: Batches that run at once.
            rows: Most rows of a batch.
            delay_s: How long a request waits for others.
        """
        self._decode = decode
        self._loop = asyncio.get_running_loop()
        self._queue: BatchQueue[_Item] = BatchQueue(rows, delay_s)
        self._workers = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        for worker in self._workers:
            worker.start()

    async def decode(self, source: list[int]) -> list[int]:
        """Waits for the target of a source, in whatever batch it comes."""
        item = _Item(source, self._loop.create_future())
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
                targets: Sequence[list[int] | Exception]
                targets = self._decode([item.source for item in wanted])
            except Exception as error:
                targets = [error] * len(wanted)
            self._loop.call_soon_threadsafe(_deliver, wanted, targets)


def _deliver(items: Sequence[_Item], targets: Sequence[list[int] | Exception]) -> None:
    for item, target in zip(items, targets, strict=True):
        if item.answer.done():
            continue
        if isinstance(target, Exception):
            item.answer.set_exception(target)
        else:
            item.answer.set_result(target)


class BatchServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Text in, generated text out, a batch at a time."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, batcher: Batcher) -> None:
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
        if request.options.max_decoding_length != MAX_DECODING_LENGTH:
            # All rows of a batch share one length.
            message = f"max_decoding_length must be {MAX_DECODING_LENGTH}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
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


def main() -> int:
    """Serves until SIGTERM or Ctrl-C."""
    options = _options()
    workers = available_cores()
    peer = _engine(options, workers)
    uvloop.run(_serve(options, peer, workers))
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
    parser.add_argument("--rows", type=int, default=32, help="rows of a full batch")
    parser.add_argument("--delay-ms", type=float, default=5.0,
                        help="how long a request waits for others")  # fmt: skip
    return parser.parse_args()


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


async def _serve(options: argparse.Namespace, peer: Peer, workers: int) -> None:
    manifest = Manifest.read(options.artifact)
    tokenizer = Tokenizer.load(options.artifact / "tokenizer.json")
    batcher = Batcher(
        peer.decode, workers=workers, rows=options.rows, delay_s=options.delay_ms / 1e3
    )
    server = grpc.aio.server()
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(
        BatchServicer(manifest, tokenizer, batcher), server
    )
    port = server.add_insecure_port(f"127.0.0.1:{options.port}")
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await server.start()
    # As our own server does: what was made until here is not looked at again.
    gc.collect()
    gc.freeze()
    print(f"{peer.name} ready on 127.0.0.1:{port}", flush=True)
    await stop.wait()
    await server.stop(grace=1.0)
    await asyncio.to_thread(batcher.close)


if __name__ == "__main__":
    sys.exit(main())
