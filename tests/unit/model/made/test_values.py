"""Values: the same in both languages, each in its own form."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from seqserve_model.data import Pair
from seqserve_model.made.language import Language, rows, table
from seqserve_model.made.nouns import Nouns
from seqserve_model.made.values import Values

COPIED = sorted(table("copied.toml")["patterns"])


def values(seed: int = 1, source: str = "en", target: str = "de") -> Values:
    return Values(Language.of(source), Language.of(target), random.Random(seed))


def drawn(kind: str, source: str = "en", target: str = "de") -> list[tuple[str, str]]:
    draw = values(source=source, target=target)
    return [draw.value(kind) for _ in range(200)]


@pytest.mark.parametrize("kind", [*COPIED, "person", "full", "family", "invented"])
def test_what_no_language_translates_is_equal_on_both_sides(kind: str) -> None:
    spans = drawn(kind)
    assert all(one == other and one for one, other in spans)
    assert not [one for one, _ in spans if "«" in one or "»" in one]


def test_numbers_swap_their_marks() -> None:
    swapped = str.maketrans(",.", ".,")
    for kind in ("number", "decimal"):
        pairs = drawn(kind)
        assert all(one.translate(swapped) == other for one, other in pairs)
        assert any("," in other or "." in other for _, other in pairs)


def test_prices_have_their_currency_behind_them_in_german() -> None:
    pairs = [(one, other) for one, other in drawn("price") if re.fullmatch(r"\$[\d,]+\.\d\d", one)]
    assert pairs
    for one, other in pairs:
        assert other == one.removeprefix("$").translate(str.maketrans(",.", ".,")) + " $"


def test_dates_are_the_same_day() -> None:
    for english, german in drawn("date"):
        if match := re.fullmatch(r"(\d+)\. (\w+) (\d{4})", german):
            assert match[1] in re.findall(r"\d+", english)
            assert match[3] in english
        elif match := re.fullmatch(r"(\d\d)\.(\d\d)\.(\d{4})", german):
            day, month, year = match.groups()
            assert english in (f"{month}/{day}/{year}", german)


def test_times_after_noon_are_counted_on() -> None:
    clock: Callable[[str], re.Match[str] | None] = re.compile(r"(\d+):(\d\d) p\.m\.").fullmatch
    pairs = [(match, german) for english, german in drawn("time") if (match := clock(english))]
    assert pairs
    for match, german in pairs:
        assert german == f"{int(match[1]) % 12 + 12}:{match[2]} Uhr"


def test_korean_dates_go_from_the_year_to_the_day() -> None:
    for english, korean in drawn("date", target="ko"):
        if match := re.fullmatch(r"(\w+) (\d+), (\d{4})", english):
            assert korean.startswith(f"{match[3]}년 ") and f" {match[2]}일" in korean


def test_korean_says_half_an_hour_and_the_half_of_the_day() -> None:
    halves = [pair for pair in drawn("time", target="ko") if re.match(r"\d+:30 p", pair[0])]
    assert any(korean.endswith("시 반") for _, korean in halves)
    assert all(korean.startswith("오후 ") for _, korean in halves)


def test_korean_spells_names_in_hangul_with_their_particle() -> None:
    draw = values(target="ko")
    template = ("{person} is here.", "{person}이/가 왔어요.")
    pairs = {draw.pair(template) for _ in range(200)}
    assert Pair("Minsu is here.", "민수가 왔어요.") in pairs
    assert Pair("Tom is here.", "톰이 왔어요.") in pairs


def test_an_abbreviation_at_the_end_ends_the_sentence() -> None:
    draw = values()
    sources = {draw.pair(("It is {time}.", "Es ist {time}.")).source for _ in range(100)}
    assert any(source.endswith(" p.m.") for source in sources)
    assert not any(".." in source for source in sources)


def test_the_slots_of_a_phrase_are_filled_alike() -> None:
    pair = values().pair(("{person} met {person2} at {url}", "{person2} traf {person}: {url}"))
    one, other = re.fullmatch(r"(.+) met (.+) at .+", pair.source).groups()  # type: ignore[union-attr]
    assert pair.target.startswith(f"{other} traf {one}: ")
    assert pair.source.split()[-1] == pair.target.split()[-1]


def test_a_sentence_is_put_in_its_place() -> None:
    pair = values().pair(('"{sentence}"', "„{sentence}“"), Pair("It {rains}.", "Es {regnet}."))
    assert pair == Pair('"It {rains}."', "„Es {regnet}.“")


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("de", "en"), ("en", "ko")])
def test_every_phrase_can_be_filled(source: str, target: str) -> None:
    draw = values(source=source, target=target)
    nouns = Nouns(source, target, random.Random(1))
    for phrases in rows("phrases.tsv", source, target).values():
        for phrase in phrases:
            assert all(draw.pair(nouns.pair(phrase), Pair("a", "b")))


def test_a_seed_decides_what_is_drawn() -> None:
    for kind in ("url", "full", "date"):
        assert values(3).value(kind) == values(3).value(kind)
