"""``seqserve tokenize``: shows the tokens that a model divides a text into."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from seqserve.command.connection import PairCallOptions
from seqserve.options import option, parse
from seqserve.output import aligned, json_line
from seqserve.results import TokenizeResult

_HEADINGS = ("TOKEN", "ID", "FROM", "TO", "TEXT")
_EPILOG = """\
FROM and TO count characters of the text. COUNT is what the limit of the model counts: of a source
also the end token and what the model reads beside a text. Tokens are subwords; ▁ is the space
before one.

examples:
  seqserve tokenize "The coffee tastes good."
  seqserve tokenize --as-target "Der Kaffee schmeckt gut."
  seqserve tokenize --json "I am learning German." | jq .length"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeOptions(PairCallOptions):
    """The options of ``seqserve tokenize``."""

    text: str = option(help="The text.", positional=True)
    as_target: bool = option(False, help="Divide it as a target, not as a source.")
    json: bool = option(False, help="Print one JSON object, with every field.")


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parse(
        TokenizeOptions,
        argv,
        prog="seqserve tokenize",
        description="Shows the tokens that a model divides a text into.",
        epilog=_EPILOG,
    )
    with options.connect() as client:
        result = client.tokenize(options.text, is_target=options.as_target, **options.call())
    if options.json:
        print(json_line(asdict(result)))
    else:
        print("\n".join(_table_of(result, options.text)))
    return 0


def _table_of(result: TokenizeResult, text: str) -> list[str]:
    tokens = zip(result.tokens, result.token_ids, result.begins, result.ends, strict=True)
    rows = [
        _HEADINGS,
        *(
            (token, str(id_), str(begin), str(end), repr(text[begin:end])[1:-1])
            for token, id_, begin, end in tokens
        ),
        ("COUNT", f"{result.length} of {result.max_length}", "", "", ""),
    ]
    return aligned(rows, right=(1, 2, 3))
