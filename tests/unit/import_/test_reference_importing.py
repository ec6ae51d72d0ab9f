import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.unit.import_.conftest import MARIAN_SEED, CopyCheckpoint, MakeCheckpoint, change_json

from seqserve.errors import OptionError, SeqserveError
from seqserve_export import artifact, pipeline
from seqserve_export.restore import restore
from seqserve_export.tolerance import ParityError
from seqserve_import import loading
from seqserve_import.checkpoint import Checkpoint
from seqserve_import.command import main
from seqserve_import.loading import load
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import Template
from seqserve_server.engine.local_engine import LocalEngine

SENTENCES = "t20 t21 t22\tt5 t6\nt40 t41\tt7\n\nt50\tt8 t9\n"


@pytest.fixture(scope="module")
def folder(make_checkpoint: MakeCheckpoint) -> Path:
    return make_checkpoint("marian", MARIAN_SEED)[1]


@pytest.fixture
def other(copy_checkpoint: CopyCheckpoint) -> Path:
    return copy_checkpoint("marian", MARIAN_SEED)


@pytest.fixture
def again(
    folder: Path, imported_marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Manifest]:
    """Imports once more, by the graphs at hand, which saves tracing them again."""

    def copy(model: object, place: Path) -> list[str]:
        names = [*(file.name for file in imported_marian.glob("*.onnx")), "weights.bin"]
        for name in names:
            shutil.copy(imported_marian / name, place)
        return names

    monkeypatch.setattr(artifact, "write_graphs", copy)

    def run(*options: str, checkpoint: Path = folder) -> Manifest:
        place = tmp_path / "models"
        arguments = ["--name", "again", "--model-repository", str(place), "--threads", "1"]
        assert main([str(checkpoint), *arguments, *options]) == 0
        return Manifest.load(place / "again" / "1")

    return run


pytestmark = pytest.mark.slow


def test_the_manifest_tells_what_was_imported_and_proved(
    imported_marian: Path, folder: Path
) -> None:
    manifest = Manifest.load(imported_marian)
    config = load(Checkpoint(folder)).model.config
    assert manifest.architecture.config == config.to_dict()
    assert (manifest.tokens.bos, manifest.tokens.eos, manifest.tokens.unk) == (95, 0, 3)
    assert (manifest.limits.max_source_length, manifest.limits.max_target_length) == (24, 23)
    assert manifest.provenance.command == f"seqserve import marian-{MARIAN_SEED}"
    assert manifest.description.startswith("marian, ")
    assert manifest.licence == "MIT"
    proof = manifest.verification
    assert proof is not None
    assert proof.sentences == proof.sentences_equal > 30
    assert proof.tokens > 100
    assert 0 < proof.max_logprob_difference < 1e-4
    assert proof.data == "written by the model"
    assert proof.bleu_torch is None
    assert (manifest.template, manifest.generation) == (None, {"early_stopping": "false"})


def test_the_artifact_gives_the_model_back(imported_marian: Path, folder: Path) -> None:
    expected = load(Checkpoint(folder)).model.state_dict()
    torch.testing.assert_close(restore(imported_marian).state_dict(), expected, atol=0, rtol=0)


def test_the_artifact_serves_text(imported_marian: Path) -> None:
    with LocalEngine(imported_marian) as engine:
        [text] = engine(["t20 t21 t22"])
        assert text.split()[0].startswith("t")
        assert engine.runtime.can_score


def test_sentences_with_references_are_scored(
    again: Callable[..., Manifest], tmp_path: Path
) -> None:
    (tmp_path / "held-out.tsv").write_text(SENTENCES)
    proof = again("--data", str(tmp_path / "held-out.tsv")).verification
    assert proof is not None
    assert (proof.data, proof.sentences) == ("held-out.tsv", 3)
    assert proof.bleu_torch == proof.bleu_artifact is not None


def test_sentences_without_references_will_do(
    again: Callable[..., Manifest], tmp_path: Path
) -> None:
    (tmp_path / "lines.txt").write_text("t20 t21 t22\nt40 t41\n")
    manifest = again("--data", str(tmp_path / "lines.txt"), "--recommend", "beam_size=3")
    proof = manifest.verification
    assert proof is not None
    assert (proof.sentences, proof.chrf_torch) == (2, None)
    assert manifest.generation == {"beam_size": 3, "early_stopping": "false"}


def test_a_changed_weight(again: Callable[..., Manifest], other: Path, tmp_path: Path) -> None:
    weights = load_file(other / "model.safetensors")
    bias = weights["model.decoder.layers.0.fc1.bias"]
    bias += torch.linspace(-0.5, 0.5, 40)[: len(bias)]
    save_file(weights, other / "model.safetensors")
    with pytest.raises(ParityError, match="nothing was written"):
        again("--sentences", "30", checkpoint=other)
    assert not list((tmp_path / "models").iterdir())


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (Template(target_prefix=["▁none"]), "tokenizer.json has no token '▁none'"),
        (Template(source_prefix=["▁t7"] * 30), "source: "),
    ],
)
def test_an_artifact_that_does_not_serve_is_not_written(
    again: Callable[..., Manifest],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    template: Template,
    message: str,
) -> None:
    monkeypatch.setattr(loading, "template_of", lambda *arguments: template)
    with pytest.raises(SeqserveError, match=message):
        again("--sentences", "8")
    assert not list((tmp_path / "models").iterdir())


@pytest.mark.parity
def test_a_checkpoint_can_be_imported_in_eight_bits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Random weights lose more by rounding than the tolerance.
    monkeypatch.setattr(pipeline, "check_tolerance", lambda verification, precision: None)
    options = ["--name", "opus", "--precision", "int8", "--threads", "1", "--sentences", "40"]
    options += ["--caches", "int8", "--model-repository", str(tmp_path)]
    assert main([str(folder), *options]) == 0
    manifest = Manifest.load(tmp_path / "opus" / "1")
    assert manifest.precision == "int8"
    assert manifest.quantization is not None and manifest.quantization.caches == "int8"
    proof = manifest.verification
    assert proof is not None
    assert proof.max_logprob_difference < 0.5
    assert 0.8 < proof.top1_agreement < 1.0
    assert proof.sentences_equal > 0.9 * proof.sentences


@pytest.mark.parametrize("content", [None, "", "\n \n"])
def test_data_without_sentences_is_refused(
    again: Callable[..., Manifest], tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "sentences.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(OptionError, match=r"--data: .*sentences\.txt:? (cannot be read|holds no)"):
        again("--data", str(path))


def test_chosen_options(again: Callable[..., Manifest], other: Path) -> None:
    # Not read, as in generate(), beside a file of its own for generation.
    change_json(other / "config.json", early_stopping=True)
    chosen = {"num_beams": 5, "length_penalty": -0.8, "bad_words_ids": [[95], [20, 21]]}
    others = {"forced_bos_token_id": 7, "transformers_version": "5", "max_length": 20}
    (other / "generation_config.json").write_text(json.dumps(chosen | others))
    manifest = again(checkpoint=other)
    assert manifest.generation == {
        "beam_size": 5,
        "early_stopping": "false",
        "length_penalty": -0.8,
        "max_decoding_length": 19,
        "suppress_sequences": [{"tokens": ["▁t20", "▁t21"]}],
    }
    assert manifest.template == Template(target_prefix=["▁t7"])


def test_tokens_are_excluded_as_in_generate(folder: Path, other: Path) -> None:
    before = load(Checkpoint(folder)).suppressed
    config = {"bad_words_ids": [[30]], "suppress_tokens": [31], "forced_bos_token_id": 32}
    config |= json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config))
    # The end token and tokens that the model does not have.
    chosen = {"bad_words_ids": [[0], [], [95], [999]], "suppress_tokens": [-1, 40, 999]}
    (other / "generation_config.json").write_text(json.dumps(chosen))
    loaded = load(Checkpoint(other))
    assert loaded.suppressed == sorted([40, *before])
    assert loaded.template is None


def test_what_is_not_taken_over_is_named_and_tokens_are_compared(
    again: Callable[..., Manifest], other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_json(other / "generation_config.json", do_sample=True, prefix="to English: ")
    (tmp_path / "lines.txt").write_text("t20 t21 t22\nt40 t41\n")
    again("--data", str(tmp_path / "lines.txt"), checkpoint=other)
    lines = capsys.readouterr().out.splitlines()
    assert "not taken over        do_sample, prefix" in lines
    assert "tokens equal          2 of 2, divided by SentencePiece" in lines


def test_languages_that_the_family_has_no_place_for_are_named(other: Path) -> None:
    (other / "added_tokens.json").write_text('{"en_XX": 96}')
    assert "not used as languages en_XX" in load(Checkpoint(other)).notes
