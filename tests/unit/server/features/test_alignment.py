"""Where the tokens of an answer come from."""

from array import array
from pathlib import Path

import pytest
import tokenizers
from tests.unit.server.front.echo import byte_tokenizer
from tokenizers import decoders, models, pre_tokenizers

from seqserve_server.features.alignment import TokenSpans, alignment_of
from seqserve_server.front.generate.languages import Affixes
from seqserve_server.text.tokenizer import Tokenizer
from seqserve_server.text.vocabulary import BOS, EOS, PAD, UNK


def word_tokenizer() -> Tokenizer:
    """A tokenizer of whole words, each with the space before it, as SentencePiece has them."""
    words = ["▁", "▁red", "▁car", "▁Das", "▁rot", "e", "▁Auto", "<xx>"]
    vocabulary = {token: id_ for id_, token in enumerate([PAD, BOS, EOS, UNK, *words])}
    raw = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    raw.add_special_tokens([PAD, BOS, EOS, UNK, "<xx>"])
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.decoder = decoders.Metaspace()
    return Tokenizer(raw)


def links(
    tokenizer: Tokenizer,
    source: str,
    target: list[str],
    best: list[int],
    *,
    affixes: Affixes = Affixes(),  # noqa: B008
    text: str | None = None,
) -> list[tuple[str, str]]:
    """Aligns tokens that attend most to the source tokens of these indexes; gives the texts."""
    ids = affixes.with_special_tokens(tokenizer.encode(affixes.text + source))
    rows = [array("f", [float(key == index) for key in range(len(ids))]) for index in best]
    target_ids = [tokenizer.target.id_of(token) or 0 for token in target]
    if text is None:
        text = tokenizer.decode(target_ids)
    places = TokenSpans.of(source, ids, affixes, tokenizer)
    found = alignment_of(text, target_ids, rows, places, tokenizer)
    columns = found.source_begins, found.source_ends, found.target_begins, found.target_ends
    return [(source[a:b], text[c:d]) for a, b, c, d in zip(*columns, strict=True)]


@pytest.mark.parametrize(
    ("source", "target", "best", "expected"),
    [
        pytest.param(
            *("red car", ["▁Das", "▁rot", "e", "▁Auto"], [0, 0, 0, 1]),
            [("red", "Das"), ("red", "rot"), ("red", "e"), ("car", "Auto")],
            id="without the space before",
        ),
        pytest.param(
            *("\ufeffr\u00aded c\u200bar", ["▁rot", "▁Auto"], [0, 1]),
            [("r\u00aded", "rot"), ("c\u200bar", "Auto")],
            id="in the text as it was sent",
        ),
        pytest.param(
            *("red car", ["<xx>", "▁Auto"], [0, 1], [("car", "Auto")]), id="none without text"
        ),
    ],
)
def test_words_have_their_places(
    source: str, target: list[str], best: list[int], expected: list[tuple[str, str]]
) -> None:
    assert links(word_tokenizer(), source, target, best) == expected


def test_what_the_model_reads_beside_the_text_has_no_place() -> None:
    tokenizer = word_tokenizer()
    special = tokenizer.target.id_of("<xx>") or 0
    affixes = Affixes(text="red ", before=(special,), after=(special,))
    # Tokens: <xx> ▁red ▁car </s> <xx>.
    for best, expected in ((1, []), (2, [("car", "Auto")])):
        assert links(tokenizer, "car", ["▁Auto"], [best], affixes=affixes) == expected


def test_bytes_of_a_character_all_have_its_place() -> None:
    tokenizer = byte_tokenizer()
    target = tokenizer.target.tokens(tokenizer.encode("é")[:-1])
    assert links(tokenizer, "aé", target, [1, 2]) == [("é", "é"), ("é", "é")]


def test_what_a_stop_sequence_cut_off_is_left_out() -> None:
    found = links(word_tokenizer(), "red car", ["▁rot", "▁Auto"], [0, 1], text="rot")
    assert found == [("red", "rot")]


@pytest.mark.parametrize("source", ["", "red"])
def test_attention_to_the_end_token_alone_goes_to_the_text_if_there_is_one(source: str) -> None:
    tokenizer = word_tokenizer()
    end = len(tokenizer.encode(source)) - 1
    found = links(tokenizer, source, ["▁Auto"], [end])
    assert found == ([("red", "Auto")] if source else [])


def test_a_byte_that_is_a_character_takes_nothing_from_the_word_behind_it() -> None:
    tokenizer = Tokenizer.load(Path("models/en-de/2/tokenizer.json"))
    target = tokenizer.target.tokens(tokenizer.encode_target("Das {x} 🎉 so")[:-1])
    assert "<0x7D>" in target
    found = links(tokenizer, "a b", target, [0] * len(target))
    written = [text for _, text in found]
    assert "}" in written and written.count("🎉") == 4
    assert written[-1] == "so"
