"""The commands of ``seqserve``: module, help and extra of each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command; its module is imported only when it runs."""

    module: str
    """Module with a function ``main(argv: list[str]) -> int`` that returns the exit status."""
    help: str
    """What the command does, in one line."""
    extra: str = ""
    """Extra of the distribution with the dependencies; empty if it needs only the client."""


COMMANDS = {
    "prepare": Command(
        module="seqserve_model.prepare",
        help="make one file of sentence pairs from a corpus",
        extra="train",
    ),
    "train": Command(
        module="seqserve_model.command.train",
        help="train a model by a recipe (TOML)",
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
    "import": Command(
        module="seqserve_import.command",
        help="turn a checkpoint of Hugging Face into ONNX files, and prove them equal",
        extra="import",
    ),
    "shortlist": Command(
        module="seqserve_export.shortlist.command",
        help="let a model choose among probable translations only, so that it is faster",
        extra="train",
    ),
    "upgrade": Command(
        module="seqserve_export.upgrade",
        help="convert models that an older release wrote",
        extra="train",
    ),
    "serve": Command(
        module="seqserve_server.front.app",
        help="serve exported models over gRPC",
        extra="server",
    ),
    "generate": Command(
        module="seqserve.command.generate", help="generate from texts, or from the lines of a file"
    ),
    "translate": Command(
        module="seqserve.command.translate",
        help="translate documents: text, Markdown, HTML, subtitles, Word, JSON, PO",
        extra="translate",
    ),
    "corpus": Command(
        module="seqserve_server.corpus.command",
        help="generate from every text of a corpus, without a server",
        extra="server",
    ),
    "score": Command(
        module="seqserve.command.score", help="print the log-probability of every token of a target"
    ),
    "attention": Command(
        module="seqserve.command.attention", help="draw which tokens a model attended to"
    ),
    "plot": Command(
        module="seqserve_plot.command",
        help="draw positions, masks, attention, trainings, steps of the decoder",
        extra="plot",
    ),
    "tokenize": Command(
        module="seqserve.command.tokenize", help="show the tokens that a model divides a text into"
    ),
    "models": Command(
        module="seqserve.command.models",
        help="list, load and unload models of a server, or fetch some for it",
    ),
    "load": Command(
        module="seqserve.command.load",
        help="send load to a server, and measure how long its answers take",
    ),
    "plan": Command(
        module="seqserve.command.plan",
        help="tell how many servers a rate needs, and what each of them needs",
    ),
    "gateway": Command(
        module="seqserve_gateway.command",
        help="open a server to HTTP: JSON, and the forms of other translation services",
        extra="gateway",
    ),
    "playground": Command(
        module="seqserve_gateway.playground",
        help="try models on a page in the browser, and look inside",
        extra="playground",
    ),
    "token": Command(
        module="seqserve.command.token",
        help="make a token for a client of a server that requires one",
    ),
    "version": Command(
        module="seqserve.command.version",
        help="print the versions of seqserve and its dependencies",
    ),
}


def overview() -> str:
    """Returns the help of ``seqserve`` itself."""
    commands = "\n".join(f"  {name:<10} {command.help}" for name, command in COMMANDS.items())
    return f"""\
usage: seqserve COMMAND [OPTIONS]

Trains small encoder-decoder transformers, exports them to ONNX and serves them over gRPC.

commands:
{commands}

call a running server:
  seqserve generate "The coffee tastes good."
  seqserve generate --stream "We saw a good film."
  seqserve generate --file source.txt > target.txt
  seqserve score "The coffee tastes good." "Der Kaffee schmeckt gut."
  seqserve attention "The coffee tastes good."
  seqserve load --request-rate 50
  seqserve plan --rate 200 --p99-ms 300

make a model and serve it:
  seqserve prepare --numbers 20000 --out data/numbers.tsv
  seqserve train model/configs/numbers.toml --threads 1
  seqserve export runs/numbers --name numbers
  seqserve serve --default-model numbers

take a model that is trained already:
  seqserve import opus-mt-en-de --name en-de-opus

Every option is a flag and an environment variable, such as --target and SEQSERVE_TARGET. Options of
the same name share their variable.
`seqserve COMMAND --help` explains a command, `seqserve --version` prints the version."""
