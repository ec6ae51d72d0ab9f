"""Optimum on ONNX Runtime as a peer: its own export of the model, its own generate().

It asks for an older transformers than ours, so it has an environment of its own:

    python3 -m venv build/optimum
    build/optimum/bin/python -m pip install torch==2.13.0
    build/optimum/bin/python -m pip install 'optimum-onnx[onnxruntime]==0.1.0'

Both ends are here. What the other environment runs, from :func:`main` on, imports no package of
ours.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.pipes import Pipes, answer, command, environment

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
        numbers = {"--rows": rows, "--length": length, "--threads": threads}
        options = [str(part) for option in numbers.items() for part in option]
        self.name = f"Optimum fp32 {workers}x{threads}"
        self._pipes = Pipes(
            [*command(interpreter, "optimum"), "decode", str(folder), *options], workers
        )

    @property
    def seconds(self) -> float:
        """How long the slowest worker took over its share of the last sources, pipes left out."""
        return self._pipes.seconds

    def decode(self, sources: Sequence[list[int]]) -> Rows:
        """Deals the sources out, by length, so that every worker gets as much to do."""
        return self._pipes.decode(sources)

    def close(self) -> None:
        """Ends the workers."""
        self._pipes.close()


def export(interpreter: Path, checkpoint: Path, folder: Path) -> None:
    """Exports a checkpoint of transformers to ONNX, fp32, its decoder with and without a past.

    Raises:
        CalledProcessError: It failed; its output names the reason.
    """
    asked = [*command(interpreter, "optimum"), "export", str(checkpoint), str(folder)]
    subprocess.run(asked, cwd=Path(__file__).parents[1], env=environment(), check=True)


def main() -> int:
    """Exports, or answers every line of sources by one of rows."""
    options = _options()
    if options.verb == "export":
        _export(options.checkpoint, options.folder)
    else:
        answer(partial(_decoder, options))
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
