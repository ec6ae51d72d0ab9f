"""The tables of the languages: each row says the same in all of them."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from seqserve.errors import OptionError
from seqserve_model.made.language import Language, rows, table

PAIRS = [("en", "de"), ("de", "en"), ("en", "ko")]


@pytest.mark.parametrize(
    ("code", "name", "written"),
    [
        ("en", "Yusuf", "Yusuf's"),
        ("de", "Yusuf", "Yusufs"),
        ("de", "Jonas", "Jonas’"),
        ("de", "Weiß", "Weiß’"),
        ("ko", "지호", "지호의"),
    ],
)
def test_genitives_follow_the_last_letter(code: str, name: str, written: str) -> None:
    assert Language.of(code).possessive(name) == written


@pytest.mark.parametrize(
    ("code", "written"), [("en", "1,234.50"), ("de", "1.234,50"), ("ko", "1,234.50")]
)
def test_amounts_have_the_marks_of_their_language(code: str, written: str) -> None:
    assert Language.of(code).field("amount", Decimal("1234.50")) == written


def test_months_and_days_of_the_week_have_names() -> None:
    german = Language.of("de")
    assert german.field("month", 2) == "März"
    assert german.field("weekday", 0) == "Montag"
    assert german.field("year", "2024") == "2024"


@pytest.mark.parametrize("code", ["en", "de", "ko"])
def test_a_year_has_twelve_months_and_a_week_seven_days(code: str) -> None:
    language = Language.of(code)
    assert (len(language.months), len(language.weekdays), len(language.halves)) == (12, 7, 6)


def test_a_language_that_is_not_known_is_named() -> None:
    with pytest.raises(OptionError, match=r"data\.made: 'fr' is not one of en, de, ko"):
        Language.of("fr")


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("name", ["phrases.tsv", "forms.tsv"])
def test_a_target_has_no_slot_that_its_source_lacks(name: str, source: str, target: str) -> None:
    table_rows = rows(name, source, target)
    assert table_rows or target == "ko"
    for kind in ("phrase", "word", "message", "around"):
        for one, other in table_rows.get(kind, []):
            assert sorted(re.findall(r"\{\w+\}", one)) == sorted(re.findall(r"\{\w+\}", other))


def test_columns_can_be_read_either_way() -> None:
    assert ("Good morning", "Guten Morgen") in rows("phrases.tsv", "en", "de")["phrase"]
    assert ("Guten Morgen", "Good morning") in rows("phrases.tsv", "de", "en")["phrase"]


def test_a_name_is_one_word() -> None:
    for section in table("names.toml").values():
        for names in section.values():
            assert all(re.fullmatch(r"[^\W\d_][\w'-]*(=[\w'-]+)?", name) for name in names.split())
