"""All comparisons in one run: tables, ``bench/report.json`` and its picture, ``report.svg``.

python -m bench            some 22 minutes on two cores; leave the machine alone meanwhile
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bench import (
    checkpoints,
    firefox,
    imported,
    native_base,
    offline,
    online,
    overhead,
    roofline,
    scaling,
    shortlist,
    ssru,
    widened,
)
from bench.artifacts import newest
from bench.provenance import Provenance
from seqserve_plot.bench import draw
from seqserve_plot.picture import save
from seqserve_server.front.cores import available_cores

_FOLDER = Path(__file__).parent
_REPORT = _FOLDER / "report.json"
_PICTURE = _FOLDER / "report.svg"
_MODEL = Path("models/en-de")
_LENGTH = 32
_IMPORTED_ROWS = 8


@dataclass(frozen=True, slots=True)
class _Part:
    """A comparison: takes rounds, prints its tables, gives the numbers."""

    text: str
    run: Callable[[int], Any]
    is_apart: bool = False
    """Whether it runs only if it is named."""


def main() -> int:
    """Runs the requested parts; the report keeps earlier results of the others."""
    options = _options()
    torch.set_num_threads(available_cores())
    began_s = time.perf_counter()
    report: dict[str, Any] = json.loads(_REPORT.read_text()) if _REPORT.exists() else {}
    provenance = Provenance.current()
    print(provenance.signature, flush=True)
    for part in options.parts:
        report[part] = _PARTS[part].run(options.rounds)
        # Parts that are left out keep the numbers and the provenance of an earlier run.
        report.setdefault("provenance", {})[part] = asdict(provenance)
        _REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if all(name in report for name, part in _PARTS.items() if not part.is_apart):
        save(draw(report), _PICTURE)
        print(f"drawn: {_PICTURE}")
    print(f"written: {_REPORT}, after {(time.perf_counter() - began_s) / 60:.0f} minutes")
    return 0


def _options() -> argparse.Namespace:
    parts = "\n".join(f"  {name:<10} {part.text}" for name, part in _PARTS.items())
    apart = [name for name, part in _PARTS.items() if part.is_apart]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compares with other engines in one run; all parts take some 22 minutes on two"
        " cores.",
        epilog=f"parts:\n{parts}\n\ntables are printed, all numbers go to bench/report.json, and"
        " a picture of all parts to bench/report.svg.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"what to run; all but {', '.join(apart)} if not given",
    )
    parser.add_argument("--rounds", type=int, default=5, help="each peer's turns, offline; 5")
    options = parser.parse_args()
    options.parts = options.parts or [name for name in _PARTS if name not in apart]
    if unknown := set(options.parts) - _PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; see --help")
    return options


def _sentences(rounds: int) -> Any:
    whole, integers = _artifacts()
    tables = offline.real_sentences(whole, [integers, whole], [1, 8, 32, 64], rounds)
    offline.print_tables("The shipped model, real sentences, offline", tables)
    return tables


def _decoding(rounds: int) -> Any:
    whole, integers = _artifacts()
    tables = offline.decoding(whole, [integers, whole], offline.BEAMED_ROWS, rounds)
    offline.print_tables("The shipped model, ways to decode, offline", tables)
    larger = offline.marian_decoding(offline.BEAMED_ROWS, min(rounds, 3), length=_LENGTH)
    offline.print_tables("Marian base shape, ways to decode, offline", larger)
    return {"sentences": tables, "marian": larger}


def _marian(rounds: int) -> Any:
    tables = offline.marian_base([1, 8, 32], min(rounds, 3), length=_LENGTH)
    offline.print_tables(f"Marian base shape, {_LENGTH} target tokens, offline", tables)
    return tables


def _online(_rounds: int) -> Any:
    whole, integers = _artifacts()
    plan = online.Plan(shares=(0.2, 0.5, 0.8, 1.0, 1.2), seconds=1.5)
    waits = online.measure(integers, whole, plan)
    online.print_table(waits)
    return waits


def _online_base(_rounds: int) -> Any:
    whole, _ = _artifacts()
    shares = (0.3, 0.5, 0.8, 1.0, 1.2, 1.4, 1.6)
    plan = online.Plan(peers=("CTranslate2 int8",), shares=shares, rounds=2, seconds=5.0)
    with tempfile.TemporaryDirectory() as folder:
        artifacts = widened.write(whole, Path(folder))
        waits = online.measure(artifacts["int8"], artifacts["fp32"], plan)
    online.print_table(waits)
    return waits


def _overhead(_rounds: int) -> Any:
    _, integers = _artifacts()
    costs = overhead.measure(integers, overhead.Plan())
    overhead.print_table(costs)
    return costs


def _scaling(rounds: int) -> Any:
    whole, integers = _artifacts()
    with tempfile.TemporaryDirectory() as folder:
        larger = widened.write(whole, Path(folder))["int8"]
        tables = [
            scaling.measure(artifact, rounds, repeat=repeat)
            for artifact, repeat in ((integers, 10), (larger, 1))
        ]
    for table in tables:
        scaling.print_table(table)
    return tables


def _roofline(_rounds: int) -> Any:
    whole, integers = _artifacts()
    shares = [roofline.measure(folder, [1, 8, 32]) for folder in (integers, whole)]
    for share in shares:
        roofline.print_table(share)
    return shares


def _imported(rounds: int) -> Any:
    tables = []
    for shape in checkpoints.SHAPES:
        rows, length = _IMPORTED_ROWS, _LENGTH
        tables.append(imported.measure(shape, min(rounds, 3), rows=rows, length=length))
        imported.print_table(tables[-1])
    return tables


def _firefox(rounds: int) -> Any:
    plan = online.Plan(base=firefox.BASE, shares=(0.5, 0.8), rounds=2, seconds=4.0)
    return firefox.measure(min(rounds, 3), plan)


def _native(rounds: int) -> Any:
    return native_base.measure([1, 8, 32], min(rounds, 3))


def _shortlist(rounds: int) -> Any:
    return shortlist.measure([1, 8, 32], min(rounds, 3), length=_LENGTH)


def _ssru(rounds: int) -> Any:
    return ssru.measure(min(rounds, 3))


def _artifacts() -> tuple[Path, Path]:
    # Other engines do not know recurrent decoders.
    whole, integers = (newest(_MODEL, each, is_recurrent=False) for each in ("fp32", "int8"))
    return whole, integers


_PARTS = {
    "sentences": _Part(
        "the shipped model on real sentences, greedy, beside the other engines", _sentences
    ),
    "decoding": _Part(
        "beams and samples, with the shipped model and with one of Marian's base shape", _decoding
    ),
    "marian": _Part(
        f"a model of Marian's base shape, random weights, {_LENGTH} target tokens", _marian
    ),
    "online": _Part("latency by requests a second, beside batch servers on other engines", _online),
    "online-base": _Part(
        "the same with the shipped model widened to Marian's base size", _online_base, is_apart=True
    ),
    "overhead": _Part("what the server adds to its engine: speed, start, memory", _overhead),
    "scaling": _Part(
        "one core and more, in one engine process or in one each", _scaling, is_apart=True
    ),
    "roofline": _Part("a decoder step beside the limits of the machine", _roofline),
    "imported": _Part(
        "models of T5-small's and NLLB-600M's shapes, imported: start, memory, speed",
        _imported,
        is_apart=True,
    ),
    "shortlist": _Part(
        "random weights with a shortlist, beside CTranslate2 with its vocabulary map",
        _shortlist,
        is_apart=True,
    ),
    "firefox": _Part(
        "a model of Firefox, with its shortlist, beside Marian; needs build/marian",
        _firefox,
        is_apart=True,
    ),
    "native": _Part(
        "a model of Marian's base shape in Marian's files, beside Marian; needs the same",
        _native,
        is_apart=True,
    ),
    "ssru": _Part(
        "a trained model with a recurrent decoder, beside Marian on its weights; needs the same",
        _ssru,
        is_apart=True,
    ),
}


if __name__ == "__main__":
    sys.exit(main())
