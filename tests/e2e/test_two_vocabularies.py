"""A Marian whose sides have their own vocabularies and heads, imported and served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import checkpoints
from tests.step_graphs import operators_parsed_once

from seqserve import Client
from seqserve.errors import InvalidArgument
from seqserve_import.command import main

from .process import ServerProcess

SOURCE = "t20 t118 t40 t9"
TOKENS = 12

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model whose sources have 120 tokens and whose targets have 96; ids differ too."""
    folder = tmp_path_factory.mktemp("marian")
    model = checkpoints.make("marian-two-vocabularies", 3)
    checkpoints.save(model, folder)
    return model, folder


@pytest.fixture(scope="module")
def client(theirs: tuple[Any, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    models = tmp_path_factory.mktemp("models")
    options = ["--name", "opus", "--model-repository", str(models), "--sentences", "30"]
    with operators_parsed_once():
        assert main([str(theirs[1]), *options, "--threads", "1"]) == 0
    folder = tmp_path_factory.mktemp("server")
    with ServerProcess(models, folder) as server, Client(server.target) as client:
        yield client


def ids(text: str) -> list[int]:
    """Returns the ids of words, which are their numbers, and the end token, which is 0."""
    return [*(int(word[1:]) for word in text.split()), 0]


@torch.inference_mode()
def logprobs(model: Any, source: str, target: str) -> list[float]:
    """Scores a target by transformers."""
    read = torch.tensor([[model.config.decoder_start_token_id, *ids(target)]])
    logits = model(input_ids=torch.tensor([ids(source)]), decoder_input_ids=read[:, :-1]).logits
    logits[..., model.config.pad_token_id] = -1e30
    logits[..., checkpoints.TOKENS :] = -1e30
    found = logits.log_softmax(-1).gather(2, read[:, 1:, None])
    return found.flatten().tolist()  # type: ignore[no-any-return]


def test_answers_are_spelled_by_the_targets_vocabulary(
    theirs: tuple[Any, Path], client: Client
) -> None:
    answer = client.generate(SOURCE, max_decoding_length=TOKENS, return_attention=True)
    assert answer.text == " ".join(f"z{token}" for token in answer.token_ids)
    assert answer.source_pieces == ("▁t20", "▁t118", "▁t40", "▁t9", "</s>")
    expected = sum(logprobs(theirs[0], SOURCE, answer.text)[: len(answer.token_ids)])
    assert answer.score == pytest.approx(expected, abs=1e-3)


def test_scores_are_those_of_transformers(theirs: tuple[Any, Path], client: Client) -> None:
    target = "z33 z7 z90"
    found = client.score(SOURCE, target)
    assert found.tokens == ("▁z33", "▁z7", "▁z90", "</s>")
    expected = logprobs(theirs[0], SOURCE, target)
    assert found.token_scores == pytest.approx(expected, abs=1e-4)


def test_attention_names_the_tokens_of_each_side(client: Client) -> None:
    found = client.attention("t118 t20", "z33")
    assert found.source_tokens == ("▁t118", "▁t20", "</s>")
    assert found.target_tokens == ("▁z33", "</s>")
    assert (found.encoder.heads, found.cross.heads) == (2, 1)
    assert [sum(row) for row in found.encoder.of(layer=-1, head=1)] == pytest.approx([1.0] * 3)


def test_targets_can_be_prescribed(client: Client) -> None:
    options: dict[str, Any] = {"max_decoding_length": TOKENS}
    assert client.generate(SOURCE, target_prefix="z33 z7", **options).text.startswith("z33 z7 ")
    terms = client.generate(SOURCE, terms={"t118": "z44 z45"}, beam_size=4, **options)
    assert "z44 z45" in terms.text
    allowed = ["▁z50", "▁z51"]
    words = client.generate(SOURCE, vocabulary_allow=allowed, **options).text.split()
    assert words
    assert set(words) <= {"z50", "z51"}


def test_a_word_of_the_other_side_is_no_token(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="'▁t50' is no token of the model"):
        client.generate(SOURCE, vocabulary_allow=["▁t50"])
    assert set(client.score(SOURCE, "t33").tokens) == {"<unk>", "</s>"}


def test_a_token_of_the_source_cannot_replace_an_unknown_one(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="has no tokens of sources in its targets") as refused:
        client.generate(SOURCE, replace_unknowns=True)
    assert refused.value.field == "options.replace_unknowns"
