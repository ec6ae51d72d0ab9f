import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.tiny import SENTENCES

from seqserve.errors import OptionError
from seqserve_export import pipeline
from seqserve_export.command import main
from seqserve_export.restore import restore
from seqserve_export.tolerance import TOLERANCES, ParityError
from seqserve_model.checkpoint import RunDirectory, named_weights, write_json, write_tensors
from seqserve_model.data import Pair, write_pairs
from seqserve_model.transformer import Transformer
from seqserve_model.vocabulary import save_tokenizer
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import Verification
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.text.tokenizer import Tokenizer

Export = Callable[..., int]

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
    write_json(run.report, {"command": "seqserve train tiny.toml", "commit": "abc", "steps": 123})
    write_tensors(run.result, named_weights(tiny_model))
    save_tokenizer(tiny_tokenizer, run.tokenizer)
    write_pairs(run.test, pairs)
    too_long = "a far too long sentence " * 20
    write_pairs(run.validation, [Pair(source, "-") for source in (too_long, *SENTENCES)])
    return run.path


@pytest.fixture
def export(run: Path, tmp_path: Path) -> Callable[..., int]:
    def call(*options: str) -> int:
        repository = tmp_path / "models"
        return main([str(run), "--name", "tiny", "--model-repository", str(repository), *options])

    return call


def test_run_becomes_a_proven_artifact(
    export: Export, tmp_path: Path, pairs: list[Pair], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--licence", "MIT", "--threads", "1", "--sentences", "20"]
    options += ["--recommend", "beam_size=4", "--recommend", "segmentation=lines"]
    assert export(*options) == 0
    place = tmp_path / "models" / "tiny" / "1"
    output, stages = capsys.readouterr()
    assert "seqserve: tiny/1: writing ONNX graphs\n" in stages
    assert "seqserve: torch and the artifact decode 20 sentences\n" in stages
    assert "sentences equal       20 of 20" in output
    assert f"{place} (fp32, 0." in output
    assert " MB): ready to serve; try: seqserve serve --model-repository " in output
    assert output.endswith(" --default-model tiny\n")
    manifest = Manifest.load(place)
    assert manifest.licence == "MIT"
    assert manifest.generation == {"beam_size": 4, "segmentation": "lines"}
    provenance, proof = manifest.provenance, manifest.verification
    trained = (provenance.command, provenance.commit, provenance.steps)
    assert trained == ("seqserve train tiny.toml", "abc", 123)
    assert proof is not None
    assert (proof.data, proof.sentences) == ("test.tsv", 20)
    assert proof.max_logprob_difference < 1e-4
    assert manifest.self_test is not None
    assert manifest.self_test.source in [pair.source for pair in pairs[:20]]
    with LocalEngine(place) as offline:
        assert offline([manifest.self_test.source]) == [manifest.self_test.target]


@pytest.fixture
def near_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    """With random weights many tokens nearly tie, so rounding changes some choices."""
    for precision in ("fp16", "int8"):
        bound = dataclasses.replace(TOLERANCES[precision], equal_share=0.8, top1_agreement=0.85)
        monkeypatch.setitem(TOLERANCES, precision, bound)


@pytest.mark.usefixtures("near_ties")
@pytest.mark.parametrize(
    ("precision", "least", "most"),
    [
        # More than fp32 differs by, so it was halved, and no more than what was proven.
        ("fp16", 1e-4, TOLERANCES["fp16"].logprob_difference),
        # So it was rounded by the very scales that calibration on the run's validation set gives.
        ("int8", 0.0, 1e-3),
    ],
)
def test_run_becomes_a_proven_artifact_of_less_precision(
    export: Export, tmp_path: Path, pairs: list[Pair], precision: str, least: float, most: float
) -> None:
    assert export("--threads", "1", "--precision", precision, "--sentences", "20") == 0
    place = tmp_path / "models" / "tiny" / "1"
    manifest = Manifest.load(place)
    assert manifest.precision == precision
    assert (manifest.quantization is None) == (precision == "fp16")
    verification = manifest.verification
    assert verification is not None
    assert (verification.data, verification.sentences) == ("test.tsv", 20)
    assert least < verification.max_logprob_difference < most
    if precision == "int8":
        assert verification.sentences_equal == 20
        assert 0.85 < verification.top1_agreement < 1
    with LocalEngine(place) as offline:
        assert len(offline([pairs[0].source])) == 1


def test_integers_that_cost_too_much_are_refused(export: Export, tmp_path: Path) -> None:
    message = r"top-1 agreement is 0\.9\d*, at least 0\.97 is allowed for int8; nothing was written"
    with pytest.raises(ParityError, match=message):
        export("--threads", "1", "--precision", "int8")
    assert not list((tmp_path / "models").iterdir())


@pytest.mark.parametrize(
    "options",
    [["--scales", "row"], ["--caches", "int8"], ["--calibration-sentences", "3"]],
    ids=lambda options: options[0],
)
def test_model_is_rounded_as_the_options_say(
    export: Export, tmp_path: Path, options: list[str]
) -> None:
    """The graphs at hand were traced without them, and so are not those of this model."""
    reported: list[Verification] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "report", reported.append)
        patch.setattr(pipeline, "check_tolerance", lambda verification, precision: None)
        export("--threads", "1", "--precision", "int8", *options)
    assert reported[0].max_logprob_difference > 1e-2


def test_sentences_of_calibration_may_come_from_elsewhere(export: Export, tmp_path: Path) -> None:
    calibration = ["--calibration", str(tmp_path / "elsewhere.tsv")]
    with pytest.raises(OptionError, match=r"elsewhere\.tsv"):
        export("--threads", "1", "--precision", "int8", *calibration)


def test_run_whose_weights_are_not_those_exported_is_refused(
    export: Export, run: Path, tiny_model: Transformer, tmp_path: Path
) -> None:
    name = "decoder_layers.0.cross_attention.output.bias"
    weights = {**named_weights(tiny_model), name: tiny_model.get_parameter(name).clone()}
    weights[name][3] += 0.05
    write_tensors(RunDirectory(run).result, weights)
    with pytest.raises(
        ParityError, match=r"max log-probability difference is 0.*nothing was written"
    ):
        export("--threads", "1")
    assert not list((tmp_path / "models").iterdir())


def test_proof_without_sentences_is_refused(export: Export, tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(OptionError, match=r"empty\.tsv: holds no pair"):
        export("--data", str(tmp_path / "empty.tsv"))


def test_a_place_that_cannot_be_is_refused_before_the_run_is_read(tmp_path: Path) -> None:
    (tmp_path / "models" / "tiny" / "1").mkdir(parents=True)
    argv = [str(tmp_path / "nowhere"), "--model-repository", str(tmp_path / "models"), "--name"]
    for name, reason in {"tiny": "exists already", "../tiny": "is not a model name"}.items():
        with pytest.raises(OptionError, match=reason):
            main([*argv, name])


def test_weights_that_the_run_lacks_are_refused(export: Export) -> None:
    with pytest.raises(OptionError, match="has no averaged weights"):
        export("--weights", "averaged")


@pytest.mark.parametrize("name", ["tiny", "tiny_ssru"])
def test_artifact_gives_the_model_back(request: pytest.FixtureRequest, name: str) -> None:
    restored = restore(request.getfixturevalue(f"{name}_artifact")).state_dict()
    expected = request.getfixturevalue(f"{name}_model").state_dict()
    torch.testing.assert_close(restored, expected, atol=0, rtol=0)


def test_an_artifact_of_int8_gives_its_rounded_weights_back(
    tiny_int8_artifact: Path, tiny_model: Transformer
) -> None:
    restored = dict(restore(tiny_int8_artifact).named_parameters())
    for name, weight in tiny_model.named_parameters():
        # A step of the integers is at most this part of the largest sum of two neighbours.
        step = 2 * weight.abs().max() / 127
        assert (restored[name] - weight).abs().max() <= step, name
        assert weight.dim() < 2 or not torch.equal(restored[name], weight), name


def test_languages_are_those_of_the_recipe_under_those_of_the_options(
    run: Path, export: Export
) -> None:
    recipe = {"data": {"path": "a.tsv"}, "languages": {"source": "en", "target": "de"}}
    write_json(RunDirectory(run).recipe, recipe)
    assert export("--target-language", "fr") == 0
    template = Manifest.load(run.parent / "models" / "tiny" / "1").template
    assert template is not None
    assert (list(template.source_languages), list(template.target_languages)) == (["en"], ["fr"])
