"""Inflects English nouns and verbs."""

import re

ARTICLE = re.compile(r"^(an?|the) ")
PLURAL_SUBJECTS = {"I", "you", "we", "they", "the children"}
DOUBLED = {"get", "run", "swim", "sit", "put", "cut", "stop", "plan"}


def bare(noun: str) -> str:
    """Removes the article of a noun."""
    return ARTICLE.sub("", noun)


def is_plural(noun: str) -> bool:
    """Returns whether a noun is a plural: it has no article and ends with s."""
    return not ARTICLE.match(noun) and noun.endswith("s") and not noun.endswith("ss")


def plural(noun: str) -> str:
    """Returns the plural of what can be counted, and what cannot as it is."""
    word = bare(noun)
    if word == noun:
        return noun
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "sh", "ch", "x", "to")) else "s")


def be(subject: str, *, many: bool) -> str:
    """Conjugates "be"."""
    if subject == "I":
        return "am"
    return "are" if many else "is"


def third_person(verb: str) -> str:
    """Conjugates for he, she and it."""
    irregular = {"have": "has", "do": "does", "go": "goes"}
    if verb in irregular:
        return irregular[verb]
    if verb.endswith(("s", "sh", "ch", "x")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeou":
        return verb[:-1] + "ies"
    return verb + "s"


def progressive(verb: str) -> str:
    """Returns the form with -ing."""
    if verb in DOUBLED:
        return verb + verb[-1] + "ing"
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return verb + "ing"


def described(thing: str, trait: str, degree: str, mood: str, *, many: bool) -> str:
    """Says, denies or asks that a thing is of some kind; a trait may have a verb: tastes good."""
    if trait.startswith("tastes "):
        rest = trait.removeprefix("tastes ")
        do = "do" if many else "does"
        return {
            "now": f"{thing} {'taste' if many else 'tastes'} {rest}.",
            "past": f"{thing} tasted {rest}.",
            "not": f"{thing} {do}n't taste {rest}.",
            "asked": f"{do} {thing} taste {rest}?",
        }[mood]
    am = be(thing, many=many)
    was = "were" if many and thing != "I" else "was"
    return {
        "now": f"{thing} {am} {degree}{trait}.",
        "past": f"{thing} {was} {degree}{trait}.",
        "not": f"{thing} {am} not {trait}.",
        "asked": f"{am} {thing} {trait}?",
    }[mood]
