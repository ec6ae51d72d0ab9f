"""From a checkpoint to a server's answer: what ``seqserve import`` makes answers as transformers.

One server has an NLLB, an mBART, whose decoder reads the target language first, and a Marian whose
sides have their own vocabularies and heads.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import checkpoints
from tests.exported import IMPORTED
from tests.support.process import ServerProcess

from seqserve import Client
from seqserve.errors import InvalidArgument

TOKENS = 12
SOURCES = ["t20 t21 t22", "t40", "t33 t9 t71 t25 t60"]
DE, EN = 7, 8
MBART = "mbart25"
STARTS = [("", DE), ("de_DE", DE), ("de", DE), ("en", EN)]
TWO, TWO_SOURCE = "marian-two-vocabularies", "t20 t118 t40 t9"
"""Its sources have 120 tokens and its targets 96; ids differ too."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    return {family: checkpoints.make(family, seed) for family, seed in IMPORTED.items()}


@pytest.fixture(scope="module")
def client(imported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("server")
    options = ("--slots", "16", "--workers", "1", "--cache-mb", "1")
    with ServerProcess(imported, folder, *options) as server, Client(server.target) as client:
        yield client


def numbers(text: str) -> list[int]:
    return [int(word[1:]) for word in text.split()]


@torch.inference_mode()
def generated(model: Any, source: Sequence[int], **options: Any) -> list[int]:
    """Searches greedily by transformers; returns the tokens after the first, without ends."""
    given = {"num_beams": 1, "do_sample": False, "max_new_tokens": TOKENS}
    [found] = model.generate(torch.tensor([source]), **given, **options).tolist()
    return words(model, found[1:])


def words(model: Any, token_ids: Sequence[int]) -> list[int]:
    # Theirs pads what has ended; a random network may generate padding too.
    ends = {model.config.eos_token_id, model.config.pad_token_id}
    return [token for token in token_ids if token not in ends]


@torch.inference_mode()
def scores(model: Any, source: Sequence[int], target: Sequence[int]) -> list[float]:
    """Scores a target, its first token left out, by transformers."""
    read = torch.tensor([target])
    logits = model(input_ids=torch.tensor([source]), decoder_input_ids=read[:, :-1]).logits
    logits[..., checkpoints.TOKENS :] = -1e30
    if model.config.model_type == "marian":
        logits[..., model.config.pad_token_id] = -1e30
    found = logits.log_softmax(-1).gather(2, read[:, 1:, None])
    return found.flatten().tolist()  # type: ignore[no-any-return]


# ---- NLLB


@pytest.mark.parametrize("text", SOURCES)
def test_answers_are_those_of_generate(theirs: dict[str, Any], client: Client, text: str) -> None:
    model = theirs["nllb"]
    source = [EN, *numbers(text), model.config.eos_token_id]
    expected = generated(model, source, forced_bos_token_id=DE)
    languages = {"source_language": "en", "target_language": "deu_Latn"}
    answer = client.generate(text, model="nllb", max_decoding_length=TOKENS, **languages)
    assert list(answer.token_ids) == expected
    assert answer.token_ids[0] == DE and "deu_Latn" not in answer.text


# ---- mBART


def read_of(model: Any, source: str) -> list[int]:
    return [*numbers(source), model.config.eos_token_id, EN]


@pytest.mark.parametrize("source", SOURCES)
def test_each_request_starts_with_its_language(
    theirs: dict[str, Any], client: Client, source: str
) -> None:
    model, texts = theirs[MBART], set()
    for code, start in STARTS:
        languages = {"source_language": "en", "target_language": code}
        answer = client.generate(source, model=MBART, max_decoding_length=TOKENS, **languages)
        expected = generated(model, read_of(model, source), decoder_start_token_id=start)
        assert words(model, answer.token_ids) == expected
        texts.add(answer.text)
    assert len(texts) == 2, "the language changes the answer, or the test shows nothing"


@pytest.mark.parametrize(("code", "start"), STARTS)
def test_scores_and_attention_start_with_the_language(
    theirs: dict[str, Any], client: Client, code: str, start: int
) -> None:
    model, source, target = theirs[MBART], SOURCES[0], "t31 t50"
    languages = {"model": MBART, "source_language": "en", "target_language": code}
    written = [*numbers(target), model.config.eos_token_id]
    expected = scores(model, read_of(model, source), [start, *written])
    found = client.score(source, target, **languages)
    assert found.token_scores == pytest.approx(expected, abs=1e-3)
    attended = client.attention(source, target, **languages)
    other = client.attention(source, target, **languages | {"target_language": "en"})
    assert (attended.decoder == other.decoder) == (start == EN)
    assert attended.target_tokens == ("t31", "t50", "</s>")


def test_beams_start_with_the_language(client: Client) -> None:
    """In one batch with requests that start otherwise, as alone."""
    options = {"model": MBART, "source_language": "en", "beam_size": 3}
    options["max_decoding_length"] = TOKENS
    codes = ("de", "en")
    alone = [client.generate(SOURCES[2], target_language=code, **options).text for code in codes]
    assert alone[0] != alone[1]
    for code, text in zip(codes, alone, strict=True):
        many = client.generate_many([SOURCES[2], *SOURCES], target_language=code, **options)
        assert next(iter(many)).text == text


# ---- two vocabularies


def expected_scores(model: Any, target: str) -> list[float]:
    begin, end = model.config.decoder_start_token_id, 0
    return scores(model, [*numbers(TWO_SOURCE), end], [begin, *numbers(target), end])


def test_answers_have_the_targets_vocabulary(theirs: dict[str, Any], client: Client) -> None:
    options: dict[str, Any] = {"max_decoding_length": TOKENS, "return_attention": True}
    answer = client.generate(TWO_SOURCE, model=TWO, **options)
    assert answer.text == " ".join(f"z{token}" for token in answer.token_ids)
    assert answer.source_pieces == ("▁t20", "▁t118", "▁t40", "▁t9", "</s>")
    expected = sum(expected_scores(theirs[TWO], answer.text)[: len(answer.token_ids)])
    assert answer.score == pytest.approx(expected, abs=1e-3)


def test_scores_are_those_of_transformers(theirs: dict[str, Any], client: Client) -> None:
    found = client.score(TWO_SOURCE, "z33 z7 z90", model=TWO)
    assert found.tokens == ("▁z33", "▁z7", "▁z90", "</s>")
    expected = expected_scores(theirs[TWO], "z33 z7 z90")
    assert found.token_scores == pytest.approx(expected, abs=1e-4)


def test_attention_names_the_tokens_of_each_side(client: Client) -> None:
    found = client.attention("t118 t20", "z33", model=TWO)
    assert found.source_tokens == ("▁t118", "▁t20", "</s>")
    assert found.target_tokens == ("▁z33", "</s>")
    assert (found.encoder.heads, found.cross.heads) == (2, 1)
    assert [sum(row) for row in found.encoder.of(layer=-1, head=1)] == pytest.approx([1.0] * 3)


def test_targets_can_be_prescribed(client: Client) -> None:
    options: dict[str, Any] = {"model": TWO, "max_decoding_length": TOKENS}
    prefixed = client.generate(TWO_SOURCE, target_prefix="z33 z7", **options)
    assert prefixed.text.startswith("z33 z7 ")
    terms = client.generate(TWO_SOURCE, terms={"t118": "z44 z45"}, beam_size=4, **options)
    assert "z44 z45" in terms.text
    allowed = ["▁z50", "▁z51"]
    chosen = client.generate(TWO_SOURCE, vocabulary_allow=allowed, **options).text.split()
    assert chosen
    assert set(chosen) <= {"z50", "z51"}


def test_a_word_of_the_other_side_is_no_token(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="'▁t50' is not a token of the model"):
        client.generate(TWO_SOURCE, model=TWO, vocabulary_allow=["▁t50"])
    assert set(client.score(TWO_SOURCE, "t33", model=TWO).tokens) == {"<unk>", "</s>"}
    with pytest.raises(InvalidArgument, match="has no tokens of sources in its targets") as refused:
        client.generate(TWO_SOURCE, model=TWO, replace_unknowns=True)
    assert refused.value.field == "options.replace_unknowns"
