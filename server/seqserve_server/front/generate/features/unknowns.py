"""Unknown words: what the model could not write is copied from the source."""

from __future__ import annotations

from seqserve_server.contract.events import Hypothesis
from seqserve_server.front.generate.feature import Asked, Feature, Part
from seqserve_server.front.generate.features.alignment import TokenSpans, attention_rows


def unknowns(asked: Asked) -> Feature | None:
    """Returns the feature, if the request has it."""
    return _Unknowns(asked) if asked.options.replace_unknowns else None


class _Unknowns(Feature):
    """Replaces each unknown token by the source token that it attends to most.

    Source: Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine Translation";
    by attention as in Jean et al. 2015, section 4.1.
    """

    def __init__(self, asked: Asked) -> None:
        self._unknown_id = asked.model.manifest.tokens.unk
        self._tokenizer, self._affixes = asked.model.tokenizer, asked.affixes

    def rewrites(self, part: Part) -> bool:
        return True

    def replace_tokens(self, part: Part, hypothesis: Hypothesis) -> Hypothesis:
        if self._unknown_id not in hypothesis.token_ids:
            return hypothesis
        ids, source = list(hypothesis.token_ids), part.tokens
        spans = TokenSpans.of(part.text, source, self._affixes, self._tokenizer)
        candidates = spans.of_text()
        for index, weights in enumerate(attention_rows(hypothesis, len(source))):
            if ids[index] == self._unknown_id and candidates:
                ids[index] = source[max(candidates, key=weights.__getitem__)]
        length = hypothesis.text_length
        if length is not None:
            # The same number of characters stays cut off: the stop sequence.
            decode = self._tokenizer.decode
            length += len(decode(ids)) - len(decode(hypothesis.token_ids))
        return hypothesis._replace(token_ids=ids, text_length=length)
