"""Artifacts that tests load, exported from random weights and cached in ``build/``.

Tracing a graph takes seconds, so exports run in a process beside the tests, and a result stays
until a source file or a library that it came from has another content.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests import tiny

if TYPE_CHECKING:
    from seqserve_model.transformer import Transformer

_ROOT = Path(__file__).parents[1]
CACHE = _ROOT / "build" / "exported-for-tests"
_SOURCES = tuple(_ROOT / name for name in ("model", "export", "import", "server", "tests"))
_LIBRARIES = ("torch", "onnx", "onnxscript", "tokenizers", "transformers")
_STAMP, _TRACED = "sources.json", "traced.onnx"


IMPORTED = {"nllb": 12, "mbart25": 4, "marian-two-vocabularies": 3}
"""Families and seeds of what the export ``imported`` holds."""


def _export_fp16(repository: Path) -> None:
    from seqserve_export.fp16_conversion import halve

    _export_tiny(repository, make_model=lambda tokenizer: halve(tiny.make_model(tokenizer)))


def _export_int8(repository: Path) -> None:
    """Exports with the defaults of ``seqserve export --precision int8``."""
    from seqserve_export.options import Caches, Scales

    _export_tiny(repository, Scales.STATIC, Caches.FLOAT)


def _export_row_scaled(repository: Path) -> None:
    """Exports the other int8 scheme, a scale for each row and int8 caches, without a scorer."""
    from tests.step_graphs import steps_only

    from seqserve_export.options import Caches, Scales

    with steps_only():
        _export_tiny(repository, Scales.ROW, Caches.INT8)


def _export_tiny(
    repository: Path, *scheme: object, make_model: Callable[..., Transformer] = tiny.make_model
) -> None:
    from seqserve_export.pipeline import write_artifact
    from seqserve_export.quantization import quantize

    tokenizer = tiny.make_tokenizer()
    model = make_model(tokenizer)
    if scheme:
        model = quantize(model, tiny.make_calibration(model, tokenizer), *scheme)
    write_artifact(lambda: model, tokenizer, repository, tiny.make_description(), held_out=None)


def _export_endless(repository: Path) -> None:
    from tests.support.endless_model import export_endless

    export_endless(repository, tiny.make_tokenizer(), tiny.make_description())


def _import_marian(repository: Path) -> None:
    """Imports with the scorer; the artifact is proved by sentences that the model wrote."""
    _import("marian", 12, repository, "--licence", "MIT", "--sentences", "40")


def _import_several(repository: Path) -> None:
    for family, seed in IMPORTED.items():
        _import(family, seed, repository, "--sentences", "30")


def _import(family: str, seed: int, repository: Path, *options: str) -> None:
    """Makes a checkpoint, and an artifact of its family's name by ``seqserve import``."""
    from tests import checkpoints

    from seqserve_import.command import main

    checkpoint = repository.parent / f"{family}-{seed}"
    checkpoint.mkdir(parents=True)
    checkpoints.save(checkpoints.make(family, seed), checkpoint)
    arguments = ["--name", family, "--model-repository", str(repository), "--threads", "1"]
    assert main([str(checkpoint), *arguments, *options]) == 0


EXPORTS: dict[str, Callable[[Path], None]] = {
    "fp32": _export_tiny,
    "fp16": _export_fp16,
    "int8": _export_int8,
    "row-scaled": _export_row_scaled,
    "ssru": partial(_export_tiny, make_model=tiny.make_ssru_model),
    "endless": _export_endless,
    "marian": _import_marian,
    "imported": _import_several,
}
"""What can be exported: each writes one version to a repository."""


class Exporter:
    """Exports in a process of its own, which tests wait for; warnings are errors there too.

    One process makes all exports, because to load torch and to trace a first graph takes as long as
    an export. Processes of several workers of pytest share them out.
    """

    def __init__(self, folder: Path, cache: Path = CACHE) -> None:
        """Starts nothing.

        Args:
            folder: Where each export is copied to, so that no test can damage the cache.
            cache: Where exports are kept from run to run.
        """
        self._folder, self._cache = folder, cache
        self._processes: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}

    def begin(self, *names: str) -> None:
        """Starts the exports that the cache does not hold, in this order."""
        new = [name for name in names if name not in self._processes]
        missing = [name for name in new if not is_current(self._cache / name)]
        if not missing:
            return
        command = [sys.executable, "-W", "error", "-m", "tests.exported", str(self._cache)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with self._output(missing[0]).open("wb") as output:
            process = subprocess.Popen(
                [*command, *missing], env=environment, stdout=output, stderr=output
            )
        for name in missing:
            self._processes[name] = process, self._output(missing[0])

    def repository(self, name: str) -> Path:
        """Waits for an export and gives a copy of its model repository."""
        copy = self._folder / name
        if not copy.exists():
            self.begin(name)
            if name in self._processes:
                process, output = self._processes[name]
                while process.poll() is None and not is_current(self._cache / name):
                    time.sleep(0.1)
                assert process.poll() in (None, 0), output.read_text()
            shutil.copytree(self._cache / name / "models", copy)
        return copy

    def traced_decoder(self, name: str) -> Path:
        """Waits for an export and gives its decoder before final graphs were made of it."""
        self.repository(name)
        return self._cache / name / _TRACED

    def end(self) -> None:
        """Ends the exports that no test has waited for."""
        for process, _ in self._processes.values():
            process.kill()
            process.wait()

    def _output(self, name: str) -> Path:
        return self._folder / f"{name}.txt"


def is_current(folder: Path) -> bool:
    try:
        stamp = json.loads((folder / _STAMP).read_text())
        return stamp == _stamp(map(Path, stamp["sources"]))
    except (OSError, ValueError):
        return False


def _stamp(sources: Iterable[Path]) -> dict[str, dict[str, str]]:
    """Returns the digest of each source file and the version of each library."""
    return {
        "sources": {
            str(file): hashlib.sha256((_ROOT / file).read_bytes()).hexdigest() for file in sources
        },
        "libraries": {name: importlib.metadata.version(name) for name in _LIBRARIES},
    }


def _loaded_sources() -> list[Path]:
    files = [Path(getattr(module, "__file__", None) or "/") for module in sys.modules.values()]
    ours = {file for file in files if any(file.is_relative_to(folder) for folder in _SOURCES)}
    return sorted(file.relative_to(_ROOT) for file in ours)


def main(cache: Path, names: Sequence[str]) -> None:
    """Exports artifacts to the cache; last those that another process exports meanwhile."""
    cache.mkdir(parents=True, exist_ok=True)
    busy = [name for name in names if not keep(cache, name, EXPORTS[name], waits=False)]
    for name in busy:
        keep(cache, name, EXPORTS[name])


def keep(cache: Path, name: str, export: Callable[[Path], None], *, waits: bool = True) -> bool:
    """Exports one artifact to the cache, unless another process has done so meanwhile.

    Returns:
        Whether it is there; it may not be if another process exports it and this one does not wait.
    """
    from tests.step_graphs import keeping_decoder

    with (cache / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        if is_current(cache / name):
            return True
        draft = cache / f"{name}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        # An export collects garbage several times; what is there before it is none.
        gc.freeze()
        with keeping_decoder(draft / _TRACED):
            export(draft / "models")
        (draft / _STAMP).write_text(json.dumps(_stamp(_loaded_sources()), indent=1))
        shutil.rmtree(cache / name, ignore_errors=True)
        draft.rename(cache / name)
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
