"""Chooses the sentence that a server decodes at load time, to check that it computes as proven.

Another processor may round sums differently in the last bits. So the choice falls on a sentence in
which no token had a close second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from seqserve_model.data import Pair
from seqserve_model.search import greedy_in_batches
from seqserve_model.transformer import Transformer
from seqserve_server.contract.events import Finished, StopReason
from seqserve_server.contract.manifest import SelfTest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.offline import Offline

_MAX_SENTENCES = 500


def choose_self_test(
    model: Transformer,
    folder: Path,
    pairs: Sequence[Pair],
    *,
    threads: int = 1,
    max_decoding_length: int | None = None,
) -> SelfTest | None:
    """Chooses the sentence with the largest margin between first and second token.

    The model, at the artifact's precision, must decode it alike; None if it does so with none.
    Only targets that end are chosen, within ``max_decoding_length`` if it is given.
    """
    limits = model.config
    max_length = max_decoding_length or limits.max_target_length
    with Offline(folder, threads=threads) as artifact:
        encoded = [
            (text, ids)
            for text in dict.fromkeys(pair.source for pair in pairs[:_MAX_SENTENCES])
            if len(ids := artifact.tokenizer.encode(text)) <= limits.max_source_length
        ]
        options = DecodingOptions(max_decoding_length=max_length, return_top_tokens=2)
        answers = artifact.decode([ids for _, ids in encoded], options)
        for index in _surest_first(answers):
            text, ids = encoded[index]
            found = answers[index].best.token_ids
            if greedy_in_batches(model, [ids], max_length, 1) == [found]:
                return SelfTest(source=text, target=artifact.tokenizer.decode(found))
    return None


def _surest_first(answers: Sequence[Finished]) -> list[int]:
    """Orders answers that end, and are not shorter than the median, by their margin."""
    ended = [
        index
        for index, answer in enumerate(answers)
        if answer.best.stop_reason is StopReason.EOS and answer.best.token_ids
    ]
    if not ended:
        return []
    min_length = median(len(answers[index].best.token_ids) for index in ended)
    long = [index for index in ended if len(answers[index].best.token_ids) >= min_length]
    return sorted(long, key=lambda index: -_margin(answers[index]))


def _margin(answer: Finished) -> float:
    """Gives the smallest difference between the top two log-probabilities of a step."""
    return min(first - second for (_, first), (_, second) in answer.best.top_tokens)
