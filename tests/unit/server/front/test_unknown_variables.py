"""Variables of the environment that no option reads."""

from __future__ import annotations

import pytest

from seqserve_server.front.unknown_variables import unknown_variables


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("SEQSERVE_SLOT", "SEQSERVE_SLOTS"),
        ("SEQSERVE_MAXQUEUE", "SEQSERVE_MAX_QUEUE"),
        ("SEQSERVE_TLS_CERT", "SEQSERVE_TLS_CERTIFICATE"),
        ("SEQSERVE_LOG_FROMAT", "SEQSERVE_LOG_FORMAT"),
        ("SEQSERVE_slots", "SEQSERVE_SLOTS"),
        ("SEQSERVE_XYZZYX", ""),
    ],
)
def test_misspelt_variable_is_found_with_the_one_that_was_meant(misspelt: str, meant: str) -> None:
    assert unknown_variables({misspelt: "1", "SEQSERVE_SLOTS": "2"}) == {misspelt: meant}


def test_variables_of_server_client_and_others_are_known() -> None:
    environ = {
        "SEQSERVE_LOG_FORMAT": "json",
        "SEQSERVE_TARGET": "localhost:50051",
        "SEQSERVE_TOKEN": "secret",
        "SEQSERVE_BEAM_SIZE": "5",
        "PATH": "/bin",
        # Empty is unset, as in compose files.
        "SEQSERVE_EMPTY": "",
    }
    assert unknown_variables(environ) == {}
