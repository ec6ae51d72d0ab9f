import pytest

from seqserve.command.advice import advice_on, advice_on_text
from seqserve.errors import (
    DeadlineExceeded,
    InternalError,
    OptionError,
    Overloaded,
    SeqserveError,
    Unauthenticated,
    Unavailable,
    Unreachable,
)


def unreachable(reason: str) -> Unreachable:
    return Unreachable("UNAVAILABLE", f"no connection to 127.0.0.1:1: {reason}")


def handshake(reason: str) -> Unreachable:
    return unreachable(f"Tls handshake failed: SSL routines:OPENSSL_internal:{reason}")


@pytest.mark.parametrize(
    ("error", "advised"),
    [
        (unreachable("Connection refused"), "`seqserve serve` starts one"),
        (unreachable("Socket closed"), "one with TLS needs --tls"),
        (unreachable("timed out before receiving SETTINGS frame"), "is not a gRPC server"),
        (handshake("CERTIFICATE_VERIFY_FAILED: unable to get local"), "--tls-ca names the file"),
        (handshake("CERTIFICATE_VERIFY_FAILED: certificate has expired"), "has expired"),
        (handshake("CERTIFICATE_VERIFY_FAILED: certificate is not yet valid"), "not valid yet"),
        (handshake("WRONG_VERSION_NUMBER"), "does not use TLS"),
        (unreachable("Hostname Verification Check failed."), "--tls-server-name gives the name"),
        (Unreachable("UNAVAILABLE", "no address of there:1: x"), "Is the host of --target right?"),
        (Unavailable("UNAVAILABLE", "en-de/2 is loading", request_id="7"), "`seqserve models`"),
        (Unavailable("UNAVAILABLE", "Socket closed"), "The connection broke"),
        (Overloaded("RESOURCE_EXHAUSTED", "the queue is full"), "--timeout-s"),
        (DeadlineExceeded("DEADLINE_EXCEEDED", "late"), "--timeout-s gives a call more time"),
        (Unauthenticated("UNAUTHENTICATED", "send a token"), "SEQSERVE_TOKEN gives the token"),
    ],
)
def test_an_error_gets_advice(error: SeqserveError, advised: str) -> None:
    assert advised in advice_on(error)


@pytest.mark.parametrize("error", [OptionError("--port: no"), InternalError("INTERNAL", "fault")])
def test_an_error_that_needs_no_advice_gets_none(error: SeqserveError) -> None:
    assert advice_on(error) == ""


@pytest.mark.parametrize(
    ("text", "is_warned"),
    [
        ("It rains. We stay at home.", True),
        ("Es regnet! „Wir bleiben.“", True),
        ("今日は雨です。家にいます。", True),
        ("비가 온다. 집에 있다.", True),
        ("It rains.", False),
        ("Mr. Smith met Dr. Jones", False),
        ("It costs 3.50 euros… or so", False),
        ("", False),
    ],
)
def test_a_text_of_several_sentences_is_warned_of(text: str, is_warned: bool) -> None:
    assert bool(advice_on_text(text, "none")) == is_warned
    assert not advice_on_text(text, None)
    assert not advice_on_text(text, "sentences")
