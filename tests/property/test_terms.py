"""Terms of requests and glossaries: each applies where its source is, and changes nothing else."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.front.echo import echo_model
from tests.unit.server.front.generate.asking import asked, part

from seqserve_server.contract.options import DecodingOptions
from seqserve_server.features.terms import terms
from seqserve_server.front.generate.options import tokenized_terms
from seqserve_server.text.glossary import Glossary, Label, Term

MODEL = echo_model(max_rows=32)
WORDS = ["tea", "Tea", "cup", "cups", "차", "茶", "cake", "x"]
sources = st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(" ".join)
entries = st.builds(Term, source=sources, target=st.sampled_from(["Tee", "Kuchen", "茶"]))
texts = st.lists(st.sampled_from([*WORDS, ",", "-"]), max_size=24).map(" ".join)


@given(
    own=st.lists(entries, max_size=1),
    listed=st.lists(entries, min_size=1, max_size=8),
    beam_size=st.sampled_from([1, 3]),
    limit=st.integers(9, 40),
    text=texts,
)
def test_terms_apply_where_their_sources_are(
    own: list[Term], listed: list[Term], beam_size: int, limit: int, text: str
) -> None:
    plain = DecodingOptions(max_decoding_length=limit, beam_size=beam_size)
    sought = replace(plain, terms=tokenized_terms(own, MODEL.tokenizer))
    glossary = Glossary(Label("a", "en", "de"), listed)
    feature = terms(asked(sought, MODEL, glossary, terms=own))
    assert feature
    read = feature.read(part(text, sought))
    options, found = read.decoding, read.terms
    assert all(term.source.casefold() in text.casefold() for term in found)
    encoded = [tuple(MODEL.tokenizer.encode_target(term.target)[:-1]) for term in found]
    assert options.terms == tuple(encoded[: len(options.terms)])
    distinct = set(options.terms)
    assert sum(map(len, distinct)) <= limit
    if options.terms:
        assert options.beam_size == (5 if beam_size == 1 else beam_size)
    else:
        assert options == plain, "as if there were no terms"
