import pickle

import pytest

from seqserve.errors import SeqserveError
from seqserve_server.contract.errors import (
    ArtifactError,
    Bound,
    DeadlinePassed,
    Draining,
    EngineFault,
    InvalidRequest,
    ModelNotFound,
    ModelNotLoaded,
    ModelUnavailable,
    NoScorer,
    PermissionDenied,
    ProviderError,
    QueueFull,
    QuotaUsed,
    ServiceError,
    Stage,
    StartupError,
    Unauthenticated,
)

SERVICE_ERRORS: list[ServiceError] = [
    InvalidRequest("options.max_decoding_length", "is 0; at least 1"),
    ModelNotFound("no model 'x'; available: m/1"),
    QueueFull("512 requests are waiting already", 1.5),
    QueueFull(reason="512 requests are waiting already", retry_after_s=1.5, bound=Bound.WAIT),
    DeadlinePassed(Stage.QUEUE),
    DeadlinePassed(Stage.DECODE),
    ModelUnavailable("m/1 is loading; call again soon"),
    ModelNotLoaded("m/1 could not be loaded: weights.bin"),
    NoScorer("m/1"),
    Draining(),
    Draining("the server is shutting down; send the rest to another one"),
    Unauthenticated(),
    PermissionDenied("admin"),
    QuotaUsed("1,000 characters a day", "2026-11-28T00:00:00Z", 60.0),
    EngineFault("a step failed"),
]
OTHERS = [ArtifactError("weights.bin: sha256"), ProviderError("no cuda"), StartupError("--slots")]


def name(error: SeqserveError) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", [*SERVICE_ERRORS, *OTHERS], ids=name)
def test_pickle_keeps_all(error: SeqserveError) -> None:
    came = pickle.loads(pickle.dumps(error))
    assert type(came) is type(error)
    assert str(came) == str(error) != ""
    assert came.args == error.args
    assert vars(came) == vars(error)


def test_none_is_left_out() -> None:
    assert {type(error) for error in SERVICE_ERRORS} == set(ServiceError.__subclasses__())


def test_messages_are_for_people() -> None:
    assert str(InvalidRequest("source", "is empty")) == "source: is empty"
    assert str(QueueFull("full", 1.5)) == "full"
    assert str(DeadlinePassed(Stage.DECODE)) == "the deadline passed in decode"
