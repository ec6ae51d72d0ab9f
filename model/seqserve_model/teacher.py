"""Has a teacher translate the sources of pairs, for a student to learn its translations.

Source: Kim and Rush 2016, "Sequence-Level Knowledge Distillation": the teacher's best hypothesis
(§3.2), or the hypothesis of its beam that is nearest to what people wrote (§3.3). Where none of
them is near, a student of the same size would learn its teacher's mistakes, so it gets what people
wrote.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sacrebleu.metrics import CHRF

from seqserve_model.data import Pair
from seqserve_model.evaluate import Translator, open_translator
from seqserve_model.options import EvaluateOptions
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.local_engine import LocalEngine

_SOURCES = 1_000
"""Sources that are translated before their pairs are given."""


def taught(
    pairs: Sequence[Pair],
    teacher: Path,
    report: Callable[[str], None],
    *,
    threads: int,
    minimum: float | None,
    **search: Any,
) -> Iterator[Pair]:
    """Yields every source once, with a teacher's translation instead of its targets.

    Args:
        teacher: A training run or an artifact; ``search`` has the options of an artifact's search.
        minimum: If set, the hypothesis of the beam that is nearest to a target is taken; the target
            itself if that has less than this chrF, from 0 to 100.
    """
    targets: dict[str, list[str]] = {}
    for pair in pairs:
        targets.setdefault(pair.source, []).append(pair.target)
    sources = list(targets)
    if minimum is None:
        opened = open_translator(EvaluateOptions(path=teacher, threads=threads, **search))
    else:
        opened = _near(teacher, threads, search, targets, minimum)
    with opened as translate:
        for start in range(0, len(sources), _SOURCES):
            some = sources[start : start + _SOURCES]
            yield from map(Pair, some, translate(some))
            report(f"{start + len(some):,} of {len(sources):,} sources translated")


@contextmanager
def _near(
    teacher: Path,
    threads: int,
    search: Mapping[str, Any],
    targets: Mapping[str, Sequence[str]],
    minimum: float,
) -> Iterator[Translator]:
    with LocalEngine(teacher, threads=threads) as engine:
        length = engine.manifest.limits.max_target_length
        hypotheses = search.get("beam_size", 1)
        options = DecodingOptions(max_decoding_length=length, num_hypotheses=hypotheses, **search)

        def translate(sources: Sequence[str], /) -> list[str]:
            answers = engine.decode([engine.encode(source) for source in sources], options)
            texts = (
                [engine.tokenizer.decode(each.token_ids) for each in answer.hypotheses]
                for answer in answers
            )
            return [
                nearest(some, targets[source], minimum)
                for source, some in zip(sources, texts, strict=True)
            ]

        yield translate


def nearest(hypotheses: Sequence[str], targets: Sequence[str], minimum: float) -> str:
    """Returns the hypothesis nearest to a target; the target if its chrF is below the minimum."""
    chrf = CHRF()
    best = max(
        (chrf.sentence_score(hypothesis, [target]).score, hypothesis, target)
        for hypothesis in hypotheses
        for target in targets
    )
    return best[1] if best[0] >= minimum else best[2]
