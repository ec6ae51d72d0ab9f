"""Usage of callers, by the names of their tokens: since the start, and in a file by day.

Several processes add to the file. Each keeps what it counts for a moment, so that a call waits for
no disk, and learns at the same time what the others have counted.
"""

import asyncio
import logging
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import NamedTuple, TypeAlias

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from seqserve.auth import TokenEntry
from seqserve.errors import OptionError
from seqserve.options import flag_of
from seqserve_server.contract.errors import QuotaUsed
from seqserve_server.process import logs

_TEXTS = {
    "requests": "Sources that were answered, by the name of the token.",
    "characters": "Characters of these sources.",
    "tokens": "Tokens of these sources and of what was generated from them.",
}
KINDS = tuple(_TEXTS)
INTERVAL_S = 1.0
_KEPT = timedelta(days=400)
_CREATE = """CREATE TABLE IF NOT EXISTS usage (day TEXT, name TEXT, requests INTEGER,
 characters INTEGER, tokens INTEGER, PRIMARY KEY (day, name)) WITHOUT ROWID"""
_ADD = """INSERT INTO usage VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
 requests = requests + excluded.requests, characters = characters + excluded.characters,
 tokens = tokens + excluded.tokens"""
_READ = """SELECT name, SUM(requests), SUM(characters), SUM(tokens) FROM usage
 WHERE day BETWEEN ? AND ? GROUP BY name"""

Counts: TypeAlias = Counter[str]
"""By kind."""


class Period(NamedTuple):
    """A day or a month, in UTC, and what was used in it."""

    name: str
    ends: datetime
    used: Counts


class Usage(Collector):
    """Counts what callers use; in one event loop, and read by any thread."""

    def __init__(
        self, path: Path | None = None, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Opens the file, if one is set; raises OptionError if it cannot be used."""
        self._clock = clock
        self._totals: defaultdict[str, Counts] = defaultdict(Counter)
        self._added: defaultdict[tuple[date, str], Counts] = defaultdict(Counter)
        self._sent: Mapping[tuple[date, str], Counts] = {}
        self._kept: Mapping[date, Mapping[str, Counts]] = {}
        """Counts in the file at the last exchange, by name, since the begin of each period."""
        self._is_over, self._is_broken = asyncio.Event(), False
        self._watching: asyncio.Task[None] | None = None
        self._file: sqlite3.Connection | None = None
        if path is not None:
            try:
                self._file, day = sqlite3.connect(path, check_same_thread=False), clock().date()
                with self._file:
                    self._file.execute(_CREATE)
                    oldest = (day - _KEPT).isoformat()
                    self._file.execute("DELETE FROM usage WHERE day < ?", [oldest])
                self._kept = self._exchanged(self._file, day)
            except sqlite3.Error as error:
                if self._file is not None:
                    self._file.close()
                raise OptionError(f"{flag_of('usage')}: {path} cannot be used: {error}") from None

    def add(self, name: str, characters: int, tokens: int) -> None:
        """Counts a source that was answered."""
        used = {"requests": 1, "characters": characters, "tokens": tokens}
        self._totals[name].update(used)
        if self._file is not None:
            self._added[self._clock().date(), name].update(used)

    def refusal(self, entry: TokenEntry) -> QuotaUsed | None:
        """Returns the error of a quota of a token that is used up."""
        periods = {each.name: each for each in self.periods(entry.name)} if entry.quotas else {}
        for quota in entry.quotas:
            period = periods.get(quota.period)
            if period is not None and period.used[quota.kind] >= quota.limit:
                left_s = (period.ends - self._clock()).total_seconds()
                ends = f"{period.ends:%Y-%m-%dT%H:%M:%SZ}"
                return QuotaUsed(f"{quota.limit:,} {quota.kind} a {quota.period}", ends, left_s)
        return None

    def periods(self, name: str) -> list[Period]:
        """Returns what a name has used this day and this month; nothing without a file."""
        if self._file is None:
            return []
        today = self._clock().date()
        first = today.replace(day=1)
        new = self._added.get((today, name), Counter()) + self._sent.get((today, name), Counter())
        spans = {
            "day": (today, today + timedelta(days=1)),
            "month": (first, (first + timedelta(days=31)).replace(day=1)),
        }
        return [
            Period(
                period,
                datetime.combine(end, time(), UTC),
                new + self._kept.get(begin, {}).get(name, Counter()),
            )
            for period, (begin, end) in spans.items()
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
        if self._file is not None:
            self._file.close()

    def collect(self) -> Iterator[Metric]:
        """Yields what was used since the start."""
        totals = sorted(self._totals.copy().items())
        for kind, text in _TEXTS.items():
            family = CounterMetricFamily(f"seqserve_caller_{kind}", text, labels=["caller"])
            for name, used in totals:
                family.add_metric([name], used[kind])
            yield family

    async def _watch(self, file: sqlite3.Connection) -> None:
        is_last = False
        while not is_last:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), INTERVAL_S)
            is_last = self._is_over.is_set()
            self._sent, self._added = self._added, defaultdict(Counter)
            try:
                day = self._clock().date()
                self._kept = await asyncio.to_thread(self._exchanged, file, day)
                self._is_broken = False
            except sqlite3.Error as error:
                # It goes on with what it knows, and adds that later.
                for key, used in self._sent.items():
                    self._added[key].update(used)
                if not self._is_broken:
                    logs.event("usage not written", {"reason": str(error)}, logging.ERROR)
                self._is_broken = True
            self._sent = {}

    def _exchanged(self, file: sqlite3.Connection, day: date) -> dict[date, dict[str, Counts]]:
        # In a thread: another process may hold the file briefly. A failed exchange adds nothing.
        kept: dict[date, dict[str, Counts]] = {}
        with file:
            sent = self._sent.items()
            rows = [(key[0].isoformat(), key[1], *map(used.get, KINDS)) for key, used in sent]
            file.executemany(_ADD, rows)
            for begin in (day, day.replace(day=1)):
                found = file.execute(_READ, (begin.isoformat(), day.isoformat()))
                counts = {name: zip(KINDS, used, strict=True) for name, *used in found}
                kept[begin] = {name: Counter(dict(used)) for name, used in counts.items()}
        return kept
