import fcntl
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from seqserve.command.journal import Journal
from seqserve.documents.passage import Link, Translation

Options = dict[str, object]


def kept(path: Path, options: Options, **texts: str) -> None:
    """A run that keeps translations."""
    with closing(Journal(path, options)) as journal:
        for text, translation in texts.items():
            journal.add(text, Translation(translation))


def known(path: Path, options: Options, *texts: str) -> list[str | None]:
    """What a run with these options knows of the texts."""
    with closing(Journal(path, options)) as journal:
        found = [journal.get(text) for text in texts]
    return [each and each.text for each in found]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.journal"


OPTIONS: Options = {"beam_size": 5, "terms": {"a": "b"}, "model": None}


def test_the_next_run_knows_what_this_one_made(path: Path) -> None:
    kept(path, OPTIONS)
    assert not path.exists(), "there is no translation"
    kept(path, OPTIONS, **{"a\n": "ä\n"})
    assert known(path, OPTIONS, "a\n", "a") == ["ä\n", None]
    kept(path, OPTIONS, b="c")
    assert known(path, OPTIONS, "a\n", "b") == ["ä\n", "c"]
    Journal(path, OPTIONS).remove()
    assert not path.exists()


def test_an_alignment_is_known_too(path: Path) -> None:
    links = (Link(0, 1, 2, 3), Link(2, 3, 0, 1))
    aligned = Translation("ä b", links, ("numbers differ: 7 -> 8",))
    with closing(Journal(path, OPTIONS)) as first:
        first.add("a", aligned)
    with closing(Journal(path, OPTIONS)) as second:
        assert second.get("a") == aligned


def test_other_options_begin_anew(path: Path) -> None:
    other = OPTIONS | {"beam_size": 1}
    kept(path, OPTIONS, a="b")
    assert known(path, other, "a") == [None]
    # Until there is a translation with them, the file stays as it is.
    assert known(path, OPTIONS, "a") == ["b"]
    kept(path, other, c="d")
    assert known(path, other, "a", "c") == [None, "d"]


def test_two_runs_cannot_write_it(path: Path) -> None:
    with closing(Journal(path, OPTIONS)) as first:
        with pytest.raises(BlockingIOError):
            Journal(path, OPTIONS)
        first.add("a", Translation("b"))
    assert known(path, OPTIONS, "a") == ["b"]


def test_a_file_that_is_deleted_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Journal(path, OPTIONS)
    flock, ends = fcntl.flock, [first.remove]

    def late(*arguments: Any) -> None:
        for end in ends:
            end()
        ends.clear()
        flock(*arguments)

    monkeypatch.setattr(fcntl, "flock", late)
    kept(path, OPTIONS, a="b")
    assert path.exists()


@pytest.mark.parametrize("cut", [1, 2, 10, 40])
def test_a_line_that_was_cut_is_made_again(path: Path, cut: int) -> None:
    kept(path, OPTIONS, a="b", c="d")
    path.write_bytes(path.read_bytes()[:-cut])
    assert known(path, OPTIONS, "a", "c") == ["b", None]
    kept(path, OPTIONS, c="e")
    assert known(path, OPTIONS, "a", "c") == ["b", "e"]


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe\n", b"{}\n[1]\n", b'{}\n["zz", "a", []]\n'])
def test_a_damaged_file_is_no_obstacle(path: Path, damage: bytes) -> None:
    path.write_bytes(damage)
    assert known(path, {}, "a") == [None]
    kept(path, {}, a="b")
    assert known(path, {}, "a") == ["b"]
