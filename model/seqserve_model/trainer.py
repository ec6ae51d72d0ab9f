"""The training loop: steps, validations and checkpoints, in an order that can be resumed exactly.

Source: Vaswani et al. 2017, §5 (batches, optimizer, schedule, regularisation) and §6.1 (averaging).
"""

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor
from torch.nn import functional as F

from seqserve.errors import SeqserveError
from seqserve_model.batches import Batch, Examples, epoch_order
from seqserve_model.checkpoint import (
    RunDirectory,
    average,
    named_weights,
    set_weights,
    write_tensors,
)
from seqserve_model.data import Pair
from seqserve_model.evaluate import Scores, TorchTranslator, evaluate
from seqserve_model.progress import Progress
from seqserve_model.recipe import Metric, OptimizerRecipe, Precision, Recipe
from seqserve_model.transformer import Transformer
from seqserve_server.text.tokenizer import Tokenizer


class TrainingError(SeqserveError):
    """The training cannot go on, such as when the loss is no longer a number."""


class End(Enum):
    """Why a training ended."""

    MAX_STEPS = "max_steps"
    PATIENCE = "patience"
    TIME_LIMIT = "time_limit"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """How the model does on held-out pairs."""

    loss: float
    """Negative log-likelihood of a target token, in nats, without label smoothing."""
    scores: Scores
    translations: Sequence[str]
    """Translations of the first scored pairs, in their order."""

    def by(self, metric: Metric) -> float:
        """Returns the value of a metric, negated if lower is better."""
        scores = {Metric.CHRF: self.scores.chrf, Metric.BLEU: self.scores.bleu}
        return scores.get(metric, -self.loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpora:
    """The data of a training run."""

    training: Examples
    validation: Examples
    validation_pairs: Sequence[Pair]


class Trainer:
    """Trains one model, from the last checkpoint of its run directory."""

    def __init__(
        self,
        recipe: Recipe,
        model: Transformer,
        tokenizer: Tokenizer,
        corpora: Corpora,
        run: RunDirectory,
    ) -> None:
        """Restores the last checkpoint of the run; the model is on the device to train on."""
        self.recipe = recipe
        self.model = model
        self.run = run
        self.stop = False
        self._tokenizer = tokenizer
        self._corpora = corpora
        self._device = next(model.parameters()).device
        # A GPU has the next steps waiting meanwhile.
        self._read_every = 1 if self._device.type == "cpu" else 10
        self._optimizer = make_optimizer(model, recipe.optimizer)
        self.state = run.restore(model, self._optimizer)

    def train(self, time_limit_s: float | None = None) -> End:
        """Trains until the recipe ends or ``stop`` is set, and saves a checkpoint."""
        training, state = self.recipe.training, self.state
        progress = Progress(self.run.log, step=state.step, max_steps=training.max_steps)
        begun, seconds = time.monotonic(), state.seconds
        batches, unshown = self._batches(), 0
        end = self._end(0.0, time_limit_s)
        try:
            while end is None:
                chosen = list(itertools.islice(batches, training.accumulate))
                loss = self.step(chosen)
                tokens = sum(batch.target_tokens for batch in chosen)
                state.target_tokens += tokens
                unshown += tokens
                if state.step % self._read_every == 0:
                    progress.step(
                        state.step,
                        loss=self._number(loss),
                        rate=self._rate(state.step),
                        target_tokens=unshown,
                    )
                    unshown = 0
                if state.step % training.validate_every == 0:
                    self._judge(self.validate(), progress)
                state.seconds = seconds + time.monotonic() - begun
                end = self._end(time.monotonic() - begun, time_limit_s)
                if end or state.step % training.save_every == 0:
                    self._number(loss)
                    self.run.save(state, self.model, self._optimizer, training.keep)
        finally:
            progress.close()
        return end

    def step(self, batches: Sequence[Batch]) -> Tensor:
        """Updates the weights once from some batches; gives the smoothed loss of a target token.

        The loss, ``[]``, is not a number where the gradient is not finite. It is on the device, and
        nothing here waits for it.
        """
        optimizer, number = self.recipe.optimizer, self.state.step + 1
        self.model.train()
        tokens = sum(batch.target_tokens for batch in batches)
        total = torch.zeros((), device=self._device)
        for batch in batches:
            loss = self._loss(batch, optimizer.label_smoothing) / tokens
            torch.autograd.backward(loss)
            total = total + loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(
            self.model.parameters(), optimizer.clip_norm or math.inf
        )
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate(number)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.state.step = number
        return torch.where(norm.isfinite(), total, math.nan)

    @torch.no_grad()
    def validate(self) -> Validation:
        """Computes loss and scores on the validation pairs."""
        self.model.eval()
        training, examples = self.recipe.training, self._corpora.validation
        total, tokens = 0.0, 0
        for rows in epoch_order(examples.lengths, max_tokens=training.max_tokens, seed=0, epoch=0):
            batch = examples.batch(rows)
            total += self._loss(batch, 0.0).item()
            tokens += batch.target_tokens
        translate = TorchTranslator(
            self.model, self._tokenizer, max_decoding_length=training.max_decoding_length
        )
        pairs = self._corpora.validation_pairs[: training.scored_pairs]
        scores, translations = evaluate(translate, pairs)
        return Validation(loss=total / tokens, scores=scores, translations=translations)

    def finish(self) -> Validation:
        """Averages the last checkpoints and keeps the better of their mean and the best.

        The model then has the weights of the result, whose validation is returned.
        """
        metric = self.recipe.training.metric
        last = self.run.checkpoints()[-self.recipe.training.average :]
        write_tensors(self.run.averaged, average([path / "model.safetensors" for path in last]))
        candidates = [path for path in (self.run.averaged, self.run.best) if path.exists()]
        validations = {}
        for path in candidates:
            set_weights(self.model, path)
            validations[path] = self.validate()
        best = max(candidates, key=lambda path: validations[path].by(metric))
        set_weights(self.model, best)
        write_tensors(self.run.result, named_weights(self.model))
        return validations[best]

    def _batches(self) -> Iterator[Batch]:
        state, training = self.state, self.recipe.training
        examples = self._corpora.training
        while True:
            order = epoch_order(
                examples.lengths,
                max_tokens=training.max_tokens,
                seed=training.seed,
                epoch=state.epoch,
                weights=examples.weights,
            )
            while state.batch < len(order):
                state.batch += 1
                yield examples.batch(order[state.batch - 1])
            state.epoch, state.batch = state.epoch + 1, 0

    def _number(self, loss: Tensor) -> float:
        """Reads a loss, which waits for the device."""
        if math.isfinite(number := loss.item()):
            return number
        raise TrainingError(
            f"step {self.state.step}: the gradient is not finite; lower optimizer.learning_rate "
            "and go on from the last checkpoint with --resume"
        )

    def _judge(self, validation: Validation, progress: Progress) -> None:
        state, value = self.state, validation.by(self.recipe.training.metric)
        scores = validation.scores
        progress.scalars(
            state.step,
            {"valid/loss": validation.loss, "valid/bleu": scores.bleu, "valid/chrf": scores.chrf},
        )
        progress.line(
            f"step {state.step:,}  epoch {state.epoch}  validation loss {validation.loss:.3f}  "
            f"BLEU {scores.bleu:.2f}  chrF {scores.chrf:.2f}"
        )
        samples = zip(self._corpora.validation_pairs, validation.translations[:3], strict=False)
        for pair, sample in samples:
            progress.line(f"    {pair.source}\n      → {sample}\n      = {pair.target}")
        state.validations_since_best += 1
        if state.best_score is None or value > state.best_score:
            state.best_score, state.best_step, state.validations_since_best = value, state.step, 0
            write_tensors(self.run.best, named_weights(self.model))

    def _end(self, elapsed_s: float, time_limit_s: float | None) -> End | None:
        training, state = self.recipe.training, self.state
        if state.step >= training.max_steps:
            return End.MAX_STEPS
        if training.patience and state.validations_since_best >= training.patience:
            return End.PATIENCE
        if self.stop:
            return End.STOPPED
        if time_limit_s is not None and elapsed_s >= time_limit_s:
            return End.TIME_LIMIT
        return None

    def _rate(self, step: int) -> float:
        return self.recipe.optimizer.rate(step, max_steps=self.recipe.training.max_steps)

    def _loss(self, batch: Batch, label_smoothing: float) -> Tensor:
        is_bf16 = self.recipe.training.precision is Precision.BF16
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=is_bf16):
            batch = batch.to(self._device)
            return batch_loss(self.model, batch, label_smoothing=label_smoothing)


def batch_loss(model: Transformer, batch: Batch, *, label_smoothing: float) -> Tensor:
    """Computes the loss of a batch, a scalar in nats, summed over its target tokens.

    It is cross-entropy. ``label_smoothing`` is the probability that is spread over all tokens
    (Szegedy et al. 2016, §7); 0 gives the plain negative log-likelihood.
    """
    logits = model(batch.source, batch.source_lengths, batch.target_in)  # [B, T, V]
    # To drop the padding, a hundredth of the tokens, a GPU would first have to count it.
    return F.cross_entropy(
        logits.flatten(0, 1),
        batch.target_out.flatten(),
        ignore_index=model.config.pad_id,
        label_smoothing=label_smoothing,
        reduction="sum",
    )


def make_optimizer(model: Transformer, recipe: OptimizerRecipe) -> torch.optim.AdamW:
    """Makes AdamW with weight decay on matrices only, not on biases and norms."""
    weights = list(model.parameters())
    return torch.optim.AdamW(
        [
            {"params": [w for w in weights if w.dim() > 1], "weight_decay": recipe.weight_decay},
            {"params": [w for w in weights if w.dim() <= 1], "weight_decay": 0.0},
        ],
        lr=recipe.learning_rate,
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.epsilon,
        fused=True,
    )
