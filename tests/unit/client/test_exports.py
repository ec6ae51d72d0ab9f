from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import seqserve

LIST_THIRD_PARTIES = """
import sys, sysconfig
import seqserve
place = sysconfig.get_path("purelib")
files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
print(*{name.partition(".")[0] for name, file in files.items() if file.startswith(place)})
"""


def test_all_is_what_is_exported() -> None:
    exported = {
        name
        for name, value in vars(seqserve).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert sorted(seqserve.__all__) == sorted(exported | {"__version__"})


def test_the_client_needs_grpc_and_protobuf_and_nothing_else() -> None:
    listed = subprocess.run(
        [sys.executable, "-c", LIST_THIRD_PARTIES], capture_output=True, text=True, check=True
    )
    packages = set(listed.stdout.split())
    assert {"grpc", "google"} <= packages
    # gRPC itself needs the first of these, and imports the others where they are installed.
    brought_by_grpc = {"typing_extensions", "grpc_tools", "grpc_health", "grpc_reflection"}
    brought_by_python = {"_distutils_hack", "seqserve"}
    assert packages - brought_by_grpc - brought_by_python == {"grpc", "google"}
