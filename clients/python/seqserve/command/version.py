"""``seqserve version``: prints the versions of seqserve and its dependencies, for bug reports."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata

from seqserve import __version__
from seqserve.options import parse

_PARTS = ("grpcio", "protobuf", "numpy", "tokenizers", "onnxruntime", "onnxruntime-gpu", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOptions:
    """The options of ``seqserve version``: none but ``--help``."""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    description = "Prints the versions of seqserve, Python and the installed dependencies."
    parse(VersionOptions, argv, prog="seqserve version", description=description)
    print(f"seqserve {__version__}")
    print(f"python {platform.python_version()} on {platform.platform()}")
    for part in _PARTS:
        try:
            print(f"{part} {metadata.version(part)}")
        except metadata.PackageNotFoundError:
            continue
    return 0
