"""Terms: which are allowed, and which of them reach the engine."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.front.echo import byte_tokenizer

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.front.request.terms import check_terms, for_source, target_ids

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


def options(terms: list[Term], prefix: str = "", limit: int = 20) -> DecodingOptions:
    return DecodingOptions(
        max_decoding_length=limit,
        beam_size=2,
        prefix=ids(prefix) if prefix else (),
        terms=target_ids(terms, TOKENIZER),
    )


def targets(options: DecodingOptions, terms: list[Term], source: str) -> tuple[Any, ...]:
    return for_source(options, terms, source)[0].terms


def test_only_terms_in_the_source_apply() -> None:
    terms = [TEA, CAKE]
    all_options = options(terms)
    assert for_source(all_options, terms, "a cake")[1] == [CAKE]
    assert for_source(all_options, terms, "cake and tea")[1] == terms, "in the request's order"
    assert for_source(all_options, terms, "Tea")[1] == [], "case matters"
    assert for_source(all_options, terms, "ca\u00adke", "cake")[1] == [CAKE], "as it is read"


def test_the_engine_gets_the_terms_of_the_source() -> None:
    terms = [TEA, CAKE]
    all_options = options(terms)
    assert targets(all_options, terms, "a cake") == (ids("Kuchen"),)
    assert targets(all_options, terms, "tea, cake") == all_options.terms
    assert targets(all_options, terms, "coffee") == ()
    assert all_options.terms == (ids("Tee"), ids("Kuchen")), "other sources need them"


def test_options_without_terms_do_not_change() -> None:
    unchanged = options([])
    assert for_source(unchanged, [], "tea") == (unchanged, ())


def test_terms_of_the_source_must_fit_the_maximum_length() -> None:
    terms = [TEA, CAKE]
    just = options(terms, limit=9)
    assert len(targets(just, terms, "tea, cake")) == 2
    short = options(terms, limit=8)
    with pytest.raises(InvalidRequest, match=r"options\.terms: .* 9 tokens, .* is 8"):
        for_source(short, terms, "tea, cake")
    assert len(targets(short, terms, "only tea")) == 1


def test_a_target_in_the_prefix_counts_once() -> None:
    with pytest.raises(InvalidRequest, match=" 9 tokens"):
        for_source(options([TEA], prefix="Zum Te", limit=8), [TEA], "tea")
    assert targets(options([TEA], prefix="Zum Tee", limit=8), [TEA], "tea")
