"""The HTML that notebooks show instead of the ``repr`` of a result.

All text is escaped. Without scripts and text colours it is legible on light and dark pages.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from html import escape
from typing import Any

from seqserve.pictures import HeatMap


def page_of_result(result: Any) -> str:
    """Draws a :class:`~seqserve.Result`, which imports this module."""
    return _page(_result_parts(result))


def page_of_attention(result: Any, parts: Mapping[Enum, tuple[Any, Any, Any]]) -> str:
    """Draws a :class:`~seqserve.AttentionResult`, which imports this module.

    Parts are rows, columns and weights; the first one is shown and the others are folded.
    """
    return _page(_attention_parts(result, parts))


def _result_parts(result: Any) -> Iterator[str]:
    yield f'<div dir="auto" style="font-size: 1.2em">{escape(result.text)}</div>'
    for warning in result.source_warnings:
        yield _note(f"Warning of the source: {_words(warning)}")
    for warning in result.warnings:
        yield _note(f"Warning: {warning}")
    for source, target in result.unmet_terms:
        yield _note(f"Lacks the term {source} → {target}")
    is_ranked = len(result.hypotheses) > 1
    if is_ranked:
        yield _numbered((each.text, _figures(each)) for each in result.hypotheses)
    for part in result.segments or (result,):
        for best in part.hypotheses[:1]:
            if best.attention and part.source_pieces:
                yield HeatMap(best.attention, best.tokens, part.source_pieces).html("Attention")
    models = [f"{each.model}/{each.version}" for each in result.legs or (result,)]
    facts = (
        " → ".join(models),
        f"{result.source_tokens} → {result.generated_tokens} tokens",
        "" if is_ranked else _figures(result.hypotheses[0]),
        f"stopped by {_words(result.stop_reason)}",
        f"{result.timings.total_ms:.1f} ms",
    )
    yield _note(", ".join(filter(None, facts)))


def _attention_parts(result: Any, parts: Mapping[Enum, tuple[Any, Any, Any]]) -> Iterator[str]:
    for index, (kind, (rows, columns, weights)) in enumerate(parts.items()):
        if weights.layers:
            drawing = HeatMap(weights.mean(), rows, columns)
            if not index:
                yield drawing.html("Target tokens to source tokens")
            else:
                summary = f"<summary>{escape(kind.value.capitalize())}</summary>"
                yield f"<details>{summary}{drawing.html()}</details>"
    yield _note(f"{result.model}/{result.version}, mean over the heads of the last layer")


def _page(parts: Iterable[str]) -> str:
    return f"<div>{''.join(parts)}</div>"


def _note(text: str) -> str:
    return f'<div style="opacity: .7">{escape(text)}</div>'


def _numbered(items: Iterable[tuple[str, str]]) -> str:
    lines = (
        f'<li><span dir="auto">{escape(text)}</span>'
        + (f' <small style="opacity: .7">{escape(note)}</small>' if note else "")
        + "</li>"
        for text, note in items
    )
    return f"<ol>{''.join(lines)}</ol>"


def _figures(hypothesis: Any) -> str:
    figures = {"score": hypothesis.score, "confidence": hypothesis.confidence}
    return ", ".join(f"{name} {x:.2f}" for name, x in figures.items() if x is not None)


def _words(member: Enum) -> str:
    return str(member.value).replace("_", " ")
