"""A model of CTranslate2, or a package of Argos with one, read as a checkpoint."""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from seqserve_import.checkpoint import Checkpoint, Settings
from seqserve_import.ctranslate2_weights import FILE, ModelBin
from seqserve_import.files import AGAIN, CheckpointError, read_bytes, read_optional_object
from seqserve_import.marian_checkpoint import HUGGING_FACE, Vocabularies
from seqserve_import.tokenizers.special import CONTROLS, language_of
from seqserve_server.text.vocabulary import BOS, EOS, PAD, UNK

MODEL_TYPE = "ctranslate2"
"""Stands for the ``model_type`` of Hugging Face."""
METADATA = "metadata.json"
"""The metadata of an Argos package."""
VOCABULARIES = tuple(
    f"{side}_vocabulary.{kind}"
    for side in ("shared", "source", "target")
    for kind in ("json", "txt")
)
_ARGOS_BEAM, _ARGOS_LENGTH_PENALTY = 4, 0.2
"""As Argos decodes with every model."""
_CODES = {"zt": "zh-Hant", "pb": "pt-BR"}
"""Argos' own codes, and their meanings."""


def model_folder(folder: Path) -> Path | None:
    """Finds the folder of ``model.bin``, which a package of Argos has in ``model``."""
    if any(path for pattern in HUGGING_FACE for path in folder.glob(pattern)):
        return None
    packed = [folder / "model"] if (folder / METADATA).exists() else []
    return next((place for place in (folder, *packed) if (place / FILE).exists()), None)


def package_pair(folder: Path) -> tuple[str, str]:
    """Returns the languages of a package of Argos; empty for any other folder."""
    source, target = (_package(folder).text(f"{side}_code", "") for side in ("from", "to"))
    return _CODES.get(source, source), _CODES.get(target, target)


def _package(folder: Path) -> Settings:
    return Settings(folder / METADATA, read_optional_object(folder / METADATA))


class CTranslate2Checkpoint(Checkpoint):
    """A folder of a model of CTranslate2, with the same parts as one of Hugging Face."""

    def __init__(self, folder: Path, model: Path) -> None:
        """Reads the settings and finds the weights.

        Args:
            folder: Folder with the tokenizer; the package's, if it is an Argos package. model:
            Folder with ``model.bin``.
        """
        self.folder, self.model = folder, model
        weights = ModelBin(model / FILE)
        self._places = {name: (weights, name) for name in weights.shapes}
        self.attributes: Mapping[str, float] = weights.attributes
        path = model / "config.json"
        self.config = Settings(path, {**read_optional_object(path), "model_type": MODEL_TYPE})
        self.package = _package(folder)
        """Metadata of the Argos package; empty for any other model."""
        self.vocabularies = _vocabularies(model, self.config)
        self.generation = Settings(path, self._generation())
        self.recommended = self._recommended().over(self.generation)

    def attribute(self, stack: str, name: str, default: float = 0.0) -> float:
        """Returns a number of the encoder or decoder; older files have one for both."""
        return self.attributes.get(f"{stack}/{name}", self.attributes.get(name, default))

    def fault(self, problem: str) -> CheckpointError:
        """Makes the error of a fault in the model."""
        return CheckpointError(f"{self.model}: {problem}")

    @property
    def starts_from_zeros(self) -> bool:
        """Whether the decoder reads zeros first, as Marian does."""
        return bool(self.attribute("decoder", "start_from_zero_embedding"))

    @cached_property
    def adds_start(self) -> bool:
        """Whether both vocabularies get one more token, which pads and may start a target."""
        return self.starts_from_zeros or self.pad_id is None

    @property
    def pad_id(self) -> int | None:
        """Id of ``<pad>``; None unless both vocabularies have it there."""
        source, target, _ = self.vocabularies
        if PAD not in source or PAD not in target or source.index(PAD) != target.index(PAD):
            return None
        return source.index(PAD)

    @cached_property
    def layout(self) -> str:
        """The ``model_type`` of Hugging Face whose languages it names alike, or ``opennmt``."""
        if self.starts_from_zeros:
            return "marian"
        if "encoder/layer_0/self_attention/relative_attention_bias" in self.names:
            return "t5"
        if self._start == BOS:
            return "opennmt"
        if sum(map(bool, map(language_of, self.vocabularies.source))) < 2:
            return "bart"
        has_norm = "encoder/layernorm_embedding/gamma" in self.names
        return "mbart" if has_norm else "m2m_100"

    @property
    def reads_end(self) -> bool:
        """Whether an end token follows every source; OpenNMT trains without one."""
        added = bool(self.attributes.get("with_source_eos"))
        return self.config.flag("add_source_eos", added) or self.layout != "opennmt"

    @property
    def reads_begin(self) -> bool:
        """Whether a begin token precedes every source."""
        return self.config.flag("add_source_bos", bool(self.attributes.get("with_source_bos")))

    @property
    def aliases(self) -> dict[str, str]:
        """Argos' own codes of the languages of a package, by which its users may call them."""
        own = {self.package.text(f"{side}_code", "") for side in ("from", "to")}
        return {code: _CODES[code] for code in sorted(own & _CODES.keys())}

    @property
    def _start(self) -> str | None:
        """The token that the decoder reads first; None if it is the language of the target."""
        name = "decoder_start_token"
        if not self.config.path.exists():
            return BOS if self.attributes.get("with_target_bos", 1) else EOS
        values = self.config.some([name])
        return _respelled(self.config).get(self.config.text(name), values[name]) if values else None

    def _generation(self) -> Mapping[str, Any]:
        target = self.vocabularies.target
        if EOS not in target or UNK not in target:
            lacking = EOS if EOS not in target else UNK
            raise self.fault(f"its target vocabulary has no {lacking}; {AGAIN}")
        start = self._start
        if not self.starts_from_zeros and start is not None and start not in target:
            raise self.config.wrong("decoder_start_token", "is not in the target vocabulary")
        values: dict[str, Any] = {"eos_token_id": target.index(EOS)}
        if self.adds_start:
            values["suppress_tokens"] = [self.vocabularies.start]
        is_known = start is not None and not self.starts_from_zeros
        padding = self.vocabularies.start if self.adds_start else self.pad_id
        values["decoder_start_token_id"] = target.index(start) if is_known else padding  # type: ignore[arg-type]
        if prefix := self.package.text("target_prefix", ""):
            if prefix not in target:
                raise self.package.wrong("target_prefix", "is not in the target vocabulary")
            values["forced_bos_token_id"] = target.index(prefix)
        return values

    def _recommended(self) -> Settings:
        values: dict[str, Any] = {"early_stopping": True, "min_new_tokens": 1}
        if self.package.has("from_code"):
            values |= {"num_beams": _ARGOS_BEAM, "length_penalty": _ARGOS_LENGTH_PENALTY}
        return Settings(self.package.path, values)


def _respelled(config: Settings) -> dict[str, str]:
    """Returns the server's spelling of the control tokens that a model spells otherwise."""
    controls = {"eos": EOS, "unk": UNK, "bos": BOS}
    spelled = {config.text(f"{name}_token", ours): ours for name, ours in controls.items()}
    return {theirs: ours for theirs, ours in spelled.items() if theirs not in CONTROLS}


def _vocabularies(model: Path, config: Settings) -> Vocabularies:
    files = [model / name for name in VOCABULARIES if (model / name).exists()]
    sides = {path.name.partition("_")[0]: path for path in reversed(files)}
    if "shared" in sides:
        tokens = _tokens(sides["shared"], config)
        return Vocabularies(tokens, tokens, is_joint=True)
    if len(sides) != 2:
        raise CheckpointError(
            f"{model}: has neither shared_vocabulary.json nor source_vocabulary.json and"
            f" target_vocabulary.json (or .txt); {AGAIN}"
        )
    return Vocabularies(
        _tokens(sides["source"], config), _tokens(sides["target"], config), is_joint=False
    )


def _tokens(path: Path, config: Settings) -> list[str]:
    content = read_bytes(path)
    try:
        if path.suffix == ".txt":
            tokens: Any = content.decode().removesuffix("\n").split("\n")
        else:
            tokens = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}; {AGAIN}") from None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise CheckpointError(f"{path}: is not a list of tokens; {AGAIN}")
    spelled = _respelled(config)
    return [spelled.get(str(token), str(token)) for token in tokens]
