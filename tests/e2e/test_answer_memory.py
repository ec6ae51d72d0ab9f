"""Memory of the shipped server while callers ask for the most, and do not read their answers."""

import contextlib
import re
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.resources import anonymous_mb, memory_mb
from tests.support.process import ROOT, ServerProcess, repeating, until
from tests.support.unread import Unread, unread

from seqserve.v1 import generation_pb2, generation_pb2_grpc

NAME = "en-de"
VERSIONS = (4, 5)
"""Those that a server loads by default."""
LONG = "The old train waits near the quiet garden and nobody knows why. " * 7
"""Nearly as many tokens as the model reads."""
ALL = {
    "segmentation": "none",
    "return_attention": True,
    "return_top_tokens": 64,
    "return_token_scores": True,
}
WIDEST = {"beam_size": 32, "num_hypotheses": 32, **ALL}
CALLERS = 4
"""Their shares together are nearly all of the memory for answers."""
AT_ONCE = 4
"""Calls that one makes before it waits until they are answered, so that the queue takes them."""
ROOM = 0.75
"""Part of the limit that the worst calls may use."""
KEPT_MB = 24.0
"""What allocators may keep of each idle process."""


def options(**given: Any) -> generation_pb2.GenerationOptions:
    return generation_pb2.GenerationOptions(
        min_decoding_length=128, max_decoding_length=128, **given
    )


def limit_mb() -> float:
    found = re.search(r"SEQSERVE_MEMORY:-(\d+)g", (ROOT / "docker-compose.yml").read_text())
    assert found
    return 1024.0 * int(found[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The shipped models, two versions of each; callers say who they are."""
    folder = tmp_path_factory.mktemp("answers")
    variables = {"SEQSERVE_CALLER_METADATA": "x-caller", "SEQSERVE_LOG_LEVEL": "warning"}
    variables["SEQSERVE_KEEP_VERSIONS"] = "2"
    with ServerProcess(ROOT / "models", folder, environment=variables) as server:
        yield server
        assert "Traceback" not in server.stderr


@contextlib.contextmanager
def peak_mb(server: ServerProcess) -> Iterator[list[float]]:
    found = [0.0]

    def watch() -> None:
        found[0] = max(found[0], memory_mb(server))

    with repeating(watch, 0.05):
        yield found


def attention(version: int) -> generation_pb2.AttentionRequest:
    """The largest answer for the least work: 2 MB."""
    return generation_pb2.AttentionRequest(model=NAME, version=version, source=LONG, target=LONG)


def fill_share(caller: Unread, server: ServerProcess, version: int) -> list[int]:
    """Asks for the largest answers until a call waits for memory; gives the streams."""
    waiting = server.value("answers_waiting")
    streams: list[int] = []

    def is_full() -> bool:
        if server.is_idle():
            streams.extend(caller.call("Attention", attention(version)) for _ in range(AT_ONCE))
        return server.value("answers_waiting") > waiting

    until(is_full)
    return streams


def test_cancelled_batches_give_their_memory_back(server: ServerProcess) -> None:
    before_mb = anonymous_mb(server.pid)
    batch = generation_pb2.GenerateBatchRequest(
        model=NAME, version=VERSIONS[0], sources=[LONG] * 128, options=options(**ALL)
    )
    with contextlib.ExitStack() as callers:
        # An answer that is ready before its call is cancelled is not sent, and stays.
        begun = [
            (caller, caller.call("GenerateBatch", batch))
            for number in range(3)
            for caller in [callers.enter_context(unread(server.target, str(number)))]
        ]
        enough_mb = before_mb + 1.5 * KEPT_MB
        until(lambda: anonymous_mb(server.pid) > enough_mb)
        for caller, stream in begun:
            caller.cancel(stream)
        began_s = time.monotonic()
        until(lambda: server.value("answer_bytes") == 0)
        until(lambda: anonymous_mb(server.pid) < before_mb + KEPT_MB)
    print(f"\nback after {time.monotonic() - began_s:.1f} s")


def test_the_worst_permitted_calls_fit_the_memory_of_the_compose_file(
    server: ServerProcess,
) -> None:
    # Pages of the caches stay once they were used.
    idle_mb = memory_mb(server) + server.value("cache_bytes") / 1e6
    read = server.value("source_tokens_total")
    with peak_mb(server) as peak, contextlib.ExitStack() as callers:
        widest = callers.enter_context(unread(server.target, "widest"))
        for version in VERSIONS * 2:
            request = generation_pb2.GenerateRequest(
                model=NAME, version=version, source=LONG, options=options(**WIDEST)
            )
            widest.call("Generate", request)
        until(lambda: server.value("source_tokens_total") > read)
        for number in range(CALLERS):
            caller = callers.enter_context(unread(server.target, f"caller-{number}"))
            fill_share(caller, server, VERSIONS[number % 2])
        # What had memory is answered then, and waits to be read.
        until(server.is_idle)
        held_mb = server.value("answer_bytes") / 1e6
    print(f"\n{peak[0]:.0f} MB at most, {held_mb:.0f} MB of answers reserved")
    assert held_mb > 150
    assert peak[0] < ROOM * limit_mb()
    # The connections are gone, and so is what was kept for them.
    until(lambda: server.value("answer_bytes") == 0)
    until(lambda: memory_mb(server) < idle_mb + 3 * KEPT_MB)


def test_a_caller_that_does_not_read_holds_its_share_and_others_are_served(
    server: ServerProcess,
) -> None:
    with unread(server.target, "unread") as caller:
        first, *_ = fill_share(caller, server, version=VERSIONS[0])
        until(server.is_idle)
        assert server.value("answer_bytes") < 128e6
        with grpc.insecure_channel(server.target) as channel:
            stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
            assert len(
                stub.Attention(
                    attention(VERSIONS[0]), metadata=[("x-caller", "other")]
                ).cross.weights
            )
        # A call that is over lets the next one begin.
        waiting = server.value("answers_waiting")
        caller.cancel(first)
        until(lambda: server.value("answers_waiting") < waiting)
    until(lambda: server.value("answers_waiting") == 0)


def test_an_answer_that_never_fits_is_refused_with_the_option_that_makes_it_large(
    server: ServerProcess,
) -> None:
    batch = generation_pb2.GenerateBatchRequest(
        model=NAME, sources=["Nobody waits."] * 1024, options=options(**ALL)
    )
    with grpc.insecure_channel(server.target) as channel:
        stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refusal:
            stub.GenerateBatch(batch)
    assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.value.details().startswith("options.return_top_tokens: makes the answers to")
