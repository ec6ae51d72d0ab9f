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

from bench import base_size_copy
from bench.provenance import Provenance
from bench.scenarios import (
    gateway,
    generator,
    imported,
    marian,
    offline,
    online,
    overhead,
    roofline,
    scaling,
    shortlist,
)
from bench.tables import Table, document, fill_page, marker
from bench.turns import speed_table
from seqserve.cores import available_cores
from seqserve_plot.bench import draw
from seqserve_plot.picture import save

_REPORT = Path(__file__).parent / "report.json"
_PAGE = Path("docs/benchmarks.md")

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Part:
    """A comparison: a row of the table of parts."""

    text: str
    measure: Callable[[int], Any]
    """Takes rounds, returns numbers."""
    tables: Callable[[Any], list[Table]]
    """Lays the numbers out."""
    is_apart: bool = False
    """Whether it runs only if it is named."""


def _online(_rounds: int) -> Any:
    integers, _ = offline.shipped_artifacts()
    return online.measure(integers, integers, online.SMALL)


def _online_base(_rounds: int) -> Any:
    _, floats = offline.shipped_artifacts()
    with tempfile.TemporaryDirectory() as folder:
        copies = base_size_copy.write(floats, Path(folder))
        return online.measure(copies["int8"], copies["fp32"], online.LARGE)


def _overhead(_rounds: int) -> Any:
    return overhead.measure(offline.shipped_artifacts()[0], overhead.Plan())


def _load(rounds: int) -> Any:
    return generator.measure(generator.Plan(rounds=rounds))


def _roofline(_rounds: int) -> Any:
    return [roofline.measure(artifact, [1, 8, 32]) for artifact in offline.shipped_artifacts()]


_PARTS = {
    "sentences": _Part(
        "the shipped model on real sentences, greedy, beside the other engines",
        offline.sentences,
        lambda report: [speed_table("the shipped small model; rows on each core", report)],
    ),
    "decoding": _Part(
        "beams and samples, with the shipped model and with one of Marian's base shape",
        offline.decoding,
        offline.decoding_tables,
    ),
    "marian": _Part(
        f"a model of Marian's base shape, random weights, {offline.LENGTH} target tokens",
        offline.marian,
        lambda report: [speed_table("Marian base shape; rows on each core", report)],
    ),
    "online": _Part(
        "latency by requests a second, beside batch servers on other engines",
        _online,
        online.tables,
    ),
    "online-base": _Part(
        "the same with a copy of the shipped model at Marian's base size",
        _online_base,
        online.tables,
        is_apart=True,
    ),
    "overhead": _Part(
        "what the server adds to its engine: speed, start, memory", _overhead, overhead.tables
    ),
    "gateway": _Part(
        "over HTTP beside LibreTranslate on the same weights; needs build/libretranslate",
        gateway.measure,
        gateway.tables,
        is_apart=True,
    ),
    "load": _Part(
        "what `seqserve load` costs itself, beside a server that does nothing",
        _load,
        generator.tables,
        is_apart=True,
    ),
    "scaling": _Part(
        "one core and more, in one engine process or in one each",
        scaling.measure,
        scaling.tables,
        is_apart=True,
    ),
    "roofline": _Part(
        "a decoder step beside the limits of the machine", _roofline, roofline.tables
    ),
    "imported": _Part(
        "models of T5-small's and NLLB-600M's shapes, imported: start, memory, speed",
        imported.measure,
        imported.tables,
        is_apart=True,
    ),
    "shortlist": _Part(
        "random weights with a shortlist, beside CTranslate2 with its vocabulary map",
        shortlist.measure,
        shortlist.tables,
        is_apart=True,
    ),
    "firefox": _Part(
        "a model of Firefox, with its shortlist, beside Marian; needs build/marian",
        marian.firefox,
        marian.firefox_tables,
        is_apart=True,
    ),
    "native": _Part(
        "a model of Marian's base shape in Marian's files, beside Marian; needs the same",
        marian.native,
        marian.tables,
        is_apart=True,
    ),
    "ssru": _Part(
        "a trained model with a recurrent decoder, beside Marian on its weights; needs the same",
        marian.ssru,
        marian.tables,
        is_apart=True,
    ),
}


def main() -> int:
    """Runs the requested parts, or writes the tables of a report into the page."""
    options = _options()
    report = _read(options.report)
    if options.page:
        return _write_page(report, options)
    torch.set_num_threads(available_cores())
    began_s = time.perf_counter()
    provenance = Provenance.current()
    print(provenance.signature, flush=True)
    for name in options.parts:
        part = _PARTS[name]
        report[name] = part.measure(options.rounds)
        # Parts that are left out keep the numbers and the provenance of an earlier run.
        report.setdefault("provenance", {})[name] = asdict(provenance)
        _write(report, options.report)
        print(f"\n{name}: {part.text}\n\n{_document(report, name)}", flush=True)
    if all(name in report for name, part in _PARTS.items() if not part.is_apart):
        picture = options.report.with_suffix(".svg")
        save(draw(report), picture)
        print(f"drawn: {picture}")
    minutes = (time.perf_counter() - began_s) / 60
    print(f"written: {options.report}, after {minutes:.0f} minutes")
    return 0


def _read(path: Path) -> Report:
    report: Report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return report


def _write(report: Report, path: Path) -> None:
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _document(report: Report, name: str) -> str:
    provenance = Provenance(**report["provenance"][name])
    return document(_PARTS[name].tables(report[name]), provenance.signature)


def _write_page(report: Report, options: argparse.Namespace) -> int:
    """Writes tables into a page, and their numbers beside it, as ``docs/benchmarks.json``."""
    page = options.page.read_text(encoding="utf-8")
    names = [name for name in options.parts if name in report and marker(name) in page]
    if not names:
        raise SystemExit(f"{options.report}: has none of these parts; `python -m bench` writes it")
    texts = {name: _document(report, name) for name in names}
    options.page.write_text(fill_page(page, texts), encoding="utf-8")
    path = options.page.with_suffix(".json")
    numbers = _read(path)
    for name in names:
        numbers[name] = report[name]
        numbers.setdefault("provenance", {})[name] = report["provenance"][name]
    _write(numbers, path)
    print(f"written: {options.page}, its tables of {', '.join(names)}, and {path}")
    return 0


def _options() -> argparse.Namespace:
    parts = "\n".join(f"  {name:<12}{part.text}" for name, part in _PARTS.items())
    apart = [name for name, part in _PARTS.items() if part.is_apart]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compares with other engines in one run; all parts take some 22 minutes on two"
        " cores. Leave the machine alone meanwhile.",
        epilog=f"parts:\n{parts}\n\nTables are printed, all numbers go to bench/report.json, and"
        " a picture of all parts to\nbench/report.svg. A later run of some parts keeps the numbers"
        " of the others.\n\nexamples:\n"
        "  python -m bench                          all parts of `make bench`\n"
        "  python -m bench sentences --rounds 3     one part, quickly\n"
        "  python -m bench --page                   the tables of docs/benchmarks.md, from the"
        " report",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"what to run; all but {', '.join(apart)} where none is named",
    )
    parser.add_argument("--rounds", type=int, default=5, help="each engine's turns, offline; 5")
    parser.add_argument(
        "--report", type=Path, default=_REPORT, metavar="FILE", help="bench/report.json"
    )
    parser.add_argument(
        "--page",
        type=Path,
        nargs="?",
        const=_PAGE,
        metavar="FILE",
        help="write the tables of the report's parts between the markers of a page, and their"
        f" numbers beside it; measure nothing; {_PAGE} where no file is named",
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - _PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; see --help")
    names = _PARTS if options.page else [name for name in _PARTS if name not in apart]
    options.parts = options.parts or list(names)
    return options


if __name__ == "__main__":
    sys.exit(main())
