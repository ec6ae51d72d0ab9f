"""mBART, whose decoder reads the target language first: answers are those of transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

PAD, END, DE, EN = 1, 2, 7, 8
TOKENS = 12
STARTS = [("", DE), ("de_DE", DE), ("de", DE), ("en", EN)]
SOURCES = ["t20 t21 t22", "t40", "t33 t9 t71 t25 t60"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A network and its checkpoint, whose settings name German as the first token."""
    model = checkpoints.make("mbart25", 4)
    folder = tmp_path_factory.mktemp("checkpoint")
    checkpoints.save(model, folder)
    return model, folder


@pytest.fixture(scope="module")
def client(theirs: tuple[Any, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    models = tmp_path_factory.mktemp("models")
    options = ["--name", "mbart", "--model-repository", str(models), "--sentences", "30"]
    with operators_parsed_once():
        assert main([str(theirs[1]), *options, "--threads", "1"]) == 0
    folder = tmp_path_factory.mktemp("server")
    with (
        ServerProcess(models, folder, "--cache-mb", "1") as server,
        Client(server.target) as client,
    ):
        yield client


def read_of(source: str) -> list[int]:
    return [*(int(word[1:]) for word in source.split()), END, EN]


def words(token_ids: Sequence[int]) -> list[int]:
    return [token for token in token_ids if token not in (END, PAD)]


@pytest.mark.parametrize("source", SOURCES)
@torch.inference_mode()
def test_each_request_starts_with_its_language(
    theirs: tuple[Any, Path], client: Client, source: str
) -> None:
    texts = set()
    for code, start in STARTS:
        answer = client.generate(
            source, source_language="en", target_language=code, max_decoding_length=TOKENS
        )
        [expected] = theirs[0].generate(
            torch.tensor([read_of(source)]),
            decoder_start_token_id=start,
            num_beams=1,
            do_sample=False,
            max_new_tokens=TOKENS,
        )
        # Theirs pads what has ended; a random network may generate padding too.
        assert words(answer.token_ids) == words(expected.tolist()[1:])
        texts.add(answer.text)
    assert len(texts) == 2, "the language changes the answer, or the test shows nothing"


@pytest.mark.parametrize(("code", "start"), STARTS)
@torch.inference_mode()
def test_scores_and_attention_start_with_the_language(
    theirs: tuple[Any, Path], client: Client, code: str, start: int
) -> None:
    source, target = SOURCES[0], "t31 t50"
    languages = {"source_language": "en", "target_language": code}
    written = [31, 50, END]
    outputs = theirs[0](
        input_ids=torch.tensor([read_of(source)]),
        decoder_input_ids=torch.tensor([[start, *written[:-1]]]),
    )
    logits = outputs.logits[0]
    logits[:, checkpoints.TOKENS :] = -1e30
    expected = logits.log_softmax(-1)[range(3), written]
    found = client.score(source, target, **languages)
    assert found.token_scores == pytest.approx(expected.tolist(), abs=1e-3)
    attended = client.attention(source, target, **languages)
    other = client.attention(source, target, source_language="en", target_language="en")
    assert (attended.decoder == other.decoder) == (start == EN)
    assert attended.target_tokens == ("t31", "t50", "</s>")


def test_beams_start_with_the_language(client: Client) -> None:
    """In one batch with requests that start otherwise, as alone."""
    options = {"source_language": "en", "beam_size": 3, "max_decoding_length": TOKENS}
    alone = [
        client.generate(SOURCES[2], target_language=code, **options).text for code in ("de", "en")
    ]
    assert alone[0] != alone[1]
    for code, text in zip(("de", "en"), alone, strict=True):
        many = client.generate_many([SOURCES[2], *SOURCES], target_language=code, **options)
        assert next(iter(many)).text == text


def test_an_unknown_language_is_refused_with_the_list(client: Client) -> None:
    for model, known in (
        (None, "the loaded ones know de_DE, en_XX"),
        ("mbart", "one of de_DE, en_XX"),
    ):
        with pytest.raises(InvalidArgument, match=known) as refused:
            client.generate("t20", model=model, source_language="en", target_language="fr")
        assert refused.value.field == "options.target_language"
