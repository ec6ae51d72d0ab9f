"""From a checkpoint to a server's answer: what ``seqserve import`` makes gives what NLLB gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import checkpoints

from seqserve import Client
from seqserve.errors import InvalidArgument
from seqserve_import.command import main

from .process import ServerProcess

DEU, ENG = (7, 8)
TOKENS = 12

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A small NLLB with random weights, and its folder."""
    model, folder = checkpoints.make("nllb", 12), tmp_path_factory.mktemp("nllb")
    checkpoints.save(model, folder)
    return model, folder


@pytest.fixture(scope="module")
def client(theirs: tuple[Any, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    models = tmp_path_factory.mktemp("models")
    options = ["--name", "nllb", "--model-repository", str(models), "--sentences", "30"]
    assert main([str(theirs[1]), *options, "--threads", "1"]) == 0
    folder = tmp_path_factory.mktemp("server")
    with ServerProcess(models, folder) as server, Client(server.target) as client:
        yield client


@pytest.mark.parametrize("text", ["t20 t21 t22", "t40", "t33 t9 t71 t25 t60"])
@torch.inference_mode()
def test_answers_are_those_of_generate(theirs: tuple[Any, Path], client: Client, text: str) -> None:
    model, _ = theirs
    source = [ENG, *(int(word[1:]) for word in text.split()), model.config.eos_token_id]
    [expected] = model.generate(
        torch.tensor([source]),
        forced_bos_token_id=DEU,
        num_beams=1,
        do_sample=False,
        max_new_tokens=TOKENS,
    ).tolist()
    answer = client.generate(
        text, source_language="en", target_language="deu_Latn", max_decoding_length=TOKENS
    )
    ends = {model.config.eos_token_id, model.config.pad_token_id}
    # The first one starts the target.
    assert list(answer.token_ids) == [token for token in expected[1:] if token not in ends]
    assert answer.token_ids[0] == DEU and "deu_Latn" not in answer.text


def test_a_missing_language_is_refused_with_the_list(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="needs one of deu_Latn, eng_Latn") as refused:
        client.generate("t20", source_language="en")
    assert refused.value.field == "options.target_language"


def test_the_models_languages_are_listed(client: Client) -> None:
    [model] = client.models()
    assert model.source_languages == model.target_languages == ("deu_Latn", "eng_Latn")
