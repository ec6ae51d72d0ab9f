import io
from contextlib import closing

from tests.clock import Clock

from seqserve.command.progress import Progress


def test_the_line_is_overwritten_now_and_then() -> None:
    clock, stream = Clock(), io.StringIO()
    with closing(Progress(stream, "lines", is_shown=True, clock=clock)) as progress:
        for _ in range(3000):
            clock.now_s += 0.125
            progress.advance()
        shown = stream.getvalue().split("\r\x1b[K")
        assert shown[:2] == ["", "seqserve: 2 lines, 8 a second"]
        assert len(shown) == 1 + 3000 // 2
        progress.clear()
        stream.write("a report\n")
    assert stream.getvalue().endswith(
        "\r\x1b[Ka report\n\r\x1b[Kseqserve: 3,000 lines, 8 a second\n"
    )


def test_the_total_is_shown_where_it_is_known_and_nothing_if_it_is_not_shown() -> None:
    clock = Clock()
    for is_shown in (True, False):
        stream = io.StringIO()
        with closing(Progress(stream, "lines", is_shown=is_shown, total=4000, clock=clock)) as run:
            run.advance()
            clock.now_s += 1
        shown = "\r\x1b[Kseqserve: 1 of 4,000 lines, 1 a second\n"
        assert stream.getvalue() == shown * is_shown


def test_the_time_left_is_that_of_this_run() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = Progress(stream, "lines", is_shown=True, total=9300, begin=1000, clock=clock)
    for count, seconds in ((100, 1), (100, 1), (5100, 51), (2900, 29), (100, 1)):
        clock.now_s += seconds
        progress.advance(count)
    shown = stream.getvalue().split("\r\x1b[K")
    assert shown[1] == "seqserve: 1,100 of 9,300 lines, 100 a second, 1 min 22 s left"
    assert shown[4] == "seqserve: 9,200 of 9,300 lines, 100 a second, 1 s left"
    clock, stream = Clock(), io.StringIO()
    progress = Progress(stream, "lines", is_shown=True, total=750_001, clock=clock)
    clock.now_s += 1
    progress.advance(100)
    assert stream.getvalue().endswith("100 a second, 2 h 4 min left")
