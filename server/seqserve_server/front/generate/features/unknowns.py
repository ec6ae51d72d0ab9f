"""Unknown words: what the model could not write is copied from the source."""

from __future__ import annotations

from seqserve_server.contract.events import Hypothesis
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.front.generate.features.alignment import attention_rows
from seqserve_server.front.generate.languages import Affixes
from seqserve_server.front.generate.records import Feature, Part


class Unknowns(Feature):
    """Replaces each unknown token by the source token that it attends to most.

    Source: Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine Translation";
    by attention as in Jean et al. 2015, section 4.1.
    """

    def __init__(self, unknown_id: int, tokenizer: Tokenizer, affixes: Affixes) -> None:
        """Takes the unknown token, what divides a source, and what is added to it."""
        self._unknown_id, self._tokenizer, self._affixes = unknown_id, tokenizer, affixes

    def rewrites(self, part: Part) -> bool:
        """Tells that any token may be an unknown one."""
        return True

    def replace_tokens(self, part: Part, hypothesis: Hypothesis) -> Hypothesis:
        """Returns a hypothesis with tokens of the source in place of unknown ones."""
        if self._unknown_id not in hypothesis.token_ids:
            return hypothesis
        ids, source = list(hypothesis.token_ids), part.tokens
        candidates = range(len(source) - 1)
        for index, weights in enumerate(attention_rows(hypothesis, len(source))):
            if ids[index] == self._unknown_id and candidates:
                ids[index] = source[max(candidates, key=weights.__getitem__)]
        length = hypothesis.text_length
        if length is not None:
            # The same number of characters stays cut off: the stop sequence.
            decode = self._tokenizer.decode
            length += len(decode(ids)) - len(decode(hypothesis.token_ids))
        return hypothesis._replace(token_ids=ids, text_length=length)
