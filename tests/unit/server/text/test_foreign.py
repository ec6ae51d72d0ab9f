from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.front.echo import byte_tokenizer

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.text.foreign import foreign_words, with_names
from seqserve_server.text.tokenizer import Tokenizer

SHIPPED = Path("models/en-de/2")
ENGLISH = Tokenizer.of_artifact(SHIPPED, Manifest.read(SHIPPED))


def words(text: str, tokenizer: Tokenizer = ENGLISH) -> list[str]:
    return [text[slice(*span)] for span in foreign_words(text, tokenizer)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My friend 李明 lives here.", ["李明"]),
        ("Yesterday I met Лев Толстой, and Пушок too.", ["Лев Толстой", "Пушок"]),
        ("The word कमल is on the wall.", ["कमल"]),
        ("The song 神-話 is by Д’Артаньян of Paris, they say.", ["神-話", "Д’Артаньян"]),
        ("She lives in Łódź, in Dvořák's house.", ["Łódź", "Dvořák"]),
        ("a cof\u00adfee, a \ufb01lm, an e\u0301toile, \uff59\uff45\uff53", []),
        ("It is 5 °C – “warm” … 3 €.", []),
        ("I love you 🙂.", []),
        ("Plain words of ASCII.", []),
    ],
)
def test_words_that_the_vocabulary_cannot_spell(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_a_particle_of_the_models_own_script_is_no_part_of_a_word() -> None:
    folder = Path("models/ko-en/3")
    korean = Tokenizer.of_artifact(folder, Manifest.read(folder))
    assert words("내 친구 李明은 베를린에 산다.", korean) == ["李明"]


@pytest.mark.parametrize("text", ["Привет, Tom", "안녕하세요", "Лев", "李明 a", "ab да"])
def test_a_text_that_is_half_foreign_stays(text: str) -> None:
    assert words(text) == []


def test_a_vocabulary_of_bytes_spells_all() -> None:
    assert words("My friend 李明 lives here.", byte_tokenizer()) == []


def named(text: str) -> str:
    return with_names(text, foreign_words(text, ENGLISH), ENGLISH)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("My good old friend 李明 met Лев Толстой.", "My good old friend Bo met         Tom."),
        ("It is often said (Лев Толстой said it).", "It is often said (Tom         said it)."),
        ("Bo has met 李明, 张伟, 王芳 and 刘洋.", "Bo has met Jo, Li,  X and 刘洋."),
    ],
)
def test_a_name_takes_the_place_of_each_word(text: str, read: str) -> None:
    assert named(text) == read


def test_the_model_reads_no_space_more() -> None:
    read = named("Are my good friends 李明 and Лев Толстой here?")
    assert ENGLISH.encode(read) == ENGLISH.encode("Are my good friends Bo and Tom here?")


@given(st.text(alphabet=st.sampled_from("ab  .-’éあ李क\u093fЛш"), max_size=40))
def test_only_foreign_words_change_and_all_keep_their_places(text: str) -> None:
    read = named(text)
    assert len(read) == len(text)
    within = {place for span in foreign_words(text, ENGLISH) for place in range(*span)}
    assert all(read[at] == text[at] for at in range(len(text)) if at not in within)
