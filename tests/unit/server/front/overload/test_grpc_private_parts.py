"""The canary of grpcio's private parts: it fails if a release of grpcio changes one of them."""

import re
from pathlib import Path

import grpc
from tests.unit.server.front.overload.test_acceptor import SOURCE, ends, started

import seqserve_server
from seqserve_server.front.overload.acceptor import AcceptingServer, missing_parts

PRIVATE = re.compile(r"cygrpc|^(?:from|import) grpc(?:\.aio)?(?:\._| import _)", re.MULTILINE)
WHAT_TO_DO = f"""
grpcio {grpc.__version__} changed a private part that front/overload/acceptor.py uses. Servers go on
with this release, but calls in overload may end with CANCELLED instead of RESOURCE_EXHAUSTED; their
log says "calls are not refused on arrival".
  1. Pin grpcio in pyproject.toml below this release, so that no user gets it.
  2. Compare src/python/grpcio/grpc/_cython/_cygrpc/aio/server.pyx.pxi of this release with the one
     before it: `AioServer._make_request_call_future`, `_request_call`, `_request_registered_call`,
     what `_server_main_loop` does with a call, `_handle_rpc`, `_schedule_rpc_coro`, the arguments
     of `AioServer` and `_ServicerContext`, and `grpc.aio._server.Server`.
  3. Adjust `_Acceptor`, and run this folder's tests and tests/chaos/test_overload.py.
If grpc.aio can take many calls in a turn by itself, delete the acceptor.
"""


async def test_grpcio_has_every_private_part_that_the_acceptor_uses() -> None:
    assert missing_parts() == [], WHAT_TO_DO
    async with started() as (server, stub):
        assert isinstance(server, AcceptingServer), WHAT_TO_DO
        # Far more calls in one turn than gRPC's own loop takes.
        codes = await ends([stub.Generate(SOURCE, timeout=30) for _ in range(200)])
        assert codes == {"OK": 200}, WHAT_TO_DO
        assert server.calls_never_accepted() == 0, WHAT_TO_DO


def test_no_other_file_of_the_server_uses_private_parts() -> None:
    root = Path(seqserve_server.__file__).parent
    users = [path.name for path in root.rglob("*.py") if PRIVATE.search(path.read_text("utf-8"))]
    assert users == ["acceptor.py"]
