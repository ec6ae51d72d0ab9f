"""What a request may ask for beside a translation; the way of a request knows none of it."""

from seqserve_server.features import alignment, casing, formality, numbers, protected, terms
from seqserve_server.front.generate.records import Features
from seqserve_server.text.glossary import Glossaries


def all_features(glossaries: Glossaries) -> Features:
    """Returns the features of a server that has these glossaries, in the order in which they read.

    Protected texts keep their case, so casing comes after them; it moves the alignment, which comes
    before both. Terms are not looked for in protected texts; a formality leaves them their words. A
    draft depends on the casing, and on the terms and the formality, with which no draft is
    followed.
    """
    makers = (
        alignment.unknowns,
        alignment.alignment,
        protected.protected,
        casing.casing,
        terms.terms,
        formality.formality,
        terms.drafts,
    )
    return Features(makers, numbers.numbers, glossaries)
