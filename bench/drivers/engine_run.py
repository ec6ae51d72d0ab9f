"""One run of an engine in a process of its own: it starts, decodes once, and ends.

So no two engines are in memory together, and each start is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.drivers import Driver, Rows, gc_freeze
from bench.drivers.ctranslate2 import CTranslate2Driver
from bench.drivers.seqserve import SeqserveDriver
from bench.drivers.server_process import proportional_bytes
from bench.drivers.subprocess_driver import SubprocessDriver, answer, command
from seqserve.processes import available_cores
from seqserve_server.contract.options import DecodingOptions

Load = Callable[[Path, int, int], Driver[list[int]]]
"""Takes the folder of a model, the rows in flight on each core, and the length of targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """What one run took, and what it wrote."""

    ready_s: float
    """From the start of the process until the model is loaded; its files are in the system's
    cache."""
    resident_bytes: int
    """In RAM after decoding, pages of mapped files included."""
    seconds: float
    rows: Rows

    @property
    def tokens_per_s(self) -> float:
        """Speed of decoding alone."""
        return sum(map(len, self.rows)) / self.seconds


def run(engine: str, folder: Path, sources: Rows, *, rows: int, length: int) -> EngineRun:
    """Starts an engine, lets it decode, and waits for its end.

    Args:
        engine: A key of :data:`ENGINES`.
        folder: Of its model.
        sources: Token ids, the end token last in each.
        rows: In flight on each core.
        length: Target tokens of every row.

    Raises:
        RuntimeError: It failed; its own output names the reason.
    """
    far_end = command(sys.executable, "engine_run", engine, folder, rows, length)
    driver: SubprocessDriver[list[int]] = SubprocessDriver(engine, far_end)
    with driver:
        targets = driver.decode(sources)
        return EngineRun(
            ready_s=driver.ready_s,
            resident_bytes=proportional_bytes(driver.pids[0]),
            seconds=driver.seconds,
            rows=targets,
        )


def _forced(length: int) -> DecodingOptions:
    return DecodingOptions(max_decoding_length=length, min_decoding_length=length)


def _layout() -> tuple[int, int]:
    return available_cores(), 1


def _seqserve(folder: Path, rows: int, length: int) -> Driver[list[int]]:
    return SeqserveDriver(folder, rows, _forced(length))


def _ctranslate2(precision: str, folder: Path, rows: int, length: int) -> Driver[list[int]]:
    return CTranslate2Driver(folder, precision, _layout(), rows, _forced(length))


def _transformers(folder: Path, rows: int, length: int) -> Driver[list[int]]:
    # The others start without this import.
    from bench.drivers.transformers import TransformersDriver

    return TransformersDriver.load(folder, rows, length, _layout())


ENGINES: dict[str, Load] = {
    "seqserve": _seqserve,
    "CTranslate2 int8": partial(_ctranslate2, "int8"),
    "CTranslate2 fp32": partial(_ctranslate2, "float32"),
    "transformers fp32": _transformers,
}
"""Workers of one thread, one a core."""


def main(engine: str, folder: str, rows: str, length: str) -> None:
    """Is the far end of :func:`run`."""

    def load() -> Callable[[Rows], Rows]:
        driver = ENGINES[engine](Path(folder), int(rows), int(length))
        gc_freeze()
        return driver.decode

    answer(load)


if __name__ == "__main__":
    main(*sys.argv[1:])
