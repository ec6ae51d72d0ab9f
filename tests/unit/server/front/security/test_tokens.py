import os
import re
from pathlib import Path

import pytest

from seqserve.auth import Scope, TokenEntry, digest_of
from seqserve.errors import OptionError
from seqserve_server.front.security.tokens import Tokens


def line(token: str, *scopes: Scope, name: str = "") -> str:
    scopes = scopes or (Scope.GENERATE,)
    return f"{TokenEntry(digest=digest_of(token), scopes=frozenset(scopes), name=name)}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"# ours\n\n{line('one', name='web')}{line('two', Scope.ADMIN)}")
    return path


def test_tokens_are_found(path: Path) -> None:
    tokens = Tokens(path)
    one, two = tokens.find("one"), tokens.find("two")
    assert one is not None and two is not None
    assert (one.name, one.scopes) == ("web", {Scope.GENERATE})
    assert (two.name, two.scopes) == ("", {Scope.ADMIN})
    for other in ("", "o", "three", digest_of("one").hex()):
        assert tokens.find(other) is None


def test_old_and_new_stand_beside_each_other_until_the_old_goes(path: Path) -> None:
    tokens = Tokens(path)
    path.write_text(line("one", name="web") + line("new", name="web"))
    assert tokens.find("one") and tokens.find("new")
    path.write_text(line("new", name="web"))
    assert tokens.find("one") is None and tokens.find("new")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no token; `seqserve token` makes one"),
        ("# nobody\n", "holds no token"),
        (line("one") + "secret of somebody\n", "line 2: must be a SHA-256"),
        (line("one") + "\n" + line("one", Scope.ADMIN), "line 3: the hash is a duplicate"),
        ("\xff", "line 1: must be"),
        ("a" * ((1 << 20) + 1), "is larger than 1048576 bytes"),
    ],
)
def test_a_file_that_is_wrong(path: Path, text: str, message: str) -> None:
    tokens = Tokens(path)
    path.write_text(text)
    with pytest.raises(OptionError, match=f"^--tokens: {re.escape(str(path))}.*{message}") as error:
        Tokens(path)
    assert "somebody" not in str(error.value)
    # Those that were known stay.
    assert tokens.find("one") and tokens.find("two")


def test_what_is_no_text_file(path: Path) -> None:
    tokens = Tokens(path)
    path.unlink()
    os.mkfifo(path)
    assert tokens.find("one") and tokens.find("two")
    for other in (path, path.parent, Path(os.devnull)):
        with pytest.raises(OptionError, match=f"^--tokens: {other} is not a regular file"):
            Tokens(other)
    path.unlink()
    with pytest.raises(OptionError, match=r"^--tokens: .*tokens cannot be read: No such file"):
        Tokens(path)
    path.write_bytes(b"\xff")
    with pytest.raises(OptionError, match="is not UTF-8 text"):
        Tokens(path)
