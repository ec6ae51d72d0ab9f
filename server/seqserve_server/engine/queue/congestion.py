"""Default limit of the time in the queue: long during bursts, short under lasting overload.

A queue absorbs a burst and is worked off in the pause after it. Under overload there is no pause:
every request waits as long as the limit allows, and the slots are no busier for it. So once the
queue has refused a request it is kept short, until nothing had to be refused for a while. If the
refusals go on, waiting requests that exceed the short limit are refused as well.
Clients that wait for each answer before they send again may be too many for a short queue, but not
for a long one; so the long limit is tried again from time to time.

After Maurer 2015, "Fail at Scale", ACM Queue 13(8), "Controlled Delay". There the limit is short
while the queue has not been empty for a while, which it never is with clients of that kind.
"""

from __future__ import annotations

import math

BURST_S = 2.0
"""Longest expected wait while nothing was refused for this long; twice the duration of a request
where requests take longer themselves."""
SHARE = 0.5
"""Longest expected wait under overload, as a share of the time that a request occupies its slots.
So half as many requests wait as run: enough that hardly a slot stays empty, and too few to double
the time to an answer."""
MIN_WAITING = 2
"""Requests that may wait in any case, where few run at once; otherwise a client whose requests
always wait would keep out all others."""
LASTING_S = 0.5
"""Refusals that go on for longer are not those of a burst."""
PROBE_S = 60.0
"""Time after which the long limit is tried again."""


class Congestion:
    """The congestion of one queue. Times are those of the scheduler's clock, in seconds."""

    def __init__(self) -> None:
        """Starts without congestion."""
        self._began_s = self._last_s = -math.inf
        self._is_cleared = False

    def note(self, now_s: float) -> None:
        """Notes that a request was refused."""
        if not self._is_congested(now_s):
            self._began_s, self._is_cleared = now_s, False
        self._last_s = now_s

    def max_wait_s(self, now_s: float, service_s: float, interval_s: float) -> float:
        """Computes the longest wait that a request may expect.

        Args:
            now_s: The time.
            service_s: How long a request occupies its slots.
            interval_s: Time between the ends of two requests, while no slot is free.
        """
        if self._is_congested(now_s):
            return max(SHARE * service_s, MIN_WAITING * interval_s)
        return max(BURST_S, 2 * service_s)

    def has_surplus(self, now_s: float) -> bool:
        """Tells whether the queue may hold requests from before the overload was known to last."""
        lasts = self._is_congested(now_s) and self._last_s - self._began_s >= LASTING_S
        return lasts and not self._is_cleared

    def clear(self) -> None:
        """Notes that these requests were refused."""
        self._is_cleared = True

    def _is_congested(self, now_s: float) -> bool:
        return now_s - self._last_s < BURST_S and now_s - self._began_s < PROBE_S
