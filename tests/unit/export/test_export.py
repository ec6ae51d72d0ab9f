"""``seqserve export`` from a run directory to an artifact that decodes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from seqserve.errors import OptionError
from seqserve_export.export import main
from seqserve_export.parity import ParityError
from seqserve_export.restore import restore
from seqserve_model.checkpoint import RunDirectory, named_weights, write_json, write_tensors
from seqserve_model.data import Pair, write_pairs
from seqserve_model.transformer import Transformer
from seqserve_server.manifest import Manifest
from seqserve_server.offline import Offline
from seqserve_server.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("traced_already", "as_before")


@pytest.fixture
def as_before() -> object:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run(
    tiny_model: Transformer, tiny_tokenizer: Tokenizer, pairs: list[Pair], tmp_path: Path
) -> Path:
    """A finished training, as ``seqserve train`` leaves it."""
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    write_json(run.config, tiny_model.config.to_dict())
    write_json(run.report, {"command": "seqserve train tiny.toml", "steps": 123})
    write_tensors(run.result, named_weights(tiny_model))
    tiny_tokenizer.save(run.tokenizer)
    write_pairs(run.test, pairs)
    return run.path


@pytest.fixture
def export(run: Path, tmp_path: Path) -> object:
    def call(*options: str) -> int:
        repository = tmp_path / "models"
        return main([str(run), "--name", "tiny", "--model-repository", str(repository), *options])

    return call


def test_run_becomes_a_proven_artifact(
    export, tmp_path: Path, pairs: list[Pair], capsys: pytest.CaptureFixture[str]
) -> None:
    assert export("--licence", "MIT", "--threads", "1", "--sentences", "20") == 0
    place = tmp_path / "models" / "tiny" / "1"
    output = capsys.readouterr().out
    assert "sentences equal       20 of 20" in output
    assert f"{place}: ready to serve" in output
    manifest = Manifest.load(place)
    assert manifest.licence == "MIT"
    assert manifest.provenance.command == "seqserve train tiny.toml"
    assert manifest.provenance.steps == 123
    assert manifest.verification is not None
    assert manifest.verification.data == "test.tsv"
    assert manifest.verification.sentences == 20
    assert manifest.verification.largest_logit_difference < 1e-4
    with Offline(place) as offline:
        assert len(offline([pairs[0].source])) == 1


def test_run_whose_weights_are_not_those_exported_is_refused(
    export, run: Path, tiny_model: Transformer, tmp_path: Path
) -> None:
    weights = {name: weight.clone() for name, weight in named_weights(tiny_model).items()}
    weights["encoder_norm.bias"] += 0.1
    write_tensors(RunDirectory(run).result, weights)
    with pytest.raises(ParityError, match="nothing was written"):
        export()
    assert not list((tmp_path / "models").iterdir())


def test_proof_without_sentences_is_refused(export, tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(OptionError, match=r"empty\.tsv: holds no pair"):
        export("--data", str(tmp_path / "empty.tsv"))


def test_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"config\.json: cannot be read"):
        main([str(tmp_path), "--name", "tiny"])


def test_weights_that_the_run_lacks_are_refused(export) -> None:
    with pytest.raises(OptionError, match="has no averaged weights"):
        export("--weights", "averaged")


def test_artifact_gives_the_model_back(tiny_artifact: Path, tiny_model: Transformer) -> None:
    restored = dict(restore(tiny_artifact).named_parameters())
    expected = dict(tiny_model.named_parameters())
    assert restored.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(restored[name], weight), name
