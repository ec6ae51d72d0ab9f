import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.unit.model.conftest import make_model

from seqserve.errors import NotWritten, OptionError
from seqserve_model.checkpoint import (
    RunDirectory,
    TrainingState,
    average,
    load_run,
    named_weights,
    read_json,
    read_tensors,
    set_weights,
    write_json,
    write_tensors,
)
from seqserve_model.options import Weights
from seqserve_model.recipe import OptimizerRecipe
from seqserve_model.trainer import make_optimizer
from seqserve_model.transformer import Transformer
from seqserve_model.vocabulary import learn_vocabulary, save_tokenizer


def trained(model: Transformer, steps: int = 2) -> torch.optim.AdamW:
    optimizer = make_optimizer(model, OptimizerRecipe())
    for _ in range(steps):
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight)
        optimizer.step()
    return optimizer


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    model = make_model(shared_embeddings=True, tied_output=True)
    write_tensors(tmp_path / "a.safetensors", named_weights(model))
    tensors = read_tensors(tmp_path / "a.safetensors")
    assert sum(map(torch.numel, tensors.values())) == sum(map(torch.numel, model.parameters()))
    other = make_model(shared_embeddings=True, tied_output=True)
    torch.nn.init.zeros_(other.source_embedding.weight)
    set_weights(other, tmp_path / "a.safetensors")
    assert torch.equal(other.output_projection.weight, model.source_embedding.weight)


def test_a_checkpoint_restores_everything(tmp_path: Path) -> None:
    model, run = make_model(), RunDirectory(tmp_path)
    optimizer = trained(model)
    state = TrainingState(step=7, epoch=1, batch=3, best_score=1.5, seconds=2.5)
    run.save(state, model, optimizer, keep=2)
    drawn = torch.randn(4)

    other = make_model()
    other_optimizer = make_optimizer(other, OptimizerRecipe())
    assert run.restore(other, other_optimizer) == state
    assert torch.equal(torch.randn(4), drawn)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        for key, value in optimizer.state[mine].items():
            assert torch.equal(value, other_optimizer.state[theirs][key])


def test_a_run_without_checkpoints_begins_at_zero(tmp_path: Path) -> None:
    model = make_model()
    optimizer = make_optimizer(model, OptimizerRecipe())
    assert RunDirectory(tmp_path).restore(model, optimizer) == TrainingState()


def test_only_the_latest_whole_checkpoints_stay(tmp_path: Path) -> None:
    model, run = make_model(), RunDirectory(tmp_path)
    optimizer = trained(model)
    half = tmp_path / "checkpoints" / "step-00000009.tmp"
    half.mkdir(parents=True)
    for step in (1, 2, 10):
        run.save(TrainingState(step=step), model, optimizer, keep=2)
    assert [path.name for path in run.checkpoints()] == ["step-00000002", "step-00000010"]


def test_a_checkpoint_that_does_not_fit_on_the_disk_leaves_the_earlier_ones(tmp_path: Path) -> None:
    model, run = make_model(), RunDirectory(tmp_path)
    optimizer = trained(model)
    run.save(TrainingState(step=1), model, optimizer, keep=2)
    [first] = run.checkpoints()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Weights fit, the optimizer with its two moments does not.
    size = (first / "model.safetensors").stat().st_size + 1024
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with pytest.raises(NotWritten, match=r"step-00000002: cannot be written: .*too large"):
            run.save(TrainingState(step=2), model, optimizer, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(first.parent.iterdir()) == [first]
    assert run.restore(model, optimizer).step == 1


def test_the_average_is_the_mean(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.safetensors" for i in range(4)]
    for i, path in enumerate(paths):
        write_tensors(path, {"w": torch.full((2,), float(i)), "b": torch.tensor([1.0])})
    mean = average(paths)
    expected = {"w": torch.full((2,), 1.5), "b": torch.tensor([1.0])}
    torch.testing.assert_close(mean, expected, atol=0, rtol=0)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, named_weights(make_model()))
    with pytest.raises(OptionError, match=r"a\.safetensors: .*embedding.* does not fit"):
        set_weights(make_model(vocabulary_size=25), path)
    with pytest.raises(OptionError, match="does not fit"):
        set_weights(make_model(decoder_layers=1), path)


@pytest.mark.parametrize(
    ("read", "content"),
    [
        *((read_tensors, content) for content in (None, b"", b"not tensors at all")),
        *((read_json, content) for content in (None, b"{", b"[1]")),
    ],
)
def test_an_unreadable_file_is_named(
    tmp_path: Path, read: Callable[[Path], object], content: bytes | None
) -> None:
    path = tmp_path / "a.file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionError, match=r"a\.file: (cannot be read: |is not a JSON object)"):
        read(path)


def make_run(path: Path, model: Transformer) -> RunDirectory:
    run = RunDirectory(path)
    save_tokenizer(learn_vocabulary(["a b"], size=320, characters=9), run.tokenizer)
    write_json(run.config, model.config.to_dict())
    return run


def test_a_run_is_loaded_in_evaluation_mode(tmp_path: Path) -> None:
    model = make_model(vocabulary_size=320).train()
    run = make_run(tmp_path, model)
    write_tensors(run.result, named_weights(model))
    loaded, tokenizer = load_run(tmp_path)
    assert not loaded.training
    assert loaded.config == model.config
    assert tokenizer.vocabulary_size == 320
    for mine, theirs in zip(model.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"is not a training run; `seqserve train` makes one"):
        load_run(tmp_path)


def test_the_result_falls_back_to_what_is_there(tmp_path: Path) -> None:
    model = make_model(vocabulary_size=320)
    run = make_run(tmp_path, model)
    with pytest.raises(OptionError, match="has no result weights; train it first"):
        run.weights(Weights.RESULT)
    run.save(TrainingState(step=3), model, trained(model), keep=1)
    last = run.checkpoints()[-1] / "model.safetensors"
    assert run.weights(Weights.RESULT) == run.weights(Weights.LAST) == last
    write_tensors(run.best, named_weights(model))
    assert run.weights(Weights.RESULT) == run.weights(Weights.BEST) == run.best
    write_tensors(run.result, named_weights(model))
    assert run.weights(Weights.RESULT) == run.result
    with pytest.raises(OptionError, match="has no averaged weights"):
        run.weights(Weights.AVERAGED)


def test_json_is_readable_by_people(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"name": "Ä"})
    assert '"Ä"' in (tmp_path / "a.json").read_text(encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"name": "Ä"}
