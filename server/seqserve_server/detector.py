"""Detects the languages of texts: reads a request in each line, and writes its answer in one.

A separate process, because the library needs numpy, which the front does not load, and holds the
interpreter lock for a second while it reads its model. It ends when its input does.

The model is a naive Bayes classifier of sequences of bytes: Lui and Baldwin 2012, "langid.py: An
Off-the-shelf Language Identification Tool".
"""

import json
import sys
from collections import defaultdict
from collections.abc import Collection

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from seqserve.words import has_words
from seqserve_server.process.processes import ignore_signals

_OTHER_CODES = {"nb": "no"}
"""Codes of the library for languages that it calls otherwise."""
# With no sequence that it knows, all languages are equally probable.
_SLACK = 1e-6
_SHORT = 60
"""Characters of a text that is read twice."""


class Detector:
    """The model of the library."""

    def __init__(self) -> None:
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self._known = set(map(str, self._identifier.labels))
        self._compared = self._known

    def confidences(self, text: str, languages: Collection[str]) -> dict[str, float]:
        """Returns the probability of each language, the most probable first.

        They are empty if the text reveals no language. Codes that the library does not know are
        left out.
        """
        labels = {_OTHER_CODES.get(code, code): code for code in sorted(languages)}
        compared = labels.keys() & self._known
        if not compared or not has_words(text):
            return {}
        if compared != self._compared:
            self._identifier.set_languages(sorted(compared))
            self._compared = compared
        # The ends of a word alone tell most, and with a capital it looks German.
        texts = [f" {text} ", f" {text.lower()} "] if len(text) <= _SHORT else [text]
        sums: defaultdict[str, float] = defaultdict(float)
        for each in texts:
            for label, rank in self._identifier.rank(each):
                sums[labels[str(label)]] += float(rank) / len(texts)
        ranks = sorted(sums.items(), key=lambda rank: -rank[1])
        is_told = len(ranks) == 1 or ranks[0][1] > 1 / len(ranks) + _SLACK
        return dict(ranks) if is_told else {}


def main() -> None:
    """Answers until the input ends."""
    ignore_signals()
    detector = Detector()
    for line in sys.stdin.buffer:
        text, languages = json.loads(line)
        answer = json.dumps(detector.confidences(text, languages))
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
