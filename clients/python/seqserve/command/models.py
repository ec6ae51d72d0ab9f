"""``seqserve models``: what a server can be called for."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from seqserve.command.columns import aligned
from seqserve.command.connection import ConnectionOptions
from seqserve.command.json_line import json_line
from seqserve.options import option, parse
from seqserve.results import Model, ModelState

_HEADINGS = ("NAME", "VERSION", "STATE", "PRECISION", "PROVIDER", "SOURCE", "TARGET", "ABOUT")
_EPILOG = """\
SOURCE and TARGET are the longest ones, in tokens. * marks the server's default.

examples:
  seqserve models
  seqserve models --json | jq -r .name"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsOptions(ConnectionOptions):
    """The options of ``seqserve models``."""

    json: bool = option(False, help="Print one JSON object a line, with every field.")


def main(argv: list[str]) -> int:
    """Prints the models of a server.

    Args:
        argv: Arguments after the command's name.

    Returns:
        The exit status.

    Raises:
        SeqserveError: An option is wrong or the call failed.
    """
    options = parse(
        ModelsOptions,
        argv,
        prog="seqserve models",
        description="Lists every version of every model of a server.",
        epilog=_EPILOG,
    )
    with options.connect() as client:
        models = client.models()
    if options.json:
        lines = [json_line(asdict(model)) for model in models]
    else:
        lines = aligned([_HEADINGS, *(_row_of(model) for model in models)])
    for line in lines:
        print(line)
    return 0


def _row_of(model: Model) -> tuple[str, ...]:
    is_ready = model.state is ModelState.READY
    return (
        model.name + ("*" if model.is_default else ""),
        str(model.version),
        model.state.value,
        model.precision,
        model.provider,
        str(model.max_source_length) if is_ready else "",
        str(model.max_target_length) if is_ready else "",
        model.description if is_ready else model.state_reason,
    )
