import math

import pytest

from seqserve.output import aligned, json_line, width_of
from seqserve.results import StopReason


def test_columns_stand_below_each_other() -> None:
    rows = [("NAME", "COUNT", "ABOUT"), ("a", "7", ""), ("long name", "10000", "x")]
    assert aligned(rows, right=(1,)) == [
        "NAME       COUNT  ABOUT",
        "a              7",
        "long name  10000  x",
    ]


@pytest.mark.parametrize(
    ("text", "width"), [("", 0), ("▁gut", 4), ("咖啡", 4), ("e\u0301", 1), ("a\u200d", 1)]
)
def test_the_width_of_a_text_in_a_terminal(text: str, width: int) -> None:
    assert width_of(text) == width


def test_wide_characters_shift_no_column_and_control_characters_are_shown() -> None:
    assert aligned([("咖啡", "x"), ("cafe", "x")]) == ["咖啡  x", "cafe  x"]
    cells = ("two\nlines", "\x1b[31mred", "\u202eturned", "plain ▁")
    assert aligned([cells]) == [r"two\nlines  \x1b[31mred  \u202eturned  plain ▁"]


def test_a_line_is_json_that_every_parser_reads() -> None:
    facts = {
        "text": "Grüße",
        "half": "\ud800",
        "reason": StopReason.EOS,
        "scores": (-0.5, math.nan, [-math.inf]),
        "inner": {"is": True, "none": None, "count": 3},
    }
    assert json_line(facts) == (
        r'{"text": "Grüße", "half": "\ud800", '
        '"reason": "eos", "scores": [-0.5, null, [null]], '
        '"inner": {"is": true, "none": null, "count": 3}}'
    )
