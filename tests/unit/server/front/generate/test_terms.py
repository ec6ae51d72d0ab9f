from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.front.echo import byte_tokenizer, echo_model
from tests.unit.server.front.generate.asking import asked, part

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.front.generate.records import Feature
from seqserve_server.front.generate.terms import terms, tokenized_terms
from seqserve_server.text.glossary import Glossary, Label

TOKENIZER = byte_tokenizer()
MODEL = echo_model(tokenizer=TOKENIZER, max_rows=4)
Term = generation_pb2.Term
TEA, CAKE = Term(source="tea", target="Tee"), Term(source="cake", target="Kuchen")


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text)[:-1])


def many(count: int) -> list[Term]:
    return [Term(source=f"s{number}", target="t") for number in range(count)]


def test_each_target_is_tokenized_by_itself() -> None:
    terms = [TEA, Term(source="a", target="ä b")]
    assert tokenized_terms(terms, TOKENIZER) == (ids("Tee"), ids("ä b"))
    assert tokenized_terms([], TOKENIZER) == ()


def test_a_typed_control_token_is_text() -> None:
    [token_ids] = tokenized_terms([Term(source="a", target="</s>")], TOKENIZER)
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
        tokenized_terms(terms, TOKENIZER)
    assert caught.value.field == "options.terms"


def test_terms_of_the_maximum_number_and_length() -> None:
    terms = [*many(15), Term(source="a" * 256, target="ä" * 256)]
    assert len(tokenized_terms(terms, TOKENIZER)) == 16


def test_a_target_without_known_characters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(TOKENIZER), "encode_target", lambda self, text: [self.eos_id])
    with pytest.raises(InvalidRequest, match="'Tee', no character of which"):
        tokenized_terms([TEA], TOKENIZER)


def check(
    suppressed: tuple[int, ...] = (),
    ends: tuple[int, ...] = (TOKENIZER.eos_id,),
    vocabulary: tuple[int, ...] = (),
) -> None:
    decoding = DecodingOptions(
        max_decoding_length=20,
        suppressed=tuple((token,) for token in suppressed),
        vocabulary=vocabulary,
        end_ids=ends,
        terms=tokenized_terms([CAKE, TEA], TOKENIZER),
    )
    assert terms(asked(decoding, MODEL, terms=[CAKE, TEA]))


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


def options(
    terms: list[Term], prefix: str = "", limit: int = 20, beam_size: int = 2
) -> DecodingOptions:
    return DecodingOptions(
        max_decoding_length=limit,
        beam_size=beam_size,
        prefix=ids(prefix) if prefix else (),
        terms=tokenized_terms(terms, TOKENIZER),
    )


def for_source(
    options: DecodingOptions, own: list[Term], source: str, glossary: list[Term] | None = None
) -> tuple[DecodingOptions, list[Term]]:
    named = Glossary(Label("a", "en", "de"), glossary) if glossary else None
    feature = terms(asked(options, MODEL, named, terms=own)) or Feature()
    read = feature.read(part(source, options))
    return read.decoding, list(read.terms)


def targets(options: DecodingOptions, terms: list[Term], source: str) -> tuple[Any, ...]:
    return for_source(options, terms, source)[0].terms


def test_only_terms_in_the_source_apply() -> None:
    terms = [TEA, CAKE]
    all_options = options(terms)
    assert for_source(all_options, terms, "a cake")[1] == [CAKE]
    assert for_source(all_options, terms, "cake and tea")[1] == terms, "in the request's order"
    assert for_source(all_options, terms, "ca\u00adke")[1] == [CAKE], "as it is read"


@pytest.mark.parametrize(
    ("source", "text", "applies"),
    [
        ("art", "The party had art.", True),
        ("art", "Art is long.", True),
        ("US", "They told us.", False),
        ("tea cake", "some tea\u00a0cake", True),
        ("art", "The party in Stuttgart is smart.", False),
        ("computer", "two computers", False),
        ("tea", "tea-time", True),
        (" tea ", "some tea", True),
        ("C++", "in C++.", True),
        ("e\u0301t\u00e9", "un \u00e9te\u0301 chaud", True),
        ("茶", "緑茶を飲む", True),
        ("책", "책을 읽다", True),
        ("책", "공책을 사다", False),
    ],
)
def test_a_term_is_whole_words(source: str, text: str, applies: bool) -> None:
    own = [Term(source=source, target="t")]
    assert bool(for_source(options(own), own, text)[1]) == applies


def test_the_engine_gets_the_terms_of_the_source() -> None:
    terms = [TEA, CAKE]
    all_options = options(terms)
    assert targets(all_options, terms, "a cake") == (ids("Kuchen"),)
    assert targets(all_options, terms, "tea, cake") == all_options.terms
    assert targets(all_options, terms, "coffee") == ()
    assert all_options.terms == (ids("Tee"), ids("Kuchen")), "other sources need them"


def test_options_without_terms_do_not_change() -> None:
    unchanged = options([])
    assert for_source(unchanged, [], "tea") == (unchanged, [])


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


def test_a_greedy_request_becomes_a_beam_where_a_term_applies() -> None:
    greedy = options([TEA], beam_size=1)
    with_tea = for_source(greedy, [TEA], "some tea")[0]
    assert (with_tea.beam_size, with_tea.terms) == (4, (ids("Tee"),)), "as many rows as there are"
    assert with_tea.num_hypotheses == 1
    without = DecodingOptions(max_decoding_length=20)
    assert for_source(greedy, [TEA], "some cake") == (without, []), "as if there were no term"
    assert for_source(options([TEA]), [TEA], "some tea")[0].beam_size == 2


def test_terms_of_a_glossary_apply_beside_those_of_the_request() -> None:
    glossary = [Term(source="TEA", target="X"), Term(source="hot cake", target="Y"), CAKE]
    found, terms = for_source(options([TEA]), [TEA], "tea, hot cake, TEA", glossary=glossary)
    assert terms == [TEA, glossary[1]], "its own term first, and the longest match of the glossary"
    assert found.terms == (ids("Tee"), ids("Y"))
    assert for_source(options([]), [], "TEA", glossary=glossary)[1] == glossary[:1]
    assert for_source(options([]), [], "teas", glossary=glossary) == (options([]), [])


def test_terms_of_a_glossary_that_cannot_apply_come_last() -> None:
    glossary = [CAKE, TEA, Term(source="bun", target="Brötchen")]
    short = options([], limit=9)
    found, terms = for_source(short, [], "tea, bun, cake", glossary=glossary)
    assert (found.terms, terms) == ((ids("Kuchen"), ids("Tee")), glossary)
    suppressed = replace(options([]), suppressed=((ids("K")[0],),))
    found, terms = for_source(suppressed, [], "tea, cake", glossary=glossary)
    assert (found.terms, terms) == ((ids("Tee"),), [TEA, CAKE])
    many_words = [Term(source=f"w{number}", target="t") for number in range(20)]
    text = " ".join(term.source for term in many_words)
    found, terms = for_source(options([], limit=99), [], text, glossary=many_words)
    assert (len(found.terms), len(terms)) == (16, 20)


def test_a_request_that_ends_otherwise_rules_out_a_target() -> None:
    ended = replace(options([]), end_ids=(ids("e")[0],))
    assert for_source(ended, [], "tea", glossary=[TEA]) == (ended, [TEA])
