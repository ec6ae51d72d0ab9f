"""LoRA adapters of PEFT, merged into the weights of their base model as these are read.

Source: "LoRA" (Hu et al. 2021), §4.1; "A Rank Stabilization Scaling Factor for Fine-Tuning with
LoRA" (Kalajdzievski 2023).
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from seqserve_import.checkpoint import Checkpoint, Settings
from seqserve_import.files import CheckpointError, open_weights

CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_MERGE = "merge the two with merge_and_unload() of PEFT, and import the result"
_READ = {"peft_type", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora"}
# They tell how it was trained, or what the names of its weights tell too. PEFT obeys fan_in_fan_out
# for layers of GPT-2 alone.
_OTHERS = {
    "auto_mapping", "base_model_name_or_path", "bias", "eva_config", "exclude_modules",
    "fan_in_fan_out", "inference_mode", "init_lora_weights", "layers_pattern",
    "layers_to_transform", "lora_dropout", "megatron_core", "modules_to_save", "peft_version",
    "qalora_group_size", "revision", "runtime_config", "target_modules", "task_type",
}  # fmt: skip
# Others change the weights of the base model too.
_INITIAL = (True, False, "gaussian", "eva", "orthogonal")
_PREFIX = "base_model.model."
_HEAD = "lm_head.weight"
_TABLES = ("shared.weight", "embed_tokens.weight")
_LITERAL = re.compile(r"\^?[\w.]+")


class _Update(NamedTuple):
    """The names of both factors of an update in the adapter, and what multiplies them."""

    up: str
    down: str
    scale: float


class AdaptedCheckpoint(Checkpoint):
    """A folder of Hugging Face with an adapter: both are read as one model."""

    def __init__(self, folder: Path, adapter: Path) -> None:
        """Reads the settings of both and finds their weights.

        Raises:
            CheckpointError: As :class:`Checkpoint`; or the adapter is not a LoRA, or belongs to
                another model.
        """
        super().__init__(folder)
        if not (adapter / CONFIG).exists():
            raise CheckpointError(f"{adapter}: is not an adapter of PEFT; it has no {CONFIG}")
        settings = Settings.read(adapter / CONFIG)
        _check(settings)
        if not (adapter / _WEIGHTS).exists() and (adapter / "adapter_model.bin").exists():
            raise CheckpointError(
                f"{adapter}: adapter_model.bin may hold more than weights, and is not read; load"
                f" the adapter with PEFT, and write {_WEIGHTS} with save_pretrained()"
            )
        self._path = adapter / _WEIGHTS
        self._file = open_weights(self._path)
        self._updates: dict[str, _Update] = {}
        stored = {name: name.replace(".base_layer.", ".") for name in self._file.shapes}
        for name, plain in stored.items():
            if ".lora_A." in plain:
                self._update(settings, name, stored)
            elif ".lora_B." not in plain:
                self._replace(name, plain)
        used = {update.up for update in self._updates.values()}
        if left := sorted(name for name in stored if ".lora_B." in name and name not in used):
            raise self._unfit(left[0], "is without its lora_A")
        if not self._updates:
            raise CheckpointError(f"{self._path}: holds no weights of LoRA")

    def tensor(self, name: str) -> Tensor:
        """Reads a weight as fp32, with its update.

        Raises:
            CheckpointError: No weight has this name, or it is not a floating-point number.
        """
        tensor = super().tensor(name)
        if update := self._updates.get(name):
            up, down = (self._floats(self._file, factor) for factor in update[:2])
            tensor = tensor + (up @ down) * update.scale
        return tensor

    def are_equal(self, name: str, other: str) -> bool:
        """Returns whether two weights have the same numbers; an updated weight equals no other."""
        return self._updates.keys().isdisjoint({name, other}) and super().are_equal(name, other)

    def _update(self, settings: Settings, down: str, stored: Collection[str]) -> None:
        """Notes both factors of an update: its weights are ``[R, I]`` and ``[O, R]``."""
        module = down.removesuffix(".lora_A.weight")
        up = f"{module}.lora_B.weight"
        if module == down or up not in stored:
            raise self._unfit(down, "is without its lora_B, or of a kind that is not merged")
        own = self._own(down, f"{module}.weight")
        if own.endswith(_TABLES) or (
            own == _HEAD and self.config.flag("tie_word_embeddings", True)
        ):
            raise self._unfit(down, f"changes the table of tokens; {_MERGE}")
        module = own.removesuffix(".weight")
        rank = _of(settings, "rank_pattern", module, settings.number("r"))
        alpha = _of(settings, "alpha_pattern", module, settings.real("lora_alpha"))
        shapes = [list(self._file.shapes[name]) for name in (down, up)]
        shape = list(self.shape(own))
        if len(shape) != 2 or rank < 1 or shapes != [[rank, shape[1]], [shape[0], rank]]:
            raise self._unfit(
                down,
                f"and its lora_B have the shapes {shapes}, which do not fit r = {rank:g} and the"
                f" shape {shape} of {own} in {self.folder}",
            )
        root = settings.flag("use_rslora", False)
        self._updates[own] = _Update(up, down, alpha / (rank**0.5 if root else rank))

    def _replace(self, stored: str, plain: str) -> None:
        own = plain.removeprefix(_PREFIX)
        has_table = any(name.endswith(_TABLES) for name in self.names)
        if own.endswith(_TABLES) or (own == _HEAD and not has_table):
            raise self._unfit(stored, f"is a table of tokens; {_MERGE}")
        # The base may have its output as one with another table, which stays as it is.
        if own != _HEAD:
            own = self._own(stored, plain)
            shapes = [list(self._file.shapes[stored]), list(self.shape(own))]
            if shapes[0] != shapes[1]:
                raise self._unfit(stored, f"has the shape {shapes[0]}, and {own} {shapes[1]}")
        self._places[own] = self._file, stored

    def _own(self, stored: str, plain: str) -> str:
        """Finds the name of a weight in the base model, which may have saved its stacks alone."""
        name = plain.removeprefix(_PREFIX)
        for own in (name, name.removeprefix("model.")):
            if plain != name and own in self._places:
                return own
        raise self._unfit(stored, f"is for a weight that {self.folder} does not have")

    def _unfit(self, name: str, problem: str) -> CheckpointError:
        return CheckpointError(f"{self._path}: {name:.200} {problem}")


def _check(settings: Settings) -> None:
    if settings.text("peft_type") != "LORA":
        raise settings.wrong("peft_type", f"is not LORA; {_MERGE}")
    for name in settings.names - _READ - _OTHERS:
        if settings.some([name])[name]:
            raise settings.wrong(name, f"is not merged here; {_MERGE}")
    initial = settings.some(["init_lora_weights"]).get("init_lora_weights", True)
    if initial not in _INITIAL:
        raise settings.wrong("init_lora_weights", f"changes the base model too; {_MERGE}")


def _of(settings: Settings, name: str, module: str, default: float) -> float:
    for pattern, value in settings.numbers_by_name(name).items():
        if not _LITERAL.fullmatch(pattern):
            raise settings.wrong(name, f"has a pattern that is not a name; {_MERGE}")
        is_end = not pattern.startswith("^") and f".{module}".endswith(f".{pattern}")
        if is_end or module == pattern.removeprefix("^"):
            return value
    return default
