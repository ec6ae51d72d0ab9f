"""From a checkpoint to a server's answer: what ``seqserve import`` makes gives what NLLB gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import checkpoints
from tests.exported import Exporter

from seqserve import Client
from seqserve.errors import InvalidArgument

from .process import ServerProcess

DEU, ENG = (7, 8)
TOKENS = 12

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def theirs() -> Any:
    """The network whose checkpoint was imported."""
    return checkpoints.make("nllb", 12)


@pytest.fixture(scope="session")
def imported_nllb(exporter: Exporter) -> Path:
    """A model repository that ``seqserve import`` made. Not to be changed."""
    return exporter.repository("nllb")


@pytest.fixture(scope="module")
def client(imported_nllb: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("server")
    with ServerProcess(imported_nllb, folder) as server, Client(server.target) as client:
        yield client


@pytest.mark.parametrize("text", ["t20 t21 t22", "t40", "t33 t9 t71 t25 t60"])
@torch.inference_mode()
def test_answers_are_those_of_generate(theirs: Any, client: Client, text: str) -> None:
    source = [ENG, *(int(word[1:]) for word in text.split()), theirs.config.eos_token_id]
    [expected] = theirs.generate(
        torch.tensor([source]),
        forced_bos_token_id=DEU,
        num_beams=1,
        do_sample=False,
        max_new_tokens=TOKENS,
    ).tolist()
    answer = client.generate(
        text, source_language="en", target_language="deu_Latn", max_decoding_length=TOKENS
    )
    ends = {theirs.config.eos_token_id, theirs.config.pad_token_id}
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
