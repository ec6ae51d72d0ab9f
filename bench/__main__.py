"""All comparisons in one run: tables, ``bench/report.json`` and its picture, ``report.svg``.

python -m bench            a quarter of an hour on two cores; leave the machine alone meanwhile
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bench import checkpoints, firefox, imported, offline, online, overhead, roofline
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
_PARTS = {
    "sentences": "the shipped model on real sentences, greedy, beside the other engines",
    "decoding": "beams and samples, with the shipped model and with one of Marian's base shape",
    "marian": f"a model of Marian's base shape, random weights, {_LENGTH} target tokens",
    "online": "latency by requests a second, beside batch servers on other engines",
    "overhead": "what the server adds to its engine: speed, start, memory",
    "roofline": "a decoder step beside the limits of the machine",
}
_APART = {
    "imported": "models of T5-small's and NLLB-600M's shapes, imported: start, memory, speed",
    "firefox": "a model of Firefox, with its shortlist, beside Marian; needs build/marian",
}
"""Parts that run only if they are named."""


def main() -> int:
    """Runs the requested parts; the report keeps earlier results of the others."""
    options = _options()
    torch.set_num_threads(available_cores())
    began_s = time.perf_counter()
    report: dict[str, Any] = json.loads(_REPORT.read_text()) if _REPORT.exists() else {}
    provenance = Provenance.current()
    print(provenance.signature, flush=True)
    for part in options.parts:
        report[part] = _run(part, options.rounds)
        # Parts that are left out keep the numbers and the provenance of an earlier run.
        report.setdefault("provenance", {})[part] = asdict(provenance)
        _REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if all(part in report for part in _PARTS):
        save(draw(report), _PICTURE)
        print(f"drawn: {_PICTURE}")
    print(f"written: {_REPORT}, after {(time.perf_counter() - began_s) / 60:.0f} minutes")
    return 0


def _options() -> argparse.Namespace:
    known = _PARTS | _APART
    parts = "\n".join(f"  {name:<10} {text}" for name, text in known.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compares with other engines in one run; all parts take a quarter of an hour on"
        " two cores.",
        epilog=f"parts:\n{parts}\n\ntables are printed, all numbers go to bench/report.json, and"
        " a picture of all parts to bench/report.svg.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help="what to run; all but imported and firefox if not given",
    )
    parser.add_argument("--rounds", type=int, default=5, help="each peer's turns, offline; 5")
    options = parser.parse_args()
    options.parts = options.parts or list(_PARTS)
    if unknown := set(options.parts) - known.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; see --help")
    return options


def _run(part: str, rounds: int) -> Any:
    whole, integers = newest(_MODEL, "fp32"), newest(_MODEL, "int8")
    if part == "sentences":
        tables = offline.real_sentences(whole, [integers, whole], [1, 8, 32, 64], rounds)
        offline.print_tables("The shipped model, real sentences, offline", tables)
        return tables
    if part == "decoding":
        tables = offline.decoding(whole, [integers, whole], offline.BEAMED_ROWS, rounds)
        offline.print_tables("The shipped model, ways to decode, offline", tables)
        larger = offline.marian_decoding(offline.BEAMED_ROWS, min(rounds, 3), length=_LENGTH)
        offline.print_tables("Marian base shape, ways to decode, offline", larger)
        return {"sentences": tables, "marian": larger}
    if part == "marian":
        tables = offline.marian_base([1, 8, 32], min(rounds, 3), length=_LENGTH)
        offline.print_tables(f"Marian base shape, {_LENGTH} target tokens, offline", tables)
        return tables
    if part == "imported":
        tables = []
        for shape in checkpoints.SHAPES:
            rows, length = _IMPORTED_ROWS, _LENGTH
            tables.append(imported.measure(shape, min(rounds, 3), rows=rows, length=length))
            imported.print_table(tables[-1])
        return tables
    if part == "firefox":
        plan = online.Plan(base=firefox.BASE, shares=(0.5, 0.8), rounds=2, seconds=4.0)
        return firefox.measure(min(rounds, 3), plan)
    if part == "online":
        plan = online.Plan(shares=(0.2, 0.5, 0.8, 1.0, 1.2), seconds=1.5)
        waits = online.measure(integers, whole, plan)
        online.print_table(waits)
        return waits
    if part == "overhead":
        costs = overhead.measure(integers, overhead.Plan())
        overhead.print_table(costs)
        return costs
    shares = [roofline.measure(folder, [1, 8, 32]) for folder in (integers, whole)]
    for share in shares:
        roofline.print_table(share)
    return shares


if __name__ == "__main__":
    sys.exit(main())
