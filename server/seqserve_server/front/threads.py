"""Room for the threads of gRPC, which ends the process without a word where it cannot start one."""

from __future__ import annotations

import threading

from seqserve_server.contract.errors import StartupError
from seqserve_server.contract.limits import RAISE_THREADS

# On two cores the front has 13, most of them of gRPC.
_OWN_THREADS = 16


def refuse_few_threads() -> None:
    """Fails where the limit on threads leaves too few for the server.

    Raises:
        StartupError: It does.
    """
    is_over = threading.Event()
    begun: list[threading.Thread] = []
    try:
        for _ in range(_OWN_THREADS):
            thread = threading.Thread(target=is_over.wait, name="room", daemon=True)
            thread.start()
            begun.append(thread)
    except RuntimeError:
        raise StartupError(
            f"the limit on threads leaves {len(begun)} beside those of the models, and the server"
            f" needs {_OWN_THREADS}; {RAISE_THREADS}"
        ) from None
    finally:
        is_over.set()
        for thread in begun:
            thread.join()
