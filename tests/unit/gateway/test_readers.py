import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.client.fake_server import PATIENCE_S
from tests.unit.gateway.translating import PAIR, Translator
from tests.unit.gateway.without_socket import gateway_of, opened

from seqserve_gateway.app import FORMS
from seqserve_gateway.failure import Failure
from seqserve_gateway.reading import Job, Part, Unreadable
from seqserve_gateway.upstream import Readers

PAGE = Job("html", ["<p>one</p>"])
LONG = "<p>one</p>\n\n" * 20_000
PARTS = [[Part("one"), Part("")]]


@dataclass(frozen=True)
class Hostile:
    """A job that runs an expression where it is read."""

    expression: str

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (self.expression,)


ENDLESS = Hostile("sum(iter(int, 1))")
"""It never returns, and holds the lock of the interpreter."""
_PROCESS = """__import__('seqserve_gateway.reading').reading.Job(
    'plain', [f"one {__import__('os').getpid()}"]
)"""
_FILLED = "__import__('sys').modules.__setitem__('filled', b'x' * (64 << 20))"
ENDS = {
    "time": ENDLESS,
    "memory": Hostile("bytes(1 << 30)"),
    "many objects": Hostile("list(iter(list, 1))"),
    "a crash": Hostile("__import__('os').abort()"),
}


@pytest.fixture
async def readers() -> AsyncIterator[Readers]:
    readers = Readers(processes=2, cpu_s=1, memory_bytes=96 << 20)
    yield readers
    readers.close()


async def read(readers: Readers, job: object, caller: str = "a", sizes: Any = None) -> Any:
    taken = [] if sizes is None else sizes
    reading = readers.outcome(caller, taken.append, "read", job)
    return await asyncio.wait_for(reading, PATIENCE_S)


@pytest.mark.parametrize("job", ENDS.values(), ids=ENDS)
async def test_job_beyond_the_limits_ends_and_others_do_not(readers: Readers, job: object) -> None:
    with pytest.raises(Failure) as refused:
        await read(readers, job)
    assert (refused.value.status, refused.value.code) == (413, "INVALID_ARGUMENT")
    assert await read(readers, PAGE) == PARTS


async def test_one_process_is_left_for_another_caller() -> None:
    readers = Readers(processes=2, cpu_s=5, memory_bytes=96 << 20)
    endless = [asyncio.create_task(read(readers, ENDLESS)) for _ in range(4)]
    await asyncio.sleep(0)
    assert await read(readers, PAGE, "b") == PARTS
    assert not any(task.done() for task in endless[1:])
    for task in endless:
        task.cancel()
    await asyncio.wait(endless)
    assert await read(readers, PAGE) == PARTS
    readers.close()


async def test_process_is_kept_until_a_job_leaves_it_large(readers: Readers) -> None:
    # It is started by a process that is large.
    ballast = b"x" * (80 << 20)
    job, large = Hostile(_PROCESS), Hostile(f"[{_PROCESS}, {_FILLED}][0]")
    first, second, third = [await read(readers, each) for each in (job, large, job)]
    assert first == second != third
    del ballast


async def test_memory_for_the_answer_is_taken_before_it_is_there(readers: Readers) -> None:
    sizes: list[int] = []
    assert await read(readers, PAGE, sizes=sizes) == PARTS
    assert len(sizes) == 1 and sizes[0] > 0


async def test_fault_of_the_program_is_no_limit(readers: Readers) -> None:
    with pytest.raises(RuntimeError, match="AttributeError"):
        await read(readers, None)
    with pytest.raises(Unreadable, match="is not a readable archive"):
        await read(readers, Job("a.docx", content=b"no"))


@pytest.mark.parametrize(
    ("path", "member", "request_"),
    [
        ("/translate", "error", {"json": {"q": LONG, "format": "html", **PAIR}}),
        ("/translate_file", "error", {"data": PAIR, "files": {"file": ("a.md", LONG.encode())}}),
        ("/v2/translate", "message", {"json": {"text": [LONG], "target_lang": "DE",
                                               "source_lang": "EN", "tag_handling": "xml"}}),
    ],
)  # fmt: skip
async def test_limit_and_refused_token_are_answered_in_the_shape_of_the_form(
    path: str, member: str, request_: dict[str, Any]
) -> None:
    server = Translator("en-de")
    gateway = gateway_of(server)
    gateway.upstream.readers = Readers(memory_bytes=1 << 20)
    try:
        async with opened(gateway, *FORMS) as client:
            beyond = await client.post(path, **request_)
            server.has_tokens = True
            refused = await client.post(path, **request_, headers={"authorization": "Bearer x"})
    finally:
        server.stop()
    assert (beyond.status_code, [*beyond.json()]) == (413, [member])
    assert "1 MiB to read; send it in parts" in beyond.json()[member]
    # It was not read before the server refused the token.
    assert (refused.status_code, [*refused.json()]) == (403, [member])
    assert server.requests == []
