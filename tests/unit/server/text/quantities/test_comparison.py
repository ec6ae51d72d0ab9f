from pathlib import Path

import pytest

from seqserve_server.text.quantities.comparison import differences
from seqserve_server.text.quantities.reading import has_digit

SAME = [
    line.split("\t")
    for line in Path(__file__).with_name("same.tsv").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("languages", "source", "target"), SAME)
def test_other_forms_are_no_difference(languages: str, source: str, target: str) -> None:
    one, other = languages.split()
    assert differences(source, target, one, other) == []
    if has_digit(target):
        assert differences(target, source, other, one) == []


def shown(source: str, target: str, one: str = "en", other: str = "de") -> list[tuple[str, str]]:
    return [
        (source[a.begin : a.end] if a else "", target[b.begin : b.end] if b else "")
        for a, b in differences(source, target, one, other)
    ]


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        (
            "Your order 85642 was shipped on 20 July 2019.",
            "Ihre Bestellung 20. Juli 2019 wurde am 2019 verschickt.",
            [("85642", "2019")],
        ),
        ("from 9 am to 6 pm", "von 21 Uhr bis 18 Uhr", [("9", "21")]),
        ("until 12 AM", "bis 12 Uhr", [("12", "12")]),
        ("for €5.643", "für 5.643 €", [("5.643", "5.643")]),
        ("Two dogs and 3 cats", "Zwei Hunde und Katzen", [("3", "")]),
        ("In 2019 it rained.", "2019 regnete es 14 Tage.", [("", "14")]),
        ("room M11", "Zimmer M1", [("M11", "M1")]),
        ("room 1F", "Zimmer 1", [("1F", "1")]),
        ("on 20 July", "am 20. Juni", [("July", "Juni")]),
        ("in 1916", "im Jahr 19916", [("1916", "19916")]),
        ("version 3.5.1", "Version 3.5", [("1", "")]),
        ("Between 7 and 9 the door is open.", "Von 9 bis 7 Uhr.", [("7", "9"), ("9", "7")]),
        ("They lost 3 to 0.", "Sie verloren 0 zu 3.", [("3", "0"), ("0", "3")]),
        ("bus 8M", "Bus 8Mund", [("", "8Mund")]),
        ("5% of 20 kg", "20 % von 5 kg", [("5", "20"), ("20", "5")]),
        ("12 eggs, 12 cups", "12 Eier und Tassen", [("12", "")]),
        ("15 boys and 28 girls", "28 Jungen, 15 Mädchen", [("15", "28"), ("28", "15")]),
        ("90 miles", "200 Kilometer", [("90", "200")]),
        ("100 km", "105 km", [("100", "105")]),
        ("1,600 meters", "1,7 Kilometer", [("1,600", "1,7")]),
        ("0.3 percent", "null Komma vier Prozent", [("0.3", "")]),
        ("2 or 3 years", "23 Jahre", [("2", ""), ("3", ""), ("", "23")]),
        ("at 3:30", "um halb drei", [("3:30", "")]),
        ("at 3:00 p.m.", "um halb drei", [("3:00", "")]),
        ("at 8:00", "um acht Uhr dreißig", [("8:00", "")]),
        ("30 kilometers", "eine halbe Stunde", [("30", "")]),
        ("A year has 12 months.", "Ein Jahr hat Monate.", [("12", "")]),
        ("100 °C or 212 °F", "°C oder 212 °F", [("100", "")]),
        ("to 80% in 30 minutes", "in 30 Minuten auf 80 Minuten", [("80%", "80 Minuten")]),
        ("$25 plus 2.9% of it", "25 $ plus 2,9 $", [("2.9%", "2,9 $")]),
        ("1 hour and 20 minutes", "1 Minute und 20 Minuten", [("1 hour", "1 Minute")]),
        ("from -5 °C to -12 °C", "von 5 °C auf 12 °C", [("-5 °C", "5 °C"), ("-12 °C", "12 °C")]),
        ("at half past 7", "um 7", [("7", "7")]),
        ("1½ cups", "1 Tasse", [("1½", "1")]),
        ("52 mph at 2 am", "52 Uhr um 2 Uhr", [("52 mph", "52 Uhr")]),
        ("Balance: -$20.00", "Saldo: 20,00 $", [("-$20.00", "20,00 $")]),
        ("4, 8, 15, 16", "4, 8.15. 16", [("8", ""), ("15", ""), ("", "8.15")]),
        ("the 1st of 10 parts", "1.10 Teile", [("1", ""), ("10", ""), ("", "1.10")]),
        ("from 2 hours to 3 hours", "von 3 Stunden auf 2 Stunden", [("2", "3"), ("3", "2")]),
        ("12 May 2024 and $5.50", "12. Mai 2024 $ und 5,50 $", [("2024", "2024 $")]),
        ("in 2024 for $5", "für $5 im Jahr $2024", [("2024", "$2024")]),
        ("It costs €5.", "Es kostet 5.", [("€5", "5")]),
        (
            "It costs EUR 5 million.",
            "Es kostet 5 Millionen Dollar.",
            [("EUR 5 million", "5 Millionen")],
        ),
        ("It costs 5 EUR or 7.", "Es kostet 5 oder 7.", [("5 EUR", "5")]),
        ("20 Swiss francs", "20 Zloty", [("20 Swiss", "20 Zloty")]),
        ("It grew by 5 %.", "Es wuchs um 5.", [("5 %", "5")]),
        ("5 km in 20 minutes", "5 Meter in 20 Minuten", [("5 km", "5 Meter")]),
        ("5 km in 20 minutes", "Um 5 in 20 Minuten", [("5 km", "5")]),
        ("The PIN is 0042.", "Die PIN ist 042.", [("0042", "")]),
        ("from gate 77 at 8:20", "um 77 Uhr von Tor 8:20", [("77", "77 Uhr")]),
    ],
)
def test_what_differs_is_found_in_both_texts(
    source: str, target: str, found: list[tuple[str, str]]
) -> None:
    assert shown(source, target) == found


def test_numbers_of_korean_are_missed() -> None:
    assert shown("12 chairs, 3 tables", "의자와 12개", "en", "ko") == [("3", "")]
    assert shown("5% of them", "그들의 5", "en", "ko") == [("5%", "5")]
    assert shown("15,000원", "€15,000", "ko", "en") == [("15,000원", "€15,000")]
    # Its order is another one.
    assert shown("3 of 5 people", "5명 중 3명", "en", "ko") == []


def test_words_of_an_unknown_language_are_not_missed() -> None:
    assert shown("3 cats", "kolme kissaa", "en", "fi") == []
    assert shown("order 85642", "tilaus", "en", "fi") == [("85642", "")]
    assert shown("room KX7", "huone", "en", "fi") == [("KX7", "")]


def test_marks_of_an_unknown_language_may_mean_either() -> None:
    for number in ("1250", "1.25", "1,25"):
        assert shown(number, "1.250", "", "") == []
    assert shown("1251", "1.250", "", "") == [("1251", "")]


def test_numbers_of_any_length_are_compared() -> None:
    for length in (17, 24, 25, 5000):
        number = "9" * length
        assert shown(f"{number} millions İ", f"{number} Millionen", "en", "de") == []
        assert shown(f"{number} millions", "viele Millionen", "en", "de") == [(number, "")]
        assert shown(number, "", "en", "fi") == [(number, "")]


def test_texts_of_many_numbers_take_no_time_for_each_pair() -> None:
    text = "1, 2. 3: " * 4000
    assert differences(text, text + "7", "en", "de")[0].target is not None
