"""Checks, before a version takes calls, that it still decodes a sentence as it did at export.

Hashes show that the files are unchanged, and warming up that they run. Only a decoded sentence
shows that this machine, with its ONNX Runtime and its provider, computes what export proved.
"""

from __future__ import annotations

from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.events import Finished
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.local_engine import generate, running
from seqserve_server.engine.runtime import Runtime
from seqserve_server.text.tokenizer import Tokenizer


def run_self_test(runtime: Runtime, tokenizer: Tokenizer) -> None:
    """Decodes the sentence of the manifest, where there is one, in an engine of a single row.

    A row decodes in a batch as it does alone, so one row stands for all of them.

    Raises:
        ArtifactError: The target differs from the manifest's.
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
    model = runtime.manifest.limits
    limits = EngineLimits(
        workers=1, slots=1, max_queue=1, max_source_tokens_per_step=model.max_source_length
    )
    options = DecodingOptions(max_decoding_length=model.max_target_length)
    with running(runtime, tokenizer, limits) as engine:
        [answer] = generate(engine, [GenerateSpec(source=source, options=options)])
    return answer
