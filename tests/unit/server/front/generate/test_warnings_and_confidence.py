import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.front.echo import byte_tokenizer

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.front.generate.response import confidence, predictors, source_warnings
from seqserve_server.text.tokenizer import Tokenizer

SHIPPED = Path("models/en-de/2")
UNKNOWN, SCRIPT, MARKUP = "UNKNOWN_CHARACTERS", "OTHER_SCRIPT", "MARKUP"


@pytest.fixture(scope="module")
def english() -> Tokenizer:
    return Tokenizer.of_artifact(SHIPPED, Manifest.read(SHIPPED))


def warned(text: str, tokenizer: Tokenizer) -> list[str]:
    found = source_warnings(text, tokenizer.encode(text), tokenizer)
    names = map(generation_pb2.SourceWarning.Name, found)
    return [name.removeprefix("SOURCE_WARNING_") for name in names]


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


IDS = [5, 6, 7, 8, 9]


def test_a_surer_answer_has_more_and_a_long_one_to_a_short_source_less() -> None:
    assert confidence(-0.3, IDS, 6) > 0.7 and confidence(-9.0, IDS, 6) < 0.3
    assert confidence(-0.6, IDS, 6) > confidence(-0.6, IDS, 2)
    assert confidence(-0.6, IDS, 6) > confidence(-0.6, IDS, 30)


def test_a_loop_has_less_than_words_that_come_again_by_and_by() -> None:
    loop, others = [1, 2, 3, 2, 3, 2, 3, 4], [1, 2, 3, 4, 2, 5, 3, 6]
    assert confidence(-1.0, loop, 9) < confidence(-1.0, others, 9)


def test_predictors() -> None:
    probability, ratio, repeated = predictors(-2.0, [1, 2, 3, 2, 3, 4, 4], 4)
    assert probability == pytest.approx(math.exp(-2.0 / 8))
    assert ratio == pytest.approx(math.log(2.0))
    assert repeated == pytest.approx(2 / 8)
    # Forced tokens have no part in the mean.
    assert predictors(-2.0, IDS, 6, prefix=4)[0] == pytest.approx(math.exp(-1.0))


@given(
    st.floats(max_value=0.0, min_value=-1e30),
    st.lists(st.integers(0, 3), max_size=40),
    st.integers(1, 1000),
)
def test_it_is_between_0_and_1(score: float, ids: list[int], source_tokens: int) -> None:
    assert 0.0 < confidence(score, ids, source_tokens) < 1.0
