"""How long a request may wait, where nobody has said so: it depends on whether the queue ran over.

A queue takes in what comes at once, and is worked off in the pauses. Where more comes than can be
done there are none: whoever waits in it waits as long as it lets him, and the slots are no busier
for it. So a queue that has run over is kept short, until nothing had to be refused for a while; and
where that goes on, whoever came before and would wait for longer is refused as well.
Callers who each wait for an answer before they send again may be too many for a short queue, but
not for a long one; so a long one is tried at times.

After Maurer 2015, "Fail at Scale", ACM Queue 13(8), "Controlled Delay". There the limit is short
where the queue has not been empty for a while, which it never is with such callers.
"""

from __future__ import annotations

import math

BURST_S = 2.0
"""Longest that a request may be expected to wait while none was refused for so long; where requests
take long themselves, twice as long as one."""
SHARE = 0.5
"""How long one may wait once the queue has run over, as a share of the time that a request holds
its slots. So half as many wait as run: enough that hardly a slot is left empty while more keep
coming, and too few for anybody's answer to take twice as long for it."""
LEAST = 2
"""Requests that one may wait for all the same, where few run at once; else a caller whose requests
always wait would keep out all others."""
LASTING_S = 0.5
"""Refusals that go on for so long are not those of a burst."""
PROBE_S = 60.0
"""After which a queue that goes on running over is let grow again."""


class Congestion:
    """Of one queue. Times are those of the scheduler's clock, in seconds."""

    def __init__(self) -> None:
        """Begins without."""
        self._began_s = self._last_s = -math.inf
        self._is_cleared = False

    def note(self, now_s: float) -> None:
        """Notes that there was no room for a request."""
        if not self._is_there(now_s):
            self._began_s, self._is_cleared = now_s, False
        self._last_s = now_s

    def longest_wait_s(self, now_s: float, held_s: float, interval_s: float) -> float:
        """Gives how long a request may be expected to wait.

        Args:
            now_s: The time.
            held_s: How long a request holds its slots, of late.
            interval_s: After which another one leaves them, while none is free.
        """
        if self._is_there(now_s):
            return max(SHARE * held_s, LEAST * interval_s)
        return max(BURST_S, 2 * held_s)

    def has_surplus(self, now_s: float) -> bool:
        """Tells whether some may wait who came before it was known to be more than a burst."""
        lasts = self._is_there(now_s) and self._last_s - self._began_s >= LASTING_S
        return lasts and not self._is_cleared

    def clear(self) -> None:
        """Notes that they were refused."""
        self._is_cleared = True

    def _is_there(self, now_s: float) -> bool:
        return now_s - self._last_s < BURST_S and now_s - self._began_s < PROBE_S
