"""What every server and engine is asked: real sentences, and calls over gRPC or HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from seqserve.load.answer import Answer
from seqserve.load.grpc_callers import GrpcCaller
from seqserve.load.http_caller import HttpCaller, HttpForm
from seqserve.requests import generate_request

_FOLDER = Path(__file__).parent
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
    """Refuses a closed loop in which a call failed: no load is more than a server can bear."""
    if errors := {answer.error for answer in answers if answer.error}:
        raise SystemExit(f"calls failed: {', '.join(sorted(errors))}")


def everyday() -> list[str]:
    """Reads 120 everyday sentences in English."""
    return _read("sentences.txt")


def news() -> list[str]:
    """Reads 192 sentences in English as newspapers have them, 25 to 30 words each."""
    return _read("news.txt")


def _read(name: str) -> list[str]:
    return (_FOLDER / name).read_text(encoding="utf-8").splitlines()
