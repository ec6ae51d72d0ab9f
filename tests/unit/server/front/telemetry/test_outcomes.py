from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from tests.unit.server.front.calls import details, failure, request
from tests.unit.server.front.service import Service, busy, serving

from seqserve.v1 import generation_pb2
from seqserve_server.contract import errors
from seqserve_server.front.engine_client.engine import RefusalCache
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.telemetry.call_record import (
    FAULT,
    OUTCOMES,
    Outcome,
    failure_of,
    has_passed,
    outcome_of,
    rejection_of,
)

Code = grpc.StatusCode


def test_every_error_of_a_call_has_a_row_of_its_own() -> None:
    assert set(OUTCOMES) == set(errors.ServiceError.__subclasses__())
    assert len({row.reason for row in OUTCOMES.values()}) == len(OUTCOMES)


def test_subclass_has_the_row_of_its_parent_and_any_other_exception_is_a_fault() -> None:
    class Later(errors.Draining):
        pass

    assert outcome_of(Later("later")) is OUTCOMES[errors.Draining]
    assert outcome_of(ZeroDivisionError()) is FAULT


@pytest.mark.parametrize("row", OUTCOMES.values(), ids=lambda row: row.reason)
def test_trace_marks_faults_as_the_conventions_of_grpc_do(row: Outcome) -> None:
    faults = {Code.INTERNAL, Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED}
    assert row.is_fault is (row.code in faults)


@pytest.mark.parametrize(
    ("error", "label"),
    [
        (errors.QueueFull("full", 1.0), "queue_full"),
        (errors.QueueFull("full", 1.0, errors.Bound.CALLER), "caller_share"),
        (errors.Draining("bye"), "draining"),
        (errors.InvalidRequest("source", "is empty"), "invalid"),
        (errors.ModelNotFound("no model"), ""),
        (ZeroDivisionError(), ""),
    ],
)
def test_rejections_are_counted_by_label(error: Exception, label: str) -> None:
    assert rejection_of(error) == label


def test_long_message_is_truncated() -> None:
    # Clients limit headers and refuse a reply whose headers are larger.
    failure = failure_of(errors.ModelNotFound("x" * 100_000), "id")
    sent = len(failure.message) + sum(len(value) for _, value in failure.trailers)
    assert sent < 4096


@pytest.mark.parametrize("error", [errors.EngineFault("secret"), ZeroDivisionError("secret")])
def test_fault_reveals_only_the_request_id(error: Exception) -> None:
    failure = failure_of(error, "id-of-the-log")
    assert failure.outcome.code is Code.INTERNAL
    assert "id-of-the-log" in failure.message
    assert b"secret" not in failure.trailers[0][1] and "secret" not in failure.message
    assert Status.FromString(failure.trailers[0][1]).message == failure.message


@pytest.mark.parametrize(
    ("remaining_s", "elapsed_s", "expected"),
    [
        (None, 1000.0, False),
        (0.0, 1.0, True),
        (-3.0, 1.0, True),
        # The wire rounds a timeout up by as much as 1 %.
        (0.09, 10.0, True),
        (0.5, 10.0, False),
        (0.02, 0.01, False),
    ],
)
def test_deadline_has_passed_within_rounding_and_jitter(
    remaining_s: float | None, elapsed_s: float, expected: bool
) -> None:
    assert has_passed(remaining_s, elapsed_s) is expected


SCORE = generation_pb2.ScoreRequest(source="a", target="b")
FAILED = request("a", model="echo", version=1)


@pytest.mark.parametrize(
    ("method", "sent", "code", "reason", "says"),
    [
        ("Generate", request(" \n "), Code.INVALID_ARGUMENT, "INVALID_FIELD", "source: "),
        ("Generate", request("a", model="x" * 5000), Code.NOT_FOUND, "MODEL_NOT_FOUND", "echo/2"),
        # Not UNAVAILABLE, after which clients retry.
        ("Generate", FAILED, Code.FAILED_PRECONDITION, "MODEL_NOT_LOADED", "echo/1"),
        ("Score", SCORE, Code.FAILED_PRECONDITION, "NO_SCORER", "echo/2 has no scorer.onnx"),
        ("Generate", request("draining"), Code.UNAVAILABLE, "DRAINING", ""),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isupper() else "",
)
async def test_refusal_has_a_code_a_reason_and_perhaps_a_retry_time(
    service: Service, method: str, sent: Message, code: grpc.StatusCode, reason: str, says: str
) -> None:
    service.runtime.can_score = False
    if reason == "DRAINING":
        service.remote.close()
    error = await failure(getattr(service.generation, method)(sent))
    assert error.code() is code
    assert says in error.details() and len(error.details()) < 300
    assert details(error, ErrorInfo).reason == reason
    retry = details(error, RetryInfo)
    assert (retry is not None and retry.retry_delay.ToMilliseconds() > 0) is (reason == "DRAINING")
    label = {"INVALID_FIELD": "invalid", "DRAINING": "draining"}.get(reason, "none")
    counted = await service.value("rejected_total", reason=label, model="echo")
    assert counted == (label != "none")


async def refused(service: Service, call: Any) -> None:
    error = await failure(call(request("c")))
    assert error.code() is Code.RESOURCE_EXHAUSTED
    assert details(error, RetryInfo).retry_delay.ToMilliseconds() > 0
    assert details(error, ErrorInfo).reason == "QUEUE_FULL"


async def test_a_refusal_is_repeated_without_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock that stands still.
    async with busy(1, max_queue=1, refusals=RefusalCache(lambda: 0.0)) as service:
        await refused(service, service.generation.Generate)
        with monkeypatch.context() as patch:
            patch.delattr(EngineGroup, "submit")
            for call in (service.generation.Generate, service.generation.GenerateStream):
                await refused(service, call)
        await service.until_value(3, "rejected_total", reason="queue_full", model="echo")


async def test_fault_in_a_step_ends_the_call_and_not_the_engine(service: Service) -> None:
    service.runtime.fault = ZeroDivisionError("secret")
    error = await failure(service.generation.GenerateStream(request("a")))
    assert error.code() is Code.INTERNAL and "secret" not in error.details()
    assert details(error, ErrorInfo).reason == "FAULT"
    service.runtime.fault = None
    answer = await service.generate("a")
    assert answer.hypotheses[0].text == "a"


async def test_message_over_the_limit_is_refused() -> None:
    async with serving(max_message_bytes=2048) as service:
        error = await failure(service.generate("a" * 4096))
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert "larger than max" in error.details()
