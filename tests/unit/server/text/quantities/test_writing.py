import pytest

from seqserve_server.text.quantities.reading import quantities_in
from seqserve_server.text.quantities.writing import written


@pytest.mark.parametrize(
    ("source", "language", "forms"),
    [
        ("$1,250.50 for 5 books", "de", ["1.250,50", "5"]),
        ("order #84917", "de", ["#84917"]),
        ("at 3:30 p.m. or 9 am", "de", ["15:30", "9"]),
        ("at half past 7 or 8:15", "de", ["7:30", "8:15"]),
        ("July 20th, 2019, page 4", "de", ["20. Juli 2019", "4"]),
        ("2 May and 3 June, or Sept. 4, 2020", "de", ["2. Mai", "3. Juni", "4. September 2020"]),
        ("on the 3rd of May", "es", ["3 de mayo"]),
        ("20 July 2019", "pl", ["20 lipca 2019"]),
        ("07/20/2019 at gate B12", "de", ["20.07.2019", "B12"]),
        ("2019-07-20", "fr", ["2019-07-20"]),
        ("$9.99/month", "de", ["9,99"]),
        ("call +44 20 7871 5609", "de", ["+44 20 7871 5609"]),
        ("1,250.50", "ko", ["1,250.50"]),
        ("on July 20th, 2019", "ko", ["2019년 7월 20일"]),
        ("on July 20th", "ko", ["7월 20일"]),
    ],
)
def test_forms(source: str, language: str, forms: list[str]) -> None:
    assert [*written(quantities_in(source, "en"), source, "en", language)] == forms


def test_times_of_english_have_a_colon() -> None:
    source = "um 15.30 Uhr oder halb 8"
    assert [*written(quantities_in(source, "de"), source, "de", "en")] == ["15:30", "7:30"]


def test_a_date_is_whole_if_a_part_of_it_is_missing() -> None:
    source = "In 2020, on 20 July 2019"
    missing = [each for each in quantities_in(source, "en") if each.digits == "20"]
    assert [*written(missing, source, "en", "de")] == ["20. Juli 2019"]
