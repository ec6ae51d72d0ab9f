"""A batch server with Marian behind it, as :mod:`bench.batcher` is one with other engines.

Marian takes text and gives text, so nothing is tokenised here; words are counted as tokens.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import grpc
import uvloop

from bench.batcher import Batcher, add_batch_options, check_length, serve
from bench.native_marian import MarianPeer
from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_server.front.cores import available_cores


class TextServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Text in, generated text out, a batch at a time."""

    def __init__(self, batcher: Batcher[str, str]) -> None:
        """Takes what makes batches."""
        self._batcher = batcher

    async def Generate(
        self,
        request: generation_pb2.GenerateRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> generation_pb2.GenerateResponse:
        """Answers when the batch of the request is done."""
        await check_length(request, context)
        began_s = time.monotonic()
        text = await self._batcher.decode(request.source)
        total_ms = 1e3 * (time.monotonic() - began_s)
        return generation_pb2.GenerateResponse(
            hypotheses=[generation_pb2.Hypothesis(text=text)],
            generated_tokens=len(text.split()),
            timings=generation_pb2.Timings(first_token_ms=total_ms, total_ms=total_ms),
        )


def main() -> int:
    """Serves until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description="Serves dynamic batches of Marian.")
    parser.add_argument("options", nargs="+", help="of marian-decoder, after --")
    add_batch_options(parser)
    options = parser.parse_args()
    workers = available_cores()
    peer = MarianPeer(options.options, workers)

    async def run() -> None:
        batcher = Batcher(
            peer.translate_batch,
            workers=workers,
            rows=options.rows,
            delay_s=options.delay_ms / 1e3,
        )
        await serve(TextServicer(batcher), batcher, "Marian")

    uvloop.run(run())
    peer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
