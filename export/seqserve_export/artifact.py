"""Writes an artifact: graphs, weights, tokenizer and manifest, all or nothing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seqserve.errors import OptionError
from seqserve_export.graph_files import write_graphs
from seqserve_export.parity import OpenModel, Proof
from seqserve_export.quantization import precision_of
from seqserve_export.tracing import ATTENTION_OPSET
from seqserve_model.allocator import give_back_freed_memory
from seqserve_model.config import DecoderCell, PositionScheme, TransformerConfig
from seqserve_model.transformer import Transformer
from seqserve_server.contract import manifest as contract
from seqserve_server.contract.manifest import Manifest, Provenance, Quantization
from seqserve_server.contract.template import Template
from seqserve_server.contract.tokenizer import Tokenizer

MIN_ONNXRUNTIME = "1.25"

Prove = Callable[[Path], Proof]
"""Proves the artifact in a folder; raises ParityError if it differs from the model."""

Finish = Callable[[Path, Manifest], object]
"""Adds files to the artifact in a folder, and writes its manifest again."""


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
    quantization: Quantization | None = None


def write_artifact(
    open_model: OpenModel,
    tokenizer: Tokenizer,
    repository: Path,
    description: Description,
    prove: Prove | None,
    finish: Finish | None = None,
) -> Path:
    """Exports a model into ``repository/<name>/<version>`` and returns this folder.

    It is built and verified in a draft folder next to the target and then renamed, so that a server
    that watches the repository never sees half an artifact.

    Args:
        open_model: Gives the model. The graphs are written before anything is proven, and it is not
            kept meanwhile.
        tokenizer: Of the model.
        repository: Folder of models.
        description: What the manifest says of it.
        prove: None only for random weights of tests and benchmarks.
        finish: Adds what is not the model's own, such as a shortlist.

    Raises:
        OptionError: The model or its name cannot be exported, or the version exists.
        ParityError: The proof failed; nothing was written.
    """
    _check_description(description)
    folder = repository / description.name / str(description.version)
    if folder.exists():
        raise OptionError(f"{folder} exists already; take another --model-version or remove it")
    with draft_of(folder) as draft:
        manifest = _draft(open_model(), tokenizer, description, draft)
        give_back_freed_memory()
        if prove is not None:
            verification, self_test = prove(draft)
            manifest = replace(manifest, verification=verification, self_test=self_test)
            manifest.write(draft)
        if finish is not None:
            finish(draft, manifest)
    return folder


@contextlib.contextmanager
def draft_of(folder: Path) -> Iterator[Path]:
    """Gives a folder to write in, which becomes ``folder`` at the end, or vanishes on an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Named so that no server takes it for a version.
    draft = Path(tempfile.mkdtemp(prefix=".export-", dir=folder.parent))
    try:
        yield draft
        draft.chmod(0o755)
        os.rename(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        # A first version that failed leaves no model without versions behind.
        with contextlib.suppress(OSError):
            folder.parent.rmdir()


def _draft(
    model: Transformer, tokenizer: Tokenizer, description: Description, folder: Path
) -> Manifest:
    """Writes everything but what a proof adds."""
    _check_heads(model.config)
    files = [*write_graphs(model, folder), *tokenizer.save(folder / "tokenizer.json")]
    manifest = _manifest(model, description, folder, files)
    manifest.write(folder)
    return manifest


def _check_description(description: Description) -> None:
    if not re.fullmatch(contract.NAME, description.name):
        raise OptionError(
            f"--name: {description.name!r} is not a model name; take letters, digits, '.', '_'"
            " and '-', a letter or digit first and 64 at most"
        )
    if description.version < 1:
        raise OptionError(f"--model-version is {description.version}; it must be at least 1")


def _check_heads(config: TransformerConfig) -> None:
    # The operators of the decoder step support no other head sizes.
    multiple = 16 if config.positions is PositionScheme.ROTARY else 8
    size = config.decoder.head_size
    if size % multiple:
        raise OptionError(
            f"a head of the model has the size {size}; to export a model with"
            f" {config.positions.value} positions it must be a multiple of {multiple}: choose"
            " model.width and model.heads accordingly"
        )


def _manifest(
    model: Transformer, description: Description, folder: Path, files: list[str]
) -> Manifest:
    config = model.config
    return Manifest(
        name=description.name,
        version=description.version,
        description=description.description,
        licence=description.licence,
        precision=precision_of(model),
        architecture=contract.Architecture(
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
        limits=contract.Limits(
            max_source_length=config.max_source_length, max_target_length=config.max_target_length
        ),
        tokens=contract.SpecialTokens(
            pad=config.pad_id, bos=config.bos_id, eos=config.eos_id, unk=config.unk_id
        ),
        requirements=contract.Requirements(opset=ATTENTION_OPSET, onnxruntime=MIN_ONNXRUNTIME),
        provenance=description.provenance,
        template=description.template,
        generation=dict(description.generation),
        quantization=description.quantization,
        verification=None,
        files={name: contract.digest_of(folder / name) for name in files},
    )
