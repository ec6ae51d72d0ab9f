from collections.abc import Iterator

from seqserve.documents.passage import ParseError, Passage
from seqserve.documents.report import Report


def passage(text: str, **facts: str) -> Passage:
    return Passage(line=3, source=text, text=text, **facts)


def report(*answers: tuple[str, str]) -> Report:
    told = Report()
    for source, translation in answers:
        told.add(passage(source), translation)
    return told


def test_a_source_that_stands_in_the_result_is_left() -> None:
    told = report(("house", "Haus"), ("Tom", "Tom"), ("gift", "house"))
    told.check([passage("Haus"), passage("Tom"), passage("house")])
    assert told.left == 0, "house is a translation, too"
    told.check([passage("gift"), passage("gift", copied="code")], "word/document.xml")
    place = {"part": "word/document.xml", "line": 3, "text": "gift"}
    reason = {"reason": "is in the translated document as it was"}
    assert told.facts()["texts_left"] == [place | reason]


def test_a_result_that_cannot_be_read_is_left() -> None:
    def broken() -> Iterator[Passage]:
        yield passage("a")
        raise ParseError(7, "is not well-formed XML")

    told = report()
    told.check(broken())
    assert told.left == 1 and "line 7 is not well-formed XML" in str(told.facts())


def test_what_stays_is_counted_by_its_reason() -> None:
    told = report(("a", "b"), ("c", "c"))
    told.add(passage("12"), None)
    told.add(passage("x()", copied="code"), None)
    told.add(passage("y", fault="is no JSON"), None)
    told.add(Passage(line=1, before="  "), None)
    assert str(told) == "2 passages translated, 2 copied (no letter 1, code 1), 1 left"
    assert told.facts()["unchanged"] == 1
