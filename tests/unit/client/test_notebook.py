from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve import (
    AttentionResult,
    AttentionWeights,
    Hypothesis,
    Result,
    Segment,
    SourceWarning,
    StopReason,
    TextWarning,
    TextWarningKind,
    Timings,
)

TIMES = Timings(queue_ms=1, encode_ms=2, decode_ms=3, first_token_ms=4, total_ms=6.25)
NASTY = ['<script>alert("1")</script>', "'\"><img src=x>", "영화가 재미있다", "שלום", "a & b"]


def hypothesis(text: str = "Der Kaffee schmeckt.", **fields: object) -> Hypothesis:
    tokens, scores = tuple(text.split()), {"score": -1.5, "normalized_score": -0.5}
    facts = {"token_ids": tuple(range(len(tokens))), "stop_reason": StopReason.EOS}
    return Hypothesis(text=text, **{"tokens": tokens} | scores | facts | fields)


def result(*hypotheses: Hypothesis, **fields: object) -> Result:
    facts: Any = {"model": "en-de", "version": 2, "source_tokens": 4, "generated_tokens": 3}
    whole = Result(hypotheses=hypotheses or (hypothesis(),), timings=TIMES, **facts)
    return replace(whole, **fields)  # type: ignore[arg-type]


def attended(text: str, source: tuple[str, ...]) -> Hypothesis:
    rows = len(text.split())
    weights = tuple(
        tuple(1.0 * (row == column) for column in range(len(source))) for row in range(rows)
    )
    return hypothesis(text, attention=weights)


def drawn(shown: Result | AttentionResult) -> ElementTree.Element:
    """Parses the HTML, which is XML too."""
    return ElementTree.fromstring(shown._repr_html_())


def texts(shown: Result | AttentionResult) -> list[str]:
    return [text for text in drawn(shown).itertext() if text]


def cells(table: ElementTree.Element) -> list[list[str]]:
    return [[cell.get("title", "") for cell in row.iter("td")] for row in table.iter("tr")][1:]


def test_a_plain_result_shows_its_text_and_its_figures() -> None:
    assert texts(result()) == [
        "Der Kaffee schmeckt.",
        "en-de/2, 4 → 3 tokens, score -1.50, stopped by eos, 6.2 ms",
    ]
    # What was not computed is not shown.
    assert "score" not in "".join(texts(result(hypothesis(score=None))))


def test_hypotheses_are_listed_with_their_scores() -> None:
    shown = result(hypothesis(confidence=0.875), hypothesis("Kaffee.", score=-2.25))
    items = ["".join(item.itertext()) for item in drawn(shown).iter("li")]
    assert items == ["Der Kaffee schmeckt. score -1.50, confidence 0.88", "Kaffee. score -2.25"]


def test_attention_is_a_cell_for_each_pair_of_tokens() -> None:
    source = ("▁The", "▁coffee", "</s>")
    [table] = drawn(result(attended("Der Kaffee", source), source_pieces=source)).iter("table")
    names = [name.text for name in table.iter("th")]
    assert names == [None, *source, "Der", "Kaffee"]
    assert cells(table) == [["1.00", "0.00", "0.00"], ["0.00", "1.00", "0.00"]]


def test_each_segment_has_its_own_attention() -> None:
    places = {"source_begin": 0, "source_end": 1, "target_begin": 0, "target_end": 1}
    facts = {"is_wrapped": False, "source_tokens": 2, "source_pieces": ("a", "b")}
    segments = tuple(
        Segment(hypotheses=hypotheses, **places, **facts)
        for hypotheses in ((attended("x y", ("a", "b")),), (), (attended("z", ("a", "b")),))
    )
    tables = drawn(result(segments=segments)).iter("table")
    assert [len(cells(table)) for table in tables] == [2, 1]


def test_warnings_and_missing_terms_are_shown() -> None:
    source = {"source_text": "7", "source_begin": 0, "source_end": 1}
    target = {"target_text": "", "target_begin": 0, "target_end": 0}
    warning = TextWarning(kind=TextWarningKind.NUMBERS_DIFFER, **source, **target)
    best = hypothesis(unmet_terms=(("coffee", "Kaffee"),), warnings=(warning,))
    shown = "\n".join(texts(result(best, source_warnings=(SourceWarning.OTHER_SCRIPT,))))
    assert "Warning of the source: other script" in shown
    assert "Lacks the term coffee → Kaffee" in shown
    assert "Warning: numbers differ: 7 -> nothing" in shown


@given(st.sampled_from(NASTY), st.sampled_from(NASTY), st.sampled_from(NASTY))
def test_text_is_escaped(text: str, token: str, model: str) -> None:
    best = hypothesis(text, tokens=(token,), attention=((1.0,),))
    shown = result(best, hypothesis(token), model=model, source_pieces=(token,))
    tree = drawn(shown)
    assert not list(tree.iter("script"))
    assert not list(tree.iter("img"))
    for expected in (text, token):
        assert expected in texts(shown)
    assert texts(shown)[-1].startswith(model)


def weights(layers: int, queries: int, keys: int) -> AttentionWeights:
    """Head 0 attends to the first key, head 1 to the second one."""
    head = [[1.0 * (key == wanted) for key in range(keys)] for wanted in (0, 1)]
    flat = [
        weight for _ in range(layers) for rows in head for _ in range(queries) for weight in rows
    ]
    return AttentionWeights(layers=layers, heads=2, queries=queries, keys=keys, weights=tuple(flat))


@pytest.mark.parametrize(("layers", "folded"), [(2, ["Encoder", "Decoder"]), (0, ["Encoder"])])
def test_attention_shows_the_mean_of_the_last_layer(layers: int, folded: list[str]) -> None:
    shown = AttentionResult(
        model="en-de",
        version=2,
        source_tokens=("a", "b"),
        target_tokens=("x", "y", "z"),
        encoder=weights(2, 2, 2),
        decoder=weights(layers, 3, 3),
        cross=weights(2, 3, 2),
    )
    tree = drawn(shown)
    tables = list(tree.iter("table"))
    assert cells(tables[0]) == [["0.50", "0.50"]] * 3
    assert [summary.text for summary in tree.iter("summary")] == folded
    assert len(tables) == 1 + len(folded)
