"""Commands that look into a model: ``seqserve score``, ``tokenize`` and ``attention``."""

import math
import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial

from seqserve.attention import AttentionResult, Kind, ScoreResult, TokenizeResult, parts_of
from seqserve.command.connection import PairCallOptions
from seqserve.errors import OptionError
from seqserve.options import option, parse
from seqserve.output import aligned, json_line
from seqserve.pictures import HeatMap, Style

_SCORE_HEADINGS = ("TOKEN", "ID", "LOG-PROBABILITY", "PROBABILITY")
_SCORE_ABOUT = """\
Prints the log-probability of every token of a target.

Logarithms are natural. SUM is the score of the target, MEAN the score divided by the number of
tokens, the end token included. Tokens are subwords; ▁ is the space before one.

examples:
  seqserve score --json "I am learning German." "Ich lerne Deutsch." | jq .score"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOptions(PairCallOptions):
    """The options of ``seqserve score``."""

    source: str = option(help="The source text.", positional=True)
    target_text: str = option(help="The target text to score.", positional=True)
    json: bool = option(False, help="Print one JSON object, with every field.")


def score(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parse(ScoreOptions, argv, prog="seqserve score", description=_SCORE_ABOUT)
    with options.connect() as client:
        result = client.score(options.source, options.target_text, **options.call())
    print(json_line(asdict(result)) if options.json else "\n".join(_score_table(result)))
    return 0


def _score_table(result: ScoreResult) -> list[str]:
    tokens = zip(result.tokens, result.token_ids, result.token_scores, strict=True)
    rows = [(token, str(id_), f"{own:.4f}", f"{math.exp(own):.4f}") for token, id_, own in tokens]
    rows.append(("SUM", "", f"{result.score:.4f}", ""))
    rows.append(("MEAN", "", f"{result.normalized_score:.4f}", ""))
    return aligned([_SCORE_HEADINGS, *rows], right=(1, 2, 3))


_TOKENIZE_HEADINGS = ("TOKEN", "ID", "FROM", "TO", "TEXT")
_TOKENIZE_ABOUT = """\
Shows the tokens of a text.

FROM and TO count characters of the text. COUNT is the length that the model's limit counts; for a
source it includes the end token and language tokens. Tokens are subwords; ▁ is the space before
one.

examples:
  seqserve tokenize --as-target "Der Kaffee schmeckt gut."
  seqserve tokenize --json "I am learning German." | jq .length"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeOptions(PairCallOptions):
    """The options of ``seqserve tokenize``."""

    text: str = option(help="The text.", positional=True)
    as_target: bool = option(False, help="Divide it as a target, not as a source.")
    json: bool = option(False, help="Print one JSON object, with every field.")


def tokenize(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parse(TokenizeOptions, argv, prog="seqserve tokenize", description=_TOKENIZE_ABOUT)
    with options.connect() as client:
        result = client.tokenize(options.text, is_target=options.as_target, **options.call())
    lines = [json_line(asdict(result))] if options.json else _token_table(result, options.text)
    print(*lines, sep="\n")
    return 0


def _token_table(result: TokenizeResult, text: str) -> list[str]:
    tokens = zip(result.tokens, result.token_ids, result.begins, result.ends, strict=True)
    rows = [
        (token, str(id_), str(begin), str(end), repr(text[begin:end])[1:-1])
        for token, id_, begin, end in tokens
    ]
    count = ("COUNT", f"{result.length} of {result.max_length}", "", "", "")
    return aligned([_TOKENIZE_HEADINGS, *rows, count], right=(1, 2, 3))


_ATTENTION_ABOUT = """\
Draws which tokens a model attended to.

Rows are the tokens that attend (queries), columns the tokens attended to (keys); the weights of a
row sum to 1. A row of the decoder shows the step that chose its token. Tokens are subwords; ▁ is
the space before one.

examples:
  seqserve attention "The coffee tastes good."
  seqserve attention --kind encoder --layer 0 --head 3 "The coffee tastes good."
  seqserve attention --svg "The coffee tastes good." > attention.svg"""


_picture = partial(option, group="picture")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOptions(PairCallOptions):
    """The options of ``seqserve attention``."""

    source: str = option(help="The source text.", positional=True)
    target_text: str | None = option(
        None, help="The target text; by default the output of greedy search.", positional=True
    )
    kind: Kind = _picture(Kind.CROSS, help="Which attention to draw.")
    layer: int | None = _picture(None, help="Layer, from 0; by default the last one.", minimum=0)
    head: int | None = _picture(
        None, help="Head, from 0; by default the mean over all heads.", minimum=0
    )
    style: Style | None = _picture(
        None,
        help="How to draw a weight; by default colours in a terminal (shades if NO_COLOR is set),"
        " numbers elsewhere.",
    )
    svg: bool = _picture(False, help="Print an SVG picture.")
    json: bool = option(
        False, help="Print one JSON object with all weights, by kind, layer, head, row and column."
    )


def attention(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parse(AttentionOptions, argv, prog="seqserve attention", description=_ATTENTION_ABOUT)
    with options.connect() as client:
        result = client.attention(options.source, options.target_text, **options.call())
    lines = [_json_of(result)] if options.json else map_of(result, options)
    print(*lines, sep="\n")
    return 0


def map_of(result: AttentionResult, options: AttentionOptions) -> Iterable[str]:
    """Draws the layer and head that the options name, as lines of text or of SVG."""
    rows, columns, weights = parts_of(result, options.kind)
    model = f"{result.model}/{result.version}"
    if not weights.layers:
        kind = options.kind.value
        raise OptionError(f"--kind: {model} has no {kind} attention: its decoder is recurrent")
    layer = weights.layers - 1 if options.layer is None else options.layer
    _check_index("--layer", layer, weights.layers)
    _check_index("--head", options.head or 0, weights.heads)
    if options.head is None:
        matrix, heads = weights.mean(layer), f"mean of {weights.heads} heads"
    else:
        matrix, heads = weights.of(layer, options.head), f"head {options.head}"
    title = f"{model}: {options.kind.value} attention, layer {layer}, {heads}"
    drawing = HeatMap(matrix, rows, columns)
    if options.svg:
        return drawing.svg(title)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return [title, "", *drawing.text(options.style or _default_style(), width)]


def _check_index(flag: str, index: int, total: int) -> None:
    if index >= total:
        raise OptionError(f"{flag}: {index} is more than {total - 1}, the last one of the model")


def _default_style() -> Style:
    if not sys.stdout.isatty():
        return Style.NUMBERS
    has_colours = os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    return Style.COLOURS if has_colours else Style.SHADES


def _json_of(result: AttentionResult) -> str:
    names = ("model", "version", "source_tokens", "target_tokens")
    facts = {name: getattr(result, name) for name in names}
    for kind in Kind:
        weights = getattr(result, kind.value)
        facts[kind.value] = [
            [weights.of(layer, head) for head in range(weights.heads)]
            for layer in range(weights.layers)
        ]
    return json_line(facts)
