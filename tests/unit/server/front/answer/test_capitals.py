"""Answers in capitals."""

from __future__ import annotations

from seqserve.v1 import generation_pb2
from seqserve_server.front.answer.capitals import write_in_capitals


def test_places_follow_letters_that_have_two_capitals() -> None:
    text = "die größte straße ist {name} bei a.example."
    kept = [generation_pb2.KeptText(text=each) for each in ("{name}", "a.example")]
    for each in kept:
        each.target_begin = text.index(each.text)
        each.target_end = each.target_begin + len(each.text)
    words = ["größte", "straße", "ist", "bei"]
    begins = [text.index(word) for word in words]
    ends = [begin + len(word) for begin, word in zip(begins, words, strict=True)]
    message = generation_pb2.Hypothesis(text=text, tokens=["die"], kept=kept)
    message.alignment.target_begins.extend(begins)
    message.alignment.target_ends.extend(ends)

    write_in_capitals(message)

    assert message.text == "DIE GRÖSSTE STRASSE IST {name} BEI a.example."
    assert [message.text[each.target_begin : each.target_end] for each in message.kept] == [
        "{name}",
        "a.example",
    ]
    places = zip(message.alignment.target_begins, message.alignment.target_ends, strict=True)
    assert [message.text[begin:end] for begin, end in places] == [w.upper() for w in words]
    assert [*message.tokens] == ["die"]
