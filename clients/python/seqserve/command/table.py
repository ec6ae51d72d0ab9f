"""The sub-commands of ``seqserve``: where each lives, what it is for, which extra it needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One sub-command; its module is imported only when it is called."""

    module: str
    """Module with a function ``main(argv: list[str]) -> int`` that gives the exit status."""
    help: str
    """What it does, in one line."""
    extra: str = ""
    """Extra of the distribution that brings what it imports; empty where the client is enough."""


COMMANDS = {
    "prepare": Command(
        module="seqserve_model.prepare",
        help="make one file of sentence pairs from a corpus",
        extra="train",
    ),
    "train": Command(
        module="seqserve_model.command.train",
        help="train a model as a recipe (TOML) says",
        extra="train",
    ),
    "evaluate": Command(
        module="seqserve_model.command.evaluate",
        help="score a trained model: BLEU, chrF",
        extra="train",
    ),
    "export": Command(
        module="seqserve_export.command",
        help="turn a trained model into ONNX files, and prove them equal",
        extra="train",
    ),
    "serve": Command(
        module="seqserve_server.front.app",
        help="serve exported models over gRPC",
        extra="server",
    ),
    "generate": Command(
        module="seqserve.command.generate",
        help="generate from texts, or from the lines of a file",
    ),
    "score": Command(
        module="seqserve.command.score",
        help="tell how probable a known target is, token by token",
    ),
    "attention": Command(
        module="seqserve.command.attention",
        help="draw which tokens a model attended to",
    ),
    "models": Command(
        module="seqserve.command.models", help="list, load and unload the models of a server"
    ),
    "token": Command(
        module="seqserve.command.token",
        help="make a token for a caller of a server that asks for one",
    ),
    "version": Command(module="seqserve.command.version", help="tell the versions of all parts"),
}


def overview() -> str:
    """Gives what ``seqserve`` alone prints."""
    commands = "\n".join(f"  {name:<10} {command.help}" for name, command in COMMANDS.items())
    return f"""\
usage: seqserve COMMAND [OPTIONS]

Trains small encoder-decoder transformers, exports them to ONNX and serves them over gRPC.

commands:
{commands}

ask a server that runs:
  seqserve generate "The coffee tastes good."
  seqserve generate --stream "We watched a film."
  seqserve generate --file source.txt > target.txt
  seqserve score "The coffee tastes good." "Der Kaffee schmeckt gut."
  seqserve attention "The coffee tastes good."

make a model and serve it:
  seqserve prepare --numbers 20000 --out data/numbers.tsv
  seqserve train model/configs/numbers.toml --threads 1
  seqserve export runs/numbers --name numbers
  seqserve serve --default-model numbers

Every option is a flag and a variable: --target and SEQSERVE_TARGET say the same. Commands that have
an option of one name share its variable.
`seqserve COMMAND --help` explains a command, `seqserve --version` tells the version."""
