import subprocess
import sys
from types import ModuleType

import pytest

import seqserve
from seqserve import api

LIST_THIRD_PARTIES = """
import sys, sysconfig
import seqserve
first = set(sys.modules)
seqserve.Client
place = sysconfig.get_path("purelib")
files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
print(*{name.partition(".")[0] for name, file in files.items() if file.startswith(place)})
print(*first)
"""


@pytest.fixture(scope="module")
def loaded() -> tuple[set[str], set[str]]:
    """The packages that the client needs, and the modules that ``import seqserve`` loads."""
    listed = subprocess.run(
        [sys.executable, "-c", LIST_THIRD_PARTIES], capture_output=True, text=True, check=True
    )
    packages, first = listed.stdout.splitlines()
    return set(packages.split()), set(first.split())


def test_all_is_what_is_exported() -> None:
    exported = {
        name
        for name, value in vars(api).items()
        if not name.startswith("_") and name != "annotations" and not isinstance(value, ModuleType)
    }
    assert sorted(seqserve.__all__) == sorted(exported)
    assert exported | {"__version__"} <= set(dir(seqserve))
    scope: dict[str, object] = {}
    exec("from seqserve import *", scope)
    assert scope["Client"] is seqserve.Client


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="Clinet"):
        seqserve.Clinet  # noqa: B018


def test_the_client_needs_grpc_and_protobuf_and_nothing_else(
    loaded: tuple[set[str], set[str]],
) -> None:
    packages, _ = loaded
    assert {"grpc", "google"} <= packages
    # gRPC itself needs the first of these, and imports the others where they are installed.
    brought_by_grpc = {"typing_extensions", "grpc_tools", "grpc_health", "grpc_reflection"}
    brought_by_python = {"_distutils_hack", "seqserve"}
    assert packages - brought_by_grpc - brought_by_python == {"grpc", "google"}


def test_grpc_is_imported_when_it_is_needed(loaded: tuple[set[str], set[str]]) -> None:
    _, first = loaded
    assert "seqserve" in first and "grpc" not in first
