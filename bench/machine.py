"""What the numbers were measured on."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version
from pathlib import Path

from seqserve_server.front.cores import available_cores

_INSTRUCTIONS = ("avx2", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8")


def machine() -> str:
    """Names the processor, its cores, and what it has for integers."""
    cpu, flags = platform.processor() or platform.machine(), ""
    for line in Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else ():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            cpu = value.strip()
        elif name.strip() == "flags":
            flags = ", ".join(flag for flag in _INSTRUCTIONS if flag in value.split())
            break
    return f"{available_cores()} cores of {cpu} ({flags or 'no AVX2'})"


def versions() -> dict[str, str]:
    """Gives the versions of all engines compared."""
    names = ("onnxruntime", "ctranslate2", "torch", "transformers", "grpcio", "numpy")
    return {name: version(name) for name in names}
