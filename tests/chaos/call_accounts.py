"""Compares the calls that a server has counted with those that clients have seen."""

from __future__ import annotations

import time
from collections import Counter

from tests.e2e.process import PATIENCE_S, ServerProcess


class CallAccounts:
    """Calls of a server that have ended since this was made, by status."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._before = server.calls_by_code()

    def ended(self) -> Counter[str]:
        return self._server.calls_by_code() - self._before

    def until(self, **expected: int) -> None:
        """Waits until exactly these calls have ended; a call is counted just after its answer."""
        wanted = Counter({code: count for code, count in expected.items() if count})
        deadline_s = time.monotonic() + PATIENCE_S
        while (ended := self.ended()) != wanted:
            assert time.monotonic() < deadline_s, f"{dict(ended)}, not {dict(wanted)}"
            time.sleep(0.05)
