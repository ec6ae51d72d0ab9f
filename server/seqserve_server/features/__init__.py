"""What a request may ask for beside a translation; the way of a request knows none of it."""

from seqserve_server.features.alignment import alignment, unknowns
from seqserve_server.features.casing import casing
from seqserve_server.features.formality import formality
from seqserve_server.features.numbers import numbers
from seqserve_server.features.protected import protected
from seqserve_server.features.terms import drafts, terms
from seqserve_server.front.generate.records import Features
from seqserve_server.text.glossary import Glossaries


def all_features(glossaries: Glossaries) -> Features:
    """Returns the features of a server that has these glossaries, in the order in which they read.

    Protected texts keep their case, so casing comes after them; it moves the alignment, which comes
    before both. Terms are not looked for in protected texts; a formality leaves them their words. A
    draft depends on the casing, and on the terms and the formality, with which no draft is
    followed.
    """
    makers = (unknowns, alignment, protected, casing, terms, formality, drafts)
    return Features(makers, numbers, glossaries)
