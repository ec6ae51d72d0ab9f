"""What callers use, by the names of their tokens: since the start, and, in a file, by day.

Several processes add to the file. Each keeps what it counts for a moment, so that a call waits for
no disk, and learns at the same time what the others have counted.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from itertools import starmap
from operator import add
from pathlib import Path
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from seqserve.auth import TokenEntry
from seqserve.errors import OptionError
from seqserve.options import flag_of
from seqserve_server.contract.errors import QuotaUsed
from seqserve_server.process import logs

INTERVAL_S = 1.0
"""Between two exchanges with the file."""
_KEPT = timedelta(days=400)
_CREATE = """CREATE TABLE IF NOT EXISTS usage (day TEXT, name TEXT, requests INTEGER,
 characters INTEGER, tokens INTEGER, PRIMARY KEY (day, name)) WITHOUT ROWID"""
_ADD = """INSERT INTO usage VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
 requests = requests + excluded.requests, characters = characters + excluded.characters,
 tokens = tokens + excluded.tokens"""
_READ = """SELECT name, SUM(requests), SUM(characters), SUM(tokens) FROM usage
 WHERE day BETWEEN ? AND ? GROUP BY name"""


class Used(NamedTuple):
    """What calls have used."""

    requests: int = 0
    characters: int = 0
    tokens: int = 0


class Period(NamedTuple):
    """A day or a month, in UTC, and what was used in it."""

    name: str
    ends: datetime
    used: Used


class _Kept(NamedTuple):
    """What the file had at the last exchange."""

    day: date
    of_day: Mapping[str, Used]
    of_month: Mapping[str, Used]


class Usage(Collector):
    """Counts what callers use; in one event loop, and read by any thread."""

    def __init__(
        self, path: Path | None = None, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Opens the file, if there is one; raises OptionError if it cannot be used."""
        self._clock = clock
        self._totals: dict[str, Used] = {}
        self._added: dict[tuple[date, str], Used] = {}
        self._sent: dict[tuple[date, str], Used] = {}
        self._file: sqlite3.Connection | None = None
        self._kept = _Kept(clock().date(), {}, {})
        self._is_over, self._is_broken = asyncio.Event(), False
        self._watching: asyncio.Task[None] | None = None
        if path is not None:
            try:
                self._file = sqlite3.connect(path, check_same_thread=False)
                with self._file:
                    self._file.execute(_CREATE)
                    oldest = self._kept.day - _KEPT
                    self._file.execute("DELETE FROM usage WHERE day < ?", [oldest.isoformat()])
                self._kept = self._exchanged(self._file, self._kept.day)
            except sqlite3.Error as error:
                raise OptionError(f"{flag_of('usage')}: {path} cannot be used: {error}") from None

    def add(self, name: str, characters: int, tokens: int) -> None:
        """Counts a source that was answered."""
        used = Used(1, characters, tokens)
        self._totals[name] = _sum(self._totals.get(name), used)
        if self._file is not None:
            key = self._clock().date(), name
            self._added[key] = _sum(self._added.get(key), used)

    def refusal(self, entry: TokenEntry) -> QuotaUsed | None:
        """Returns the error of a quota of a token that is used up."""
        periods = {each.name: each for each in self.periods(entry.name)} if entry.quotas else {}
        for quota in entry.quotas:
            period = periods.get(quota.period)
            if period is not None and getattr(period.used, quota.kind) >= quota.limit:
                left_s = (period.ends - self._clock()).total_seconds()
                ends = f"{period.ends:%Y-%m-%dT%H:%M:%SZ}"
                return QuotaUsed(f"{quota.limit:,} {quota.kind} a {quota.period}", ends, left_s)
        return None

    def periods(self, name: str) -> list[Period]:
        """Returns what a name has used this day and this month; nothing without a file."""
        if self._file is None:
            return []
        today = self._clock().date()
        month = (today.replace(day=1) + timedelta(days=31)).replace(day=1)
        own = [each.get((today, name)) for each in (self._added, self._sent)]
        is_same = [self._kept.day == today, self._kept.day.replace(day=1) == today.replace(day=1)]
        kept = [self._kept.of_day.get(name), self._kept.of_month.get(name)]
        ends = [today + timedelta(days=1), month]
        return [
            Period(period, datetime.combine(end, time(), UTC), _sum(*own, used if same else None))
            for period, end, used, same in zip(("day", "month"), ends, kept, is_same, strict=True)
        ]

    def start(self) -> None:
        """Exchanges counts with the file from now on."""
        if self._file is not None:
            self._watching = asyncio.create_task(self._watch(self._file))

    async def stop(self) -> None:
        """Writes what is not in the file yet."""
        self._is_over.set()
        if self._watching is not None:
            await self._watching

    def collect(self) -> Iterator[Metric]:
        """Yields what was used since the start."""
        totals = sorted(self._totals.copy().items())
        for kind, text in (
            ("requests", "Sources that were answered, by the name of the token."),
            ("characters", "Characters of these sources."),
            ("tokens", "Tokens of these sources and of what was generated from them."),
        ):
            family = CounterMetricFamily(f"seqserve_caller_{kind}", text, labels=["caller"])
            for name, used in totals:
                family.add_metric([name], getattr(used, kind))
            yield family

    async def _watch(self, file: sqlite3.Connection) -> None:
        is_last = False
        while not is_last:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), INTERVAL_S)
            is_last = self._is_over.is_set()
            self._sent, self._added = self._added, {}
            try:
                day = self._clock().date()
                self._kept = await asyncio.to_thread(self._exchanged, file, day)
            except sqlite3.Error as error:
                # It goes on with what it knows, and adds that later.
                for key, used in self._sent.items():
                    self._added[key] = _sum(self._added.get(key), used)
                if not self._is_broken:
                    logs.event("usage not written", {"reason": str(error)}, logging.ERROR)
                self._is_broken = True
            else:
                self._is_broken = False
            self._sent = {}

    def _exchanged(self, file: sqlite3.Connection, day: date) -> _Kept:
        # In a thread: another process may hold the file for a moment.
        with file:
            rows = [(key[0].isoformat(), key[1], *used) for key, used in self._sent.items()]
            file.executemany(_ADD, rows)
        begins = day, day.replace(day=1)
        spans = [file.execute(_READ, (begin.isoformat(), day.isoformat())) for begin in begins]
        return _Kept(day, *({name: Used(*used) for name, *used in rows} for rows in spans))


def _sum(*parts: Used | None) -> Used:
    total = Used()
    for part in filter(None, parts):
        total = Used(*starmap(add, zip(total, part, strict=True)))
    return total
