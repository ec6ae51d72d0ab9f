from __future__ import annotations

import pytest

from seqserve.command.main import main


@pytest.mark.parametrize(
    "argv",
    [
        ["--target", "127.0.0.1:1", "traffic", "en-de", "1=90", "2=10"],
        ["traffic", "--target", "127.0.0.1:1", "en-de", "1=90", "2=10"],
        ["traffic", "en-de", "--target", "127.0.0.1:1", "1=90", "2=10"],
        ["traffic", "en-de", "1=90", "2=10", "--target", "127.0.0.1:1"],
    ],
)
def test_options_may_stand_anywhere(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", *argv, "--max-attempts", "1"]) == 1
    assert "Connection refused" in capsys.readouterr().err


def test_folder_of_a_server_is_no_option_of_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEQSERVE_GLOSSARIES", "/glossaries")
    assert main(["models", "--target", "127.0.0.1:1", "--max-attempts", "1"]) == 1
    assert "Connection refused" in capsys.readouterr().err
