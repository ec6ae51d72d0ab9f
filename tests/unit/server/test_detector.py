import io
import json
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from seqserve_server.detector import Detector, main


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Where is the train station?", "en"),
        ("Wo ist der Bahnhof?", "de"),
        ("기차역이 어디예요?", "ko"),
        *((word, "en") for word in ["Coffee", "Water", "Help", "Password", "Red", "Hot", "Movie"]),
        *((word, "de") for word in ["Kaffee", "Wasser", "Hilfe", "Fenster", "Gut", "Abbrechen"]),
    ],
)
def test_the_most_probable_language_comes_first(
    detector: Detector, text: str, language: str
) -> None:
    found = detector.confidences(text, ["ko", "en", "de"])
    assert next(iter(found)) == language
    assert sum(found.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("codes", "right"), [("", 199), ("de en es fr it pt", 60), ("de en ko", 30)], ids=str
)
def test_most_short_sentences_are_told_apart(detector: Detector, codes: str, right: int) -> None:
    text = Path(__file__).with_name("languages.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()]
    compared = codes.split() or sorted({code for code, _ in rows})
    found = [
        next(iter(detector.confidences(sentence, compared))) == code
        for code, sentence in rows
        if code in compared
    ]
    assert sum(found) == right


def test_only_the_languages_of_the_request_are_compared(detector: Detector) -> None:
    for languages in (["ko", "no", "xx"], ["fr", "en"], ["nb", "da"]):
        found = detector.confidences("Hvor er banegården?", languages)
        assert set(found) == set(languages) - {"xx"}
    assert detector.confidences("Where?", ["xx"]) == {}
    assert detector.confidences("Hello there", ["en"]) == {"en": 1.0}


@pytest.mark.parametrize("text", ["", "123 !", "Xq" * 40])
def test_a_text_that_tells_nothing_is_in_no_language(detector: Detector, text: str) -> None:
    assert detector.confidences(text, ["de", "en", "ko"]) == {}


def test_each_line_of_the_input_has_one_of_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [["어디예요?", ["ko", "en"]], ["", []]]
    written = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    output = io.StringIO()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(written)))
    monkeypatch.setattr(sys, "stdout", output)
    before = [(each, signal.getsignal(each)) for each in (signal.SIGINT, signal.SIGTERM)]
    try:
        main()
    finally:
        for each, handler in before:
            signal.signal(each, handler)
    found, nothing = [json.loads(line) for line in output.getvalue().splitlines()]
    assert next(iter(found)) == "ko" and nothing == {}
