import io
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest
from tests.unit.server.corpus.upper_pool import Broken, UpperPool

from seqserve.command.journal import JournalFile
from seqserve.command.progress import Progress
from seqserve.errors import OptionError
from seqserve_server.corpus.corpus_file import Answer, TextFile
from seqserve_server.corpus.run import CorpusRun, in_order

LINES = [f"line {number}" for number in range(500)]
OPTIONS = {"beam_size": 2}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return tmp_path / "corpus.txt"


def write(corpus: Path, lines: Sequence[str]) -> None:
    corpus.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def run(corpus: Path, pool: UpperPool, options: dict[str, object] | None = None) -> int:
    """Runs over a corpus as the command does; returns how many texts failed."""
    out = corpus.with_name("out.txt")
    with JournalFile.beside(out, options or dict(OPTIONS), label=str(out)) as journal:
        this = CorpusRun(TextFile(corpus), journal, out)
        this.go_on()
        this.answer(pool, Progress(io.StringIO(), "lines", is_shown=True))
        return this.write()


def break_off(corpus: Path, texts: int = 300) -> None:
    with pytest.raises(Broken):
        run(corpus, UpperPool(breaks_after=texts))
    assert not corpus.with_name("out.txt").exists()


def journal_of(corpus: Path) -> Path:
    return corpus.with_name(".out.txt.seqserve-journal")


def output_of(corpus: Path) -> list[str]:
    assert not journal_of(corpus).exists()
    return corpus.with_name("out.txt").read_text(encoding="utf-8").splitlines()


def test_every_line_has_its_answer_in_order(corpus: Path) -> None:
    lines = [*LINES[:100], "", "  ", *LINES[100:]]
    write(corpus, lines)
    pool = UpperPool()
    assert run(corpus, pool) == 0
    assert output_of(corpus) == [line.strip().upper() for line in lines]
    assert pool.texts == LINES, "blank lines are not sent"
    assert not corpus.with_name("out.txt.failed").exists()


def test_a_run_goes_on_where_the_one_before_was_broken_off(corpus: Path) -> None:
    write(corpus, LINES)
    break_off(corpus)
    pool = UpperPool()
    run(corpus, pool)
    assert output_of(corpus) == [line.upper() for line in LINES]
    assert 0 < len(pool.texts) < len(LINES)
    assert pool.texts == LINES[-len(pool.texts) :]


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_an_entry_that_was_cut_is_answered_again(corpus: Path, cut: int) -> None:
    write(corpus, LINES)
    break_off(corpus)
    data = journal_of(corpus).read_bytes()
    journal_of(corpus).write_bytes(data[:-cut])
    run(corpus, UpperPool())
    assert output_of(corpus) == [line.upper() for line in LINES]


@pytest.mark.parametrize("damage", [b"nonsense", b"[1, 2]", b'["00", 7, 0.5, ""]', b"{}"])
def test_what_follows_a_damaged_entry_is_answered_again(corpus: Path, damage: bytes) -> None:
    write(corpus, LINES)
    break_off(corpus)
    entries = journal_of(corpus).read_bytes().splitlines(keepends=True)
    entries[100] = damage + b"\n"
    journal_of(corpus).write_bytes(b"".join(entries))
    pool = UpperPool()
    run(corpus, pool)
    assert output_of(corpus) == [line.upper() for line in LINES]
    assert pool.texts == LINES[99:], "the first line of the journal has the options"


def test_other_options_begin_again(corpus: Path) -> None:
    write(corpus, LINES)
    break_off(corpus)
    pool = UpperPool()
    run(corpus, pool, {"beam_size": 3})
    assert pool.texts == LINES


@pytest.mark.parametrize(
    ("lines", "sent"),
    [
        ([*LINES[:50], "another", *LINES[50:]], 451),
        ([*LINES[:50], *LINES[51:]], 449),
        (LINES[:60], 0),
        (["another"], 1),
    ],
    ids=["one more", "one less", "cut", "another"],
)
def test_a_corpus_that_has_changed_is_answered_from_there(
    corpus: Path, lines: list[str], sent: int
) -> None:
    write(corpus, LINES)
    break_off(corpus)
    write(corpus, lines)
    pool = UpperPool()
    run(corpus, pool)
    assert output_of(corpus) == [line.upper() for line in lines]
    assert len(pool.texts) == sent


def test_what_fails_is_listed_and_not_tried_again(corpus: Path) -> None:
    lines = ["why?", *LINES, "\udcff", "who?"]
    corpus.write_bytes("".join(f"{each}\n" for each in lines).encode(errors="surrogateescape"))
    break_off(corpus)
    pool = UpperPool()
    assert run(corpus, pool) == 3
    assert "why?" not in pool.texts
    assert output_of(corpus) == ["", *(line.upper() for line in LINES), "", ""]
    listed = corpus.with_name("out.txt.failed")
    assert listed.read_text(encoding="utf-8").splitlines() == [
        "1\tsource: is a question",
        "502\tis not UTF-8: byte 0xFF after 0 characters; convert it",
        "503\tsource: is a question",
    ]
    write(corpus, LINES)
    assert run(corpus, UpperPool()) == 0
    assert not listed.exists(), "it was of the output before"


@pytest.mark.parametrize("lines", [["why?"], LINES[:3]])
def test_a_file_in_the_place_of_the_list_stays(corpus: Path, lines: list[str]) -> None:
    write(corpus, lines)
    notes = corpus.with_name("out.txt.failed")
    notes.write_text("1\tsource: is empty\nmy notes\n", encoding="utf-8")
    with pytest.raises(
        OptionError, match=r"^OUT: .*out\.txt\.failed: is not the list of failed texts"
    ):
        run(corpus, UpperPool())
    assert notes.read_text(encoding="utf-8").endswith("my notes\n")


def test_an_empty_corpus_has_an_empty_output(corpus: Path) -> None:
    write(corpus, [])
    assert run(corpus, UpperPool()) == 0
    assert output_of(corpus) == []


class HeldPool:
    """A pool whose futures a test completes."""

    engines = 2

    def __init__(self) -> None:
        self.futures: list[Future[list[Answer]]] = []

    def submit(self, texts: Sequence[str]) -> Future[list[Answer]]:
        self.futures.append(Future())
        return self.futures[-1]


def test_chunks_come_in_order_and_few_are_read_ahead() -> None:
    pool, read = HeldPool(), 0

    def chunks() -> Iterator[int]:
        nonlocal read
        for read in range(1, 101):
            if read == 8:
                for index in (2, 1, 0):
                    pool.futures[index].set_result([Answer(str(index))])
            elif read > 8:
                pool.futures[read - 6].set_result([Answer(str(read - 6))])
            yield read - 1

    answered = in_order(pool, chunks(), lambda chunk: [str(chunk)])
    for expected in range(80):
        chunk, [answer] = next(answered)
        assert (chunk, answer.text) == (expected, str(expected))
        assert read <= expected + 8
    answered.close()
