import pytest

from seqserve.language_codes import Language, code_among, folded


@pytest.mark.parametrize(
    ("code", "name", "script"),
    [
        ("en", "en", ""),
        ("EN-us", "en", ""),
        ("eng", "en", ""),
        ("eng_Latn", "en", "Latn"),
        ("deu", "de", ""),
        ("ger", "de", ""),
        ("zh-TW", "zh", "Hant"),
        ("zh_CN", "zh", "Hans"),
        ("zho_hans", "zh", "Hans"),
        ("arb_Arab", "ar", "Arab"),
        ("ast_Latn", "ast", "Latn"),
        ("sr-Latn-RS", "sr", "Latn"),
        ("", "", ""),
        ("E-" * 1000, "E-" * 1000, ""),
    ],
)
def test_forms_of_a_code_fold_to_one(code: str, name: str, script: str) -> None:
    assert folded(code) == Language(name, script)


@pytest.mark.parametrize(
    ("code", "known", "expected"),
    [
        ("en", ["en", "eng_Latn"], "en"),
        ("eng_Latn", ["en"], "en"),
        ("en-GB", ["eng_Latn", "deu_Latn"], "eng_Latn"),
        ("de", ["deu_Latn"], "deu_Latn"),
        ("pt-PT", ["pt", "pt_BR"], "pt"),
        ("pt_BR", ["pt", "pt_BR"], "pt_BR"),
        ("zh-Hant", ["zho_Hans", "zho_Hant"], "zho_Hant"),
        ("zh-HK", ["zho_Hans", "zho_Hant"], "zho_Hant"),
        ("zh", ["zho_Hans", "zho_Hant"], None),
        ("zh", ["zho_Hans"], "zho_Hans"),
        ("zh_Hans", ["zho_Hant"], None),
        ("fr", ["en", "de"], None),
        ("", ["en"], None),
    ],
)
def test_a_code_finds_its_language(code: str, known: list[str], expected: str | None) -> None:
    assert code_among(code, known, {}) == expected


def test_an_alias_goes_before_a_form_that_folds() -> None:
    known = ["zho_Hans", "zho_Hant"]
    assert code_among("zh", known, {"zh": "zho_Hans"}) == "zho_Hans"
    assert code_among("zh", known, {"zh": "gone"}) is None
