"""All comparisons in one run: tables, and ``bench/report.json``.

python -m bench            some 22 minutes on two cores; leave the machine alone meanwhile
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from operator import attrgetter
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
    measure: str
    """Function that takes rounds and returns numbers, after the name of its module."""
    tables: str = ""
    """Function that lays the numbers out; if empty, ``tables`` of the same module."""
    has_plan: bool = False
    """Whether it takes its module's Plan, whose fields are options of the command line."""

    def numbers(self, options: argparse.Namespace) -> Iterator[Any]:
        module = self.measure.partition(".")[0]
        taken: Any = options.rounds
        if self.has_plan:
            plan = _function(f"{module}.Plan")
            given = vars(options) | {"folder": options.folder / module}
            names = [field.name for field in fields(plan) if given[field.name]]
            taken = plan(**{name: given[name] for name in names})
        numbers = _function(self.measure)(taken)
        yield from numbers if isinstance(numbers, Iterator) else [numbers]

    def laid_out(self, numbers: Any) -> list[Table]:
        tables = self.tables or f"{self.measure.partition('.')[0]}.tables"
        return list(_function(tables)(numbers))


def _function(name: str) -> Any:
    module, _, function = name.partition(".")
    return attrgetter(function)(import_module(f"bench.scenarios.{module}"))


_PARTS = {
    "sentences": _Part(
        "the shipped model on real sentences, greedy, against the other engines",
        *("offline.sentences", "offline.sentences_tables"),
    ),
    "decoding": _Part(
        "beams and samples, with the shipped model and with one of Marian's base shape",
        *("offline.decoding", "offline.decoding_tables"),
    ),
    "marian": _Part(
        "a model of Marian's base shape, random weights, 32 target tokens",
        *("offline.marian", "offline.marian_tables"),
    ),
    "online": _Part(
        "latency by requests a second, against batch servers on other engines", "online.measure"
    ),
    "start": _Part(
        "the start of a server, and its memory", "fronts.measure_start", "fronts.start_tables"
    ),
}
_APART = {
    "online-base": _Part(
        "online with a copy of the shipped model at Marian's base size", "online.measure_large"
    ),
    "gateway": _Part(
        "over HTTP, against LibreTranslate on the same weights; needs build/libretranslate",
        "gateway.measure",
    ),
    "scaling": _Part(
        "one core and more, in one engine process or in several, alone and in a server",
        *("scaling.measure", "", True),
    ),
    "scaling-base": _Part(
        "scaling with a copy of the shipped model at Marian's base size",
        *("scaling.measure_large", "", True),
    ),
    "fronts": _Part(
        "front processes, and an engine that answers at once", "fronts.measure", "", True
    ),
    "gpu": _Part(
        "shapes of usual models on a GPU, random weights, 32 target tokens",
        *("gpu.measure", "gpu_cases.tables", True),
    ),
    "imported": _Part(
        "models of T5-small's and NLLB-600M's shapes, imported: start, memory, speed",
        "imported.measure",
    ),
    "shortlist": _Part(
        "random weights with a shortlist, against CTranslate2 with its vocabulary map",
        "shortlist.measure",
    ),
    "firefox": _Part(
        "a model of Firefox, with its shortlist, against Marian; needs build/marian",
        *("marian.firefox", "marian.firefox_tables"),
    ),
    "native": _Part(
        "a model of Marian's base shape in Marian's files, against Marian; needs the same",
        "marian.native",
    ),
    "corpus": _Part("a file of lines; needs the same and LibreTranslate", "corpus.measure"),
}
"""Those that run only if they are named."""
_PARTS |= _APART


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
    return _PARTS[name].laid_out(report[name]), provenance.signature


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
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compares with other engines in one run; all parts take some 22 minutes on two"
        " cores. Leave the machine alone meanwhile.",
        epilog=f"parts:\n{parts}\n\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"what to run; if not given, all but {', '.join(_APART)}",
    )
    add("--rounds", type=int, default=5, help="each engine's turns, offline; 5")
    add("--report", type=Path, default=_REPORT, metavar="FILE", help="bench/report.json")
    page = "write the report's tables between the markers of a page, and their numbers next to it"
    add("--page", type=Path, nargs="?", const=_PAGE, metavar="FILE", help=f"{page}; {_PAGE}")
    folder = "keeps the models of scaling and gpu for a later run; build/bench"
    add("--folder", type=Path, default=Path("build/bench"), metavar="FOLDER", help=folder)
    add = parser.add_argument_group("scaling and fronts").add_argument
    layout = "engine processes, and workers of each; doubled up to all cores if not given"
    add(
        "--layouts",
        nargs="+",
        type=_parsed("scaling.Layout.parse"),
        metavar="PROCESSES,WORKERS",
        help=layout,
    )
    fronts = "front processes; if not given, as a server for scaling, and 1, 2, 4 .. for fronts"
    add("--fronts", nargs="+", type=int, metavar="N", help=fronts)
    callers = "requests in flight; if not given, two a row for scaling, 16 and 64 for fronts"
    add("--callers", nargs="+", type=int, metavar="N", help=callers)
    add("--turn-s", type=float, default=2.0, metavar="S", help="length of a turn, about; 2")
    add = parser.add_argument_group("gpu").add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: one core; cuda")
    seconds = "time for all cases; 600"
    add("--max-seconds", dest="max_s", type=float, default=600.0, metavar="S", help=seconds)
    cases = "as marian-base:64 t5-base:1, marian-base:8:beam, marian-base:64:served; all of them"
    add(
        "--cases", nargs="+", type=_parsed("gpu_cases.Case.parse"), metavar="SHAPE:ROWS", help=cases
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - _PARTS.keys():
        parser.error(f"unknown part {', '.join(sorted(unknown))}; see --help")
    names = _PARTS if options.page else [name for name in _PARTS if name not in _APART]
    options.parts = options.parts or list(names)
    return options


def _parsed(name: str) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return _function(name)(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


_EPILOG = """\
Tables are printed, and all numbers go to bench/report.json. A later run of some parts
keeps the numbers of the others.

examples:
  python -m bench                          all parts of `make bench`
  python -m bench sentences --rounds 3     one part, quickly
  python -m bench --page                   the tables of docs/benchmarks.md and bench/NOTES.md
  python -m bench gpu --max-seconds 200    as much as the time allows, what matters most first"""


if __name__ == "__main__":
    sys.exit(main())
