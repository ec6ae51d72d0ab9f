"""A text has the quantities that it has, and other forms of a number are the same number."""

from datetime import date, time

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from seqserve_server.text.quantities import words
from seqserve_server.text.quantities.comparison import differences
from seqserve_server.text.quantities.writing import written

# The marks of each language: of thousands, of decimals.
MARKS = {
    "en": (",", "."),
    "de": (".", ","),
    "fr": ("\u202f", ","),
    "es": (".", ","),
    "pt": (".", ","),
    "it": (".", ","),
    "nl": (".", ","),
    "pl": ("\u00a0", ","),
}
LANGUAGES = st.sampled_from([*MARKS])
DIGITS = ["0123456789", "٠١٢٣٤٥٦٧٨٩", "０１２３４５６７８９", "०१२३४५६७८९"]
PIECES = ["12", "3.5", "1,250", "halb ", "July ", " and ", "a.m.", " Uhr", " zwei", "KX7", "II"]
PIECES += ["-", "/", "№"]
TEXTS = st.one_of(st.lists(st.sampled_from(PIECES)).map("".join), st.text())


@given(TEXTS, st.sampled_from([*MARKS, "", "ko"]))
@examples(300)
def test_a_text_equals_itself(text: str, language: str) -> None:
    assert differences(text, text, language, language) == []


@given(TEXTS, TEXTS, LANGUAGES, LANGUAGES)
@examples(300)
def test_differences_are_places_of_both_texts(
    source: str, target: str, one: str, other: str
) -> None:
    found = differences(source, target, one, other)
    assert all(written([each.source for each in found if each.source], source, one, other))
    for pair in found:
        assert pair.source or pair.target
        for text, quantity in zip((source, target), pair, strict=True):
            if quantity:
                assert 0 <= quantity.begin < quantity.end <= len(text)


def formatted(value: int, places: int, language: str, *, groups: bool) -> str:
    thousands, decimal = MARKS[language]
    whole, part = divmod(value, 10**places)
    text = f"{whole:,}".replace(",", thousands) if groups else str(whole)
    return text + (f"{decimal}{part:0{places}}" if places else "")


@given(
    st.integers(0, 10**10),
    st.sampled_from([0, 0, 1, 2, 4]),
    LANGUAGES,
    LANGUAGES,
    st.booleans(),
    st.booleans(),
    st.sampled_from(DIGITS),
)
@examples(400)
def test_numbers_are_the_same_in_every_form(
    value: int, places: int, one: str, other: str, groups: bool, others: bool, digits: str
) -> None:
    source = f"x {formatted(value, places, one, groups=groups)} y"
    target = f"x {formatted(value, places, other, groups=others)} y"
    target = target.translate(str.maketrans("0123456789", digits))
    assert differences(source, target, one, other) == []
    assert differences(f"{source} 77", target, one, other)


@given(st.dates(date(1700, 1, 1)), LANGUAGES, LANGUAGES)
@examples(200)
def test_dates_are_the_same_in_every_form(day: date, one: str, other: str) -> None:
    forms = [
        words.date(other, str(day.day), day.month, str(day.year)),
        f"{day.day:02}.{day.month:02}.{day.year:04}",
        f"{day.day}/{day.month}/{day.year:04}",
        day.isoformat(),
    ]
    source = words.date(one, str(day.day), day.month, str(day.year))
    for form in forms:
        assert differences(source, f"x {form}.", one, other) == []
        assert differences(form, f"x {source}.", other, one) == []


@given(st.times(), st.sampled_from([*MARKS.keys() - {"en"}]))
@examples(200)
def test_times_are_the_same_in_every_form(moment: time, language: str) -> None:
    source = f"at {moment.hour % 12 or 12}:{moment.minute:02} {'ap'[moment.hour > 11]}.m. x"
    for form in (f"{moment.hour}:{moment.minute:02}", f"{moment.hour:02}.{moment.minute:02}"):
        assert differences(source, f"um {form} x", "en", language) == []
    other = (moment.hour + 5) % 24
    assert differences(source, f"um {other}:{moment.minute:02} x", "en", language)
