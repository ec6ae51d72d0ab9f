import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.v1 import generation_pb2 as pb
from seqserve_server.features.protected_places import restore
from seqserve_server.text.splitting import Span

GENERATED, ALIGNED = pb.PLACEMENT_GENERATED, pb.PLACEMENT_ALIGNED
INSERTED, LOST = pb.PLACEMENT_INSERTED, pb.PLACEMENT_LOST
_WORD = re.compile(r"\S+")


def kept(
    source: str,
    text: str,
    origins: list[int] | None,
    *texts: str,
    stop_reason: pb.StopReason = pb.STOP_REASON_EOS,
) -> pb.Hypothesis:
    """Keeps texts; ``origins`` has the number of the source word of each word of the text."""
    message = pb.Hypothesis(text=text, stop_reason=stop_reason)
    words = [match.span() for match in _WORD.finditer(source)]
    for origin, place in zip(origins or [], _WORD.finditer(text), strict=origins is not None):
        message.alignment.source_begins.append(words[origin][0])
        message.alignment.source_ends.append(words[origin][1])
        message.alignment.target_begins.append(place.start())
        message.alignment.target_ends.append(place.end())
    pattern = "|".join(map(re.escape, texts))
    restore(message, source, [Span(*match.span()) for match in re.finditer(pattern, source)])
    return message


def placements(message: pb.Hypothesis) -> list[pb.Placement]:
    for each in message.kept:
        if each.placement != LOST:
            assert message.text[each.target_begin : each.target_end] == each.text
    return [each.placement for each in message.kept]


@pytest.mark.parametrize(
    ("source", "read", "spans", "expected"),
    [
        (
            "I <b>love</b> you.",
            "I    love     you.",
            [Span(2, 5), Span(9, 13)],
            "Ich <b>liebe</b> dich.",
        ),
        (
            "I <b><i>love</i> you</b>.",
            "I       love     you\xad\xad\xad\xad.",
            [Span(2, 5), Span(5, 8), Span(12, 16), Span(20, 24)],
            "Ich <b><i>liebe</i> dich</b>.",
        ),
    ],
)
def test_tags_that_were_not_read_enclose_the_translations_of_their_words(
    source: str, read: str, spans: list[Span], expected: str
) -> None:
    message = pb.Hypothesis(text="Ich liebe dich.", stop_reason=pb.STOP_REASON_EOS)
    # A token has the space before it, and what is not read there.
    tokens = re.finditer(r"(?:\s\xad*)?\w+", read)
    for one, other in zip(tokens, re.finditer(r"\w+", message.text), strict=True):
        message.alignment.source_begins.append(one.start())
        message.alignment.source_ends.append(one.end())
        message.alignment.target_begins.append(other.start())
        message.alignment.target_ends.append(other.end())
    restore(message, source, spans, read)
    assert message.text == expected
    assert placements(message) == [INSERTED] * len(spans)


def test_a_closing_tag_comes_after_its_opening_one() -> None:
    message = kept("<b> one </b> two", "</b> zwei <b> eins", None, "<b>", "</b>")
    assert message.text == "<b> zwei </b> eins"
    assert placements(message) == [GENERATED, GENERATED]
    assert [each.target_begin for each in message.kept] == [0, 9]
    message = kept(
        "<b> one <br> x </b> two", "</b> zwei <br> <b> eins", None, "<b>", "<br>", "</b>"
    )
    assert message.text == "<b> zwei <br> </b> eins"


def test_what_is_inserted_at_a_duplicate_has_its_own_place() -> None:
    message = kept("{a} x {b}y", "{a} x {a}.", [0, 1, 0], "{a}", "{b}")
    assert message.text == "{a} x{b}."
    assert placements(message) == [GENERATED, INSERTED]


@pytest.mark.parametrize(
    ("text", "expected", "placement"),
    [
        ("Tom sieht Jo.", "Лев Толстой sieht 李明.", ALIGNED),
        ("Tom sieht Tom, Jo.", "Лев Толстой sieht, 李明.", ALIGNED),
        ("Er sieht Jo.", "Лев Толстой Er sieht 李明.", INSERTED),
    ],
)
def test_a_foreign_word_takes_the_place_of_the_name_that_was_read_for_it(
    text: str, expected: str, placement: pb.Placement
) -> None:
    message = pb.Hypothesis(text=text, stop_reason=pb.STOP_REASON_EOS)
    source, read = "Лев Толстой sees 李明.", "Tom         sees Jo."
    restore(message, source, [Span(0, 11), Span(17, 19)], read)
    assert message.text == expected
    assert placements(message) == [placement, ALIGNED]


def test_what_comes_from_it_is_replaced_but_the_marks_around_it() -> None:
    message = kept("Hello {name}, you", "Hallo {n ame}, du", [0, 1, 1, 2], "{name}")
    assert (message.text, placements(message)) == ("Hallo {name}, du", [ALIGNED])
    moved = message.alignment
    assert list(moved.target_begins) == [0, 6, 14]
    assert message.text[moved.target_begins[2] : moved.target_ends[2]] == "du"
    assert list(moved.source_begins) == [0, 6, 14]


def test_what_is_inserted_does_not_divide_a_word() -> None:
    message = pb.Hypothesis(text="Startseite jetzt", stop_reason=pb.STOP_REASON_EOS)
    # The end of the word attends to what follows.
    links = message.alignment
    links.source_begins.extend([0, 9])
    links.source_ends.extend([4, 12])
    links.target_begins.extend([0, 5])
    links.target_ends.extend([5, 16])
    restore(message, "Home {a} now", [Span(5, 8)])
    assert (message.text, placements(message)) == ("Startseite {a} jetzt", [INSERTED])


@pytest.mark.parametrize(
    ("source", "text", "origins", "expected", "placement"),
    [
        pytest.param(
            *("We saw {a} there today", "Heute sahen wir dort", [4, 1, 0, 3]),
            *("Heute sahen {a} wir dort", INSERTED),
            id="behind the word before it",
        ),
        pytest.param(
            *("{a} is here", "ist hier", [1, 2], "{a} ist hier", INSERTED), id="at the begin"
        ),
        pytest.param(
            *("one two {a} three", "eins zwei drei", None, "eins zwei {a} drei", INSERTED),
            id="as far in the text, without an alignment",
        ),
        pytest.param(
            *("Open {a} now", "Öffne {a} jetzt {a}", [0, 1, 2, 2], "Öffne {a} jetzt", GENERATED),
            id="once, where the model wrote it twice",
        ),
    ],
)
def test_what_is_kept_is_there_once(
    source: str, text: str, origins: list[int] | None, expected: str, placement: pb.Placement
) -> None:
    message = kept(source, text, origins, "{a}")
    assert (message.text, placements(message)) == (expected, [placement])


def test_equal_texts_are_there_as_often_as_in_the_source() -> None:
    message = kept("%s of %s files", "%s von Dateien", [0, 1, 3], "%s")
    assert message.text == "%s von %s Dateien"
    assert placements(message) == [GENERATED, INSERTED]
    # One in another text does not count.
    message = kept("{a}{a}b {a}", "{a}{a}b", [0], "{a}{a}b", "{a}")
    assert message.text == "{a}{a}b {a}"


def test_what_is_right_stays_and_a_text_without_another_letter_too() -> None:
    message = kept("{a}: {b}!", "{n}! {b} : x", [0, 0, 0, 0], "{a}", "{b}")
    assert (message.text, placements(message)) == ("{a}: {b}!", [GENERATED, GENERATED])
    # So does what the model wrote right.
    message = kept("Hello {a} and {b}", "Hallo {a} und {b}", [0, 1, 2, 3], "{a}", "{b}")
    assert (message.text, placements(message)) == ("Hallo {a} und {b}", [GENERATED, GENERATED])
    assert [each.target_begin for each in message.kept] == [6, 14]


@pytest.mark.parametrize("reason", [pb.STOP_REASON_LENGTH, pb.STOP_REASON_TIME_LIMIT])
def test_a_text_that_was_cut_off_may_lack_it(reason: pb.StopReason) -> None:
    message = kept("Hello dear {a}", "Hallo", [0], "{a}", stop_reason=reason)
    assert (message.text, placements(message)) == ("Hallo", [LOST])


words = st.sampled_from(["{a}", "{b}", "{a}{b}", "%s", "eins", "zwei,", "{", "a}", "s"])


@given(st.data())
def test_each_is_there_exactly_as_often(data: st.DataObject) -> None:
    source = data.draw(st.lists(words, min_size=1, max_size=6))
    target = data.draw(st.lists(words, max_size=6))
    origins = st.none() | st.lists(
        st.integers(0, len(source) - 1), min_size=len(target), max_size=len(target)
    )
    message = kept(" ".join(source), " ".join(target), data.draw(origins), "{a}", "{b}", "%s")
    assert LOST not in placements(message)
    found = Counter(re.findall(r"\{a\}|\{b\}|%s(?!\w)", message.text))
    wanted = Counter(re.findall(r"\{a\}|\{b\}|%s", " ".join(source)))
    assert {text: found[text] for text in wanted} == wanted
    places = sorted((each.target_begin, each.target_end) for each in message.kept)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(places))
