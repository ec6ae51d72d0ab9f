"""``seqserve train``: from a recipe and parallel text to a trained model.

Deterministic on one machine: equal recipes, data and thread counts give equal weights, also when
the training was killed and resumed in between.
"""

import contextlib
import dataclasses
import hashlib
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from seqserve.errors import OptionError
from seqserve_model.batches import Examples, weighted_rows
from seqserve_model.checkpoint import (
    RunDirectory,
    current_commit,
    read_json,
    set_weights,
    write_json,
)
from seqserve_model.config import TransformerConfig
from seqserve_model.cpu import keep_freed_memory, use_byte_dropout
from seqserve_model.data import Split, write_pairs
from seqserve_model.evaluate import torch_device
from seqserve_model.options import TrainOptions, Weights
from seqserve_model.parallel_text import read_split
from seqserve_model.recipe import Recipe
from seqserve_model.trainer import Corpora, End, Trainer
from seqserve_model.transformer import Transformer
from seqserve_model.vocabulary import learn_vocabulary, save_tokenizer
from seqserve_server.text.tokenizer import Tokenizer


def train(options: TrainOptions, *, command: str) -> End:
    """Trains, and writes the result, with the command line, where the training came to its end.

    Raises:
        OptionError: The recipe, the data or the run directory do not fit.
        TrainingError: The training broke down.
    """
    device = torch_device(options.device)
    if device.type == "cpu":
        keep_freed_memory()
    if options.threads:
        torch.set_num_threads(options.threads)
    recipe = Recipe.load(options.recipe)
    if options.max_steps is not None:
        training = dataclasses.replace(recipe.training, max_steps=options.max_steps)
        recipe = dataclasses.replace(recipe, training=training)
    run = _find_run(options, recipe)
    tokenizer, corpora = prepare_data(recipe, run)
    torch.manual_seed(recipe.training.seed)
    model = Transformer(_model_config(recipe, tokenizer))
    if recipe.training.start_from and not run.checkpoints():
        start = RunDirectory(Path(recipe.training.start_from))
        set_weights(model, start.weights(Weights.RESULT))
    if device.type == "cpu":
        use_byte_dropout(model)
    write_json(run.config, model.config.to_dict())
    trainer = Trainer(recipe, model.to(device), tokenizer, corpora, run)
    threads = torch.get_num_threads()
    _say(
        f"{sum(weight.numel() for weight in model.parameters()):,} weights, "
        f"{threads} {'thread' if threads == 1 else 'threads'} on {device}, "
        f"from step {trainer.state.step:,}"
    )
    with _stopping_on_signals(trainer):
        end = trainer.train(options.time_limit_s)
    _say(f"ended: {end.value}; {trainer.state.step:,} steps in {trainer.state.seconds:,.0f} s")
    if end in (End.MAX_STEPS, End.PATIENCE):
        _write_result(trainer, command)
    else:
        _say("--resume goes on from here")
    return end


def prepare_data(recipe: Recipe, run: RunDirectory) -> tuple[Tokenizer, Corpora]:
    """Reads, splits and tokenises the data; learns the vocabulary where the run has none.

    Writes nothing before everything is known to fit, so that a corrected recipe needs no --fresh.
    """
    split = read_split(recipe.data, _say)
    tokenizer = _vocabulary(recipe, run, split)
    config = _model_config(recipe, tokenizer)
    corpora = Corpora(
        training=Examples(split.training, tokenizer, config, split.weights),
        validation=Examples(split.validation, tokenizer, config),
        validation_pairs=split.validation,
    )
    _check_lengths(corpora)
    _begin_run(run, recipe, split, tokenizer)
    examples = corpora.training
    source_tokens, target_tokens = examples.lengths.sum(axis=0)
    _say(
        f"{len(examples):,} pairs to train on ({examples.dropped:,} too long), "
        f"{source_tokens:,} source and {target_tokens:,} target tokens"
    )
    return tokenizer, corpora


def _vocabulary(recipe: Recipe, run: RunDirectory, split: Split) -> Tokenizer:
    if run.tokenizer.exists():
        return Tokenizer.load(run.tokenizer)
    if recipe.training.start_from:
        return Tokenizer.load(RunDirectory(Path(recipe.training.start_from)).tokenizer)
    pairs = split.training
    if split.weights is not None:
        # A large file of little weight would otherwise take the vocabulary.
        random = np.random.default_rng(recipe.training.seed)
        pairs = [pairs[row] for row in weighted_rows(np.array(split.weights), random)]
    texts = (text for pair in pairs for text in pair)
    vocabulary = recipe.vocabulary
    return learn_vocabulary(texts, size=vocabulary.size, characters=vocabulary.characters)


def _check_lengths(corpora: Corpora) -> None:
    for name, examples in (("train on", corpora.training), ("validate on", corpora.validation)):
        if not len(examples):
            raise OptionError(
                f"data: each of the {examples.dropped:,} pairs to {name} is too long; raise "
                "model.max_source_length or model.max_target_length"
            )


def _begin_run(run: RunDirectory, recipe: Recipe, split: Split, tokenizer: Tokenizer) -> None:
    # First, because --resume and --fresh recognise a run by this file.
    write_json(run.recipe, recipe.to_dict())
    write_pairs(run.validation, split.validation)
    write_pairs(run.test, split.test)
    save_tokenizer(tokenizer, run.tokenizer)


def _model_config(recipe: Recipe, tokenizer: Tokenizer) -> TransformerConfig:
    ids = {name: getattr(tokenizer, name) for name in ("pad_id", "bos_id", "eos_id", "unk_id")}
    return TransformerConfig.from_dict(
        {**recipe.model, **ids, "vocabulary_size": tokenizer.vocabulary_size}
    )


def _find_run(options: TrainOptions, recipe: Recipe) -> RunDirectory:
    run = RunDirectory(options.out or Path("runs") / options.recipe.stem)
    if options.resume and options.fresh:
        raise OptionError("--resume and --fresh exclude each other")
    if options.fresh and run.path.exists():
        if not run.recipe.exists() and any(run.path.iterdir()):
            raise OptionError(f"{run.path}: has files of something else; choose another --out")
        shutil.rmtree(run.path)
    if run.recipe.exists():
        if not options.resume:
            raise OptionError(
                f"{run.path}: holds a training; --resume continues it, --fresh removes it"
            )
        # Read as a recipe, so that keys which it was too old to have get their defaults.
        began = Recipe.from_dict(read_json(run.recipe))
        _check_same(run.path, began.to_dict(), recipe.to_dict())
    return run


def _check_same(path: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuses to resume with other data or another model; the rest of a recipe may change."""
    for section in ("model", "vocabulary", "data"):
        for key in sorted({*old.get(section, {}), *new[section]}):
            before, now = old.get(section, {}).get(key), new[section].get(key)
            if before != now:
                raise OptionError(
                    f"{path}: began with {section}.{key} = {before!r}, the recipe has "
                    f"{now!r}; restore the value, or start again with --fresh"
                )


@contextlib.contextmanager
def _stopping_on_signals(trainer: Trainer) -> Iterator[None]:
    """Lets the step in flight end, and the checkpoint be written, before the process goes."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        trainer.stop = True

    before = {name: signal.signal(name, stop) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _write_result(trainer: Trainer, command: str) -> None:
    validation, run, state = trainer.finish(), trainer.run, trainer.state
    report = {
        "command": command,
        "commit": current_commit(),
        "recipe": trainer.recipe.to_dict(),
        "data_sha256": {
            path: hashlib.sha256(Path(path).read_bytes()).hexdigest()
            for path in trainer.recipe.data.all_paths
        },
        "steps": state.step,
        "epochs": state.epoch,
        "target_tokens": state.target_tokens,
        "seconds": round(state.seconds),
        "best_step": state.best_step,
        "validation": {"loss": validation.loss, **dataclasses.asdict(validation.scores)},
    }
    write_json(run.report, report)
    _say(f"{run.result}: validation loss {validation.loss:.3f}\n{validation.scores}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
