from pathlib import Path

import pytest

from seqserve_server.corpus.corpus_file import NOTHING, Answer, JsonLinesFile, TextFile, failed


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "in"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_lines_of_text_keep_their_ends(file: Path, out: Path) -> None:
    file.write_bytes("\ufeffone\r\n\ntwo\u2028three\nlast".encode())
    corpus = TextFile(file)
    assert corpus.count() == 4
    assert [place.text for place in corpus.places()] == ["one", "", "two\u2028three", "last"]
    corpus.write(out, [Answer("eins"), NOTHING, Answer("zwei\ndrei"), failed("no")])
    assert out.read_bytes() == b"eins\r\n\nzwei drei\n"


OBJECTS = [
    '{"id": 12345678901234567890, "ratio": 1.10, "text": "Olá" }',
    "",
    '{"id": 2}',
    "[1]",
    "nonsense",
    '{"text": "half \\ud800"}',
    '{"text": 7, "target": "old"}',
]


def test_objects_get_a_field(file: Path, out: Path) -> None:
    file.write_text("".join(f"{line}\r\n" for line in OBJECTS), encoding="utf-8")
    corpus = JsonLinesFile(file, "text", "target", has_scores=True)
    places = list(corpus.places())
    assert [each.text for each in places] == ["Olá", "", "", "", "", "half \ud800", ""]
    missing = "has no text in the field 'text'"
    no_object = "is not an object, so it has no text in the field 'text'"
    assert [each.fault for each in places[:4]] == ["", "", missing, no_object]
    assert places[4].fault.startswith("is not JSON: ")
    assert places[5].fault.startswith("is not UTF-8: half a character after 5 characters")
    answers = [Answer("Hallo", -0.25), NOTHING, *[failed("no")] * 5]
    corpus.write(out, answers)
    lines = out.read_bytes().decode().split("\r\n")
    first = '{"id": 12345678901234567890, "ratio": 1.10, "text": "Olá", "target": "Hallo"'
    assert lines[0] == f'{first}, "target_score": -0.25}}'
    assert lines[1:6] == [
        "",
        '{"id": 2, "target": null}',
        "[1]",
        "nonsense",
        '{"text": "half \\ud800", "target": null}',
    ]
    assert lines[6] == '{"text": 7, "target": null}'


def test_scores_are_written_where_they_are_asked_for(file: Path, out: Path) -> None:
    file.write_text('{"text": "a"}\n', encoding="utf-8")
    corpus = JsonLinesFile(file, "text", "target", has_scores=False)
    corpus.write(out, [Answer("A", -0.25)])
    assert out.read_text(encoding="utf-8") == '{"text": "a", "target": "A"}\n'


def test_bytes_that_are_no_text_come_back_as_they_were(file: Path, out: Path) -> None:
    data = b'\xff{"text": 1}\n{"text": "\xe9"}\n'
    file.write_bytes(data)
    corpus = JsonLinesFile(file, "text", "target", has_scores=True)
    assert all(each.fault for each in corpus.places())
    corpus.write(out, [failed("no"), failed("no")])
    assert out.read_bytes().splitlines()[0] == data.splitlines()[0]


def test_an_answer_may_take_the_place_of_its_text(file: Path, out: Path) -> None:
    file.write_text('{"text": "one", "n": {"text": "x"}}\n{"text": ""}\n{}', encoding="utf-8")
    corpus = JsonLinesFile(file, "text", "text", has_scores=False)
    corpus.write(out, [Answer("eins"), NOTHING, failed("no")])
    assert out.read_text(encoding="utf-8").splitlines() == [
        '{"text": "eins", "n": {"text": "x"}}',
        '{"text": null}',
        '{"text": null}',
    ]
