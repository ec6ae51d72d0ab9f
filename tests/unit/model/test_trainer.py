from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.rounding import assert_same
from tests.unit.model.conftest import make_config
from torch import Tensor
from torch.nn import functional as F

from seqserve_model.batches import Batch, Examples
from seqserve_model.checkpoint import RunDirectory
from seqserve_model.evaluate import score
from seqserve_model.parallel_text import number_pairs
from seqserve_model.recipe import Metric, Recipe
from seqserve_model.trainer import Corpora, End, Trainer, TrainingError, Validation, batch_loss
from seqserve_model.transformer import Transformer
from seqserve_model.vocabulary import learn_vocabulary

MakeTrainer = Callable[..., Trainer]


@pytest.fixture
def make_trainer(tmp_path: Path) -> MakeTrainer:
    def make(learning_rate: float = 1e-3, **training: Any) -> Trainer:
        pairs = list(number_pairs(60))
        texts = [text for pair in pairs for text in pair]
        tokenizer = learn_vocabulary(texts, size=320, characters=40)
        config = make_config(vocabulary_size=320, max_source_length=20, max_target_length=60)
        optimizer = {"learning_rate": learning_rate, "warmup_steps": 1}
        training = {"max_tokens": 300, "scored_pairs": 3, **training}
        data = {"path": "unused"}
        recipe = Recipe.from_dict({"data": data, "optimizer": optimizer, "training": training})
        torch.manual_seed(0)
        corpora = Corpora(
            training=Examples(pairs[10:], tokenizer, config),
            validation=Examples(pairs[:10], tokenizer, config),
            validation_pairs=pairs[:10],
        )
        run = RunDirectory(tmp_path / "run")
        return Trainer(recipe, Transformer(config), tokenizer, corpora, run)

    return make


def examples_of(trainer: Trainer) -> Examples:
    return trainer._corpora.training


@pytest.mark.usefixtures("double")
def test_the_loss_is_the_smoothed_cross_entropy_of_real_tokens(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer()
    model, batch = trainer.model.eval(), examples_of(trainer).batch([0, 1, 2])
    logits = model(batch.source, batch.source_lengths, batch.target_in)
    logs = F.log_softmax(logits, dim=-1)  # [B, T, V]
    expected = 0.0
    for row in range(3):
        for column, token in enumerate(batch.target_out[row].tolist()):
            if token != model.config.pad_id:
                likely, uniform = logs[row, column, token], logs[row, column].mean()
                expected -= (0.9 * likely + 0.1 * uniform).item()
    loss = batch_loss(model, batch, label_smoothing=0.1)
    assert loss.item() == pytest.approx(expected, rel=1e-10)


def test_a_loss_is_computed_where_the_weights_are(make_trainer: MakeTrainer) -> None:
    trainer, device = make_trainer(), torch.device("meta")
    batch = examples_of(trainer).batch([0, 1]).to(device)
    loss = batch_loss(trainer.model.to(device), batch, label_smoothing=0.1)
    torch.autograd.backward(loss)
    assert loss.device == device


@pytest.mark.usefixtures("double")
def test_accumulated_batches_step_as_one(make_trainer: MakeTrainer) -> None:
    whole, parts = make_trainer(), make_trainer()
    rows = [0, 1, 2, 3, 4, 5]
    loss = whole.step([examples_of(whole).batch(rows)])
    examples = examples_of(parts)
    assert_same(parts.step([examples.batch(rows[:2]), examples.batch(rows[2:])]), loss)
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        # The first moment is a share of the gradient; weights are not compared, because Adam
        # blows up rounding where the gradient is zero.
        mine = whole._optimizer.state[one]["exp_avg"]
        assert_same(mine, parts._optimizer.state[other]["exp_avg"])


def test_a_gradient_that_is_not_finite_stops_the_training(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer()
    with torch.no_grad():
        trainer.model.source_embedding.weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match=r"step 1: .*lower optimizer\.learning_rate"):
        trainer.train()
    assert not trainer.run.checkpoints()


def test_losses_that_are_seldom_read_are_read_before_a_checkpoint(
    make_trainer: MakeTrainer,
) -> None:
    trainer = make_trainer(max_steps=12, save_every=5)
    trainer._read_every = 10  # as on a GPU
    step = trainer.step

    def spoil(batches: Sequence[Batch]) -> Tensor:
        if trainer.state.step == 7:
            with torch.no_grad():
                trainer.model.source_embedding.weight[:, 0] = float("inf")
        return step(batches)

    trainer.step = spoil  # type: ignore[method-assign]
    with pytest.raises(TrainingError, match="step 10: "):
        trainer.train()
    assert [path.name for path in trainer.run.checkpoints()] == ["step-00000005"]


def test_patience_ends_a_training_that_no_longer_improves(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(
        learning_rate=0.0, max_steps=50, validate_every=1, patience=2, metric="loss"
    )
    assert trainer.train() is End.PATIENCE
    assert trainer.state.step == 3
    assert trainer.state.best_step == 1


def test_epochs_follow_each_other(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(max_steps=30, validate_every=1_000)
    assert trainer.train() is End.MAX_STEPS
    assert trainer.state.epoch >= 1
    assert trainer.state.target_tokens > int(examples_of(trainer).lengths[:, 1].sum())


@pytest.mark.parametrize(
    ("metric", "expected"), [(Metric.LOSS, -2.0), (Metric.BLEU, 100.0), (Metric.CHRF, 100.0)]
)
def test_more_is_better_by_every_metric(metric: Metric, expected: float) -> None:
    translations = ["a b c d"]
    scores = score(translations, translations)
    validation = Validation(loss=2.0, scores=scores, translations=translations)
    assert validation.by(metric) == pytest.approx(expected)
