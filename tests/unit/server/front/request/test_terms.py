"""Terms: which are allowed, and which of them reach the engine."""

from __future__ import annotations

import pytest
from tests.unit.server.front.echo import byte_tokenizer

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.front.request.terms import applying, check_terms, for_source, target_ids

TOKENIZER = byte_tokenizer()
Term = generation_pb2.Term
TEA, CAKE = Term(source="tea", target="Tee"), Term(source="cake", target="Kuchen")


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text)[:-1])


def many(count: int) -> list[Term]:
    return [Term(source=f"s{number}", target="t") for number in range(count)]


def test_each_target_is_tokenized_by_itself() -> None:
    assert target_ids([TEA, Term(source="a", target="ä b")], TOKENIZER) == (ids("Tee"), ids("ä b"))
    assert target_ids([], TOKENIZER) == ()


def test_a_typed_control_token_is_text() -> None:
    [token_ids] = target_ids([Term(source="a", target="</s>")], TOKENIZER)
    assert TOKENIZER.eos_id not in token_ids


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ([Term(source="", target="a")], "source is empty"),
        ([Term(source="a", target="")], "target is empty"),
        ([Term(source=" ", target="a")], "source is empty"),
        ([Term(source="a", target="\t")], "target is empty"),
        ([Term(source="a" * 257, target="a")], "source has 257 characters"),
        ([Term(source="a", target="a" * 257)], "target has 257 characters"),
        ([TEA, Term(source="tea", target="Tasse")], "'tea' twice"),
    ],
)
def test_invalid_terms_are_refused(terms: list[Term], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        target_ids(terms, TOKENIZER)
    assert caught.value.field == "options.terms"


def test_terms_of_the_maximum_number_and_length() -> None:
    terms = [*many(15), Term(source="a" * 256, target="ä" * 256)]
    assert len(target_ids(terms, TOKENIZER)) == 16


def test_a_target_without_known_characters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(TOKENIZER), "encode_target", lambda self, text: [self.eos_id])
    with pytest.raises(InvalidRequest, match="'Tee', no character of which"):
        target_ids([TEA], TOKENIZER)


def check(
    suppressed: tuple[int, ...] = (),
    ends: tuple[int, ...] = (TOKENIZER.eos_id,),
    vocabulary: tuple[int, ...] = (),
) -> None:
    terms = [CAKE, TEA]
    targets = target_ids(terms, TOKENIZER)
    check_terms(terms, targets, set(suppressed), set(ends), set(vocabulary))


def test_targets_that_can_be_generated() -> None:
    check()
    check(suppressed=ids("x"), ends=ids("y"), vocabulary=(*ids("KuchenTee"), *ids("x")))


def test_a_target_that_cannot_be_generated_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'Tee', which has a token that is suppressed"):
        check(suppressed=ids("T"))
    with pytest.raises(InvalidRequest, match="'Kuchen', which has a token that ends"):
        check(ends=ids("xK"))
    with pytest.raises(InvalidRequest, match=r"'Tee', .* not in vocabulary_allow"):
        check(vocabulary=ids("Kuchen"))


def test_only_terms_in_the_source_apply() -> None:
    assert applying([TEA, CAKE], "a cake") == [CAKE]
    assert applying([TEA, CAKE], "cake and tea") == [TEA, CAKE], "in the order of the request"
    assert applying([TEA], "Tea") == [], "case matters"


def options(terms: list[Term], prefix: str = "", limit: int = 20) -> DecodingOptions:
    return DecodingOptions(
        max_decoding_length=limit,
        beam_size=2,
        prefix=ids(prefix) if prefix else (),
        terms=target_ids(terms, TOKENIZER),
    )


def test_the_engine_gets_the_terms_of_the_source() -> None:
    terms = [TEA, CAKE]
    asked = options(terms)
    assert for_source(asked, terms, "a cake").terms == (ids("Kuchen"),)
    assert for_source(asked, terms, "tea, cake").terms == asked.terms
    assert for_source(asked, terms, "coffee").terms == ()
    assert asked.terms == (ids("Tee"), ids("Kuchen")), "other sources need them"


def test_options_without_terms_do_not_change() -> None:
    asked = options([])
    assert for_source(asked, [], "tea") is asked


def test_terms_of_the_source_must_fit_the_maximum_length() -> None:
    terms = [TEA, CAKE]
    just = options(terms, limit=9)
    assert len(for_source(just, terms, "tea, cake").terms) == 2
    short = options(terms, limit=8)
    with pytest.raises(InvalidRequest, match=r"options\.terms: .* 9 tokens, .* is 8"):
        for_source(short, terms, "tea, cake")
    assert len(for_source(short, terms, "only tea").terms) == 1


def test_a_target_in_the_prefix_counts_once() -> None:
    with pytest.raises(InvalidRequest, match=" 9 tokens"):
        for_source(options([TEA], prefix="Zum Te", limit=8), [TEA], "tea")
    assert for_source(options([TEA], prefix="Zum Tee", limit=8), [TEA], "tea").terms
