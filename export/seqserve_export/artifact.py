"""Writes the files of an artifact: graphs, weights, tokenizer and manifest."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seqserve.errors import OptionError
from seqserve.language_codes import AUTO
from seqserve_export.graph_files import write_graphs
from seqserve_export.quantization import precision_of
from seqserve_export.tracing import ATTENTION_OPSET
from seqserve_model.config import DecoderCell, PositionScheme, TransformerConfig
from seqserve_model.transformer import Transformer
from seqserve_model.vocabulary import save_tokenizer
from seqserve_server.artifact.files import digest_of
from seqserve_server.artifact.manifest import (
    NAME,
    Architecture,
    Limits,
    Manifest,
    Requirements,
    SpecialTokens,
)
from seqserve_server.artifact.records import Provenance, Quantization, Template
from seqserve_server.text.tokenizer import Tokenizer

MIN_ONNXRUNTIME = "1.25"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """Facts for the manifest that the model does not hold."""

    name: str
    version: int
    description: str
    licence: str
    provenance: Provenance
    template: Template | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)


def new_place(repository: Path, name: str, version: int) -> Path:
    """Returns the folder that an artifact is written to.

    Raises:
        OptionError: It exists, or its name or version is invalid.
    """
    if not re.fullmatch(NAME, name):
        raise OptionError(
            f"--name: {name!r} is not a model name; take letters, digits, '.', '_'"
            " and '-', a letter or digit first and 64 at most"
        )
    if version < 1:
        raise OptionError(f"--model-version is {version}; it must be at least 1")
    place = repository / name / str(version)
    if place.exists():
        raise OptionError(f"{place} exists already; take another --model-version or remove it")
    return place


def write_model(
    model: Transformer,
    tokenizer: Tokenizer,
    description: Description,
    quantization: Quantization | None,
    folder: Path,
) -> Manifest:
    """Writes everything but what a proof adds; returns the manifest.

    Raises:
        OptionError: The operators of the decoder step do not support the model's heads.
    """
    _check_heads(model.config)
    files = [*write_graphs(model, folder), *save_tokenizer(tokenizer, folder / "tokenizer.json")]
    manifest = _manifest(model, description, quantization, folder, files)
    manifest.write(folder)
    return manifest


def _check_heads(config: TransformerConfig) -> None:
    multiple = 16 if config.positions is PositionScheme.ROTARY else 8
    size = config.decoder.head_size
    if size % multiple:
        raise OptionError(
            f"a head of the model has the size {size}; to export a model with"
            f" {config.positions.value} positions it must be a multiple of {multiple}: choose"
            " model.width and model.heads accordingly"
        )


def _manifest(
    model: Transformer,
    description: Description,
    quantization: Quantization | None,
    folder: Path,
    files: list[str],
) -> Manifest:
    config = model.config
    return Manifest(
        name=description.name,
        version=description.version,
        description=description.description,
        licence=description.licence,
        precision=precision_of(model),
        architecture=Architecture(
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            heads=config.decoder.heads,
            head_size=config.decoder.head_size,
            vocabulary_size=config.vocabulary_size,
            encoder_heads=config.heads,
            source_vocabulary_size=config.source_vocabulary_size or None,
            config=config.to_dict(),
            cell_width=config.width if config.decoder_cell is DecoderCell.SSRU else None,
        ),
        limits=Limits(
            max_source_length=config.max_source_length, max_target_length=config.max_target_length
        ),
        tokens=SpecialTokens(
            pad=config.pad_id, bos=config.bos_id, eos=config.eos_id, unk=config.unk_id
        ),
        requirements=Requirements(opset=ATTENTION_OPSET, onnxruntime=MIN_ONNXRUNTIME),
        provenance=description.provenance,
        template=description.template,
        generation=dict(description.generation),
        quantization=quantization,
        verification=None,
        files={name: digest_of(folder / name) for name in files},
    )


_CODE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*")


def declared(template: Template | None, source: str, target: str) -> Template | None:
    """Returns a template with the languages of a model that reads and writes one.

    Args:
        template: Tokens that the model reads besides its texts; None for nothing. source: Code of
        the source language; empty if it is unknown, or if the template has it.
        target: Code of the target language.

    Raises:
        OptionError: A code is invalid, or the template has other languages.
    """
    changed = template or Template()
    for role, code in (("source", source), ("target", target)):
        if not code:
            continue
        if not _CODE.fullmatch(code) or code == AUTO:
            raise OptionError(f"--{role}-language: {code!r:.80} is not a code; take one such as en")
        if not changed.languages[role]:
            name = f"{role}_languages"
            changed = replace(changed, **{name: {code: ""}})  # type: ignore[arg-type]
        elif changed.code_of(role, code) is None:
            known = ", ".join(sorted(changed.languages[role])[:5])
            raise OptionError(f"--{role}-language: {code} is not one of the model's: {known}, ...")
    return None if changed == Template() else changed
