import os
from dataclasses import dataclass

import pytest

from seqserve.options import option
from seqserve_export.command import ArtifactCommand

POLICY = "OMP_WAIT_POLICY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    name: str = option(help="A name.")


def run(options: Options) -> str:
    return f"{options.name} waits {os.environ.get(POLICY)}"


COMMAND = ArtifactCommand(
    name="write", options=Options, description="Writes.", epilog="example: none", run=run
)


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first, so that what the command makes of it is undone.
    monkeypatch.setenv(POLICY, "")
    monkeypatch.delenv(POLICY)


def test_wait_policy_is_set_before_the_work_begins(capsys: pytest.CaptureFixture[str]) -> None:
    assert COMMAND(["--name", "tiny"]) == 0
    assert capsys.readouterr().out == "tiny waits passive\n"


def test_help_describes_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        COMMAND(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "seqserve write" in shown and "Writes." in shown and "example: none" in shown
