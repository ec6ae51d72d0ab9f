"""The sentence by which a server finds out whether it computes what was proven.

It is decoded wherever the artifact is loaded, maybe on another processor, whose sums differ in
their last bits. So it is one where no word had a close rival.
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

_MOST_SENTENCES = 500


def choose_self_test(
    model: Transformer, folder: Path, pairs: Sequence[Pair], *, threads: int = 1
) -> SelfTest | None:
    """Chooses, of the sentences of the proof, the one whose words were the surest.

    Args:
        model: In evaluation mode, at the artifact's precision; it must say the same.
        folder: Of the artifact.
        pairs: Real sentences.
        threads: Of the artifact.

    Returns:
        None where there is no sentence that ends and comes out of both alike.
    """
    limits = model.config
    with Offline(folder, threads=threads) as artifact:
        encoded = [
            (text, ids)
            for text in dict.fromkeys(pair.source for pair in pairs[:_MOST_SENTENCES])
            if len(ids := artifact.tokenizer.encode(text)) <= limits.max_source_length
        ]
        options = DecodingOptions(max_decoding_length=limits.max_target_length, return_top_tokens=2)
        answers = artifact.decode([ids for _, ids in encoded], options)
        for number in _surest_first(answers):
            text, ids = encoded[number]
            found = answers[number].best.token_ids
            if greedy_in_batches(model, [ids], limits.max_target_length, 1) == [found]:
                return SelfTest(source=text, target=artifact.tokenizer.decode(found))
    return None


def _surest_first(answers: Sequence[Finished]) -> list[int]:
    """Orders those that end, and are not shorter than most, by how far their nearest rival was."""
    ended = [
        number
        for number, answer in enumerate(answers)
        if answer.best.stop_reason is StopReason.EOS and answer.best.token_ids
    ]
    if not ended:
        return []
    least = median(len(answers[number].best.token_ids) for number in ended)
    long = [number for number in ended if len(answers[number].best.token_ids) >= least]
    return sorted(long, key=lambda number: -_margin(answers[number]))


def _margin(answer: Finished) -> float:
    """Gives the least difference between the log-probabilities of the first two of a step."""
    return min(first - second for (_, first), (_, second) in answer.best.top_tokens)
