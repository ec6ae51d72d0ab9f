"""Optimum on ONNX Runtime as a driver: its own export of a model, its own ``generate``.

It needs an older transformers than ours, so it has a separate environment, ``build/optimum``, which
``make build/optimum/.ready`` makes. What runs there, from :func:`main` on, imports no package of
ours.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.drivers import Rows
from bench.drivers.subprocess_driver import SubprocessDriver, answer, command, environment

ENVIRONMENT = Path(__file__).parents[2] / "build" / "optimum"
INTERPRETER = ENVIRONMENT / "bin" / "python"


class OptimumDriver(SubprocessDriver[list[int]]):
    """Greedy decoding by ``ORTModelForSeq2SeqLM.generate``, in sorted batches."""

    def __init__(
        self,
        folder: Path,
        rows: int,
        length: int,
        layout: tuple[int, int],
        interpreter: Path = INTERPRETER,
    ) -> None:
        """Starts the workers and waits until they have loaded the model.

        Args:
            folder: Output of :func:`export`.
            length: Target tokens of every row; the end token is held back.
        """
        workers, threads = layout
        far_end = command(interpreter, "optimum", "decode", folder, rows, length, threads)
        super().__init__(f"Optimum fp32 {workers}x{threads}", far_end, workers)


def export(checkpoint: Path, folder: Path) -> None:
    """Exports a checkpoint of transformers to ONNX, fp32, its decoder with and without a past."""
    verb = command(INTERPRETER, "optimum", "export", checkpoint, folder)
    subprocess.run(verb, cwd=Path(__file__).parents[2], env=environment(), check=True)


def main(verb: str, folder: str, *arguments: str) -> None:
    """Exports a checkpoint into a folder, or answers every line of sources by one of rows."""
    if verb == "export":
        _export(Path(folder), Path(arguments[0]))
    else:
        answer(partial(_decoder, Path(folder), *map(int, arguments)))


def _export(checkpoint: Path, folder: Path) -> None:
    from optimum.onnxruntime import ORTModelForSeq2SeqLM  # type: ignore[import-not-found]

    ORTModelForSeq2SeqLM.from_pretrained(checkpoint, export=True, use_merged=False).save_pretrained(
        folder
    )


def _decoder(folder: Path, rows: int, length: int, threads: int) -> Callable[[Rows], Rows]:
    import torch
    from transformers import GenerationConfig

    torch.set_num_threads(threads)
    model = _load(folder, threads)
    pad = model.config.pad_token_id
    forced = GenerationConfig(
        pad_token_id=pad,
        eos_token_id=model.config.eos_token_id,
        decoder_start_token_id=model.config.decoder_start_token_id,
        min_new_tokens=length,
        max_new_tokens=length,
        num_beams=1,
        do_sample=False,
    )

    def decode(sources: Rows) -> Rows:
        targets: Rows = []
        # They come by length already.
        for first in range(0, len(sources), rows):
            batch = sources[first : first + rows]
            longest = max(map(len, batch))
            padded = torch.tensor([row + [pad] * (longest - len(row)) for row in batch])
            mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in batch])
            targets += model.generate(padded, forced, attention_mask=mask)[:, 1:].tolist()
        return targets

    return decode


def _load(folder: Path, threads: int) -> Any:
    import onnxruntime
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads = threads
    session.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ORTModelForSeq2SeqLM.from_pretrained(folder, use_merged=False, session_options=session)


if __name__ == "__main__":
    main(*sys.argv[1:])
