from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.front.echo import echo_model, manifest
from tests.unit.server.front.generate.asking import DECODING, TOKENIZER, asked, ids, part, refusal

from seqserve_gateway.deepl import _FORMAL
from seqserve_server.artifact.records import Template
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.limits import MAX_SUPPRESSED
from seqserve_server.contract.options import ANY_TOKEN, BEGIN, DecodingOptions, Sampling
from seqserve_server.features.formality import _table, formality

TO_GERMAN_AND_FRENCH = Template(source_languages={"en": ""}, target_languages={"de": "", "fr": ""})
MODEL = echo_model(replace(manifest(), template=TO_GERMAN_AND_FRENCH), TOKENIZER)


def read(
    wish: str, text: str = "Do you know?", decoding: DecodingOptions = DECODING
) -> DecodingOptions:
    feature = formality(asked(decoding, MODEL, formality=wish, target_language="de"))
    assert feature is not None
    return feature.read(part(text, decoding)).decoding


@pytest.mark.parametrize(
    ("wish", "gone", "kept"), [("less", ("Sie", "Ihr"), ("du",)), ("more", ("du", "Du"), ("Ihr",))]
)
def test_words_of_the_other_form_are_suppressed(
    wish: str, gone: tuple[str, ...], kept: tuple[str, ...]
) -> None:
    for each in (wish, f"prefer_{wish}"):
        decoding = read(each)
        assert {*map(ids, gone)} <= {*decoding.suppressed}
        assert {*map(ids, kept)}.isdisjoint(decoding.suppressed)
        assert decoding.beam_size == 4


def test_words_that_may_mean_others_stay() -> None:
    suppressed = read("more", "Did she see you?").suppressed
    assert ids("du") in suppressed and ids("ihr") not in suppressed


def test_a_token_that_may_mean_others_stays_at_the_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TOKENIZER, "encode_target", lambda word: [hash(word), 1])
    own = hash("Sie")
    assert (own,) in read("less").suppressed
    suppressed = read("less", "They saw you.").suppressed
    assert (own,) not in suppressed and (ANY_TOKEN, own) in suppressed


@pytest.mark.parametrize("text", ["Give me that.", "Please, don't open it.", "Be good!"])
def test_familiar_orders_are_suppressed_at_the_beginning(text: str) -> None:
    last = _table()["targets"]["de"]["orders"].split()[-1].lower()
    orders = {(BEGIN, *ids(each)) for each in ("Gib", "Öffne", "Bitte gib", f"Bitte {last}")}
    assert orders <= {*read("more", text).suppressed}
    for wish, other in (("less", text), ("more", "You give me that."), ("more", "Giver")):
        assert orders.isdisjoint(read(wish, other).suppressed)


def test_what_terms_and_prefix_have_is_not_suppressed() -> None:
    terms = replace(DECODING, terms=(ids("an Sie"),))
    prefix = replace(DECODING, prefix=ids("Ihr"))
    assert ids("Sie") not in read("less", decoding=terms).suppressed
    assert ids("Ihr") not in read("less", decoding=prefix).suppressed


def test_a_search_that_is_chosen_stays() -> None:
    for decoding in (
        replace(DECODING, beam_size=2),
        replace(DECODING, sampling=Sampling(1.0, 0, 1.0, 0.0, 7)),
        replace(DECODING, return_alternatives=True),
    ):
        assert read("less", decoding=decoding).beam_size == decoding.beam_size


def test_suppressed_tokens_are_bounded_and_none_without_the_option() -> None:
    assert formality(asked(model=MODEL)) is None
    full = replace(DECODING, suppressed=tuple((each,) for each in range(MAX_SUPPRESSED - 1)))
    assert len(read("less", decoding=full).suppressed) == MAX_SUPPRESSED


@pytest.mark.parametrize("languages", [{"target_language": "fr"}, {"source_language": "fr"}, {}])
def test_other_languages_are_refused_or_left(languages: dict[str, Any]) -> None:
    assert formality(asked(model=MODEL, formality="prefer_more", **languages)) is None
    with pytest.raises(InvalidRequest, match=r"options.formality.* prefer_more leaves"):
        formality(asked(model=MODEL, formality="more", **languages))


def test_a_model_without_a_short_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TOKENIZER, "encode_target", lambda word: [2, 2, 2, 2, 1])
    sent = asked(model=MODEL, formality="more", target_language="de")
    assert refusal(formality, sent).field == "options.formality"


def test_the_gateway_knows_the_languages() -> None:
    table = _table()
    known = {(source, target) for source in table["sources"] for target in table["targets"]}
    assert known == {*_FORMAL}
