"""The service: models from a repository, run by ONNX Runtime, called over gRPC; never torch.

:class:`Offline` runs a model in the process of its caller, without gRPC.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from seqserve_server.offline.offline import Offline

__all__ = ["Offline"]


def __getattr__(name: str) -> "Any":
    # The modules that serve calls import nothing that runs models.
    if name == "Offline":
        from seqserve_server.offline.offline import Offline

        return Offline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
