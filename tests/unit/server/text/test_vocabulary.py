from seqserve_server.text.vocabulary import Alphabet, script_of


def scripts_of(*tokens: str) -> frozenset[str]:
    return Alphabet.of(dict(enumerate(tokens)), frozenset()).scripts


def test_scripts_are_those_of_letters() -> None:
    assert [*map(script_of, "aß한語яあ1.€ ")] == [
        "LATIN", "LATIN", "HANGUL", "CJK", "CYRILLIC", "HIRAGANA", "", "", "", ""
    ]  # fmt: skip


def test_a_script_counts_if_two_in_a_thousand_tokens_have_it() -> None:
    latin = [f"▁a{'b' * n}" for n in range(998)]
    assert scripts_of(*latin, "я", "ю") == {"LATIN", "CYRILLIC"}
    assert scripts_of(*latin, "1", "ю") == {"LATIN"}


def test_tokens_for_what_is_unknown_have_no_script() -> None:
    assert Alphabet.of({0: "<unk>", 1: "語"}, frozenset({0})).scripts == {"CJK"}


def test_bytes_of_a_byte_level_vocabulary_are_read_as_text() -> None:
    # "Ġыы", as such a vocabulary spells it.
    assert scripts_of("Ġ", "Ġa", "ĠÑĭÑĭ") == {"LATIN", "CYRILLIC"}
