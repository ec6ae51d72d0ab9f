"""The tiny model of the tests, and a process beside them that exports it: tracing takes long."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqserve_export.artifact import Description
    from seqserve_export.quantization import Calibration
    from seqserve_model.transformer import Transformer
    from seqserve_server.contract.tokenizer import Tokenizer

SUBJECTS = ("The coffee", "A small dog", "My neighbour", "The old train", "Nobody", "Our teacher")
VERBS = ("tastes", "waits for", "reads about", "paints", "forgets", "does not like")
OBJECTS = ("the garden.", "a blue house!", "eleven books?", "water, bread and salt.", "music.")

SENTENCES = [
    f"{subject} {verb} {what}" for subject in SUBJECTS for verb in VERBS for what in OBJECTS
]


def make_tokenizer() -> Tokenizer:
    from seqserve_model.vocabulary import learn_vocabulary

    return learn_vocabulary(SENTENCES, size=384, characters=64)


def make_model(tokenizer: Tokenizer) -> Transformer:
    """Decodes to targets that vary, do not repeat one token, and end now and then."""
    import torch
    from tests.random_weights import random_model

    from seqserve_model.config import TransformerConfig

    torch.set_num_threads(1)
    config = TransformerConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        width=32,
        heads=2,
        feed_forward_width=64,
        encoder_layers=2,
        decoder_layers=1,
        dropout=0.0,
        max_source_length=24,
        max_target_length=20,
    )
    return random_model(config)


def make_description() -> Description:
    from seqserve_export.artifact import Description
    from seqserve_server.contract.manifest import Provenance

    return Description(
        name="tiny",
        version=1,
        description="Random weights, for tests",
        licence="Apache-2.0",
        provenance=Provenance(command="", commit="", data_licence="", attribution=""),
    )


def make_calibration(model: Transformer, tokenizer: Tokenizer) -> Calibration:
    from seqserve_export.calibration import calibrate

    return calibrate(model, [tokenizer.encode(sentence) for sentence in SENTENCES])


class Exporter:
    """Exports precisions one after the other in a process of its own, which tests wait for.

    Warnings are errors there too.
    """

    def __init__(self, folder: Path) -> None:
        """Begins with nothing; each precision goes to a repository of its own in ``folder``."""
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def begin(self, *precisions: str) -> None:
        """Exports those that have not been begun."""
        left = [precision for precision in precisions if precision not in self._processes]
        if not left:
            return
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-W", "error", "-m", "tests.tiny", str(self._folder), *left]
        with self._said(left[0]).open("wb") as said:
            process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        for precision in left:
            self._processes[precision] = process

    def artifact(self, precision: str) -> Path:
        """Waits for the artifact of a precision."""
        self.begin(precision)
        place = self._folder / precision / "tiny" / "1"
        # It is there at once and as a whole.
        while not place.exists() and self._processes[precision].poll() is None:
            time.sleep(0.02)
        assert place.exists(), "".join(file.read_text() for file in self._folder.glob("*.txt"))
        return place

    def end(self) -> None:
        """Ends what nobody has waited for."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _said(self, precision: str) -> Path:
        return self._folder / f"{precision}.txt"


def main(folder: Path, *precisions: str) -> None:
    """Exports precisions, each to a repository of its name."""
    from seqserve_export.artifact import write_artifact
    from seqserve_export.precision import Caches, Scales
    from seqserve_export.quantization import quantize

    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    for precision in precisions:
        exported = model
        if precision == "int8":
            # As `seqserve export --precision int8` does unless told.
            calibration = make_calibration(model, tokenizer)
            exported = quantize(model, calibration, Scales.STATIC, Caches.FLOAT)
        write_artifact(exported, tokenizer, folder / precision, make_description(), verify=None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
