"""What every benchmark asks of a server, over gRPC or HTTP."""

from __future__ import annotations

from collections.abc import Iterable

from seqserve.load.answer import Answer
from seqserve.load.grpc_callers import GrpcCaller
from seqserve.load.http_caller import HttpCaller, HttpForm
from seqserve.requests import generate_request

MAX_DECODING_LENGTH = 64
"""Most target tokens of every request."""


def caller_of(address: str, *, streamed: bool = False) -> GrpcCaller:
    """Makes a caller of one server, for answers at once or streamed."""
    # The other engines compute no scores and divide no texts.
    request = generate_request(
        "", max_decoding_length=MAX_DECODING_LENGTH, return_scores=False, segmentation="none"
    )
    return GrpcCaller(address, request, streamed=streamed)


def http_caller_of(address: str) -> HttpCaller:
    """Makes a caller of a server that has LibreTranslate's route."""
    return HttpCaller(address, HttpForm(path="/translate", text_field="q"))


def check_answers(answers: Iterable[Answer]) -> None:
    """Refuses a closed loop in which a call failed: no load is more than a server can bear.

    Raises:
        SystemExit: A call failed.
    """
    if errors := {answer.error for answer in answers if answer.error}:
        raise SystemExit(f"calls failed: {', '.join(sorted(errors))}")
