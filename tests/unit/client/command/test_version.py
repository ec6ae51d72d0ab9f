from __future__ import annotations

from importlib import metadata

import pytest

from seqserve import __version__
from seqserve.command.main import main


def test_the_parts_that_are_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        if name == "grpcio":
            return "9.9.9"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    assert main(["version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"seqserve {__version__}"
    assert lines[1].startswith("python 3.")
    assert lines[2:] == ["grpcio 9.9.9"]
