"""A file of 3,000 lines through ``seqserve corpus``, beside what other engines make of it.

Every engine is a process that reads the file and writes another, its start included, and makes its
own batches. The model recommends a beam of four, as those of OPUS-MT do. Two models: the copy of
the shipped one at Marian's base size, and Firefox's student from English to Portuguese, which no
other engine but Marian reads. A slow engine gets the first lines only; its times are scaled up.
transformers is left out: none of its classes has the copy's positions.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

from bench import base_size_copy, import_checkpoint, marian_files
from bench.comparison import equal_share, take_turns
from bench.drivers import libretranslate, marian
from bench.drivers.subprocess_driver import command, timed
from bench.models import amend, shipped_artifacts
from bench.requests import everyday, mixed, news
from bench.tables import Table, shown, spread, spread_of_ratios
from seqserve.processes import available_cores
from seqserve_server.artifact.manifest import Manifest

LINES = 3_000
_BEAM = 4
_SLOW = 10
"""A slow engine gets one line of so many."""
_IMPORTED = 60
"""Sentences of the proof of an import."""
_NOTE = (
    "Lines are everyday sentences and sentences of newspapers; argostranslate got one of ten,"
    " and its start counts ten times."
    " Marian ranks hypotheses by another rule. onnxruntime-genai 0.18 builds no Marian model"
    " (`NotImplementedError: The model is not currently supported`)."
)


Command = Callable[[Path, Path], list[str]]
"""Takes the places of the lines and of the texts."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine."""

    name: str
    command: Command
    divisor: int = 1
    """It gets one line of so many."""


@dataclass(frozen=True, slots=True)
class _Run:
    wall_s: float
    cpu_s: float
    texts: list[str]


def lines_of_text(count: int) -> list[str]:
    """Makes lines as long as those of real text: two everyday sentences, then one of the news."""
    pairs = zip(*[iter(mixed(2 * count))] * 2, cycle(news()), strict=False)
    return list(islice(chain.from_iterable(pairs), count))


def measure(rounds: int, count: int = LINES) -> list[dict[str, Any]]:
    """Lets all engines translate the file in turn, one model after the other."""
    rounds = min(rounds, 3)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        return [
            {
                "name": name,
                "lines": count,
                "peers": _compare(peers(folder), lines_of_text(count), folder, rounds),
            }
            for name, peers in (("Marian's base size", base_peers), ("a student", student_peers))
        ]


def base_peers(folder: Path) -> list[Peer]:
    """Writes the copy of the shipped model for all engines."""
    shipped, _ = shipped_artifacts()
    artifacts = base_size_copy.write(shipped, folder)
    for artifact in artifacts.values():
        amend(artifact, generation={"beam_size": _BEAM})
    packages = libretranslate.packages_of(artifacts["fp32"], folder)
    package, eos = packages / libretranslate.PACKAGE, Manifest.read(shipped).tokens.eos
    other = libretranslate.INTERPRETER
    return [
        Peer("seqserve int8", _corpus(artifacts["int8"])),
        Peer("CTranslate2 int8", _peer(sys.executable, "ctranslate2", package, eos)),
        Peer("argostranslate int8", _peer(other, "argostranslate", package, eos), _SLOW),
    ]


def student_peers(folder: Path) -> list[Peer]:
    """Imports Firefox's student."""
    model, known = marian_files.student("enpt", folder), everyday()[:_IMPORTED]
    artifact = import_checkpoint.run(
        model.folder, folder, "int8", sentences=len(known), texts=known
    ).artifact
    amend(artifact, generation={"beam_size": _BEAM})
    options = model.options("int8", has_shortlist=True, rows=32)
    beam, threads = options.index("-b"), options.index("--cpu-threads")
    del options[beam : beam + 2]
    options[threads + 1] = str(available_cores())
    python = marian.ENVIRONMENT / "bin" / "python"
    return [
        Peer("seqserve int8", _corpus(artifact)),
        Peer("Marian int8", _peer(python, "marian", *options)),
    ]


def _corpus(artifact: Path) -> Command:
    program = str(Path(sys.executable).with_name("seqserve"))
    return lambda lines, out: [program, "corpus", *map(str, (lines, out, "--model", artifact))]


def _peer(interpreter: Path | str, engine: str, *arguments: object) -> Command:
    return lambda lines, out: command(
        interpreter, "libretranslate", "file", engine, lines, out, _BEAM, *arguments
    )


def _compare(
    peers: Sequence[Peer], lines: Sequence[str], folder: Path, rounds: int
) -> list[dict[str, Any]]:
    turns = take_turns({peer: partial(_run, peer, lines, folder) for peer in peers}, rounds)
    ours = turns[peers[0]]
    return [
        {
            "name": peer.name,
            "wall_s": spread([run.wall_s for run in runs]),
            "cpu_s": spread([run.cpu_s for run in runs]),
            "ratio": spread_of_ratios([run.cpu_s for run in ours], [run.cpu_s for run in runs]),
            "equal_share": equal_share(ours[0].texts[: len(runs[0].texts)], runs[0].texts),
        }
        for peer, runs in turns.items()
    ]


def _run(peer: Peer, lines: Sequence[str], folder: Path) -> _Run:
    some = lines[: len(lines) // peer.divisor]
    source, target = folder / "lines.txt", folder / "texts.txt"
    source.write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    target.unlink(missing_ok=True)
    wall_s, usage = timed(peer.name, peer.command(source, target))
    return _Run(
        wall_s=peer.divisor * wall_s,
        cpu_s=peer.divisor * (usage.ru_utime + usage.ru_stime),
        texts=target.read_text(encoding="utf-8").splitlines(),
    )


def tables(report: Sequence[dict[str, Any]]) -> list[Table]:
    """Lays out what :func:`measure` returned: a row for each engine."""
    return [
        Table(
            [
                f"{model['name']}; {model['lines']:,} lines, beams of {_BEAM}",
                *("seconds", "CPU seconds", "**seqserve's CPU time / its**", "same lines as ours"),
            ],
            [
                [
                    peer["name"],
                    *(shown(peer[key], 0) for key in ("wall_s", "cpu_s")),
                    shown(peer["ratio"]),
                    f"{peer['equal_share']:.0%}",
                ]
                for peer in model["peers"]
            ],
            _NOTE if model is report[-1] else "",
        )
        for model in report
    ]
