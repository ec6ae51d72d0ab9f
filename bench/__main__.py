"""All comparisons in one run: tables, and ``bench/report.json``.

python -m bench            some 22 minutes on two cores; leave the machine alone meanwhile
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from bench.tables import Provenance, Table, document, fill_page, parts_of
from seqserve.processes import available_cores

_REPORT = Path(__file__).parent / "report.json"
_PAGE = Path("docs/benchmarks.md")
_NOTES = Path("bench/NOTES.md")
"""Has the tables that the page leaves out."""

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Part:
    """A row of the table of parts; its scenario is imported only when it is run.

    So a part runs where the packages of other parts are missing.
    """

    text: str
    scenario: str
    measure: str = "measure"
    """Function that takes rounds and returns numbers."""
    tables: str = "tables"
    """Function that lays the numbers out, of another module of scenarios if it names one."""
    is_apart: bool = False
    """Whether it runs only if it is named."""

    def function(self, name: str) -> Callable[..., Any]:
        module, _, name = name.rpartition(".")
        scenario = import_module(f"bench.scenarios.{module or self.scenario}")
        return getattr(scenario, name)  # type: ignore[no-any-return]

    def numbers(self, options: argparse.Namespace) -> Iterator[Any]:
        measure = self.function(self.measure)
        if self.scenario == "gpu":
            cases = [self.function("gpu_cases.Case").parse(text) for text in options.cases]  # type: ignore[attr-defined]
            plan = self.function("Plan")(
                device=options.device,
                max_s=options.max_seconds,
                rounds=options.rounds,
                cases=cases or self.function("gpu_cases.CASES"),
                folder=options.folder / "gpu",
            )
            yield from measure(plan)
        elif self.measure != "measure_start" and self.scenario in ("scaling", "fronts"):
            names = ["rounds", "turn_s", "fronts", "callers"]
            facts = {name: getattr(options, name) for name in names}
            if self.scenario == "scaling":
                layouts = [self.function("Layout").parse(text) for text in options.layouts]  # type: ignore[attr-defined]
                facts |= {"layouts": layouts, "folder": options.folder / "scaling"}
            yield from measure(self.function("Plan")(**facts))
        else:
            numbers = measure(options.rounds)
            yield from numbers if isinstance(numbers, Iterator) else [numbers]


_PARTS = {
    "sentences": _Part(
        "the shipped model on real sentences, greedy, against the other engines",
        *("offline", "sentences", "sentences_tables"),
    ),
    "decoding": _Part(
        "beams and samples, with the shipped model and with one of Marian's base shape",
        *("offline", "decoding", "decoding_tables"),
    ),
    "marian": _Part(
        "a model of Marian's base shape, random weights, 32 target tokens",
        *("offline", "marian", "marian_tables"),
    ),
    "online": _Part(
        "latency by requests a second, against batch servers on other engines", "online"
    ),
    "online-base": _Part(
        "the same with a copy of the shipped model at Marian's base size",
        *("online", "measure_large"),
        is_apart=True,
    ),
    "start": _Part(
        "the start of a server, and its memory", *("fronts", "measure_start", "start_tables")
    ),
    "gateway": _Part(
        "over HTTP, against LibreTranslate on the same weights; needs build/libretranslate",
        "gateway",
        is_apart=True,
    ),
    "scaling": _Part(
        "one core and more, in one engine process or in several, alone and in a server",
        "scaling",
        is_apart=True,
    ),
    "scaling-base": _Part(
        "the same with a copy of the shipped model at Marian's base size",
        *("scaling", "measure_large"),
        is_apart=True,
    ),
    "fronts": _Part("front processes, and an engine that answers at once", "fronts", is_apart=True),
    "gpu": _Part(
        "shapes of usual models on a GPU, random weights, 32 target tokens",
        "gpu",
        tables="gpu_cases.tables",
        is_apart=True,
    ),
    "imported": _Part(
        "models of T5-small's and NLLB-600M's shapes, imported: start, memory, speed",
        "imported",
        is_apart=True,
    ),
    "shortlist": _Part(
        "random weights with a shortlist, against CTranslate2 with its vocabulary map",
        "shortlist",
        is_apart=True,
    ),
    "firefox": _Part(
        "a model of Firefox, with its shortlist, against Marian; needs build/marian",
        *("marian", "firefox", "firefox_tables"),
        is_apart=True,
    ),
    "native": _Part(
        "a model of Marian's base shape in Marian's files, against Marian; needs the same",
        *("marian", "native"),
        is_apart=True,
    ),
    "corpus": _Part("a file of lines; needs the same and LibreTranslate", "corpus", is_apart=True),
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
        for numbers in part.numbers(options):
            report[name] = numbers
            # Parts that are left out keep the numbers and the provenance of an earlier run.
            report.setdefault("provenance", {})[name] = asdict(provenance)
            _write(report, options.report)
        print(f"\n{name}: {part.text}\n\n{document(*_tables(report, name))}", flush=True)
    print(f"written: {options.report}, after {(time.perf_counter() - began_s) / 60:.0f} minutes")
    return 0


def _read(path: Path) -> Report:
    report: Report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return report


def _write(report: Report, path: Path) -> None:
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _tables(report: Report, name: str) -> tuple[list[Table], str]:
    provenance = Provenance(**report["provenance"][name])
    part = _PARTS[name]
    return list(part.function(part.tables)(report[name])), provenance.signature


def _write_page(report: Report, options: argparse.Namespace) -> int:
    pages = [options.page, *([_NOTES] if options.page == _PAGE else [])]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    shown = set[str]().union(*map(parts_of, texts.values()))
    names = [name for name in options.parts if name in report and name in shown]
    if not names:
        raise SystemExit(f"{options.report}: has none of these parts; `python -m bench` writes it")
    tables = {name: _tables(report, name) for name in names}
    for page, text in texts.items():
        page.write_text(fill_page(text, tables), encoding="utf-8")
    path = options.page.with_suffix(".json")
    numbers = _read(path)
    for name in names:
        numbers[name] = report[name]
        numbers.setdefault("provenance", {})[name] = report["provenance"][name]
    _write(numbers, path)
    print(f"written: {', '.join(map(str, pages))}, the tables of {', '.join(names)}; {path}")
    return 0


def _options() -> argparse.Namespace:
    parts = "\n".join(f"  {name:<13}{part.text}" for name, part in _PARTS.items())
    apart = [name for name, part in _PARTS.items() if part.is_apart]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compares with other engines in one run; all parts take some 22 minutes on two"
        " cores. Leave the machine alone meanwhile.",
        epilog=f"parts:\n{parts}\n\nTables are printed, and all numbers go to bench/report.json. A"
        " later run of some parts\nkeeps the numbers of the others.\n\nexamples:\n"
        "  python -m bench                          all parts of `make bench`\n"
        "  python -m bench sentences --rounds 3     one part, quickly\n"
        "  python -m bench --page                   the tables of docs/benchmarks.md and"
        " bench/NOTES.md\n"
        "  python -m bench gpu --max-seconds 200    as much as the time allows, what matters most"
        " first",
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
        f" numbers next to it; measure nothing; {_PAGE} if no file is named",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build/bench"),
        metavar="FOLDER",
        help="keeps the models of scaling and gpu for a later run; build/bench",
    )
    scaling = parser.add_argument_group("scaling and fronts")
    scaling.add_argument(
        "--layouts",
        nargs="+",
        default=[],
        metavar="PROCESSES,WORKERS",
        help="engine processes, and workers of each; if not given, one core, then twice as many"
        " each time up to all, in one process and in one each",
    )
    scaling.add_argument(
        "--fronts",
        nargs="+",
        type=int,
        default=[],
        metavar="N",
        help="front processes of a server; if not given, a server's default for scaling, and 1, 2,"
        " 4 .. for fronts",
    )
    scaling.add_argument(
        "--callers",
        nargs="+",
        type=int,
        default=[],
        metavar="N",
        help="requests in flight; if not given, two for each row for scaling, 16 and 64 for fronts",
    )
    scaling.add_argument(
        "--turn-s", type=float, default=2.0, metavar="S", help="length of a turn, about; 2"
    )
    gpu = parser.add_argument_group("gpu")
    gpu.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: one core; cuda"
    )
    gpu.add_argument(
        "--max-seconds", type=float, default=600.0, metavar="S", help="time for all cases; 600"
    )
    gpu.add_argument(
        "--cases",
        nargs="+",
        default=[],
        metavar="SHAPE:ROWS",
        help="as marian-base:64 t5-base:1; marian-base:8:beam for beams of 5; marian-base:64:served"
        " for what callers of a server get; all if none is named",
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - _PARTS.keys():
        parser.error(f"unknown part {', '.join(sorted(unknown))}; see --help")
    names = _PARTS if options.page else [name for name in _PARTS if name not in apart]
    options.parts = options.parts or list(names)
    return options


if __name__ == "__main__":
    sys.exit(main())
