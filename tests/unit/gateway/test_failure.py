import json

import pytest

from seqserve._transport.status import too_large
from seqserve.errors import CallError, Overloaded, Unreachable
from seqserve_gateway.failure import Failure, problem, reason_as


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("INVALID_ARGUMENT", 400),
        ("UNAUTHENTICATED", 401),
        ("PERMISSION_DENIED", 403),
        ("NOT_FOUND", 404),
        ("FAILED_PRECONDITION", 409),
        ("RESOURCE_EXHAUSTED", 429),
        ("CANCELLED", 499),
        ("INTERNAL", 500),
        ("UNKNOWN", 500),
        ("UNIMPLEMENTED", 501),
        ("UNAVAILABLE", 503),
        ("DEADLINE_EXCEEDED", 504),
    ],
)
def test_status_of_each_code(code: str, status: int) -> None:
    response = problem(Failure.of(CallError(code, "why")), "i1")
    facts = json.loads(bytes(response.body))
    assert (response.status_code, facts["status"], facts["code"]) == (status, status, code)
    assert response.media_type == "application/problem+json"
    assert facts["title"] and facts["detail"] == "why" and facts["request_id"] == "i1"


def test_problem_has_the_field_the_reason_and_the_pause() -> None:
    error = Overloaded(
        "RESOURCE_EXHAUSTED", "full", field="source", retry_after_s=1.2, reason="QUEUE_FULL"
    )
    failure = Failure.of(error)
    facts = json.loads(failure.text("i1"))
    assert facts["field"] == "source"
    assert (facts["reason"], facts["retry_after_s"]) == ("QUEUE_FULL", 1.2)
    assert failure.headers == {"Retry-After": "2"}


def test_refusal_without_advice_gets_a_pause_and_a_message_above_a_limit_none() -> None:
    for code in ("RESOURCE_EXHAUSTED", "UNAVAILABLE"):
        assert Failure(code, "later").headers == {"Retry-After": "1"}
    failure = Failure.of(too_large(2000, 1000))
    assert (failure.status, failure.code, failure.headers) == (400, "INVALID_ARGUMENT", {})


def test_address_of_the_server_is_not_shown() -> None:
    error = Unreachable("UNAVAILABLE", "no connection to 10.1.2.3:50051: refused")
    assert "10.1.2.3" not in Failure.of(error).text("i1")


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("PERMISSION_DENIED", 403, "why"),
        ("RESOURCE_EXHAUSTED", 429, "why"),
        ("UNAVAILABLE", 503, "why"),
        ("INTERNAL", 500, "why"),
        # Where their clients send a token.
        ("UNAUTHENTICATED", 403, "send a valid token of the server as api_key"),
    ],
)
def test_translation_services_have_the_statuses_that_their_clients_know(
    code: str, status: int, error: str
) -> None:
    response = reason_as("error", "api_key")(Failure(code, "why"), "i1")
    assert (response.status_code, json.loads(bytes(response.body))) == (status, {"error": error})
