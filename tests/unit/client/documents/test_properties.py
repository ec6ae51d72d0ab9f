import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format

from .marking import in_capitals, passages_of, sent, written


@pytest.mark.parametrize(
    ("text", "texts", "expected"),
    [
        ("# no\n! no\nkey = a word\r\n", ["a word"], "# no\n! no\nkey = A WORD\r\n"),
        ("a.b:c d\n e\\ f\\:\tg\nempty=\n\nh", ["c d", "g"], "a.b:C D\n e\\ f\\:\tG\nempty=\n\nh"),
        ("key a\\\n   b \\\r\n\tc", ["ab c"], "key AB C"),
        ("a=\\ \\tb\\nc\\\\d\\q", ["b\nc\\dq"], "a=\\ \\tB\\nC\\\\DQ"),
        ("a=b\\", ["b"], "a=B\\"),
        # A key goes on in a line that is indented.
        ("a\\\n  b=c", ["c"], "a\\\n  b=C"),
        # A value that goes on in a line without a word.
        ("a=b\\\n\nc=d\\\r\n \\\n", ["b", "d"], "a=B\\\n\nc=D\\\r\n \\\n"),
        ("a\\\\=b\n#c\\\nd=e", ["b", "e"], "a\\\\=B\n#c\\\nd=E"),
        # Characters of a kind that the document lacks are written by their codes.
        ("a=gr\\u00fcn \\ud83d\\ude42 x", ["grün 🙂 x"], "a=GR\\u00dcN \\ud83d\\ude42 X"),
        ("a=grün \\u0107", ["grün ć"], "a=GRÜN \\u0106"),
        ("a=ćgrün", ["ćgrün"], "a=ĆGRÜN"),
        # A message has two apostrophes for one, and quotes around braces.
        ("a=it''s {0}'s", ["it's {0}'s"], "a=IT''S {0}''S"),
        ("a=it's {name}", ["it's {name}"], "a=IT'S {name}"),
        ("a=it''s\nb=that's", ["it's", "that's"], "a=IT''S\nb=THAT''S"),
        ("a=a '{b}' c {0}", ["a '{b}' c {0}"], "a=A '{b}' C {0}"),
        ("a=''{0}'' b", ["'{0}' b"], "a=''{0}'' B"),
        # The branches of a choice are texts.
        (
            "a={0,choice,0#no|1#one|1<{0} files} in {1}",
            ["no", "one", "{0} files", "in {1}"],
            "a={0,choice,0#NO|1#ONE|1<{0} FILES} IN {1}",
        ),
        ("a={0,choice,0#no", ["{0,choice,0#no"], "a={0,CHOICE,0#NO"),
        ("a={0,choice,|1#b}", [], "a={0,choice,|1#b}"),
        ("a={0,choice,0#'}'b|1#'|'c} d", ["'}'b", "'|'c", "d"], None),
        # Behind a key and a space a colon is not text.
        ("a \\:b", [":b"], "a \\:B"),
        ("a=:b", [":b"], "a=:B"),
    ],
)
def test_properties(text: str, texts: list[str], expected: str | None) -> None:
    passages = passages_of(Format.PROPERTIES, text)
    assert sent(passages) == texts
    if expected is not None:
        assert in_capitals(passages) == expected


PIECES = ["word", "é", "ć", "\\u00e9", "\\ud83d", "\\", "\\\n  ", "\\n"]
PIECES += ["=", ":", "#", "!", "\n", "\r\n", " ", "\t", "'", "''", "'{'"]
PIECES += ["{0}", "{0,choice,0#a|1#b}", "{n, plural, one {a}}", "%s", "<b>"]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_read_and_written_without_losing_a_key(text: str) -> None:
    passages = passages_of(Format.PROPERTIES, text)
    again = passages_of(Format.PROPERTIES, written(passages))
    assert [re.sub(r"\s", "", each) for each in sent(again)] == [
        re.sub(r"\s", "", each) for each in sent(passages)
    ]
