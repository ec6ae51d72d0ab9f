import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

from seqserve_server.contract.errors import ModelUnavailable, QueueFull
from seqserve_server.contract.limits import DETECTED_CHARACTERS
from seqserve_server.front.generate.detection import LanguageDetector

KOREAN, GREEK = "안녕하세요", "Καλημέρα"
CODES = ["el", "ko"]


@pytest.fixture
async def detector() -> AsyncIterator[LanguageDetector]:
    detector = LanguageDetector()
    yield detector
    await detector.close()


async def test_the_codes_are_those_that_were_asked_for(detector: LanguageDetector) -> None:
    codes = ["kor_Hang", "el", "ko"]
    for text, code in ((KOREAN, "kor_Hang"), (GREEK, "el")):
        best, other = await detector.detect(text, codes)
        assert best.language == code and best.confidence > 0.9 > other.confidence
    assert await detector.detect("?", codes) == []


async def test_only_the_beginning_of_a_text_is_looked_at(detector: LanguageDetector) -> None:
    text = KOREAN + " " * DETECTED_CHARACTERS + GREEK * 1000
    assert (await detector.detect(text, CODES))[0].language == "ko"


async def test_callers_at_once_get_their_own_answers(detector: LanguageDetector) -> None:
    texts = [KOREAN, GREEK] * 20
    answers = await asyncio.gather(*(detector.detect(text, CODES) for text in texts))
    assert [answer[0].language for answer in answers] == ["ko", "el"] * 20


async def test_a_caller_that_leaves_disturbs_no_other(detector: LanguageDetector) -> None:
    leaving = asyncio.create_task(detector.detect(KOREAN, CODES))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (await detector.detect(GREEK, CODES))[0].language == "el"


async def test_a_process_that_ends_while_it_is_asked_is_replaced(
    detector: LanguageDetector,
) -> None:
    await detector.detect(KOREAN, CODES)
    process = detector.pid
    assert process is not None
    os.kill(process, signal.SIGSTOP)
    asked = asyncio.create_task(detector.detect(GREEK, CODES))
    await asyncio.sleep(0)
    os.kill(process, signal.SIGKILL)
    assert (await asked)[0].language == "el"


def test_the_loop_of_the_server_replaces_a_process_too() -> None:
    async def kill_and_detect() -> None:
        detector = LanguageDetector()
        await detector.detect(KOREAN, CODES)
        process = detector.pid
        assert process is not None
        os.kill(process, signal.SIGKILL)
        await asyncio.to_thread(os.waitid, os.P_PID, process, os.WEXITED | os.WNOWAIT)
        assert (await detector.detect(GREEK, CODES))[0].language == "el"
        await detector.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(kill_and_detect())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_to_all_processes_does_not_end_one_that_starts(
    detector: LanguageDetector, number: signal.Signals
) -> None:
    asked = asyncio.create_task(detector.detect(KOREAN, CODES))
    while detector.pid is None:
        await asyncio.sleep(0)
    process = detector.pid
    os.kill(process, number)
    assert (await asked)[0].language == "ko"
    assert detector.pid == process


async def test_an_answer_that_is_too_long_puts_no_other_out_of_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chatty.py").write_text(
        "import sys\n"
        "for line in sys.stdin:\n"
        "    text = '{\"ko\": 1.0}' if 'short' in line else 'x' * 100_000\n"
        "    print(text, flush=True)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    detector = LanguageDetector(module="chatty")
    with pytest.raises(ModelUnavailable):
        await detector.detect("long", ["ko"])
    [found] = await detector.detect("short", ["ko"])
    assert (found.language, found.confidence) == ("ko", 1.0)
    await detector.close()


async def test_a_process_that_always_ends_makes_the_service_unavailable() -> None:
    # A module that does nothing.
    detector = LanguageDetector(module="abc")
    with pytest.raises(ModelUnavailable, match="call again"):
        await detector.detect(KOREAN, ["ko"])
    assert detector.pid is None


async def test_a_system_without_room_for_a_process_makes_the_service_unavailable(
    monkeypatch: pytest.MonkeyPatch, detector: LanguageDetector
) -> None:
    def full(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", full)
        with pytest.raises(ModelUnavailable, match="call again"):
            await detector.detect(KOREAN, ["ko"])
    assert (await detector.detect(KOREAN, CODES))[0].language == "ko"


def test_the_process_starts_without_the_handlers_of_a_fork() -> None:
    """Those of gRPC, in the child, crash it now and then before it is the detector."""
    script = """
import asyncio, os, uvloop
from seqserve_server.front.generate.detection import LanguageDetector

forks = []
os.register_at_fork(before=lambda: forks.append(1))

async def detected():
    detector = LanguageDetector()
    answer = await detector.detect("안녕하세요", ["ko", "el"])
    await detector.close()
    return answer[0].language

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    print(runner.run(detected()), len(forks))
"""
    command = [sys.executable, "-c", script]
    assert subprocess.check_output(command, text=True) == "ko 0\n"


async def test_close_ends_the_calls_that_wait(detector: LanguageDetector) -> None:
    calls = [asyncio.create_task(detector.detect(KOREAN, CODES)) for _ in range(3)]
    await asyncio.sleep(0)
    await detector.close()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in outcomes] == [asyncio.CancelledError] * 3
    assert detector.pid is None


async def test_more_callers_than_can_wait_are_refused(detector: LanguageDetector) -> None:
    calls = (detector.detect(KOREAN, CODES) for _ in range(600))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, QueueFull)]
    assert len(refused) == 600 - 512 and refused[0].retry_after_s > 0
    assert (await detector.detect(GREEK, CODES))[0].language == "el"


async def test_callers_are_served_in_turn(detector: LanguageDetector) -> None:
    order: list[str] = []

    async def ask(caller: str) -> None:
        await detector.detect(KOREAN, CODES, caller)
        order.append(caller)

    many = [asyncio.create_task(ask("many")) for _ in range(200)]
    await asyncio.sleep(0)
    await ask("one")
    assert order.index("one") <= 3
    await asyncio.gather(*many)


async def test_a_callers_texts_leave_room_for_another(detector: LanguageDetector) -> None:
    many = [detector.detect(KOREAN, CODES, "many") for _ in range(900)]
    one = detector.detect(GREEK, CODES, "one")
    *outcomes, answer = await asyncio.gather(*many, one, return_exceptions=True)
    assert any(isinstance(each, QueueFull) for each in outcomes)
    assert isinstance(answer, list) and answer[0].language == "el"
