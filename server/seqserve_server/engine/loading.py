"""Makes an engine of an artifact that is verified, warm, and has proved what it computes."""

from __future__ import annotations

import logging

from seqserve.errors import SeqserveError
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.limits import RAISE_THREADS, Provider
from seqserve_server.contract.messages import Setup
from seqserve_server.engine.engine import Deliver, Engine
from seqserve_server.engine.gpu import cuda
from seqserve_server.engine.gpu.runtime import open_runtime
from seqserve_server.engine.loading_log import LoadingLog
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.self_test import run_self_test
from seqserve_server.text.tokenizer import Tokenizer

_log = logging.getLogger(__name__)
_NO_THREAD = "can't start new thread"
"""What Python says then, in a RuntimeError."""


def load(setup: Setup, deliver: Deliver, observer: Observer) -> Engine:
    """Loads a model, warms it up, and runs its self-test.

    Raises:
        ArtifactError: The artifact cannot be run, or its caches do not fit into memory, or no more
            threads can be started.
        ProviderError: The execution provider is not available.
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
        # What a broken artifact makes a library raise must not keep sound ones from service.
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
    runtime = open_runtime(setup.folder, manifest, setup.provider, setup.threads)
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
