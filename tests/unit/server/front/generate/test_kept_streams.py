import asyncio
from dataclasses import replace
from typing import Any, cast

import tokenizers
from tests.unit.server.front.echo import echo_model, manifest
from tests.unit.server.front.generate.asking import AnsweringEngine, compiled, job_of, read
from tokenizers import decoders, models, pre_tokenizers

from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.contract.stats import CacheCounts
from seqserve_server.front.generate import answer as answering
from seqserve_server.front.models.answer_cache import AnswerCache
from seqserve_server.text.tokenizer import Tokenizer


def tokenizer_of_pairs() -> Tokenizer:
    """A tokenizer with a token "ab"."""
    alphabet = ["<pad>", "<s>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"]
    vocabulary = {token: id_ for id_, token in enumerate(alphabet)}
    raw = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    raw.add_special_tokens(alphabet[:4])
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return Tokenizer(raw)


def test_stop_sequence_that_ends_within_a_token_is_not_streamed() -> None:
    tokenizer = tokenizer_of_pairs()
    ids = tokenizer.encode("xab")[:-1]
    assert len(ids) == 2
    best = Hypothesis(ids, -1.0, StopReason.STOP_SEQUENCE, text_length=2)
    engine = AnsweringEngine(lambda spec: Finished([best]))
    cache = AnswerCache(1_000_000, lambda *_: CacheCounts())
    model = echo_model(manifest(), tokenizer)
    options = compiled(model, stop_sequences=["b"])
    model = replace(model, engine=cast(Any, engine), answers=cache.version("echo", 1))

    async def streamed() -> tuple[list[str], str]:
        job = job_of(model, options, read("c", model, stop_sequences=["b"]))
        *pieces, whole = [cast(Any, each) async for each in answering.streamed(job)]
        return [each.text for each in pieces], whole.hypotheses[0].text

    assert [asyncio.run(streamed()) for _ in range(2)] == [(["xa"], "xa")] * 2
    assert len(engine.specs) == 1
