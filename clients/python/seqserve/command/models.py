"""``seqserve models``: lists the models of a server, loads and unloads them, splits traffic.

``seqserve models fetch`` and ``index``, which need no server, are of the package that reads
artifacts.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import TypeAlias

from seqserve import Client
from seqserve.address import servers_of
from seqserve.command.connection import ConnectionOptions
from seqserve.errors import OptionError, PermissionDenied, SeqserveError
from seqserve.model import Glossary, LanguagePair, Model, ModelState
from seqserve.options import option, parse, split_command
from seqserve.output import aligned, json_line

_Listed: TypeAlias = Model | LanguagePair | Glossary
_WITHOUT_SERVER = {"fetch": "seqserve_server.fetch.command", "index": "seqserve_server.fetch.index"}
_HEADINGS = (
    *("NAME", "VERSION", "STATE", "SHARE", "PRECISION", "PROVIDER", "ROWS", "QUEUE"),
    *("SOURCE", "TARGET", "ABOUT"),
)
_PAIR_HEADINGS = ("FROM", "TO", "MODELS")
_GLOSSARY_HEADINGS = ("NAME", "FROM", "TO", "ENTRIES", "TROUBLE")
_MAX_CODES = 5
_ABOUT = """\
Lists every version of every model of a server.

SHARE is a version's share of the calls without a version; ROWS are the running rows and their
maximum, QUEUE the waiting requests; SOURCE and TARGET are the maximum lengths in tokens. * marks
the versions that calls without model and version may reach. With --target host:port,host:port each
command asks, or changes, all of these servers. If one name means several servers, a command reaches
only one of them: give their addresses instead.

more commands, each with its own --help:
  seqserve models load NAME [VERSION]          loads a version and waits until it takes calls
  seqserve models unload NAME VERSION          waits for the version's calls and frees its memory
  seqserve models traffic NAME 1=90 2=10       divides the calls without a version
  seqserve models fetch SOURCE                 puts models into a folder, without a server
  seqserve models index FOLDER                 lists a folder of models for others to fetch

examples:
  seqserve models
  seqserve models --pairs
  seqserve models --glossaries
  seqserve models --json | jq -r .name"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsOptions(ConnectionOptions):
    """The options of ``seqserve models``."""

    json: bool = option(False, help="Print one JSON object a line, with every field.")

    def models(self, client: Client) -> Sequence[Model]:
        """Returns the models to print."""
        return client.models()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions(ModelsOptions):
    """The options of ``seqserve models`` without a further command."""

    pairs: bool = option(
        False,
        help="List the language pairs instead, each with its model, or with its two models, one"
        " after the other.",
    )
    # The variable is a folder of the server on this machine.
    glossaries: bool = option(
        False,
        help="List the glossaries instead, which requests name by --glossary.",
        has_variable=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(ModelsOptions):
    """The options of ``seqserve models load``."""

    name: str = option(help="Name of the model.", positional=True)
    version: int | None = option(
        None, help="The version; by default the highest one.", minimum=1, positional=True
    )

    def models(self, client: Client) -> Sequence[Model]:
        """Loads the version."""
        return [client.load_model(self.name, self.version)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadOptions(ModelsOptions):
    """The options of ``seqserve models unload``."""

    name: str = option(help="Name of the model.", positional=True)
    version: int = option(help="The version.", minimum=1, positional=True)

    def models(self, client: Client) -> Sequence[Model]:
        """Unloads the version."""
        return [client.unload_model(self.name, self.version)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions(ModelsOptions):
    """The options of ``seqserve models traffic``."""

    name: str = option(help="Name of the model.", positional=True)
    weights: list[str] = option(
        [],
        help="VERSION=WEIGHT; without any, all calls go to the highest version.",
        positional=True,
    )

    def models(self, client: Client) -> Sequence[Model]:
        """Sets the weights."""
        weights = dict(map(_weight_of, self.weights))
        if len(weights) < len(self.weights):
            raise OptionError("weights: a version has more than one")
        return client.set_traffic(self.name, weights)


_COMMANDS: dict[str, tuple[type[ModelsOptions], str]] = {
    "": (ListOptions, _ABOUT),
    "load": (LoadOptions, "Loads a version of a model and waits until it takes calls."),
    "unload": (UnloadOptions, "Unloads a version of a model after its calls have ended."),
    "traffic": (TrafficOptions, "Divides the calls of a model that name no version."),
}


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    name, arguments = split_command(ListOptions, argv, (*_COMMANDS, *_WITHOUT_SERVER))
    if name in _WITHOUT_SERVER:
        status: int = import_module(_WITHOUT_SERVER[name]).main(arguments)
        return status
    kind, description = _COMMANDS[name]
    prog = f"seqserve models {name}".rstrip()
    options = parse(kind, arguments, prog=prog, description=description)
    if len(servers := servers_of(options.target)) == 1:
        _print(options, "")
        return 0
    for server in servers if name else ():
        # One that is away leaves the others as they are. A token of an administrator may not list.
        with replace(options, target=server).connect() as client, suppress(PermissionDenied):
            client.models()
    for server in servers:
        try:
            _print(replace(options, target=server), server)
        except SeqserveError as error:
            error.add_note(f"That is what {server} says; servers before it are listed above.")
            raise
    return 0


def _print(options: ModelsOptions, server: str) -> None:
    listed: Sequence[_Listed]
    headings: tuple[str, ...]
    with options.connect() as client:
        if isinstance(options, ListOptions) and options.pairs:
            listed, headings = client.language_pairs(), _PAIR_HEADINGS
        elif isinstance(options, ListOptions) and options.glossaries:
            listed, headings = client.glossaries(), _GLOSSARY_HEADINGS
        else:
            listed, headings = options.models(client), _HEADINGS
    named = {"server": server} if server else {}
    if options.json:
        lines = [json_line(named | asdict(each)) for each in listed]
    else:
        lines = [f"{server}:"] if server else []
        lines += aligned([headings, *map(_row_of, listed)])
    print(*lines, sep="\n", end="\n" if lines else "", flush=True)


def _row_of(listed: _Listed) -> tuple[str, ...]:
    if isinstance(listed, Glossary):
        languages = listed.source_language, listed.target_language
        return listed.name, *languages, str(listed.entry_count), listed.fault
    if isinstance(listed, LanguagePair):
        pair = listed
        return pair.source_language, pair.target_language, " → ".join(pair.models)
    model = listed
    is_ready = model.state is ModelState.READY
    return (
        model.name + ("*" if model.is_default else ""),
        str(model.version),
        model.state.value,
        f"{model.traffic_share:.0%}" if is_ready else "",
        model.precision,
        model.provider,
        f"{model.slots_in_use}/{model.slots}" if is_ready else "",
        str(model.queue_depth) if is_ready else "",
        str(model.max_source_length) if is_ready else "",
        str(model.max_target_length) if is_ready else "",
        _about(model) if is_ready else model.state_reason,
    )


def _about(model: Model) -> str:
    languages = {"from": model.source_languages, "to": model.target_languages}
    known = [f"{role} {_listed(codes)}" for role, codes in languages.items() if codes]
    shortlist = "with a shortlist" if model.has_shortlist else ""
    return "; ".join(filter(None, (model.description, *known, shortlist)))


def _listed(codes: Sequence[str]) -> str:
    more = len(codes) - _MAX_CODES
    return ", ".join(codes[:_MAX_CODES]) + (f" and {more} more (--json)" if more > 0 else "")


def _weight_of(item: str) -> tuple[int, int]:
    try:
        version, weight = map(int, item.split("="))
    except ValueError:
        reason = "is not VERSION=WEIGHT, two whole numbers, such as 5=1 for all calls to version 5"
        raise OptionError(f"weights: {item!r} {reason}") from None
    return version, weight
