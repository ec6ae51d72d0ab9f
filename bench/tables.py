"""Tables of results in Markdown, what they were measured on, and the page that has both."""

from __future__ import annotations

import datetime
import platform
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any, NamedTuple

from bench.drivers import libretranslate, marian, optimum
from seqserve import __version__
from seqserve.processes import available_cores
from seqserve_model.checkpoint import current_commit

Spread = Mapping[str, float]
"""``median``, ``low`` and ``high``."""

_INSTRUCTIONS = ("avx2", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8")
_SHOWN = {
    "python": "Python",
    "onnxruntime": "onnxruntime",
    "onnxruntime-gpu": "onnxruntime-gpu",
    "ctranslate2": "CTranslate2",
    "torch": "torch",
    "pymarian": "pymarian",
    "optimum-onnx": "Optimum",
    "libretranslate": "LibreTranslate",
}
# Never both of ONNX Runtime.
_PACKAGES = [
    "onnxruntime",
    "onnxruntime-gpu",
    "ctranslate2",
    "torch",
    "transformers",
    "grpcio",
    "numpy",
]
_APART = {
    "pymarian": marian.ENVIRONMENT,
    "optimum-onnx": optimum.ENVIRONMENT,
    "libretranslate": libretranslate.ENVIRONMENT,
}
"""Packages in separate environments, which need not be there."""


class Table(NamedTuple):
    """Rows of cells under a head, and a sentence below."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @classmethod
    def of(
        cls, columns: Mapping[str, str], records: Iterable[Mapping[str, Any]], note: str = ""
    ) -> Table:
        """Lays out records, a row each; ``columns`` has a format string for each head."""
        rows = [[cell.format_map(record) for cell in columns.values()] for record in records]
        return cls(list(columns), rows, note)

    def __str__(self) -> str:
        lines = [self.head, *self.rows]
        widths = [max(2, *map(len, column)) for column in zip(*lines, strict=True)]
        text = [_line(line, widths) for line in lines]
        text.insert(
            1, f"| {'-' * widths[0]} |" + "".join(f" {'-' * (w - 1)}: |" for w in widths[1:])
        )
        return "\n".join([*text, *(["", self.note] if self.note else [])]) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return f"| {first[0]:{first[1]}} |" + "".join(f" {cell:>{width}} |" for cell, width in rest)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns the median, the lowest and the highest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def spread_of_ratios(ours: Iterable[float], theirs: Iterable[float]) -> dict[str, float]:
    """Returns the spread of the ratios within the rounds."""
    return spread([our / their for our, their in zip(ours, theirs, strict=True)])


def shown(values: Spread, digits: int = 2) -> str:
    """Writes a spread, as ``1.20 (1.12-1.21)``."""
    median, low, high = (f"{values[name]:,.{digits}f}" for name in ("median", "low", "high"))
    return f"{median} ({low}-{high})"


def document(tables: Iterable[Table], signature: str) -> str:
    """Writes tables and the signature that belongs under them."""
    return "\n".join([*map(str, tables), f"`{signature}`\n"])


def parts_of(page: str) -> set[str]:
    """Returns the parts whose tables a page has."""
    return {found["part"] for found in _PLACE.finditer(page)}


def fill_page(page: str, parts: Mapping[str, tuple[Sequence[Table], str]]) -> str:
    """Replaces the tables between the markers of a page, and the signatures under them.

    ``<!-- bench gpu 1 5 -->`` takes the first and the fifth table of a part, a marker without
    numbers all of them; ``<!-- end -->`` ends them.
    """

    def filled(place: re.Match[str]) -> str:
        if place["part"] not in parts:
            return place[0]
        tables, signature = parts[place["part"]]
        chosen = [tables[int(number) - 1] for number in place["numbers"].split()]
        return f"{place['begin']}\n{document(chosen or tables, signature)}<!-- end -->"

    return _PLACE.sub(filled, page)


_PLACE = re.compile(
    r"(?P<begin><!-- bench (?P<part>[\w-]+)(?P<numbers>[ \d]*) -->\n).*?<!-- end -->", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Everything that affects a speed besides the measured code."""

    commit: str
    """Empty outside a clone."""
    date: str
    """ISO 8601."""
    versions: dict[str, str]
    """By name of the package."""
    cpu: str
    instructions: tuple[str, ...]
    """Those of the processor that speed up integers."""
    cores: int
    """Those that this process may use."""

    @classmethod
    def current(cls) -> Provenance:
        """Describes this machine, environment and day."""
        cpu, flags = _processor()
        return cls(
            commit=current_commit(),
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            versions=_versions(),
            cpu=cpu,
            instructions=tuple(flag for flag in _INSTRUCTIONS if flag in flags),
            cores=available_cores(),
        )

    @property
    def signature(self) -> str:
        """One line that belongs under every table of speeds."""
        # Torch adds its build: 2.13.0+cpu.
        shown = {name: number.partition("+")[0] for name, number in self.versions.items()}
        return " | ".join(
            [
                f"seqserve {shown['seqserve']} (commit {self.commit[:7] or 'unknown'})",
                *(f"{label} {shown[name]}" for name, label in _SHOWN.items() if name in shown),
                f"{self.cpu}, {' '.join(self.instructions) or 'no avx2'}, {self.cores} cores",
                self.date,
            ]
        )


def _versions() -> dict[str, str]:
    versions = {"seqserve": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    for name, environment in _APART.items():
        folders = [str(folder) for folder in environment.glob("lib/*/site-packages")]
        for package in distributions(name=name, path=folders):
            versions[name] = package.version
    return versions


def _processor() -> tuple[str, list[str]]:
    cpu, flags = platform.processor() or platform.machine(), list[str]()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else ():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            cpu = value.strip()
        elif name.strip() == "flags":
            flags = value.split()
            break
    return cpu, flags
