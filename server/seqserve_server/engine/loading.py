"""Makes an engine of an artifact that is verified, warm, and has proved what it computes."""

from __future__ import annotations

import logging
import threading
import time

from seqserve.errors import SeqserveError
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.limits import RAISE_THREADS, EngineLimits, Provider
from seqserve_server.contract.messages import Setup
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.engine import Deliver, Engine
from seqserve_server.engine.gpu import cuda
from seqserve_server.engine.gpu.runtime import open_runtime
from seqserve_server.engine.local_engine import generate, running
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.runtime import Runtime
from seqserve_server.process import logs
from seqserve_server.text.tokenizer import Tokenizer


def run_self_test(runtime: Runtime, tokenizer: Tokenizer) -> None:
    """Decodes the manifest's sentence, if it has one; ArtifactError if the target differs.

    A row decodes in a batch as it does alone, so one row represents all.
    """
    manifest = runtime.manifest
    if manifest.self_test is None:
        return
    model = manifest.limits
    source = tokenizer.encode(manifest.self_test.source)
    if len(source) > model.max_source_length:
        raise ArtifactError(
            f"{manifest.label}: self_test.source has {len(source)} tokens; the model reads at most"
            f" {model.max_source_length}"
        )
    limits = EngineLimits(
        workers=1, slots=1, max_queue=1, max_source_tokens_per_step=model.max_source_length
    )
    options = DecodingOptions(max_decoding_length=model.max_target_length)
    with running(runtime, tokenizer, limits) as engine:
        [answer] = generate(engine, [GenerateSpec(source=source, options=options)])
    target = tokenizer.decode(answer.best.token_ids)
    if target != manifest.self_test.target:
        raise ArtifactError(
            f"{manifest.label}: self_test: {manifest.self_test.source!r} gave {target!r}, the"
            f" manifest says {manifest.self_test.target!r}; this machine computes differently"
            " from the one of the export: export the model again, here"
        )


class LoadingLog:
    """Logs the stage of a load at an interval, from a separate thread, until the load ends."""

    def __init__(self, label: str, interval_s: float = 5.0) -> None:
        self._label = label
        self._interval_s = interval_s
        self._began_s = time.monotonic()
        self._stage = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loading", daemon=True)

    def __enter__(self) -> LoadingLog:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def enter(self, stage: str) -> None:
        """Says which stage begins."""
        self._stage = stage

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            seconds = round(time.monotonic() - self._began_s, 1)
            fields = {"model": self._label, "stage": self._stage, "seconds": seconds}
            logs.event("model loading", fields)


_log = logging.getLogger(__name__)
_NO_THREAD = "can't start new thread"
"""Python's message in that RuntimeError."""


def load(setup: Setup, deliver: Deliver, observer: Observer) -> Engine:
    """Loads a model, warms it up, and runs its self-test.

    Raises ArtifactError if it cannot be run, and ProviderError if the provider is not available.
    """
    label = "/".join(setup.folder.parts[-2:])
    try:
        with LoadingLog(label) as log:
            return _load(setup, deliver, observer, log)
    except SeqserveError:
        raise
    except MemoryError:
        raise ArtifactError(
            f"{label}: its caches of {setup.limits.slots} rows do not fit into memory; ask for"
            " fewer --slots"
        ) from None
    except Exception as error:
        if str(error) == _NO_THREAD:
            raise ArtifactError(
                f"{label}: the limit on threads leaves none for it; {RAISE_THREADS}"
            ) from None
        # An exception of a library about a broken artifact must not affect sound ones.
        _log.exception("model %s", label)
        raise ArtifactError(
            f"{setup.folder}: cannot be run: {type(error).__name__}: {error}"
        ) from error


def _load(setup: Setup, deliver: Deliver, observer: Observer, log: LoadingLog) -> Engine:
    log.enter("checking files")
    manifest = Manifest.load(setup.folder)
    log.enter("opening graphs")
    if setup.provider is Provider.CUDA:
        cuda.take_gpu(setup.gpu)
    runtime = open_runtime(setup.folder, manifest, setup.provider, setup.threads, packs=setup.packs)
    tokenizer = Tokenizer.of_artifact(setup.folder, manifest)
    engine = Engine(runtime, setup.limits, deliver, observer, tokenizer.decode)
    try:
        log.enter("warming up")
        engine.warm_up()
        log.enter("decoding the sentence of its self-test")
        run_self_test(runtime, tokenizer)
    except BaseException:
        # Its threads wait for their first step.
        engine.stop()
        raise
    return engine
