"""The files of a training run, and how a training resumes from them.

A run is one directory::

    config.json  tokenizer.json    the network and its vocabulary
    recipe.json                    everything that decided the training
    validation.tsv  test.tsv       the held-out pairs
    checkpoints/step-00001000/     model.safetensors, optimizer.safetensors, state.json
    best.safetensors               weights of the best validation
    averaged.safetensors           mean of the last checkpoints (Vaswani et al. 2017, §6.1)
    model.safetensors              the better of the two: the result
    report.json                    scores of the result, and what it cost
    log/                           for TensorBoard

Files are written under another name and then renamed, so a killed training never leaves half of
one.
"""

import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save, save_file
from torch import Tensor

from seqserve.errors import NotWritten, OptionError
from seqserve.files import written_whole
from seqserve_model.config import TransformerConfig
from seqserve_model.options import Weights
from seqserve_model.transformer import Transformer
from seqserve_server.text.tokenizer import FILE, TARGET_FILE, Tokenizer

_RNG = "rng.cpu"
_RNG_CUDA = "rng.cuda"


@dataclass(slots=True, kw_only=True)
class TrainingState:
    """Progress of a training, without weights and optimizer."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """Batches of the epoch that are done."""
    target_tokens: int = 0
    seconds: float = 0.0
    best_step: int = 0
    best_score: float | None = None
    validations_since_best: int = 0


class RunDirectory:
    """The files of one training."""

    def __init__(self, path: Path) -> None:
        """Names the files; the directory need not exist yet."""
        self.path = path
        self.config = path / "config.json"
        self.recipe = path / "recipe.json"
        self.tokenizer = path / FILE
        self.target_tokenizer = path / TARGET_FILE
        self.validation = path / "validation.tsv"
        self.test = path / "test.tsv"
        self.report = path / "report.json"
        self.log = path / "log"
        self.best = path / "best.safetensors"
        self.averaged = path / "averaged.safetensors"
        self.result = path / "model.safetensors"

    def checkpoints(self) -> list[Path]:
        """Lists the complete checkpoints, oldest first."""
        return sorted((self.path / "checkpoints").glob("step-????????"))

    def save(
        self, state: TrainingState, model: Transformer, optimizer: torch.optim.Optimizer, keep: int
    ) -> None:
        """Writes a checkpoint and removes those older than the last ``keep``.

        Raises:
            NotWritten: A write failed, as on a full disk; the earlier checkpoints stay.
        """
        place = self.path / "checkpoints" / f"step-{state.step:08d}"
        draft = place.with_name(f"{place.name}.tmp")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir(parents=True)
            save_file(named_weights(model), draft / "model.safetensors")
            save_file(_optimizer_tensors(model, optimizer), draft / "optimizer.safetensors")
            write_json(draft / "state.json", dataclasses.asdict(state))
            for file in draft.iterdir():
                _flush_to_disk(file)
            shutil.rmtree(place, ignore_errors=True)
            draft.rename(place)
        except (OSError, SafetensorError, NotWritten) as error:
            # It may be what fills the disk.
            shutil.rmtree(draft, ignore_errors=True)
            failure = NotWritten(f"{place}: cannot be written: {error}")
            if self.checkpoints():
                failure.add_note("The checkpoint before it is whole; --resume goes on from there.")
            raise failure from None
        for old in self.checkpoints()[:-keep]:
            shutil.rmtree(old)

    def restore(self, model: Transformer, optimizer: torch.optim.Optimizer) -> TrainingState:
        """Sets weights, optimizer and random numbers to the last checkpoint, if there is one."""
        checkpoints = self.checkpoints()
        if not checkpoints:
            return TrainingState()
        last = checkpoints[-1]
        set_weights(model, last / "model.safetensors")
        _set_optimizer_tensors(model, optimizer, read_tensors(last / "optimizer.safetensors"))
        return TrainingState(**read_json(last / "state.json"))

    def weights(self, which: Weights) -> Path:
        """Finds the file of some weights."""
        last = [path / "model.safetensors" for path in reversed(self.checkpoints())][:1]
        places = {
            Weights.RESULT: [self.result, self.best, *last],
            Weights.AVERAGED: [self.averaged],
            Weights.BEST: [self.best],
            Weights.LAST: last,
        }
        for place in places[which]:
            if place.exists():
                return place
        raise OptionError(f"{self.path}: has no {which.value} weights; train it first")


def load_run(path: Path, which: Weights = Weights.RESULT) -> tuple[Transformer, Tokenizer]:
    """Loads the model and the tokenizer of a run, the model in evaluation mode."""
    run = RunDirectory(path)
    if not run.config.is_file():
        raise OptionError(f"{path}: is not a training run; `seqserve train` makes one")
    config = TransformerConfig.from_dict(read_json(run.config))
    model = Transformer(config)
    set_weights(model, run.weights(which))
    tokenizer = Tokenizer.load(
        run.tokenizer,
        config.vocabulary_size,
        has_target=run.target_tokenizer.exists(),
        source_size=config.source_vocabulary_size or None,
    )
    return model.eval(), tokenizer


def named_weights(model: Transformer) -> dict[str, Tensor]:
    """Returns each weight once: a tied one under its first name only."""
    return {name: weight.detach().contiguous() for name, weight in model.named_parameters()}


def set_weights(model: Transformer, path: Path) -> None:
    """Reads the weights of a model from a file, or refuses a file of another model."""
    tensors = read_tensors(path)
    weights = dict(model.named_parameters())
    wrong = sorted(set(weights) ^ set(tensors)) or [
        name for name, weight in weights.items() if weight.shape != tensors[name].shape
    ]
    if wrong:
        raise OptionError(f"{path}: {wrong[0]} does not fit config.json; was it made from it?")
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(tensors[name])


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Computes the mean of the weights of several files."""
    total = {name: tensor.double() for name, tensor in read_tensors(paths[0]).items()}
    for path in paths[1:]:
        for name, tensor in read_tensors(path).items():
            total[name] += tensor
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes a safetensors file whole or not at all."""
    with written_whole(path, option="") as file:
        file.write(save(tensors))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Reads a safetensors file."""
    try:
        return load_file(path)  # type: ignore[no-any-return]
    except (OSError, SafetensorError) as error:
        raise OptionError(f"{path}: cannot be read: {error}") from None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON file whole or not at all."""
    with written_whole(path, "w", option="") as file:
        file.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON file that holds one object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"{path}: cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise OptionError(f"{path}: is not a JSON object")
    return content


def _optimizer_tensors(model: Transformer, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {
        f"{key}/{name}": value.contiguous()
        for name, weight in model.named_parameters()
        for key, value in optimizer.state[weight].items()
    }
    tensors[_RNG] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors[_RNG_CUDA] = torch.cuda.get_rng_state()
    return tensors


def _set_optimizer_tensors(
    model: Transformer, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    torch.set_rng_state(tensors.pop(_RNG))
    cuda = tensors.pop(_RNG_CUDA, None)
    if cuda is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(cuda)
    weights = dict(model.named_parameters())
    for path, value in tensors.items():
        key, name = path.split("/", 1)
        optimizer.state[weights[name]][key] = value.to(weights[name].device)


def _flush_to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def current_commit() -> str:
    """Returns the commit of the clone that this code runs from; "" outside a clone."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return result.stdout.strip()
