"""Records what a measurement was taken on: commit, versions, processor and day."""

from __future__ import annotations

import datetime
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

from bench.drivers import libretranslate, marian, optimum
from seqserve import __version__
from seqserve.processes import available_cores
from seqserve_model.checkpoint import current_commit

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
_PACKAGES = (
    "onnxruntime",
    "onnxruntime-gpu",
    "ctranslate2",
    "torch",
    "transformers",
    "grpcio",
    "numpy",
)
_APART = {
    "pymarian": marian.ENVIRONMENT,
    "optimum-onnx": optimum.ENVIRONMENT,
    "libretranslate": libretranslate.ENVIRONMENT,
}
"""Packages in separate environments, which need not be there."""


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
