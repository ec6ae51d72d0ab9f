"""Draws results as HTML, which notebooks show in place of their ``repr``.

All text is escaped. There is no script and no colour of text, so it reads on light pages and
on dark ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqserve.attention import AttentionResult
    from seqserve.results import Hypothesis, Result, Segment

Weights = Sequence[Sequence[float]]
"""``[R, C]``, each from 0 to 1."""

# The ink of a cell; its opacity is the weight.
_INK = "59, 111, 212"
_CELL = (
    "width: 2em; min-width: 2em; height: 1.6em; padding: 0; border: 1px solid rgba(128,128,128,.3)"
)
_NAME = "padding: 0 .5em; text-align: right; font-family: monospace; white-space: pre"
# Names of columns are read from bottom to top, so that long ones do not widen their column.
_COLUMN_NAME = (
    "padding: .4em 0; text-align: left; font-family: monospace; white-space: pre;"
    " writing-mode: vertical-rl; transform: rotate(180deg)"
)


def result_html(result: Result) -> str:
    """Draws the text, the hypotheses if there are several, and attention if it was asked for."""
    lines = [f'<div dir="auto" style="font-size: 1.2em">{escape(result.text)}</div>']
    lines += [_paragraph(warning) for warning in _warnings(result)]
    if len(result.hypotheses) > 1:
        lines += _hypotheses(result.hypotheses)
    for part in result.segments or (result,):
        lines += _attention_of(part)
    lines.append(_paragraph(_facts(result)))
    return f"<div>{''.join(lines)}</div>"


def attention_html(result: AttentionResult) -> str:
    """Draws the mean over the heads of the last layer: cross attention, then the rest folded."""
    source, target = result.source_tokens, result.target_tokens
    lines = [_table(result.cross.mean(), target, source, "Target tokens to source tokens")]
    lines.append(_folded(_table(result.encoder.mean(), source, source, ""), "Encoder"))
    if result.decoder.layers:
        before = ("(begin)", *target[:-1])
        lines.append(_folded(_table(result.decoder.mean(), target, before, ""), "Decoder"))
    facts = f"{result.model}/{result.version}, mean over the heads of the last layer"
    return f"<div>{''.join(lines)}{_paragraph(facts)}</div>"


def _attention_of(part: Result | Segment) -> Iterator[str]:
    """Draws what the best hypothesis attended to; nothing where that was not asked for."""
    best = next(iter(part.hypotheses), None)
    if best and best.attention and part.source_pieces:
        yield _table(best.attention, best.tokens, part.source_pieces, "Attention")


def _hypotheses(hypotheses: Sequence[Hypothesis]) -> Iterator[str]:
    yield "<ol>"
    for hypothesis in hypotheses:
        figures = ", ".join(_figures(hypothesis))
        score = f' <small style="opacity: .7">{figures}</small>' if figures else ""
        yield f'<li><span dir="auto">{escape(hypothesis.text)}</span>{score}</li>'
    yield "</ol>"


def _figures(hypothesis: Hypothesis) -> Iterator[str]:
    if hypothesis.score is not None:
        yield f"score {hypothesis.score:.2f}"
    if hypothesis.confidence is not None:
        yield f"confidence {hypothesis.confidence:.2f}"


def _warnings(result: Result) -> Iterator[str]:
    for warning in result.source_warnings:
        yield f"Warning of the source: {warning.value.replace('_', ' ')}"
    for source, target in result.unmet_terms:
        yield f"Lacks the term {source} → {target}"


def _facts(result: Result) -> str:
    figures = () if len(result.hypotheses) > 1 else _figures(result.hypotheses[0])
    tokens = f"{result.source_tokens} → {result.generated_tokens} tokens"
    duration = f"{result.timings.total_ms:.1f} ms"
    stopped = result.stop_reason.value.replace("_", " ")
    return ", ".join(
        [f"{result.model}/{result.version}", tokens, *figures, f"stopped by {stopped}", duration]
    )


def _table(weights: Weights, rows: Sequence[str], columns: Sequence[str], caption: str) -> str:
    """Draws a cell for each weight, the darker the larger."""
    heads = "".join(f'<th style="{_COLUMN_NAME}">{escape(name)}</th>' for name in columns)
    lines = (
        f'<tr><th style="{_NAME}">{escape(name)}</th>{"".join(map(_cell, line))}</tr>'
        for name, line in zip(rows, weights, strict=False)
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        '<div style="overflow-x: auto"><table style="border-collapse: collapse">'
        f"{title}<tr><th></th>{heads}</tr>{''.join(lines)}</table></div>"
    )


def _cell(weight: float) -> str:
    ink = f"rgba({_INK}, {weight:.2f})"
    return f'<td title="{weight:.2f}" style="{_CELL}; background: {ink}"></td>'


def _folded(content: str, summary: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def _paragraph(text: str) -> str:
    return f'<div style="opacity: .7">{escape(text)}</div>'
