"""The whole training, on numbers spelt in words: it learns, and it goes on where it was killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from tests.support.process import until

import seqserve_model.train
from seqserve.errors import OptionError
from seqserve_model.checkpoint import RunDirectory, load_run, read_tensors
from seqserve_model.command import train as main
from seqserve_model.data import Pair, Split, read_pairs, write_pairs
from seqserve_model.evaluate import TorchTranslator, evaluate
from seqserve_model.parallel_text import number_pairs

pytestmark = pytest.mark.slow

RECIPE = """
[model]
width = 32
heads = 2
feed_forward_width = 64
encoder_layers = 1
decoder_layers = 1
max_source_length = 16
max_target_length = 64

[vocabulary]
size = 320

[data]
path = "{data}"
validation_pairs = 20
test_pairs = 20

[optimizer]
learning_rate = 5e-3
warmup_steps = 20

[training]
max_steps = 30
max_tokens = 512
save_every = 15
validate_every = 15
scored_pairs = 10
"""

Train = Callable[..., int]
Change = Callable[[str, str], Path]
Start = Callable[[Path], subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    write_pairs(folder / "numbers.tsv", number_pairs(1_000))
    path = folder / "numbers.toml"
    path.write_text(RECIPE.format(data=folder / "numbers.tsv"))
    return path


@pytest.fixture(scope="module")
def train(recipe: Path) -> Train:
    """Trains to a folder, by the recipe if no other is named."""

    def run(out: Path, *arguments: str, recipe: Path = recipe) -> int:
        return main([str(recipe), "--out", str(out), "--threads", "1", *arguments])

    return run


@pytest.fixture(scope="module")
def finished(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    assert train(out) == 0
    return out


@pytest.fixture
def changed(recipe: Path, tmp_path: Path) -> Change:
    """Writes the recipe with a text in the place of another one."""

    def change(old: str, new: str) -> Path:
        path, text = tmp_path / "changed.toml", recipe.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        return path

    return change


def assert_equal_runs(one: Path, other: Path) -> None:
    for name in ("model.safetensors", "optimizer.safetensors"):
        mine = read_tensors(RunDirectory(one).checkpoints()[-1] / name)
        theirs = read_tensors(RunDirectory(other).checkpoints()[-1] / name)
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)


def test_a_run_leaves_all_that_serving_needs(finished: Path) -> None:
    run = RunDirectory(finished)
    for path in (run.config, run.tokenizer, run.recipe, run.best, run.averaged, run.result):
        assert path.is_file()
    report = json.loads(run.report.read_text())
    assert report["steps"] == 30
    assert report["command"].startswith("seqserve train ")
    assert report["target_tokens"] > 0
    assert report["validation"]["bleu_signature"]
    model, tokenizer = load_run(finished)
    pairs = read_pairs(run.test).pairs
    assert len(pairs) == 20
    scores, _ = evaluate(TorchTranslator(model, tokenizer, max_decoding_length=8), pairs)
    assert scores.pairs == 20


def test_a_run_from_before_a_key_was_there_goes_on(
    finished: Path, train: Train, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "old")
    shutil.copytree(finished, run.path)
    recipe = json.loads(run.recipe.read_text())
    for key in ("files", "augmented_path", "left_out_path", "validation_path", "test_path"):
        del recipe["data"][key]
    run.recipe.write_text(json.dumps(recipe))
    assert train(run.path, "--resume") == 0


def test_a_training_reads_files_of_its_own(
    recipe: Path, train: Train, changed: Change, tmp_path: Path
) -> None:
    numbers = list(number_pairs(300))
    parts = {"a": numbers[:200], "b": numbers[200:280], "valid": numbers[280:]}
    files = {name: str(tmp_path / f"{name}.tsv") for name in parts}
    for name, pairs in parts.items():
        write_pairs(Path(files[name]), pairs)
    data = f"""validation_path = "{files["valid"]}"
files = [{{ path = "{files["a"]}" }}, {{ path = "{files["b"]}", weight = 2.5 }}]"""
    mine = changed(f'path = "{recipe.parent / "numbers.tsv"}"', data)
    run = RunDirectory(tmp_path / "run")
    assert train(run.path, "--max-steps", "4", recipe=mine) == 0
    assert read_pairs(run.validation).pairs == parts["valid"]
    assert len(read_pairs(run.test).pairs) == 20
    assert json.loads(run.report.read_text())["data_sha256"].keys() == set(files.values())
    # A list that came from JSON is the list of the recipe.
    assert train(run.path, "--max-steps", "4", "--resume", recipe=mine) == 0


def test_a_training_can_start_from_another(
    finished: Path, train: Train, changed: Change, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    # A rate of nearly nothing leaves the weights where they were.
    begin = f'learning_rate = 1e-9\n[training]\nstart_from = "{finished}"'
    mine = changed("learning_rate = 5e-3\nwarmup_steps = 20\n\n[training]", begin)
    mine.write_text(mine.read_text().replace("size = 320", "size = 384"))
    assert train(run.path, "--max-steps", "2", recipe=mine) == 0
    assert run.tokenizer.read_bytes() == RunDirectory(finished).tokenizer.read_bytes()
    before = read_tensors(RunDirectory(finished).result)
    torch.testing.assert_close(read_tensors(run.result), before, atol=1e-6, rtol=1e-5)
    # What it began with is not needed to go on.
    mine.write_text(mine.read_text().replace(str(finished), str(tmp_path / "nowhere")))
    assert train(run.path, "--max-steps", "3", "--resume", recipe=mine) == 0


def test_a_training_starts_from_a_training_alone(
    train: Train, changed: Change, tmp_path: Path
) -> None:
    mine = changed("[training]", f'[training]\nstart_from = "{tmp_path}"')
    with pytest.raises(OptionError, match=r"tokenizer\.json: cannot be read"):
        train(tmp_path / "run", recipe=mine)


def test_equal_trainings_give_equal_weights(finished: Path, train: Train, tmp_path: Path) -> None:
    assert train(tmp_path / "again") == 0
    assert_equal_runs(finished, tmp_path / "again")


@pytest.fixture
def start(recipe: Path) -> Iterator[Start]:
    """Starts a training in its own process, ended with the test; waits for a checkpoint."""
    with ExitStack() as stack:

        def run(out: Path) -> subprocess.Popen[bytes]:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            command = [sys.executable, "-m", "seqserve", "train", str(recipe), "--out", str(out)]
            # More steps than it can do before a signal; only the decay, which is off, depends on
            # them.
            command += ["--threads", "1", "--max-steps", "100000"]
            output = subprocess.DEVNULL
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
            stack.callback(process.wait)
            stack.callback(process.kill)
            until(lambda: bool(RunDirectory(out).checkpoints()) or process.poll() is not None)
            assert process.poll() is None, "the training ended too early"
            return process

        yield run


def test_a_killed_training_goes_on_bit_for_bit(
    finished: Path, train: Train, start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    process = start(out)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = RunDirectory(out).checkpoints()
    for late in kept[1:]:
        shutil.rmtree(late)
    assert kept[0].name == "step-00000015"

    assert train(out, "--resume") == 0
    assert_equal_runs(finished, out)


def test_a_terminated_training_saves_where_it_stands(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "terminated"
    process = start(out)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    last = RunDirectory(out).checkpoints()[-1]
    assert int(last.name.removeprefix("step-")) > 15


def test_a_time_limit_ends_cleanly_and_can_be_resumed(
    finished: Path, train: Train, tmp_path: Path
) -> None:
    out = tmp_path / "limited"
    assert train(out, "--time-limit-s", "0.01") == 0
    assert len(RunDirectory(out).checkpoints()) == 1
    assert not RunDirectory(out).result.exists()
    assert train(out, "--resume") == 0
    assert_equal_runs(finished, out)


def test_it_learns(train: Train, tmp_path: Path) -> None:
    out = tmp_path / "learnt"
    assert train(out, "--max-steps", "250") == 0
    validation = json.loads(RunDirectory(out).report.read_text())["validation"]
    # Untrained it is log(320) = 5.8; knowing how often each word comes, and no more, about 3.
    assert validation["loss"] < 1.5


def test_a_run_is_never_overwritten_by_accident(finished: Path, train: Train) -> None:
    with pytest.raises(OptionError, match="--resume continues it, --fresh removes it"):
        train(finished)


def test_fresh_begins_anew(train: Train, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(out, "--max-steps", "2") == 0
    assert train(out, "--max-steps", "1", "--fresh") == 0
    assert [path.name for path in RunDirectory(out).checkpoints()] == ["step-00000001"]


def test_fresh_removes_only_trainings(train: Train, tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("x")
    with pytest.raises(OptionError, match="has files of something else"):
        train(tmp_path, "--fresh")
    assert (tmp_path / "thesis.doc").exists()


def test_resuming_another_model_is_refused(finished: Path, train: Train, changed: Change) -> None:
    with pytest.raises(OptionError, match=r"began with model\.width = 32, the recipe has 64"):
        train(finished, "--resume", recipe=changed("width = 32", "width = 64"))


@pytest.mark.parametrize(
    ("value", "wrong", "message"),
    [
        ('path = "', 'path = "nowhere/', "cannot be read"),
        ("size = 320", "size = 261", "raise vocabulary.size"),
        ("max_source_length = 16", "max_source_length = 1", "pairs to train on is too long"),
        ("validation_pairs = 20", "validation_pairs = 2000", "data.validation_pairs"),
    ],
)
def test_what_does_not_fit_is_mended_without_clearing_up(
    train: Train, changed: Change, tmp_path: Path, value: str, wrong: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        train(tmp_path / "run", recipe=changed(value, wrong))
    assert not (tmp_path / "run").exists()


def test_validation_needs_pairs_that_are_short_enough(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hold_out_long_ones(*_: object, **__: object) -> Split:
        short, long = Pair("1", "one"), Pair("1 " * 20, "one")
        return Split(training=[short], validation=[long], test=[short])

    monkeypatch.setattr(seqserve_model.train, "read_split", hold_out_long_ones)
    with pytest.raises(OptionError, match="each of the 1 pairs to validate on is too long"):
        train(tmp_path / "run")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume", "--fresh"], "exclude each other"),
        (["--device", "abacus"], "'abacus' cannot be used here"),
        (["--max-steps", "0"], "less than 1"),
    ],
)
def test_wrong_arguments(train: Train, tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        train(tmp_path / "run", *arguments)
