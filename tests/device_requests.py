"""Requests of all kinds, and their answers by one runtime."""

from pathlib import Path
from typing import Any

from tests.unit.server.engine.idle import assert_idle

from seqserve_server.contract.events import Finished
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.local_engine import PendingAnswer, running
from seqserve_server.engine.runtime import Runtime
from seqserve_server.text.tokenizer import Tokenizer

LENGTH = 12


def decode(
    runtime: Runtime, folder: Path, requests: list[tuple[list[int], DecodingOptions]], slots: int
) -> list[Finished]:
    """Decodes requests in one engine, all of them waiting before its first step."""
    tokenizer = Tokenizer.of_artifact(folder, runtime.manifest)
    pending = [
        PendingAnswer(GenerateSpec(source=source, options=options)) for source, options in requests
    ]
    limits = EngineLimits(workers=1, slots=slots, max_queue=1000, max_source_tokens_per_step=64)
    with running(runtime, tokenizer, limits, requests=pending) as engine:
        answers = [request.wait() for request in pending]
        assert_idle(engine)
    return answers


def options(**changes: Any) -> DecodingOptions:
    return DecodingOptions(**{"max_decoding_length": LENGTH, "return_scores": True} | changes)


WAYS = {
    "greedy": options(),
    "without scores": options(return_scores=False),
    "beam": options(beam_size=4, num_hypotheses=2),
    "top tokens": options(return_top_tokens=3),
    "sampling among some": options(sampling=Sampling(1.0, 8, 1.0, 0.0, 3)),
    "sampling among all": options(sampling=Sampling(1.0, 0, 0.9, 0.0, 3)),
    "processed": options(repetition_penalty=1.3),
    "masked": options(min_decoding_length=5, no_repeat_ngram_size=2),
    "limited": options(vocabulary=tuple(range(2, 40))),
    "prefix": options(prefix=(7, 8)),
}
