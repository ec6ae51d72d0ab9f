import os
import stat
from pathlib import Path

import pytest

from seqserve.auth import Scope, TokenEntry, digest_of
from seqserve.command.main import main


def test_the_token_and_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "--name", "web"]) == 0
    shown = capsys.readouterr()
    token = shown.out.removesuffix("\n")
    note, line = shown.err.splitlines()
    # A comment, so that standard error as a whole is a valid file of tokens.
    assert note.startswith("# ")
    expected = TokenEntry(digest=digest_of(token), scopes=frozenset([Scope.GENERATE]), name="web")
    assert TokenEntry.parse(line) == expected
    assert main(["token", "--scope", "admin", "--scope", "generate"]) == 0
    assert TokenEntry.parse(capsys.readouterr().err.splitlines()[-1]).scopes == set(Scope)


def test_the_file_holds_no_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokens"
    tokens = []
    old = os.umask(0)
    try:
        for name in ("web", "batch"):
            assert main(["token", "--name", name, "--tokens", str(path)]) == 0
            shown = capsys.readouterr()
            tokens.append(shown.out.removesuffix("\n"))
            assert shown.err == ""
    finally:
        os.umask(old)
    entries = [TokenEntry.parse(line) for line in path.read_text().splitlines()]
    assert [entry.digest for entry in entries] == [digest_of(token) for token in tokens]
    assert [entry.name for entry in entries] == ["web", "batch"]
    assert not any(token in path.read_text() for token in tokens)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_last_line_gets_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokens"
    path.write_text("# ours")
    assert main(["token", "--tokens", str(path)]) == 0
    first, second = path.read_text().splitlines()
    assert first == "# ours"
    assert TokenEntry.parse(second)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--name", "two words"], "name: must be"),
        (["--scope", "all"], "--scope: 'all' is not one of generate, admin"),
        (["--tokens", "/"], "--tokens: / cannot be written"),
    ],
)
def test_an_error_names_the_option_and_shows_no_token(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", *argv]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""
