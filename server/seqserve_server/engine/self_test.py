"""The last thing before a version takes calls: does it still say what it said at export?

Hashes tell that files are what they were, and warming up that they run. Only a sentence decoded
tells that this machine, with its ONNX Runtime and its provider, computes what was proven.
"""

from __future__ import annotations

from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.events import Finished
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Request
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.engine.answer import PendingAnswer
from seqserve_server.engine.engine import Engine, deliver
from seqserve_server.engine.observer import NullObserver
from seqserve_server.engine.runtime import Runtime


def run_self_test(runtime: Runtime, tokenizer: Tokenizer) -> None:
    """Decodes the sentence of the manifest, where there is one, in an engine of a single row.

    In a batch as alone: what one row says, every row of the engine that serves says too.

    Raises:
        ArtifactError: It comes out otherwise.
    """
    manifest = runtime.manifest
    if manifest.self_test is None:
        return
    limits = manifest.limits
    source = tokenizer.encode(manifest.self_test.source)
    if len(source) > limits.max_source_length:
        raise ArtifactError(
            f"{manifest.label}: self_test.source has {len(source)} tokens; the model reads at most"
            f" {limits.max_source_length}"
        )
    target = tokenizer.decode(_decode(runtime, tokenizer, source).best.token_ids)
    if target != manifest.self_test.target:
        raise ArtifactError(
            f"{manifest.label}: self_test: {manifest.self_test.source!r} gave {target!r}, the"
            f" manifest says {manifest.self_test.target!r}; this machine computes otherwise than"
            " the one it was exported on: export the model again, here"
        )


def _decode(runtime: Runtime, tokenizer: Tokenizer, source: list[int]) -> Finished:
    """Decodes one source greedily.

    Raises:
        ServiceError: The engine failed.
    """
    longest = runtime.manifest.limits
    limits = EngineLimits(
        workers=1, slots=1, max_queue=1, max_source_tokens_per_step=longest.max_source_length
    )
    engine = Engine(runtime, limits, deliver, NullObserver(), tokenizer.decode)
    options = DecodingOptions(max_decoding_length=longest.max_target_length)
    answer = PendingAnswer()
    engine.start()
    try:
        engine.submit(Request(source=source, options=options, receive=answer.receive))
        return answer.wait()
    finally:
        engine.stop()
