"""Optimum on ONNX Runtime as a peer: its own export of the model, its own generate().

It asks for an older transformers than ours, so it has an environment of its own and is spoken to
over pipes, a JSON line each way:

    python3 -m venv build/optimum
    build/optimum/bin/python -m pip install torch==2.13.0
    build/optimum/bin/python -m pip install 'optimum-onnx[onnxruntime]==0.1.0'

Both ends are here. What the other environment runs, from :func:`main` on, imports nothing of ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

_ROOT = Path(__file__).parents[1]
_READY = "ready\n"

Rows = list[list[int]]


class OptimumPeer:
    """Greedy decoding by ``ORTModelForSeq2SeqLM.generate``, in sorted batches."""

    def __init__(
        self, interpreter: Path, folder: Path, layout: tuple[int, int], rows: int, length: int
    ) -> None:
        """Starts the workers and waits until they have loaded the model.

        Args:
            interpreter: Python of Optimum's environment.
            folder: What :func:`export` wrote.
            layout: Workers, each a process, and threads of each.
            rows: Sources of a batch.
            length: Target tokens of every row; the end token is held back.

        Raises:
            RuntimeError: A worker ended before it was ready; its output names the reason.
        """
        workers, threads = layout
        self.name = f"Optimum fp32 {workers}x{threads}"
        self.seconds = 0.0
        """How long the slowest worker took over its share of the last sources, pipes left out."""
        numbers = {"--rows": rows, "--length": length, "--threads": threads}
        options = [str(part) for option in numbers.items() for part in option]
        command = [*_command(interpreter), "decode", str(folder), *options]
        self._workers = [_start(command) for _ in range(workers)]
        try:
            for worker in self._workers:
                _read(worker)
        except RuntimeError:
            self.close()
            raise

    def decode(self, sources: Sequence[list[int]]) -> Rows:
        """Deals the sources out, by length, so that every worker gets as much to do."""
        by_length = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        shares = [by_length[first :: len(self._workers)] for first in range(len(self._workers))]
        for worker, share in zip(self._workers, shares, strict=True):
            assert worker.stdin is not None
            worker.stdin.write(json.dumps([sources[index] for index in share]) + "\n")
            worker.stdin.flush()
        replies = [json.loads(_read(worker)) for worker in self._workers]
        self.seconds = max(reply["seconds"] for reply in replies)
        found: Rows = [[] for _ in sources]
        for share, reply in zip(shares, replies, strict=True):
            for index, row in zip(share, reply["rows"], strict=True):
                found[index] = row
        return found

    def close(self) -> None:
        """Ends the workers, which stop at the end of their input."""
        for worker in self._workers:
            worker.communicate()


def export(interpreter: Path, checkpoint: Path, folder: Path) -> None:
    """Exports a checkpoint of transformers to ONNX, fp32, its decoder with and without a past.

    Raises:
        CalledProcessError: It failed; its output names the reason.
    """
    command = [*_command(interpreter), "export", str(checkpoint), str(folder)]
    subprocess.run(command, cwd=_ROOT, env=_environment(), check=True)


def _command(interpreter: Path) -> list[str]:
    # Not resolved: a virtual environment is known by the path of its link. And not as a script,
    # or this file would be found where Optimum is looked for.
    return [str(interpreter.absolute()), "-m", "bench.optimum"]


def _environment() -> dict[str, str]:
    # Torch and ONNX Runtime have threads each: one that spins takes a core from the other.
    return os.environ | {"OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1"}


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=_ROOT,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _read(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError(f"a worker of Optimum ended with status {worker.wait()}")
    return line


def main() -> int:
    """Exports, or answers every line of sources by one of rows."""
    # Replies alone go to the pipe; whatever libraries print, to where errors go.
    replies, sys.stdout = sys.stdout, sys.stderr
    options = _options()
    if options.verb == "export":
        _export(options.checkpoint, options.folder)
    else:
        _answer(_decoder(options), replies)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Optimum's end; runs in its environment.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("export", help="a checkpoint to ONNX")
    verb.add_argument("checkpoint", type=Path)
    verb.add_argument("folder", type=Path)
    verb = verbs.add_parser("decode", help="lines of sources from standard input")
    verb.add_argument("folder", type=Path)
    verb.add_argument("--rows", type=int, required=True, help="sources of a batch")
    verb.add_argument("--length", type=int, required=True, help="target tokens of every row")
    verb.add_argument("--threads", type=int, required=True)
    return parser.parse_args()


def _export(checkpoint: Path, folder: Path) -> None:
    from optimum.onnxruntime import ORTModelForSeq2SeqLM  # type: ignore[import-not-found]

    ORTModelForSeq2SeqLM.from_pretrained(checkpoint, export=True, use_merged=False).save_pretrained(
        folder
    )


def _answer(decode: Callable[[Rows], Rows], replies: IO[str]) -> None:
    replies.write(_READY)
    replies.flush()
    for line in sys.stdin:
        sources = json.loads(line)
        began_s = time.perf_counter()
        rows = decode(sources)
        seconds = time.perf_counter() - began_s
        replies.write(json.dumps({"rows": rows, "seconds": seconds}) + "\n")
        replies.flush()


def _decoder(options: argparse.Namespace) -> Callable[[Rows], Rows]:
    import torch
    from transformers import GenerationConfig

    torch.set_num_threads(options.threads)
    model = _load(options.folder, options.threads)
    pad = model.config.pad_token_id
    forced = GenerationConfig(
        pad_token_id=pad,
        eos_token_id=model.config.eos_token_id,
        decoder_start_token_id=model.config.decoder_start_token_id,
        min_new_tokens=options.length,
        max_new_tokens=options.length,
        num_beams=1,
        do_sample=False,
    )

    def decode(sources: Rows) -> Rows:
        found: Rows = []
        # They come by length already.
        for first in range(0, len(sources), options.rows):
            batch = sources[first : first + options.rows]
            longest = max(map(len, batch))
            padded = [row + [pad] * (longest - len(row)) for row in batch]
            mask = [[1] * len(row) + [0] * (longest - len(row)) for row in batch]
            targets = model.generate(
                torch.tensor(padded), forced, attention_mask=torch.tensor(mask)
            )
            found += targets[:, 1:].tolist()
        return found

    return decode


def _load(folder: Path, threads: int) -> Any:
    import onnxruntime
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads = threads
    session.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ORTModelForSeq2SeqLM.from_pretrained(folder, use_merged=False, session_options=session)


if __name__ == "__main__":
    sys.exit(main())
