"""Scores translations against references, and signs each score.

Sources: Papineni et al. 2002 (BLEU), Popović 2015 (chrF), Post 2018 (signatures, sacrebleu).
"""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from sacrebleu.metrics import BLEU, CHRF

from seqserve.errors import OptionError
from seqserve.options import flag_of
from seqserve_model.checkpoint import RunDirectory, load_run
from seqserve_model.data import Pair, read_pairs
from seqserve_model.decoding import greedy_in_batches
from seqserve_model.options import EvaluateOptions, Tokenize, Weights
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.manifest import FILE as MANIFEST
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.text.tokenizer import Tokenizer


class Translator(Protocol):
    """Anything that translates: a torch model, an exported artifact, a running server."""

    def __call__(self, sources: Sequence[str], /) -> list[str]:
        """Translates each source, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How close translations are to their references, and how that was measured."""

    pairs: int
    bleu: float
    bleu_signature: str
    bleu_applies: bool
    """Whether any translation has four words; if none has, BLEU is always 0."""
    chrf: float
    chrf_signature: str

    def __str__(self) -> str:
        caveat = "" if self.bleu_applies else " (no translation has BLEU's four words; see chrF)"
        return (
            f"BLEU {self.bleu:.2f}{caveat}  {self.bleu_signature}\n"
            f"chrF {self.chrf:.2f}  {self.chrf_signature}"
        )


@dataclass(frozen=True, slots=True)
class TorchTranslator:
    """Translates with a torch model in evaluation mode, on any device, and greedy search."""

    model: Transformer
    tokenizer: Tokenizer
    max_decoding_length: int | None = None
    """None for the model's own limit, which is never exceeded."""
    batch_rows: int = 64
    """Sources that are decoded together."""

    def __call__(self, sources: Sequence[str], /) -> list[str]:
        """Translates each source, in order; one that is too long is cut at the model's limit."""
        config, encoded = self.model.config, self.tokenizer.encode_batch(sources)
        rows = [self.tokenizer.truncate(ids, config.max_source_length) for ids in encoded]
        limit = config.max_target_length
        max_length = min(self.max_decoding_length or limit, limit)
        targets = greedy_in_batches(self.model, rows, max_length, self.batch_rows)
        return [self.tokenizer.decode(ids) for ids in targets]


def score(
    translations: Sequence[str], references: Sequence[str], tokenize: Tokenize = Tokenize.MTEVAL
) -> Scores:
    """Scores translations, one reference each; ``tokenize`` is BLEU's alone."""
    bleu, chrf = BLEU(tokenize=tokenize.value), CHRF()
    bleu_score = bleu.corpus_score(list(translations), [list(references)])
    chrf_score = chrf.corpus_score(list(translations), [list(references)])
    return Scores(
        pairs=len(translations),
        bleu=bleu_score.score,
        bleu_signature=str(bleu.get_signature()),
        bleu_applies=bleu_score.totals[-1] > 0,
        chrf=chrf_score.score,
        chrf_signature=str(chrf.get_signature()),
    )


def evaluate(
    translate: Translator, pairs: Sequence[Pair], tokenize: Tokenize = Tokenize.MTEVAL
) -> tuple[Scores, list[str]]:
    """Translates the sources of pairs; returns the scores and the translations."""
    translations = translate([pair.source for pair in pairs])
    return score(translations, [pair.target for pair in pairs], tokenize), translations


def run(options: EvaluateOptions) -> None:
    """Scores a run, an artifact or a server on held-out pairs, and prints the scores."""
    _check(options)
    with open_translator(options) as translate:
        # A server's data are named.
        data = options.data or RunDirectory(options.path or Path()).test
        corpus = read_pairs(
            data, source_column=options.source_column, target_column=options.target_column
        )
        for line in corpus.report():
            print(line, file=sys.stderr)
        pairs = corpus.pairs[: options.limit]
        scores, translations = evaluate(translate, pairs, options.tokenize)
    if options.translations:
        options.translations.write_text("\n".join(translations) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(dataclasses.asdict(scores)))
    else:
        print(scores)


def _check(options: EvaluateOptions) -> None:
    if options.path and not is_artifact(options.path):
        for name, value in options.search().items():
            raise OptionError(
                f"{flag_of(name)} {value}: a run is scored with greedy search; export it, and name"
                " the artifact"
            )
        return
    what = "an artifact" if options.path else "a server"
    if options.data is None:
        raise OptionError(f"--data: {what} has no test set; name a TSV file")
    if options.weights is not Weights.RESULT:
        raise OptionError(f"--weights: {what} has only one set of weights; name a run")
    if options.device != "cpu":
        raise OptionError(f"--device: {what} is scored on the CPU; name a run, or leave it out")
    if options.threads and not options.path:
        raise OptionError("--threads: a server uses its own threads; leave the option out")


@contextlib.contextmanager
def open_translator(options: EvaluateOptions) -> Iterator[Translator]:
    """Opens the run, the artifact or the client, for as long as the context lasts."""
    if options.path is None:
        with options.connect() as client:
            call: dict[str, Any] = {**options.call(), **options.search()}
            yield lambda sources: [each.text for each in client.generate_many(sources, **call)]
        return
    if is_artifact(options.path):
        with LocalEngine(options.path, threads=options.threads or 1) as artifact:
            length = artifact.manifest.limits.max_target_length
            decoding = DecodingOptions(max_decoding_length=length, **options.search())
            yield partial(artifact, options=decoding)
        return
    if not (options.path / "config.json").is_file():
        raise OptionError(
            f"{options.path}: is neither a training run nor an artifact; make one with"
            " `seqserve train` or `seqserve export`"
        )
    if options.threads:
        torch.set_num_threads(options.threads)
    model, tokenizer = load_run(options.path, options.weights)
    yield TorchTranslator(model.to(torch_device(options.device)), tokenizer)


def is_artifact(path: Path) -> bool:
    """Returns whether a folder is an exported artifact, and no training run."""
    return (path / MANIFEST).is_file()


def torch_device(name: str) -> torch.device:
    """Returns a torch device, or refuses a name that cannot be used here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise OptionError(
            f"device: {name!r} cannot be used here, try cpu or cuda: {reason:.100}"
        ) from None
    # It builds a kernel for every new shape, and nearly every batch has one.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return device
