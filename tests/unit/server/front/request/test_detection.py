"""The front's end of the process that detects languages."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import uvloop

from seqserve_server.contract.errors import ModelUnavailable, NoDetector, QueueFull
from seqserve_server.front.request.detection import MAX_CHARACTERS, LanguageDetector

KOREAN, GREEK = "안녕하세요", "Καλημέρα"


@pytest_asyncio.fixture
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
    text = KOREAN + " " * MAX_CHARACTERS + GREEK * 1000
    assert (await detector.detect(text, ["el", "ko"]))[0].language == "ko"


async def test_callers_at_once_get_their_own_answers(detector: LanguageDetector) -> None:
    texts = [KOREAN, GREEK] * 20
    answers = await asyncio.gather(*(detector.detect(text, ["el", "ko"]) for text in texts))
    assert [answer[0].language for answer in answers] == ["ko", "el"] * 20


async def test_a_caller_that_leaves_disturbs_no_other(
    detector: LanguageDetector,
) -> None:
    leaving = asyncio.create_task(detector.detect(KOREAN, ["el", "ko"]))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (await detector.detect(GREEK, ["el", "ko"]))[0].language == "el"


async def test_a_process_that_fails_is_started_again(detector: LanguageDetector) -> None:
    await detector.detect(KOREAN, ["el", "ko"])
    process = detector.pid
    assert process is not None
    os.kill(process, signal.SIGKILL)
    with pytest.raises(ModelUnavailable, match="call again"):
        await detector.detect(KOREAN, ["el", "ko"])
    assert (await detector.detect(GREEK, ["el", "ko"]))[0].language == "el"
    assert detector.pid != process


def test_the_loop_of_the_server_starts_a_process_again_too() -> None:
    async def fail_and_detect() -> None:
        detector = LanguageDetector()
        await detector.detect(KOREAN, ["el", "ko"])
        assert detector.pid is not None
        os.kill(detector.pid, signal.SIGKILL)
        while Path(f"/proc/{detector.pid}").exists():
            await asyncio.sleep(0.01)
        with pytest.raises(ModelUnavailable, match="call again"):
            await detector.detect(KOREAN, ["el", "ko"])
        assert (await detector.detect(GREEK, ["el", "ko"]))[0].language == "el"
        await detector.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(fail_and_detect())


async def test_more_callers_than_can_wait_are_refused(detector: LanguageDetector) -> None:
    calls = (detector.detect(KOREAN, ["el", "ko"]) for _ in range(600))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, QueueFull)]
    assert len(refused) == 600 - 512 and refused[0].retry_after_s > 0
    assert (await detector.detect(GREEK, ["el", "ko"]))[0].language == "el"


async def test_without_the_library_the_error_says_what_to_install() -> None:
    with pytest.raises(NoDetector, match=r"pip install 'seqserve\[detect\]'"):
        await LanguageDetector(library="no_such_library").detect(KOREAN, ["ko"])
