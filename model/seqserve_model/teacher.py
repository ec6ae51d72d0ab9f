"""Has a teacher translate the sources of pairs, for a student to learn its translations.

Source: Kim and Rush 2016, "Sequence-Level Knowledge Distillation": the teacher's best hypothesis
(§3.2), or the hypothesis of its beam that is nearest to what people wrote (§3.3). Where none of
them is near, a student of the same size would learn its teacher's mistakes, so it gets what people
wrote.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sacrebleu.metrics import CHRF

from seqserve_model.data import Pair
from seqserve_model.evaluate import Translator, open_translator
from seqserve_model.options import EvaluateOptions, decoding_defaults
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.local_engine import LocalEngine

_SOURCES = 1_000
"""Sources that are translated before their pairs are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """A training run or an artifact that translates."""

    path: Path
    threads: int = 1
    beam_size: int | None = None
    """None for greedy search; for artifacts."""
    length_penalty: float | None = None
    nearest: float | None = None
    """If set, the hypothesis of the beam that is nearest to a target is taken; the target itself if
    that has less than this chrF, from 0 to 100."""

    def pairs(self, pairs: Sequence[Pair], report: Callable[[str], None]) -> Iterator[Pair]:
        """Yields every source once, with the teacher's translation instead of its targets."""
        targets: dict[str, list[str]] = {}
        for pair in pairs:
            targets.setdefault(pair.source, []).append(pair.target)
        sources = list(targets)
        with self._best() if self.nearest is None else self._near(targets) as translate:
            for start in range(0, len(sources), _SOURCES):
                some = sources[start : start + _SOURCES]
                yield from map(Pair, some, translate(some))
                report(f"{start + len(some):,} of {len(sources):,} sources translated")

    def _best(self) -> AbstractContextManager[Translator]:
        options = EvaluateOptions(path=self.path, threads=self.threads, **decoding_defaults(self))
        return open_translator(options)

    @contextmanager
    def _near(self, targets: Mapping[str, Sequence[str]]) -> Iterator[Translator]:
        with LocalEngine(self.path, threads=self.threads) as engine:
            options = DecodingOptions(
                max_decoding_length=engine.manifest.limits.max_target_length,
                num_hypotheses=self.beam_size or 1,
                **decoding_defaults(self),
            )

            def translate(sources: Sequence[str], /) -> list[str]:
                answers = engine.decode([engine.encode(source) for source in sources], options)
                return [
                    nearest(
                        [engine.tokenizer.decode(each.token_ids) for each in answer.hypotheses],
                        targets[source],
                        self.nearest or 0.0,
                    )
                    for source, answer in zip(sources, answers, strict=True)
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
