"""One turn of an engine in a process of its own: it starts, decodes once, and ends.

So no two engines are in memory together, and each start is measured. What it writes are JSON lines:
an empty one once the model is loaded, then a :class:`Turn`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from bench.garbage import freeze_objects
from bench.process import proportional_bytes
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.front.cores import available_cores

Rows = list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one turn took, and what it gave."""

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


def take(engine: str, folder: Path, sources: Rows, *, rows: int, length: int) -> Turn:
    """Starts an engine, lets it decode, and waits for its end.

    Args:
        engine: One of ``ENGINES``.
        folder: Of its model.
        sources: Token ids, the end token last in each.
        rows: In flight on each core.
        length: Target tokens of every row.

    Raises:
        SystemExit: It failed; its own output names the reason.
    """
    command = [sys.executable, "-m", "bench.turn", engine, str(folder), str(rows), str(length)]
    began_s = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ready = process.stdout.readline()
        ready_s = time.perf_counter() - began_s
        found = process.communicate(json.dumps(sources))[0] if ready else ""
    if process.returncode:
        raise SystemExit(f"{engine}: ended with {process.returncode}")
    return Turn(**json.loads(found) | {"ready_s": ready_s})


def _seqserve(folder: Path, rows: int, length: int) -> Callable[[Rows], Rows]:
    from bench.peers import SeqservePeer

    return SeqservePeer(folder, rows, _options(length)).decode


def _ctranslate2(precision: str, folder: Path, rows: int, length: int) -> Callable[[Rows], Rows]:
    from bench.peers import CTranslate2Peer

    layout = (available_cores(), 1)
    return CTranslate2Peer(folder, precision, layout, rows, _options(length)).decode


def _transformers(folder: Path, rows: int, length: int) -> Callable[[Rows], Rows]:
    from transformers import AutoModelForSeq2SeqLM, GenerationConfig

    from bench.huggingface import GeneratePeer

    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    options = GenerationConfig.from_model_config(model.config)
    options.update(min_new_tokens=length, max_new_tokens=length, max_length=None)
    return GeneratePeer(model, options, rows, (available_cores(), 1)).decode


def _options(length: int) -> DecodingOptions:
    return DecodingOptions(max_decoding_length=length, min_decoding_length=length)


ENGINES: dict[str, Callable[[Path, int, int], Callable[[Rows], Rows]]] = {
    "seqserve": _seqserve,
    "CTranslate2 int8": partial(_ctranslate2, "int8"),
    "CTranslate2 fp32": partial(_ctranslate2, "float32"),
    "transformers fp32": _transformers,
}
"""Each loads a model, and gives a function that decodes. Workers of one thread, one a core."""


def main() -> None:
    """Takes one turn."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", type=int)
    parser.add_argument("length", type=int)
    options = parser.parse_args()
    decode = ENGINES[options.engine](options.folder, options.rows, options.length)
    freeze_objects()
    print(flush=True)
    sources = json.load(sys.stdin)
    began_s = time.perf_counter()
    rows = decode(sources)
    turn = Turn(
        ready_s=0.0,
        seconds=time.perf_counter() - began_s,
        resident_bytes=proportional_bytes(Path("/proc/self")),
        rows=rows,
    )
    json.dump(asdict(turn), sys.stdout)


if __name__ == "__main__":
    main()
