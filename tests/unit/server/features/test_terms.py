from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.front.echo import echo_model
from tests.unit.server.front.generate.asking import TOKENIZER, asked, ids, part, refusal

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.features.terms import terms
from seqserve_server.front.generate.options import tokenized_terms
from seqserve_server.front.generate.records import Feature
from seqserve_server.text.glossary import Glossary, Label

MODEL = echo_model(tokenizer=TOKENIZER, max_rows=4)
Term = generation_pb2.Term
TEA, CAKE = Term(source="tea", target="Tee"), Term(source="cake", target="Kuchen")


def test_each_target_is_tokenized_by_itself_and_as_text() -> None:
    terms = [TEA, Term(source="a", target="ä b"), Term(source="b", target="</s>")]
    *others, control = tokenized_terms(terms, TOKENIZER)
    assert others == [ids("Tee"), ids("ä b")] and TOKENIZER.eos_id not in control
    assert tokenized_terms([], TOKENIZER) == ()


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        *(([Term(source=blank, target="a")], "source is empty") for blank in ("", " ")),
        *(([Term(source="a", target=blank)], "target is empty") for blank in ("", "\t")),
        ([Term(source="a" * 257, target="a")], "source has 257 characters"),
        ([Term(source="a", target="a" * 257)], "target has 257 characters"),
        ([TEA, Term(source="tea", target="Tasse")], "'tea' twice"),
    ],
)
def test_invalid_terms_are_refused(terms: list[Term], reason: str) -> None:
    refused = refusal(tokenized_terms, terms, TOKENIZER)
    assert refused.field == "options.terms" and reason in refused.reason


def test_terms_of_the_maximum_number_and_length() -> None:
    many = [Term(source=f"s{number}", target="t") for number in range(15)]
    terms = [*many, Term(source="a" * 256, target="ä" * 256)]
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


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        ({"suppressed": ids("T")}, "'Tee', which has a token that is suppressed"),
        ({"ends": ids("xK")}, "'Kuchen', which has a token that ends"),
        ({"vocabulary": ids("Kuchen")}, "not in vocabulary_allow"),
    ],
)
def test_a_target_that_cannot_be_generated_is_refused(refused: Any, reason: str) -> None:
    assert reason in refusal(check, **refused).reason


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


@pytest.mark.parametrize(
    ("source", "found"),
    [("a cake", [CAKE]), ("cake and tea", [TEA, CAKE]), ("ca\u00adke", [CAKE]), ("coffee", [])],
    ids=["one", "in the order of the request", "as it is read", "none"],
)
def test_only_terms_in_the_source_apply(source: str, found: list[Term]) -> None:
    decoding, applied = for_source(options([TEA, CAKE]), [TEA, CAKE], source)
    assert applied == found
    assert decoding.terms == tuple(ids(term.target) for term in found)
    assert for_source(options([]), [], source) == (options([]), [])


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


def test_terms_of_the_source_must_fit_the_maximum_length() -> None:
    terms = [TEA, CAKE]
    just = options(terms, limit=9)
    assert len(targets(just, terms, "tea, cake")) == 2
    short = options(terms, limit=8)
    with pytest.raises(InvalidRequest, match=r"options\.terms: .* 9 tokens, .* is 8"):
        for_source(short, terms, "tea, cake")
    assert len(targets(short, terms, "only tea")) == 1
    # A target in the prefix counts once.
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
