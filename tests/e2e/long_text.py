"""A long text: headings, dialogue, abbreviations, blank lines, and no sentence twice."""

from itertools import islice, product

_WHO = ["Tom", "Mary", "Dr. Smith", "my friend", "the teacher", "Mr. Brown"]
_DOES = ["read", "bought", "saw", "wanted", "forgot"]
_WHAT = ["the book", "a film at 3.30", "an old car", "the letter", "the song"]
_WHEN = ["today", "in the evening", "again", "with a smile"]
_SPEECH = ['"Really?" asked {}.', '{} said: "I know."', "{} was late, as usual."]
_PER_PARAGRAPH = 3


def long_text(num_sentences: int) -> tuple[str, list[str]]:
    """Writes a text with about so many sentences; returns it and its sentences."""
    plain = [f"{a} {does} {b} {c}." for c, does, b, a in product(_WHEN, _DOES, _WHAT, _WHO)]
    spoken = [form.format(who) for form in _SPEECH for who in _WHO]
    sentences = [each[0].upper() + each[1:] for each in islice([*spoken, *plain], num_sentences)]
    lines: list[str] = []
    kept: list[str] = []
    for begin in range(0, len(sentences), _PER_PARAGRAPH):
        if begin % (5 * _PER_PARAGRAPH) == 0:
            heading = f"Chapter {begin + 1}"
            lines += [heading, ""]
            kept.append(heading)
        paragraph = sentences[begin : begin + _PER_PARAGRAPH]
        lines += ["\t" + "  ".join(paragraph), ""]
        kept += paragraph
    return "\n".join(lines), kept
