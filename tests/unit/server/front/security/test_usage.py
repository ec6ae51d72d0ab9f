import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from tests.unit.server.front.calls import batch, bulk, ended, failure, request
from tests.unit.server.front.echo import PATIENCE_S
from tests.unit.server.front.service import Service, serving
from tests.unit.server.open_inference.tensor import asking

from seqserve.auth import Quota, Scope, TokenEntry, digest_of
from seqserve.errors import OptionError
from seqserve.v1 import model_pb2
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.security.protection import Security, security_of
from seqserve_server.front.security.tokens import Tokens
from seqserve_server.front.security.usage import Usage

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
METADATA = (("authorization", "Bearer shop"),)


class Calendar:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 23, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def entry(*quotas: str) -> TokenEntry:
    return TokenEntry(
        digest=digest_of("shop"),
        scopes=frozenset({Scope.GENERATE}),
        name="shop",
        quotas=tuple(map(Quota.parse, quotas)),
    )


@asynccontextmanager
async def counting(path: Path, clock: Calendar) -> AsyncIterator[Usage]:
    usage = Usage(path, clock)
    usage.start()
    yield usage
    await usage.stop()


async def test_counts_survive_a_restart_until_their_period_ends(tmp_path: Path) -> None:
    clock = Calendar()
    for _ in range(2):
        async with counting(tmp_path / "usage", clock) as usage:
            usage.add("shop", 10, 3)
    async with counting(tmp_path / "usage", clock) as usage:
        day, month = usage.periods("shop")
        assert day.used == month.used == {"requests": 2, "characters": 20, "tokens": 6}
        assert day.ends == month.ends == datetime(2026, 12, 1, tzinfo=UTC)
        clock.now += timedelta(hours=2)
        assert [each.used for each in usage.periods("shop")] == [{}, {}]
        usage.add("shop", 1, 1)
        clock.now += timedelta(days=1)
        assert usage.periods("other")[1].used == {}
    async with counting(tmp_path / "usage", clock) as usage:
        assert [each.used["characters"] for each in usage.periods("shop")] == [0, 1]


@pytest.mark.parametrize(
    ("quota", "reason"),
    [
        ("characters/month=20", "20 characters a month"),
        ("tokens/day=6", "6 tokens a day"),
        ("requests/day=2", "2 requests a day"),
    ],
)
async def test_quota_is_refused_until_its_renewal(tmp_path: Path, quota: str, reason: str) -> None:
    clock = Calendar()
    async with counting(tmp_path / "usage", clock) as usage:
        usage.add("shop", 19, 5)
        assert usage.refusal(entry(quota)) is None
        usage.add("shop", 1, 1)
        refused = usage.refusal(entry(quota))
        assert refused is not None
        assert usage.refusal(entry()) is None
        clock.now += timedelta(hours=1)
        assert usage.refusal(entry(quota)) is None
    assert str(refused) == (
        f"the quota of {reason} is used up; it is renewed at 2026-12-01T00:00:00Z"
    )
    assert refused.retry_after_s == 3600


async def test_processes_add_up_in_one_file(tmp_path: Path) -> None:
    clock = Calendar()
    async with (
        counting(tmp_path / "usage", clock) as one,
        counting(tmp_path / "usage", clock) as two,
    ):
        one.add("shop", 5, 1)
        two.add("shop", 7, 1)
        assert one.periods("shop")[0].used["characters"] == 5
        while any(each.periods("shop")[0].used["characters"] != 12 for each in (one, two)):
            await asyncio.sleep(0.05)


async def test_what_the_file_did_not_take_is_written_later(tmp_path: Path) -> None:
    clock = Calendar()
    path = tmp_path / "usage"
    async with counting(path, clock) as usage:
        assert usage._file is not None
        usage._file.execute("PRAGMA query_only = ON")
        usage.add("shop", 5, 1)
        while not usage._is_broken:
            await asyncio.sleep(0.05)
        assert usage.periods("shop")[0].used["characters"] == 5
        usage._file.execute("PRAGMA query_only = OFF")
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT name, characters FROM usage").fetchall() == [("shop", 5)]


async def test_old_days_leave_the_file(tmp_path: Path) -> None:
    clock = Calendar()
    path = tmp_path / "usage"
    await Usage(path, clock).stop()
    with closing(sqlite3.connect(path)) as file, file:
        days = [(day, "shop", 1, 1, 1) for day in ("2025-01-01", "2026-11-01")]
        file.executemany("INSERT INTO usage VALUES (?, ?, ?, ?, ?)", days)
    async with counting(path, clock) as usage:
        assert usage.periods("shop")[1].used["requests"] == 1
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT day FROM usage").fetchall() == [("2026-11-01",)]


@pytest.mark.parametrize("content", [None, b"no database at all, but long enough to be one" * 9])
def test_file_that_cannot_be_used(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "folder" / "usage"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    with pytest.raises(OptionError, match=r"^--usage: .* cannot be used"):
        Usage(path)


def test_quotas_need_the_file_and_the_file_needs_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"{entry('tokens/day=5')}\n")
    with pytest.raises(OptionError, match="line 1: a quota needs --usage"):
        security_of(ServeOptions(tokens=tmp_path / "tokens"))
    with pytest.raises(OptionError, match=r"^--usage: needs --tokens"):
        security_of(ServeOptions(usage=tmp_path / "usage"))
    both = ServeOptions(tokens=tmp_path / "tokens", usage=tmp_path / "usage")
    asyncio.run(security_of(both).usage.stop())


@asynccontextmanager
async def limited(tmp_path: Path, *quotas: str) -> AsyncIterator[Service]:
    (tmp_path / "tokens").write_text(f"{entry(*quotas)}\n")
    usage = Usage(tmp_path / "usage")
    security = Security(tokens=Tokens(tmp_path / "tokens"), usage=usage)
    async with serving(security=security, slots=8) as service:
        yield service
    await usage.stop()


async def test_every_call_that_generates_is_counted(tmp_path: Path) -> None:
    async with limited(tmp_path) as service:
        calls = service.generation
        await calls.Generate(request("single"), metadata=METADATA)
        _ = [each async for each in calls.GenerateStream(request("stream"), metadata=METADATA)]
        await calls.GenerateBatch(batch("one", "", "two"), metadata=METADATA)
        sent = [bulk(1, "bulk"), bulk(2, "bulk"), bulk(3, "")]
        await ended(calls.GenerateBulk(sent, metadata=METADATA))
        await service.inference.ModelInfer(asking("in", "out"), metadata=METADATA)
        await failure(calls.Generate(request(""), metadata=METADATA))
        await failure(service.generate("stranger"))
        sources = ["single", "stream", "one", "two", "bulk", "bulk", "in", "out"]
        assert await service.value("caller_requests_total", caller="shop") == len(sources)
        characters = len("".join(sources))
        assert await service.value("caller_characters_total", caller="shop") == characters
        tokens = await service.value("caller_tokens_total", caller="shop")
        # The model has a token for each byte and for the end of a source, and echoes them.
        assert tokens >= 2 * characters
        asked = model_pb2.GetUsageRequest()
        answer = await service.models.GetUsage(asked, metadata=METADATA)
    assert answer.name == "shop"
    counts = [(each.period, each.characters, each.tokens) for each in answer.usages]
    assert counts == [("day", characters, tokens), ("month", characters, tokens)]


async def test_a_caller_that_leaves_a_stream_has_used_what_it_was_sent(tmp_path: Path) -> None:
    async with limited(tmp_path) as service:
        call = service.generation.GenerateStream(request("stream" * 9), metadata=METADATA)
        await anext(aiter(call))
        service.runtime.may_run.clear()
        call.cancel()
        async with asyncio.timeout(PATIENCE_S):
            while not await service.value("caller_requests_total", caller="shop"):
                await asyncio.sleep(0.01)
        assert await service.value("caller_characters_total", caller="shop") == 54
        assert (await service.value("caller_tokens_total", caller="shop") or 0) > 54
        service.runtime.may_run.set()


async def test_caller_beyond_its_quota_is_refused_before_its_call_is_read(tmp_path: Path) -> None:
    async with limited(tmp_path, "characters/day=6", "requests/month=9") as service:
        await service.generation.Generate(request("single"), metadata=METADATA)
        error = await failure(service.generation.Generate(request("a"), metadata=METADATA))
        asked = model_pb2.GetUsageRequest()
        day, month = (await service.models.GetUsage(asked, metadata=METADATA)).usages
        await service.until_value(1, "rejected_total", reason="quota")
    assert error.code() is EXHAUSTED
    assert "the quota of 6 characters a day is used up" in error.details()
    assert (day.characters, day.max_characters, day.max_requests) == (6, 6, 0)
    assert (month.max_characters, month.max_requests) == (0, 9)
