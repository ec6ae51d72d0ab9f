from pathlib import Path

import pytest
from tests.unit.server.front.echo import byte_tokenizer

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.front.generate.response import source_warnings
from seqserve_server.text.tokenizer import Tokenizer

SHIPPED = Path("models/en-de/2")
UNKNOWN, SCRIPT, MARKUP = "UNKNOWN_CHARACTERS", "OTHER_SCRIPT", "MARKUP"


@pytest.fixture(scope="module")
def english() -> Tokenizer:
    return Tokenizer.of_artifact(SHIPPED, Manifest.read(SHIPPED))


def warned(text: str, tokenizer: Tokenizer) -> list[str]:
    found = source_warnings(text, tokenizer.encode(text), tokenizer)
    return [
        generation_pb2.SourceWarning.Name(each).removeprefix("SOURCE_WARNING_") for each in found
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We watched a film.", []),
        ("Café Zürich: 3.50 € … “yes” – no #1 * 2", []),
        ("안녕하세요", [UNKNOWN, SCRIPT]),
        ("Привет, Tom", [UNKNOWN, SCRIPT]),
        ("He said Привет to everybody in the room", [UNKNOWN]),
        ("I love you 🙂", [UNKNOWN]),
        ("<p>A film.</p>", [UNKNOWN, MARKUP]),
        ("2 > 1 & 1", [UNKNOWN]),
        ("12345 ?!", []),
        ("\ufeffWe watched a \ufb01lm, \uff59\uff45\uff53, with cof\u00adfee\u200b.", []),
    ],
)
def test_a_model_of_english(text: str, expected: list[str], english: Tokenizer) -> None:
    assert warned(text, english) == expected


def test_a_character_that_the_answer_has_is_not_lost(english: Tokenizer) -> None:
    ids = english.encode("It costs £5.")
    assert source_warnings("It costs £5.", ids, english, "Es kostet 5 £.") == []
    assert source_warnings("It costs £5.", ids, english, "Es kostet 5.")


def test_bytes_spell_everything_but_teach_no_script() -> None:
    tokenizer = byte_tokenizer()
    assert warned("Good <b>day</b> 🙂", tokenizer) == [MARKUP]
    assert warned("Привет", tokenizer) == [SCRIPT]
