"""Pictures: their colours, for readers of light and of dark pages, and heat maps of weights.

An SVG brings a style sheet and asks the reader's browser which of the two is wanted. It paints its
own ground, so that its ink is legible on every page. A heat map is a matrix of weights from 0 to 1
with named rows and columns, drawn as text, SVG or HTML.

Notebooks show HTML instead of the ``repr`` of a result. All text is escaped. Without scripts and
text colours it is legible on light and dark pages.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape
from typing import Any, NamedTuple

from seqserve.output import padded, width_of


class Colour(NamedTuple):
    """A colour on a light and on a dark ground."""

    light: str
    dark: str


COLOURS = {
    "ground": Colour("#f6f7f9", "#14161a"),
    "surface": Colour("#ffffff", "#1d2026"),
    "ink": Colour("#1a1d23", "#e8eaee"),
    "faint": Colour("#5b6370", "#a0a8b5"),
    "line": Colour("#d3d8e0", "#3a404a"),
    "accent": Colour("#2257bf", "#7aa5ff"),
    "warm": Colour("#a85a12", "#e9a763"),
}
"""Background, boxes, text, secondary text, borders, and two accents."""

BLUE, ORANGE, GREY = "#4a7fe0", "#d4873b", "#808894"
"""Legible on both grounds, for what cannot follow the reader, such as cells of a picture."""
SERIES = (BLUE, ORANGE, "#2f9e77", "#a274d6", "#cf5f57", GREY)
"""Colours of the lines in one picture, in their order."""


def style_sheet() -> str:
    """Returns the CSS that an SVG needs to use ``var(--ink)`` and the others."""
    light, dark = (
        " ".join(f"--{name}: {colour[side]};" for name, colour in COLOURS.items())
        for side in (0, 1)
    )
    return f":root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def themed(svg: str) -> str:
    """Lets an SVG that is drawn in the light colours follow its reader."""
    for name, colour in COLOURS.items():
        svg = svg.replace(colour.light, f"var(--{name})")
    begin = svg.index(">", svg.index("<svg")) + 1
    return f"{svg[:begin]}\n<style>{style_sheet()}</style>{svg[begin:]}"


class Style(Enum):
    """How text shows a weight."""

    COLOURS = "colours"
    """A background colour, from black to yellow."""
    SHADES = "shades"
    """A block character, from a blank to a full one."""
    NUMBERS = "numbers"
    """A number with two decimals."""


# From the 256 colours of terminals: black, violet, red, orange, yellow.
_COLOURS = (16, 17, 53, 90, 126, 162, 198, 203, 209, 215, 221, 229)
# The text before, in and after a cell, from weight 0 to weight 1.
_INKS = {
    Style.COLOURS: [(f"\x1b[48;5;{colour}m", " ", "\x1b[0m") for colour in _COLOURS],
    Style.SHADES: [("", shade, "") for shade in " ░▒▓█"],
}

# For SVG, in pixels; a letter of its font is about as wide as _LETTER.
_CELL_WIDTH, _CELL_HEIGHT, _LETTER, _GAP, _TITLE_HEIGHT = 34, 24, 8.5, 8, 34
# Names of columns rise at this angle, in degrees, so that long ones do not overlap.
_SLOPE = 40

# For HTML. Lines and names have the colours of the page, which may be light or dark.
_CELL_STYLE = (
    "width: 2em; min-width: 2em; height: 1.6em; padding: 0; border: 1px solid rgba(128,128,128,.3)"
)
_NAME_STYLE = "padding: 0 .5em; text-align: right; font-family: monospace; white-space: pre"
# Names of columns are read from bottom to top, so that long ones do not widen their column.
_COLUMN_STYLE = (
    "padding: .4em 0; text-align: left; font-family: monospace; white-space: pre;"
    " writing-mode: vertical-rl; transform: rotate(180deg)"
)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Weights to draw; names of tokens are escaped where markup needs it."""

    weights: Sequence[Sequence[float]]
    """``[R, C]``, each from 0 to 1."""
    rows: Sequence[str]
    """Names of the R rows, at the left."""
    columns: Sequence[str]
    """Names of the C columns, at the top."""

    def text(self, style: Style, width: int | None = None) -> list[str]:
        """Draws lines of text; the last one is a legend, except for numbers.

        The map continues below beyond ``width``, the columns of the terminal; None sets no limit.
        """
        edge = max(map(width_of, self.rows), default=0)
        narrowest = 4 if style is Style.NUMBERS else 2
        widths = [max(width_of(name), narrowest) for name in self.columns]
        lines: list[str] = []
        for band in _bands(widths, None if width is None else width - edge):
            heads = (padded(self.columns[at], widths[at], to_the_right=True) for at in band)
            lines += [""] if lines else []
            lines.append(" ".join([" " * edge, *heads]))
            for name, weights in self._named():
                cells = (_text_cell(weights[at], widths[at], style) for at in band)
                lines.append(" ".join([padded(name, edge), *cells]).rstrip())
        if style is Style.NUMBERS:
            return lines
        steps = len(_INKS[style]) - 1
        legend = "".join(_text_cell(step / steps, 2, style) for step in range(steps + 1))
        return [*lines, "", f"0 {legend} 1"]

    def svg(self, title: str) -> Iterator[str]:
        """Yields the lines of an SVG picture: the larger a weight, the fuller its cell."""
        slope = math.radians(_SLOPE)
        left = _longest(self.rows) + 2 * _GAP
        top = _TITLE_HEIGHT + math.sin(slope) * _longest(self.columns) + 2 * _GAP
        # The name of the last column leans over the edge.
        right = left + _CELL_WIDTH * len(self.columns)
        right += math.cos(slope) * _longest(self.columns[-1:])
        width = f"{max(right, _longest([title]) + 2 * _GAP):.0f}"
        height = f"{top + _CELL_HEIGHT * len(self.rows) + _GAP:.0f}"
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" font-family="ui-monospace, monospace"'
            f' font-size="14" fill="var(--ink)" role="img" aria-label="{escape(title)}">'
        )
        yield f"<style>{style_sheet()}</style>"
        yield f'<rect width="{width}" height="{height}" fill="var(--surface)"/>'
        yield f'<text x="{_GAP}" y="22">{escape(title)}</text>'
        for column, name in enumerate(self.columns):
            at = f"translate({left + _CELL_WIDTH * (column + 0.5):.0f} {top - _GAP:.0f})"
            yield f'<text transform="{at} rotate(-{_SLOPE})">{escape(name)}</text>'
        for row, name in enumerate(self.rows):
            y = top + _CELL_HEIGHT * (row + 0.7)
            yield f'<text x="{left - _GAP:.0f}" y="{y:.0f}" text-anchor="end">{escape(name)}</text>'
        yield '<g fill="var(--accent)" stroke="var(--line)">'
        for row, (_, weights) in enumerate(self._named()):
            for column, weight in enumerate(weights):
                x, y = left + _CELL_WIDTH * column, top + _CELL_HEIGHT * row
                yield (
                    f'<rect x="{x:.0f}" y="{y:.0f}" width="{_CELL_WIDTH}" height="{_CELL_HEIGHT}"'
                    f' fill-opacity="{weight:.2f}"><title>{weight:.2f}</title></rect>'
                )
        yield "</g>"
        yield "</svg>"

    def html(self, caption: str = "") -> str:
        """Draws a table of HTML: the larger a weight, the fuller its cell."""
        heads = (f'<th style="{_COLUMN_STYLE}">{escape(name)}</th>' for name in self.columns)
        lines = (
            f'<tr><th style="{_NAME_STYLE}">{escape(name)}</th>'
            f"{''.join(map(_html_cell, weights))}</tr>"
            for name, weights in self._named()
        )
        title = f"<caption>{escape(caption)}</caption>" if caption else ""
        return (
            '<div style="overflow-x: auto"><table style="border-collapse: collapse">'
            f"{title}<tr><th></th>{''.join(heads)}</tr>{''.join(lines)}</table></div>"
        )

    def _named(self) -> Iterator[tuple[str, Sequence[float]]]:
        return zip(self.rows, self.weights, strict=False)


def _bands(widths: Sequence[int], room: int | None) -> Iterator[range]:
    start, used = 0, 0
    for column, width in enumerate(widths):
        used += 1 + width
        if room is not None and used > room and column > start:
            yield range(start, column)
            start, used = column, 1 + width
    yield range(start, len(widths))


def _text_cell(weight: float, width: int, style: Style) -> str:
    if style is Style.NUMBERS:
        return f"{weight:.2f}".rjust(width)
    inks = _INKS[style]
    before, ink, after = inks[round(weight * (len(inks) - 1))]
    return f"{before}{ink * width}{after}"


def _html_cell(weight: float) -> str:
    red, green, blue = bytes.fromhex(BLUE[1:])
    ink = f"rgba({red}, {green}, {blue}, {weight:.2f})"
    return f'<td title="{weight:.2f}" style="{_CELL_STYLE}; background: {ink}"></td>'


def _longest(names: Sequence[str]) -> float:
    return _LETTER * max(map(width_of, names), default=0)


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
