"""The seqserve client: text in, generated text out, over gRPC.

Needs only grpcio and protobuf. The packages that train, export and serve import this one; it never
imports them.
"""

import os

# As in typing, which takes a moment to import: Ctrl-C before the command begins shows a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from seqserve.api import *  # noqa: F403

__version__ = "0.3.0"

# gRPC's own lines hold bytes of the peer as they are, line breaks too. It reads the variable when
# it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def __getattr__(name: str) -> "Any":
    # gRPC takes long to import, and not every command needs it. All that the package offers are
    # classes; other names are its modules, which the import statement finds.
    if name == "__all__":
        return _offered()
    if name[0].isupper():
        return getattr(_api(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_offered()]


def _offered() -> list[str]:
    return [name for name in vars(_api()) if name[0].isupper()]


def _api() -> "Any":
    from importlib import import_module

    return import_module("seqserve.api")
