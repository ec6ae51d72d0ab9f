"""Random requests to every method: each gets an answer or a client error.

No request causes a server error or a leak. :mod:`random_requests` draws the requests; each one
that once did is a row of ``test_bad_input.py``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.support.process import PATIENCE_S, ServerProcess, until

from seqserve._transport.status import METADATA_KEY, read_details

from .random_requests import Rpc, damaged, messages, metadata, rpcs_of

WATCHED_S = 0.05

NAME = "tiny"
Code = grpc.StatusCode
THEIRS = {Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.RESOURCE_EXHAUSTED}
"""Client errors, and errors of an overloaded server."""
HEALTH = "/grpc.health.v1.Health"
OWN_END = {f"{HEALTH}/Watch": Code.DEADLINE_EXCEEDED, f"{HEALTH}/List": Code.UNIMPLEMENTED}
"""Methods that always end with an error, and its code."""
LEAVING = ("/UnloadModel", "/RepositoryModelUnload")


@dataclass(frozen=True, slots=True)
class Target:
    """A server and its methods."""

    channel: Any
    rpcs: list[Rpc]
    drawn: st.SearchStrategy[Rpc]
    """One method."""

    def send(self, rpc: Rpc, requests: list[bytes], *metadata: tuple[str, str | bytes]) -> None:
        """Makes a call, which must succeed or end with a client error."""
        timeout_s = WATCHED_S if rpc.path == f"{HEALTH}/Watch" else PATIENCE_S
        try:
            rpc.call(self.channel, requests, timeout=timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            check(rpc, error)


def check(rpc: Rpc, error: Any) -> None:
    """Checks that an error is a client error whose message tells what to change."""
    code, shown = error.code(), f"{rpc.path}: {error.code().name}: {error.details()}"
    if code is OWN_END.get(rpc.path):
        return
    assert code in THEIRS, shown
    details = read_details(dict(error.trailing_metadata()).get(METADATA_KEY, b""))
    if code is Code.INVALID_ARGUMENT:
        assert details.get("field"), shown
    elif code is Code.RESOURCE_EXHAUSTED:
        assert "retry_after_s" in details or "larger than max" in shown, shown
    elif code is Code.NOT_FOUND and rpc.path != f"{HEALTH}/Check":
        assert f"{NAME}/1" in shown


@pytest.fixture(scope="module")
def target(tiny_artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server with short answers; after the tests its resources are as before."""
    folder = tmp_path_factory.mktemp("fuzzed")
    options = ("--slots", "8", "--workers", "2", "--watch-interval-s", "0")
    with ServerProcess(tiny_artifact.parents[1], folder, *options) as server:
        engines = server.engines()
        with grpc.insecure_channel(server.target) as channel:
            rpcs = rpcs_of(channel)
            yield Target(channel, rpcs, st.sampled_from([r for r in rpcs for _ in range(r.weight)]))
        until(server.is_idle)
        assert server.engines() == engines
        assert server.get("/readyz")[0] == 200
        server.stop()
        assert "all_finished=True" in server.stderr


def takes_away(rpc: Rpc, data: bytes) -> bool:
    if not rpc.path.endswith(LEAVING):
        return False
    message: Any = rpc.message()
    try:
        message.MergeFromString(data)
    except DecodeError:
        return False
    name = message.model if rpc.path.endswith("/UnloadModel") else message.model_name
    return name in ("", NAME)


def test_every_rpc_is_found(target: Target) -> None:
    services = {rpc.path.split("/")[1] for rpc in target.rpcs}
    assert services == {
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "inference.GRPCInferenceService",
        "seqserve.v1.GenerationService",
        "seqserve.v1.ModelService",
    }


def requests_of(rpc: Rpc) -> st.SearchStrategy[list[bytes]]:
    """Draws the requests of one call: well-formed ones, and some that are damaged."""
    one = st.one_of(messages(rpc), messages(rpc), messages(rpc), damaged(rpc))
    most = 4 if rpc.client_streaming else 1
    kept = one.filter(lambda request: not takes_away(rpc, request))
    return st.lists(kept, min_size=1, max_size=most)


def test_any_request(target: Target) -> None:
    @examples(250)
    @given(st.data())
    def sent(data: st.DataObject) -> None:
        rpc = data.draw(target.drawn)
        target.send(rpc, data.draw(requests_of(rpc)))

    sent()


def test_any_metadata(target: Target) -> None:
    @examples(60)
    @given(st.data())
    def sent(data: st.DataObject) -> None:
        rpc = data.draw(target.drawn)
        request = data.draw(messages(rpc).filter(lambda request: not takes_away(rpc, request)))
        target.send(rpc, [request], *data.draw(metadata()))

    sent()
