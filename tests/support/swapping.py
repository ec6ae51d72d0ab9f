"""Calls that continue while the versions of a model are swapped."""

import asyncio
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.process import ONCE

from seqserve import AsyncClient, Model, ModelState, Result

from .endless_model import NAME, copy_version
from .process import PATIENCE_S

SOURCES = ("The old train waits for", "Nobody", "Our scorer paints", "The coffee tastes music.")
LENGTH = 60


def publish(repository: Path, models: Path, version: int, original: str = f"{NAME}/1") -> Path:
    """Adds a version to a repository atomically, as the export does."""
    draft = copy_version(repository, models.parent / "draft", version, original)
    place = models / Path(original).parent / str(version)
    place.parent.mkdir(parents=True, exist_ok=True)
    draft.rename(place)
    return place


@dataclass
class Traffic:
    expected: dict[str, Result]
    """Result of each source; all versions have the same weights."""
    answered: Counter[int] = field(default_factory=Counter)
    """Calls by the version that answered."""
    wrong: list[str] = field(default_factory=list)

    def check(self, source: str, text: str, result: Result) -> None:
        self.answered[result.version] += 1
        if not text == result.text == self.expected[source].text:
            self.wrong.append(f"{source!r} of version {result.version}: {text!r}")
        if result.hypotheses != self.expected[source].hypotheses:
            self.wrong.append(f"{source!r} of version {result.version} is another answer")

    async def until_answered(self, version: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not self.answered[version]:
                await asyncio.sleep(0.01)


async def swapped(
    target: str, repository: Path, models: Path, *, first: int, swaps: int, callers: int
) -> Traffic:
    """Swaps versions one after the other while clients call without retries.

    Args:
        target: A server that keeps one version and looks often.
        repository: Where ``endless/1`` comes from.
        models: The server's folder.
        first: Version that is served at the start.
        swaps: How many newer ones are published.
        callers: How many call at once; of four, three stream and one sends batches.
    """
    async with AsyncClient(target, retry=ONCE, timeout_s=PATIENCE_S) as client:
        options = {"min_decoding_length": LENGTH, "max_decoding_length": LENGTH}
        expected = {source: await client.generate(source, **options) for source in SOURCES}
        traffic = Traffic(expected)
        is_over = asyncio.Event()

        async def call(number: int) -> None:
            source = SOURCES[number % len(SOURCES)]
            while not is_over.is_set():
                if number % 4:
                    pieces = [piece async for piece in client.stream(source, **options)]
                    result = pieces[-1].result
                    assert result is not None, "the stream was cut off"
                    traffic.check(source, "".join(piece.text for piece in pieces), result)
                else:
                    for outcome in await client.generate_batch([source] * 8, **options):
                        if not isinstance(outcome, Result):
                            raise outcome
                        traffic.check(source, outcome.text, outcome)

        async with asyncio.TaskGroup() as group:
            for number in range(callers):
                group.create_task(call(number))
            try:
                await traffic.until_answered(first)
                for version in range(first + 1, first + swaps + 1):
                    await asyncio.to_thread(publish, repository, models, version)
                    await until_served(client, version)
                    await traffic.until_answered(version)
                    await asyncio.to_thread(shutil.rmtree, models / NAME / str(version - 1))
            finally:
                is_over.set()
        return traffic


async def until_served(client: AsyncClient, version: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            models = {model.version: model for model in await client.models()}
            if is_ready(models.get(version)) and not any(
                model.state in (ModelState.READY, ModelState.DRAINING)
                for number, model in models.items()
                if number != version
            ):
                return
            await asyncio.sleep(0.05)


def is_ready(model: Model | None) -> bool:
    return model is not None and model.state is ModelState.READY
