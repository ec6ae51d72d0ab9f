"""The ``seqserve`` command: finds one of its commands and runs it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

from seqserve import __version__
from seqserve.command import process


class Command(NamedTuple):
    """One command; its module is imported only when it runs."""

    module: str
    extra: str = ""
    """Extra of the distribution with the dependencies; empty if it needs only the client."""
    function: str = "main"
    """Takes the arguments, a ``list[str]``, and returns the exit status."""


_PARTS = ("grpcio", "protobuf", "numpy", "tokenizers", "onnxruntime", "onnxruntime-gpu", "torch")
COMMANDS = {
    "prepare": Command("seqserve_model.prepare", "train"),
    "train": Command("seqserve_model.command", "train", function="train"),
    "evaluate": Command("seqserve_model.command", "train", function="evaluate"),
    "export": Command("seqserve_export.command", "train"),
    "import": Command("seqserve_import.command", "import"),
    "shortlist": Command("seqserve_export.command", "train", function="shortlist"),
    "upgrade": Command("seqserve_export.command", "train", function="upgrade"),
    "serve": Command("seqserve_server.serve.app", "server"),
    "generate": Command("seqserve.command.generate"),
    "translate": Command("seqserve.command.translate", "translate"),
    "corpus": Command("seqserve_server.corpus.command", "server"),
    "score": Command("seqserve.command.analysis", function="score"),
    "attention": Command("seqserve.command.analysis", function="attention"),
    "plot": Command("seqserve_plot.command", "plot"),
    "tokenize": Command("seqserve.command.analysis", function="tokenize"),
    "models": Command("seqserve.command.models"),
    "load": Command("seqserve.command.load"),
    "plan": Command("seqserve.command.plan"),
    "gateway": Command("seqserve_gateway.command", "gateway"),
    "playground": Command("seqserve_gateway.playground", "playground"),
    "token": Command("seqserve.command.token"),
    "version": Command("seqserve.command.main", function="version"),
}
_HELP = """\
usage: seqserve COMMAND [OPTIONS]

Trains small encoder-decoder transformers, exports them to ONNX and serves them over gRPC.

commands:
  prepare    make one file of sentence pairs from a corpus
  train      train a model by a recipe (TOML)
  evaluate   score a trained model: BLEU, chrF
  export     convert a trained model to ONNX, and prove that its outputs match
  import     convert a Hugging Face, Marian, CTranslate2 or Argos model to ONNX, and prove it
  shortlist  restrict a model to probable translations, so that it is faster
  upgrade    convert models of an older release
  serve      serve exported models over gRPC
  generate   generate from texts, or from the lines of a file
  translate  translate documents: text, Markdown, HTML, subtitles, Word, JSON, PO
  corpus     generate from every text of a corpus, without a server
  score      print the log-probability of every token of a target
  attention  draw which tokens a model attended to
  plot       draw positions, masks, attention, trainings, steps of the decoder
  tokenize   show the tokens of a text
  models     list, load, unload and fetch the models of a server
  load       send load to a server, and measure its response times
  plan       compute how many servers a rate needs, and their resources
  gateway    serve HTTP: JSON, and the APIs of LibreTranslate, DeepL and OpenAI
  playground try models in the browser, and look inside
  token      make a token for a client
  version    print the versions of seqserve and its dependencies

call a running server:
  seqserve generate "The coffee tastes good."
  seqserve generate --file source.txt > target.txt
  seqserve score "The coffee tastes good." "Der Kaffee schmeckt gut."
  seqserve load --request-rate 50

make a model and serve it:
  seqserve prepare --numbers 20000 --out data/numbers.tsv
  seqserve train model/configs/numbers.toml --threads 1
  seqserve export runs/numbers --name numbers
  seqserve serve --default-model numbers

import a trained model: seqserve import opus-mt-en-de --name en-de-opus

Every option is a flag and an environment variable, such as --target and SEQSERVE_TARGET. Options of
the same name share their variable.
`seqserve COMMAND --help` explains a command, `seqserve --version` prints the version."""


_PACKAGES = {command.module.partition(".")[0] for command in COMMANDS.values()}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command, by default from the arguments of the process, and returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return process.status_of(lambda: _dispatch(arguments))


def _dispatch(arguments: list[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if name == "help" and rest:
        name, rest = rest[0], ["--help"]
    if name in ("-h", "--help", "help"):
        print(_HELP)
        return 0
    if name == "--version":
        print(f"seqserve {__version__}")
        return 0
    if name in COMMANDS:
        return _run(name, COMMANDS[name], rest)
    from seqserve.option_values import nearest

    near = nearest(name, [*COMMANDS], least=len("gen"))
    guess = f"; did you mean {near!r}?" if near else ""
    return process.fail(
        2, f"unknown command {name!r}{guess}", "`seqserve --help` lists the commands."
    )


def _run(name: str, command: Command, arguments: list[str]) -> int:
    try:
        module = import_module(command.module)
        process.clean_up_first()
        status: int = getattr(module, command.function)(arguments)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _PACKAGES or not command.extra:
            raise
        hint = f"pip install 'seqserve[{command.extra}]'"
        return process.fail(
            1, f"`seqserve {name}` needs {missing!r}, which is not installed: {hint}"
        )
    return status


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOptions:
    """The options of ``seqserve version``: none but ``--help``."""


def version(argv: list[str]) -> int:
    """Runs ``seqserve version``, which prints versions for bug reports."""
    import platform
    from importlib import metadata

    from seqserve.options import parse

    description = "Prints the versions of seqserve, Python and the installed dependencies."
    parse(VersionOptions, argv, prog="seqserve version", description=description)
    print(f"seqserve {__version__}")
    print(f"python {platform.python_version()} on {platform.platform()}")
    for part in _PARTS:
        try:
            print(f"{part} {metadata.version(part)}")
        except metadata.PackageNotFoundError:
            continue
    return 0
