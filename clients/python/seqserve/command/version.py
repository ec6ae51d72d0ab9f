"""``seqserve version``: the versions of all parts, for a report of a fault."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata

from seqserve import __version__
from seqserve.options import parse

_PARTS = ("grpcio", "protobuf", "numpy", "tokenizers", "onnxruntime", "onnxruntime-gpu", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOptions:
    """There are none but ``--help``."""


def main(argv: list[str]) -> int:
    """Prints the versions of seqserve, Python and the libraries that are installed.

    Args:
        argv: Arguments after the command's name.

    Returns:
        The exit status.
    """
    parse(
        VersionOptions,
        argv,
        prog="seqserve version",
        description="Tells the versions of seqserve and of what it runs on.",
    )
    print(f"seqserve {__version__}")
    print(f"python {platform.python_version()} on {platform.platform()}")
    for part in _PARTS:
        try:
            print(f"{part} {metadata.version(part)}")
        except metadata.PackageNotFoundError:
            continue
    return 0
