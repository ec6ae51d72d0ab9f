"""``seqserve models``: what a server can be called for; and, told so, what it loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from seqserve import Client
from seqserve.command.columns import aligned
from seqserve.command.connection import ConnectionOptions
from seqserve.command.json_line import json_line
from seqserve.errors import OptionError
from seqserve.options import option, parse
from seqserve.results import Model, ModelState

_HEADINGS = (
    "NAME",
    "VERSION",
    "STATE",
    "SHARE",
    "PRECISION",
    "PROVIDER",
    "SOURCE",
    "TARGET",
    "ABOUT",
)
_EPILOG = """\
SHARE is the part of the calls without a version that a version gets, SOURCE and TARGET are the
longest ones, in tokens. * marks what may get calls that name neither model nor version.

what else it does, each with a --help of its own:
  seqserve models load NAME [VERSION]          loads a version, and waits until it takes calls
  seqserve models unload NAME VERSION          lets its calls end, and frees its memory
  seqserve models traffic NAME 1=90 2=10       shares the calls that name no version

examples:
  seqserve models
  seqserve models --json | jq -r .name"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsOptions(ConnectionOptions):
    """The options of ``seqserve models``."""

    json: bool = option(False, help="Print one JSON object a line, with every field.")

    def models(self, client: Client) -> Sequence[Model]:
        """Asks the server, and gives what is to be printed."""
        return client.models()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(ModelsOptions):
    """The options of ``seqserve models load``."""

    name: str = option(help="Name of the model.", positional=True)
    version: int | None = option(
        None, help="The version; the highest one if not given.", minimum=1, positional=True
    )

    def models(self, client: Client) -> Sequence[Model]:
        """Loads it."""
        return [client.load_model(self.name, self.version)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadOptions(ModelsOptions):
    """The options of ``seqserve models unload``."""

    name: str = option(help="Name of the model.", positional=True)
    version: int = option(help="The version.", minimum=1, positional=True)

    def models(self, client: Client) -> Sequence[Model]:
        """Unloads it."""
        return [client.unload_model(self.name, self.version)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions(ModelsOptions):
    """The options of ``seqserve models traffic``."""

    name: str = option(help="Name of the model.", positional=True)
    weights: dict[str, str] | None = option(
        None,
        help="VERSION=WEIGHT; without any, all calls go to the highest version.",
        positional=True,
    )

    def models(self, client: Client) -> Sequence[Model]:
        """Shares its calls."""
        return client.set_traffic(self.name, dict(map(_share_of, (self.weights or {}).items())))


_LIST = (ModelsOptions, "Lists every version of every model of a server.")
_VERBS: dict[str, tuple[type[ModelsOptions], str]] = {
    "load": (LoadOptions, "Loads a version of a model, and waits until it takes calls."),
    "unload": (UnloadOptions, "Unloads a version of a model, once the calls it has have ended."),
    "traffic": (TrafficOptions, "Shares the calls that name no version of a model."),
}


def main(argv: list[str]) -> int:
    """Prints the models of a server, or those that it was told to change.

    Args:
        argv: Arguments after the command's name.

    Returns:
        The exit status.

    Raises:
        SeqserveError: An option is wrong or the call failed.
    """
    verb = argv[0] if argv and argv[0] in _VERBS else ""
    kind, description = _VERBS[verb] if verb else _LIST
    options = parse(
        kind,
        argv[1:] if verb else argv,
        prog=f"seqserve models {verb}".rstrip(),
        description=description,
        epilog="" if verb else _EPILOG,
    )
    with options.connect() as client:
        models = options.models(client)
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
        f"{model.traffic_share:.0%}" if is_ready else "",
        model.precision,
        model.provider,
        str(model.max_source_length) if is_ready else "",
        str(model.max_target_length) if is_ready else "",
        model.description if is_ready else model.state_reason,
    )


def _share_of(share: tuple[str, str]) -> tuple[int, int]:
    try:
        version, weight = map(int, share)
    except ValueError:
        raise OptionError(
            f"weights: {'='.join(share)!r} is not VERSION=WEIGHT, two whole numbers"
        ) from None
    return version, weight
