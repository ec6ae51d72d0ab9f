import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.client.fake_server import FakeServer
from tests.unit.model.conftest import make_model

from seqserve.errors import OptionError
from seqserve_model.checkpoint import RunDirectory, named_weights, write_json, write_tensors
from seqserve_model.command import evaluate as main
from seqserve_model.data import Pair, write_pairs
from seqserve_model.decoding import greedy
from seqserve_model.evaluate import (
    TorchTranslator,
    evaluate,
    open_translator,
    score,
    torch_device,
)
from seqserve_model.options import EvaluateOptions, Tokenize
from seqserve_model.vocabulary import learn_vocabulary, save_tokenizer
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.limits import Provider
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine import local_engine
from seqserve_server.engine.runtime import Runtime
from seqserve_server.text.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("translation", "bleu", "chrf"),
    [
        ("the cat sat on the mat", 100.0, 100.0),
        # Counted by hand: 5 of 6 words, 3 of 5 pairs, 2 of 4 triples, 1 of 3 quadruples.
        ("the cat sat on a mat", 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25, None),
        ("xyz", 0.0, 0.0),
    ],
)
def test_scores_are_those_of_the_metrics(translation: str, bleu: float, chrf: float | None) -> None:
    scores = score([translation], ["the cat sat on the mat"])
    assert scores.bleu == pytest.approx(bleu, abs=1e-6)
    if chrf is not None:
        assert scores.chrf == pytest.approx(chrf, abs=1e-6)


def test_a_score_carries_its_signature() -> None:
    scores = score(["a"], ["a"])
    for signature in (scores.bleu_signature, scores.chrf_signature):
        assert signature.startswith("nrefs:1|case:mixed")
        assert signature in str(scores)


def test_bleu_of_short_translations_is_explained() -> None:
    words = ["nine", "forty-two"]
    short, long = score(words, words), score([*words, "two hundred nine thousand"], ["-"] * 3)
    assert not short.bleu_applies
    assert "BLEU 0.00 (no translation has BLEU's four words; see chrF)  nrefs" in str(short)
    assert long.bleu_applies
    assert "BLEU 0.00  nrefs" in str(long)


def test_any_translator_can_be_evaluated() -> None:
    pairs = [Pair("a b c d", "A B C D"), Pair("e f g h", "E F G H")]
    scores, translations = evaluate(lambda sources: [source.upper() for source in sources], pairs)
    assert translations == ["A B C D", "E F G H"]
    assert scores.pairs == 2
    assert scores.bleu == pytest.approx(100.0)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return learn_vocabulary(["a b c", "d e"], size=272, characters=20)


@pytest.mark.usefixtures("double")
def test_translations_come_in_the_order_of_the_sources(tokenizer: Tokenizer) -> None:
    model = make_model(vocabulary_size=272)
    sources = ["a b c d e", "a", "c b", "e e e a", "", "b"]
    alone = []
    for source in sources:
        ids = tokenizer.encode(source)
        rows = greedy(model, torch.tensor([ids]), torch.tensor([len(ids)]), 7)
        alone.append(tokenizer.decode(rows[0]))
    translate = TorchTranslator(model, tokenizer, max_decoding_length=7, batch_rows=2)
    assert translate(sources) == alone
    assert len(set(alone)) > 1
    assert translate([]) == []


def test_a_source_that_is_too_long_is_cut(tokenizer: Tokenizer) -> None:
    model = make_model(vocabulary_size=272, max_source_length=4)
    translate = TorchTranslator(model, tokenizer, max_decoding_length=5)
    assert translate(["a b c d e a b"]) == translate(["a b c"])


@pytest.fixture
def run_path(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    run, model = RunDirectory(tmp_path / "run"), make_model(vocabulary_size=272)
    run.path.mkdir()
    save_tokenizer(tokenizer, run.tokenizer)
    write_json(run.config, model.config.to_dict())
    write_tensors(run.result, named_weights(model))
    write_pairs(run.test, [Pair("a b", "b a"), Pair("c", "d"), Pair("e", "e")])
    return run.path


def test_the_command_scores_the_test_set_of_a_run(
    run_path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    translations = tmp_path / "out.txt"
    assert main([str(run_path), "--json", "--limit", "2", "--translations", str(translations)]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["pairs"] == 2
    assert len(translations.read_text(encoding="utf-8").splitlines()) == 2


def test_the_command_scores_other_data(
    run_path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = tmp_path / "other.tsv"
    data.write_text("x\tb a\ta b\n")
    columns = ["--source-column", "2", "--target-column", "1"]
    assert main([str(run_path), "--data", str(data), *columns]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("BLEU ")
    assert "chrF " in shown


def test_the_command_scores_an_artifact_and_closes_it(
    tiny_artifact: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data, before = tmp_path / "pairs.tsv", set(threading.enumerate())
    write_pairs(data, [Pair("The coffee tastes good.", "Der Kaffee schmeckt gut.")])
    assert main([str(tiny_artifact), "--data", str(data), "--threads", "2"]) == 0
    assert capsys.readouterr().out.startswith("BLEU ")
    assert not set(threading.enumerate()) - before


def test_an_artifact_searches_as_told(tiny_artifact: Path) -> None:
    sources = ["The coffee tastes good.", "Nobody paints the garden.", "a b"]
    found = []
    with local_engine.LocalEngine(tiny_artifact) as artifact:
        for size in (1, 4):
            options = DecodingOptions(max_decoding_length=20, beam_size=size, length_penalty=0.0)
            answers = artifact.decode([artifact.encode(source) for source in sources], options)
            found.append([artifact.tokenizer.decode(one.best.token_ids) for one in answers])
    assert found[0] != found[1]
    beam = EvaluateOptions(path=tiny_artifact, beam_size=4, length_penalty=0.0)
    with open_translator(beam) as translate:
        assert translate(sources) == found[1]


def test_a_server_translates_through_the_client(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = tmp_path / "pairs.tsv"
    write_pairs(data, [Pair("one two", "one two"), Pair("three", "three")])
    server = FakeServer()
    try:
        called = ["--target", server.target, "--model", "m", "--beam-size", "3"]
        assert main([*called, "--data", str(data)]) == 0
    finally:
        server.stop()
    assert "BLEU" in capsys.readouterr().out
    assert {request.source for request in server.requests} == {"one two", "three"}
    for request in server.requests:
        assert (request.model, request.options.beam_size) == ("m", 3)


def test_text_that_is_divided_already_is_divided_no_further() -> None:
    whole, divided = "It rains , today .", "It rains, today."
    assert score([divided], [whole]).bleu == pytest.approx(100.0)
    scores = score([divided], [whole], Tokenize.NONE)
    assert scores.bleu < 50
    assert "|tok:none|" in scores.bleu_signature


def test_threads_are_those_within_a_step_of_an_artifact(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def open_runtime(
        folder: Path, manifest: Manifest, provider: Provider, threads: int, **options: Any
    ) -> Runtime:
        asked.append(threads)
        return Runtime(folder, manifest, provider, threads, **options)

    monkeypatch.setattr(local_engine, "open_runtime", open_runtime)
    for threads in (None, 2):
        with open_translator(EvaluateOptions(path=tiny_artifact, threads=threads)) as translate:
            assert len(translate(["a"])) == 1
    assert asked == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: is neither a training run nor an artifact; make one with"),
        (["RUN", "--weights", "best"], "has no best weights"),
        (["RUN", "--device", "abacus"], "'abacus' cannot be used here"),
        (["RUN", "--data", "none.tsv"], "none.tsv: cannot be read"),
        (["RUN", "--limit", "0"], "less than 1"),
        (["RUN", "--threads", "0"], "less than 1"),
        (["RUN", "--beam-size", "4"], "--beam-size 4: a run is scored with greedy search"),
        (["RUN", "--length-penalty", "0.6"], "--length-penalty 0.6: a run is scored with greedy"),
        (["RUN", "--tokenize", "mine"], "is not one of 13a, none"),
        (["ARTIFACT"], "--data: an artifact has no test set"),
        (["ARTIFACT", "--data", "x.tsv", "--weights", "best"], "--weights: an artifact has only"),
        (["ARTIFACT", "--data", "x.tsv", "--device", "cuda"], "--device: an artifact is scored on"),
        ([], "--data: a server has no test set"),
        (["--data", "x.tsv", "--threads", "2"], "--threads: a server uses its own threads"),
    ],
)
def test_wrong_arguments(run_path: Path, arguments: list[str], message: str) -> None:
    artifact = run_path.with_name("artifact")
    artifact.mkdir()
    (artifact / "manifest.json").touch()
    places = {"RUN": str(run_path), "ARTIFACT": str(artifact)}
    with pytest.raises(OptionError, match=message):
        main([places.get(word, word) for word in arguments])


def test_a_device_that_is_there_is_found() -> None:
    assert torch_device("cpu").type == "cpu"
    with pytest.raises(OptionError, match="device"):
        torch_device("")
