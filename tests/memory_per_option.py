"""Measures the memory that one caller can take, per option: ``python -m tests.memory_per_option``.

Each row is a fresh server with the shipped models and default limits. The caller makes calls of one
kind whose answers it does not read, until further ones wait for memory, a connection has no room
for more, or half a minute has passed.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from tests.resources import anonymous_mb
from tests.support.process import MODELS, ServerProcess
from tests.support.unread import unread

from seqserve.v1 import generation_pb2

SOURCE = "The old train waits near the quiet garden and nobody knows why. " * 7
LONGEST_S = 30.0
MOST = 1008
"""Calls of a connection, of which the server takes 1,024."""
AT_ONCE = 16
"""Calls under way at a time, so that the queue refuses none."""


def generate(**options: Any) -> generation_pb2.GenerateRequest:
    given = generation_pb2.GenerationOptions(
        min_decoding_length=128, max_decoding_length=128, **options
    )
    return generation_pb2.GenerateRequest(model="en-de", source=SOURCE, options=given)


ATTENTION = generation_pb2.AttentionRequest(model="en-de", source=SOURCE, target=SOURCE)
WIDE = {"beam_size": 32, "num_hypotheses": 32}
ALL = {"return_attention": True, "return_top_tokens": 64, "return_token_scores": True, **WIDE}
ROWS: list[tuple[str, str, Message]] = [
    ("`Generate`, no option", "Generate", generate()),
    ("`return_attention`", "Generate", generate(return_attention=True)),
    ("`return_top_tokens` of 64", "Generate", generate(return_top_tokens=64)),
    ("32 hypotheses of a beam of 32", "Generate", generate(**WIDE)),
    ("all of these", "Generate", generate(**ALL)),
    ("`Attention`", "Attention", ATTENTION),
]


class Held:
    """The most memory of a server's processes, in MB."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self.front = self.engine = self.reserved = 0.0

    def measure(self) -> None:
        self.reserved = max(self.reserved, self._server.value("answer_bytes") / 1e6)
        self.front = max(self.front, anonymous_mb(self._server.pid))
        self.engine = max(self.engine, *(anonymous_mb(pid) for pid in self._server.engines()))


def measured(method: str, request: Message) -> str:
    """Fills a server and gives the columns of its row."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(MODELS, Path(folder), "--log-level", "warning") as server,
        unread(server.target, "caller") as caller,
    ):
        held, begun, end_s = Held(server), 0, time.monotonic() + LONGEST_S
        while begun < MOST and time.monotonic() < end_s and not server.value("answers_waiting"):
            if server.is_idle():
                for _ in range(AT_ONCE):
                    caller.call(method, request)
                begun += AT_ONCE
            held.measure()
        while not server.is_idle():
            held.measure()
    return f"{begun} | {held.reserved:.0f} MB | {held.front:.0f} MB | {held.engine:.0f} MB"


def main() -> None:
    print("| unread calls of one caller | calls | reserved | front | largest engine |")
    print("| --- | --- | --- | --- | --- |")
    for name, method, request in ROWS:
        print(f"| {name} | {measured(method, request)} |", flush=True)


if __name__ == "__main__":
    main()
