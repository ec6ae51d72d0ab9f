"""A model with random weights that decodes until it is stopped, for tests of long answers."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqserve_export.artifact import Description
    from seqserve_server.text.tokenizer import Tokenizer

NAME = "endless"
MAX_SOURCE = 64
MAX_TARGET = 20_000
"""Some seconds of decoding; no test waits for the end."""


def export_endless(repository: Path, tokenizer: Tokenizer, description: Description) -> Path:
    """Exports ``endless/1``; its answers vary with the source and seldom end by themselves."""
    import torch
    from tests.step_graphs import steps_only

    from seqserve_export.pipeline import write_artifact
    from seqserve_model.config import TransformerConfig
    from seqserve_model.transformer import Transformer

    torch.set_num_threads(1)
    torch.manual_seed(7)
    config = TransformerConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        width=32,
        heads=2,
        feed_forward_width=64,
        encoder_layers=1,
        decoder_layers=1,
        dropout=0.0,
        tied_output=False,
        max_source_length=MAX_SOURCE,
        max_target_length=MAX_TARGET,
    )
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        model.output_projection.weight[config.eos_id] *= 1.5
    named = replace(description, name=NAME)
    with steps_only():
        return write_artifact(lambda: model, tokenizer, repository, named, held_out=None)


def copy_version(
    repository: Path, models: Path, version: int, original: str = f"{NAME}/1", **changes: Any
) -> Path:
    """Copies a version of a model as another, with some values of its manifest changed."""
    folder = models / Path(original).parent / str(version)
    shutil.copytree(repository / original, folder)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest |= {"version": version} | changes
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def tamper(file: Path) -> None:
    """Changes a bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
