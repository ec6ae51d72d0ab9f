"""``seqserve attention``: which tokens a model attended to, drawn in the terminal or as SVG."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from enum import Enum

from seqserve.attention import AttentionResult, AttentionWeights, Rows
from seqserve.command.connection import ModelCallOptions
from seqserve.command.heat_map import Style, heat_map
from seqserve.command.json_line import json_line
from seqserve.command.svg_map import svg_map
from seqserve.errors import OptionError
from seqserve.options import option, parse

_EPILOG = """\
Each row is a token that attends, each column one that is attended to; a row's weights sum to 1.
Rows of the decoder stand for the step that chose their token. Tokens are pieces of words; ▁ stands
for the space before one.

examples:
  seqserve attention "The coffee tastes good."
  seqserve attention "The coffee tastes good." "Der Kaffee schmeckt gut."
  seqserve attention --kind encoder --layer 0 --head 3 "The coffee tastes good."
  seqserve attention --style numbers "The coffee tastes good."
  seqserve attention --svg "The coffee tastes good." > attention.svg
  seqserve attention --json "The coffee tastes good." | jq '.cross[-1][0]'"""


class Kind(Enum):
    """Which attention of the model."""

    CROSS = "cross"
    """Target tokens to source tokens."""
    ENCODER = "encoder"
    """Source tokens to source tokens."""
    DECODER = "decoder"
    """Target tokens to the target tokens before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOptions(ModelCallOptions):
    """The options of ``seqserve attention``."""

    source: str = option(help="The source text.", positional=True)
    target_text: str | None = option(
        None, help="The target; what greedy search gives if not given.", positional=True
    )
    kind: Kind = option(Kind.CROSS, help="Which attention.", group="picture")
    layer: int | None = option(
        None, help="Layer, from 0; the last if not given.", minimum=0, group="picture"
    )
    head: int | None = option(
        None, help="Head, from 0; the mean over all if not given.", minimum=0, group="picture"
    )
    style: Style | None = option(
        None,
        help="What stands for a weight; if not given, colours in a terminal (shades where NO_COLOR"
        " is set), numbers elsewhere.",
        group="picture",
    )
    svg: bool = option(False, help="Print an SVG picture, for a page or a report.", group="picture")
    json: bool = option(
        False, help="Print one JSON object: the weights of all kinds by layer, head, row, column."
    )


def main(argv: list[str]) -> int:
    """Draws what the tokens of a source and its target attended to.

    Args:
        argv: Arguments after the command's name.

    Returns:
        The exit status.

    Raises:
        SeqserveError: An option is wrong or the call failed.
    """
    options = parse(
        AttentionOptions,
        argv,
        prog="seqserve attention",
        description="Draws which tokens a model attended to.",
        epilog=_EPILOG,
    )
    with options.connect() as client:
        result = client.attention(
            options.source,
            options.target_text,
            model=options.model,
            version=options.model_version,
        )
    print(_json_of(result) if options.json else "\n".join(_picture(result, options)))
    return 0


def _picture(result: AttentionResult, options: AttentionOptions) -> list[str]:
    rows, columns, weights = _parts(result, options.kind)
    layer = _existing("--layer", options.layer, weights.layers)
    layer = weights.layers - 1 if layer is None else layer
    head = _existing("--head", options.head, weights.heads)
    matrix = weights.mean(layer) if head is None else weights.of(layer, head)
    which = f"mean of {weights.heads} heads" if head is None else f"head {head}"
    title = (
        f"{result.model}/{result.version}: {options.kind.value} attention, layer {layer}, {which}"
    )
    if options.svg:
        return svg_map(matrix, rows, columns, title)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return [title, "", *heat_map(matrix, rows, columns, options.style or _usual_style(), width)]


def _parts(
    result: AttentionResult, kind: Kind
) -> tuple[tuple[str, ...], tuple[str, ...], AttentionWeights]:
    source, target = result.source_tokens, result.target_tokens
    if kind is Kind.CROSS:
        return target, source, result.cross
    if kind is Kind.ENCODER:
        return source, source, result.encoder
    return target, ("(begin)", *target[:-1]), result.decoder


def _existing(flag: str, number: int | None, total: int) -> int | None:
    if number is not None and number >= total:
        raise OptionError(f"{flag}: {number} is more than {total - 1}, the last one of the model")
    return number


def _usual_style() -> Style:
    if not sys.stdout.isatty():
        return Style.NUMBERS
    has_colours = os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    return Style.COLOURS if has_colours else Style.SHADES


def _json_of(result: AttentionResult) -> str:
    facts = {
        "model": result.model,
        "version": result.version,
        "source_tokens": result.source_tokens,
        "target_tokens": result.target_tokens,
    }
    weights = {kind.value: _nested(_parts(result, kind)[2]) for kind in Kind}
    return json_line({**facts, **weights})


def _nested(weights: AttentionWeights) -> list[list[Rows]]:
    return [
        [weights.of(layer, head) for head in range(weights.heads)]
        for layer in range(weights.layers)
    ]
