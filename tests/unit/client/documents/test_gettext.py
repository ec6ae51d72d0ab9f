"""Which translations of a PO file are made. «» stand around them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.attributes import Languages
from seqserve.documents.formats import Format, parser_of
from seqserve.documents.passage import Translation

from .marking import marked, pairs, passages_of, written

HEADER = (
    'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Plural-Forms: nplurals={}; plural=n != 1;\\n"\n\n'
)


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        ('msgid "a b"\nmsgstr ""\n', 'msgid "a b"\nmsgstr "«a b»"\n'),
        'msgid "a"\nmsgstr "b"\n',
        ('domain "x"\nmsgid "a"\nmsgstr ""\n', 'domain "x"\nmsgid "a"\nmsgstr "«a»"\n'),
        '#, fuzzy\nmsgid "a"\nmsgstr "b"\n',
        '#~ msgid "a"\n#~ msgstr ""\n',
        'msgid "%s: %d"\nmsgstr ""',
        (
            '# c\n#: f.c:1\n#, c-format\n#| msgid "z"\nmsgctxt "x"\nmsgid "a"\r\nmsgstr\t""',
            '# c\n#: f.c:1\n#, c-format\n#| msgid "z"\nmsgctxt "x"\nmsgid "a"\r\nmsgstr\t"«a»"',
        ),
        (
            'msgid ""\n"a \\"b\\"\\n"\n"c\\n"\nmsgstr ""\n',
            'msgid ""\n"a \\"b\\"\\n"\n"c\\n"\nmsgstr "«a \\"b\\"\\n"\n"c»\\n"\n',
        ),
        'msgid "a"\nmsgstr ""\n"b"\n',
        ('msgid "\\303"\nmsgstr ""\n', 'msgid "\\303"\nmsgstr "«Ã»"\n'),
    ),
)
def test_empty_translations_are_filled(text: str, expected: str) -> None:
    assert marked(Format.PO, text) == expected


@pytest.mark.parametrize(
    ("code", "header", "forms"),
    [
        ("de", "nplurals=2; plural=(n != 1);", ["«a file»", "«files»"]),
        ("de-CH", "nplurals=2; plural=(n != 1);", ["«a file»", "«files»"]),
        ("pt-BR", "nplurals=2; plural=(n > 1);", ["«a file»", "«files»"]),
        ("ko", "nplurals=1; plural=0;", ["«files»"]),
        ("pl", "nplurals=3; plural=(n==1", ["«a file»", "«files»", "«files»"]),
        ("tlh", "nplurals=INTEGER; plural=EXPRESSION;", ["«a file»", "«files»"]),
    ],
)
def test_a_template_gets_the_plural_forms_of_its_language(
    code: str, header: str, forms: list[str]
) -> None:
    told = 'charset={}\\n"\n"Plural-Forms: {}'
    head = 'msgid ""\nmsgstr ""\n"'
    entry = 'msgid "a file"\nmsgid_plural "files"\n'
    template = head + told.format("CHARSET", "nplurals=INTEGER; plural=EXPRESSION;") + '\\n"\n\n'
    source = f'{template}{entry}msgstr[0] ""\nmsgstr[1] ""\n\nmsgid "a"\nmsgstr ""\n'
    passages = parser_of(Format.PO, languages=Languages("en", code))([source])
    found = written(passages, lambda each: Translation(f"«{each.text}»"))
    assert found.startswith(head + told.format("UTF-8", header))
    lines = "".join(f'msgstr[{n}] "{text}"\n' for n, text in enumerate(forms))
    assert found.endswith(f'{entry}{lines}\nmsgid "a"\nmsgstr "«a»"\n')


ENTRY = 'msgid "a file"\nmsgid_plural "files"\n'


@pytest.mark.parametrize(
    ("forms", "before", "expected"),
    [
        (2, ["", ""], ["«a file»", "«files»"]),
        (1, [""], ["«files»"]),
        (3, ["", ""], ["«a file»", "«files»", "«files»"]),
        (2, ["x", ""], ["x", "«files»"]),
        (3, ["x", "y"], ["x", "y"]),
        (0, ["", ""], ["«a file»", "«files»"]),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_there_are_as_many_plural_forms_as_the_header_says(
    forms: int, before: list[str], expected: list[str], end: str
) -> None:
    def document(texts: list[str]) -> str:
        lines = [f'msgstr[{form}] "{text}"\n' for form, text in enumerate(texts)]
        text = f'{HEADER.format(forms)}{ENTRY}{"".join(lines)}\nmsgid "b"\nmsgstr "c"\n'
        return text.replace("\n", end)

    assert marked(Format.PO, document(before)) == document(expected)


@pytest.mark.parametrize(
    ("languages", "before", "after"),
    [
        (("en", "pt-br"), "", "pt_BR"),
        (("en", "pt-br"), "en_GB", "pt_BR"),
        (("auto", "pt-br"), "en", "pt_BR"),
        (("en", "pt-br"), "fr", "fr"),
        (("", ""), "", ""),
    ],
)
def test_the_header_names_the_language(languages: tuple[str, str], before: str, after: str) -> None:
    text = 'msgid ""\nmsgstr "X-Language: a\\nLanguage: {}\\n"\n\nmsgid "Language: "\nmsgstr ""\n'
    found = parser_of(Format.PO, languages=Languages(*languages))([text.format(before)])
    assert "".join(each.before + each.source for each in found) == text.format(after)


def test_a_form_is_added_behind_a_last_line_without_an_end() -> None:
    text = f'{HEADER.format(3)}{ENTRY}msgstr[0] ""\nmsgstr[1] ""'
    assert marked(Format.PO, text).endswith('msgstr[1] "«files»"\nmsgstr[2] "«files»"\n')
    lines = [each.line for each in passages_of(Format.PO, f"{text}\n") if each.has_words]
    assert lines == [8, 9, 10]


def test_a_text_that_is_too_long_is_reported_and_stays() -> None:
    text = f'msgid "{"word " * 30_000}"\nmsgstr ""\n'
    passages = passages_of(Format.PO, text)
    assert [each.line for each in passages if "too long" in each.fault] == [2]
    assert marked(Format.PO, text) == text


LINES = st.sampled_from(["# c\n", "#~ x\n", "\n", "#, fuzzy\n", " \t\n", 'msgctxt "c"\n'])
STRINGS = st.lists(
    st.sampled_from(["a", "%s", "<b>x</b>", "{n}", " ", "\\n", '\\"', "\\\\", "é", '"\n"', "\\101"])
).map("".join)


@given(st.lists(st.tuples(LINES, STRINGS, st.none() | STRINGS, STRINGS, st.integers(0, 3))))
def test_every_file_stays_to_the_byte_and_every_translation_is_one_string(
    entries: list[tuple[str, str, str | None, str, int]],
) -> None:
    text = HEADER.format(2)
    for comment, msgid, plural, msgstr, forms in entries:
        text += f'{comment}msgid "a{msgid}"\n'
        if plural is None:
            text += f'msgstr "{msgstr}"\n'
        else:
            lines = [f'msgstr[{form}] "{msgstr}"\n' for form in range(forms + 1)]
            text += f'msgid_plural "a{plural}"\n' + "".join(lines)
    passages = passages_of(Format.PO, text)
    translated = "".join(
        each.before + (each.written(Translation("x")) if each.has_words else each.source)
        for each in passages
    )
    # It can be read again, and nothing is left to do but what has no letter.
    assert not any(each.has_words for each in passages_of(Format.PO, translated))
