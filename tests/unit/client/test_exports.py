from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import seqserve

LIST_MODULES = """
import sys
before = set(sys.modules)
import seqserve
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
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
        [sys.executable, "-c", LIST_MODULES], capture_output=True, text=True, check=True
    )
    packages = set(listed.stdout.split()) - set(sys.stdlib_module_names)
    # Of these four, gRPC itself imports the last two where they are installed, and needs the third.
    allowed = {"seqserve", "grpc", "google", "typing_extensions", "grpc_health", "grpc_reflection"}
    public = {package for package in packages if not package.startswith("_")}
    assert public <= allowed | {"grpc_tools", "grpc_status"}
    assert {"seqserve", "grpc", "google"} <= packages
