import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.words import MAX_ENTRIES, MAX_WORDS, fault_of_term
from seqserve_server.text.glossary import (
    Glossary,
    GlossaryError,
    Label,
    Term,
)

LABEL = Label("products", "en", "de")


def glossary(*sources: str) -> Glossary:
    return Glossary(LABEL, [Term(source=source, target=source.upper()) for source in sources])


def found(text: str, *sources: str) -> list[str]:
    return [term.source for term in glossary(*sources).terms_in(text)]


@pytest.mark.parametrize(
    ("text", "sources", "expected"),
    [
        ("a cup of tea", ["tea", "coffee"], ["tea"]),
        ("steam", ["tea"], []),
        ("tea-time, tea!", ["tea"], ["tea"]),
        ("Tea TEA tea", ["tea"], ["tea"]),
        ("us and apples", ["US", "Apples"], []),
        ("the US sells Apple", ["US", "Apple", "apple"], ["Apple", "US"]),
        ("an APPLE", ["Apple", "apple"], ["apple"]),
        ("ice  cream\nbar", ["ice", "ice cream", "cream bar"], ["ice cream"]),
        ("an ice-cream bar", ["ice cream"], []),
        ("new york city hall", ["new york", "york city hall"], ["york city hall"]),
        ("a b, a", ["a", "b"], ["a", "b"]),
        ("C++ and C", ["C++"], ["C++"]),
        ("STRASSE", ["straße"], ["straße"]),
        ("cafe\u0301", ["caf\u00e9"], ["caf\u00e9"]),
        ("हिन्दी", ["हिन"], []),
        ("हिन्दी में", ["हिन्दी"], ["हिन्दी"]),
        ("東京タワーへ", ["東京", "東京タワー"], ["東京タワー"]),
        ("커피가 맛이 좋네요", ["커피"], ["커피"]),
        ("냉커피", ["커피"], []),
        ("", ["a"], []),
    ],
)
def test_entries_in_a_text(text: str, sources: list[str], expected: list[str]) -> None:
    assert found(text, *sources) == expected


def test_the_first_of_equal_sources_counts() -> None:
    entries = [Term(source="tea", target="Tee"), Term(source="tea", target="Tasse")]
    assert Glossary(LABEL, entries).terms_in("tea") == entries[:1]


words = st.text("aB", min_size=1, max_size=2)
phrases = st.lists(words, min_size=1, max_size=3).map(" ".join)


@given(sources=st.lists(phrases, min_size=1, max_size=6, unique=True), text=st.lists(words))
def test_entries_are_those_that_searches_find(sources: list[str], text: list[str]) -> None:
    joined = " ".join(text)
    matches = found(joined, *sources)
    present = {
        source
        for source in sources
        if re.search(
            rf"(?<!\w){source}(?!\w)", joined, re.IGNORECASE if source.islower() else re.NOFLAG
        )
    }
    assert set(matches) <= present
    assert bool(matches) == bool(present)
    assert [len(match) for match in matches] == sorted(map(len, matches), reverse=True)


def test_a_hostile_text_takes_a_step_for_each_word_of_the_longest_entry() -> None:
    sources = " ".join(["a"] * (MAX_WORDS - 1) + ["b"]), " ".join(["a"] * 2)
    assert found("a " * 20_000, *sources) == [sources[1]]


def test_too_many_entries_or_none_are_refused() -> None:
    with pytest.raises(GlossaryError, match="has 0 entries for en and de"):
        glossary()
    with pytest.raises(GlossaryError, match="has 10,001 entries"):
        glossary(*["a"] * (MAX_ENTRIES + 1))


def test_faults_of_terms() -> None:
    assert fault_of_term("a", "b" * 256) == ""
    assert fault_of_term(" ", "b") == "source is empty"
    assert "33 words and signs" in fault_of_term("a " * (MAX_WORDS + 1), "b")
    assert fault_of_term("a", "b" * 257).startswith("target has 257 characters")
