"""The manifest of an artifact: its architecture, limits, provenance, and the hash of each file.

An artifact is a folder ``<name>/<version>/`` of graphs, weights, tokenizer and ``manifest.json``.
The manifest lists every file with its sha256; the server opens a file only after its hash was
checked.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seqserve_server.artifact.files import FileDigest, check_file, check_place
from seqserve_server.artifact.records import (
    Provenance,
    Quantization,
    SelfTest,
    ShortlistRecord,
    Template,
    Verification,
    build,
    parsed,
)
from seqserve_server.contract.errors import ArtifactError

FORMAT = 3
"""Format version of artifacts; a server refuses all others."""

FILE = "manifest.json"
ENCODER, DECODER, WEIGHTS = "encoder.onnx", "decoder.onnx", "weights.bin"
SCORER, CANDIDATES, DRAFT = "scorer.onnx", "candidates.onnx", "draft.onnx"
"""Graphs that an artifact may lack."""
REQUIRED_FILES = (ENCODER, DECODER, WEIGHTS, "tokenizer.json")
"""Files that every artifact must have."""

PRECISIONS = ("fp32", "fp16", "int8")
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Pattern of model names, which are also folder names."""
_MAX_NUMBER = (1 << 31) - 1
"""Maximum of version numbers, sizes and lengths."""
MAX_BYTES = 1 << 20
"""Maximum size of a manifest; a large model's has some kilobytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Sizes of the network, from which the server allocates its caches."""

    encoder_layers: int
    decoder_layers: int
    heads: int
    """Heads of each attention of the decoder."""
    head_size: int
    vocabulary_size: int
    """Tokens of targets."""
    config: dict[str, Any]
    """Full configuration of the torch model."""
    encoder_heads: int | None = None
    """Heads of each attention of the encoder; None for as many as in the decoder."""
    source_vocabulary_size: int | None = None
    """Tokens of sources if they have a separate vocabulary; None for a joint one."""
    cell_width: int | None = None
    """Width of the state that each decoder layer keeps of a target, where it is recurrent (SSRU);
    None where it attends to the target and keeps keys and values."""

    @property
    def source_tokens(self) -> int:
        """Number of tokens of sources."""
        return self.source_vocabulary_size or self.vocabulary_size


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTokens:
    """Ids of the special tokens."""

    pad: int
    bos: int
    eos: int
    unk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Maximum lengths, in tokens."""

    max_source_length: int
    """Including the end token."""
    max_target_length: int
    """Without the end token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """Versions that the graphs need."""

    opset: int
    onnxruntime: str
    """Minimum version, such as ``1.23``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Content of ``manifest.json``."""

    name: str
    version: int
    description: str
    licence: str
    precision: str
    architecture: Architecture
    limits: Limits
    tokens: SpecialTokens
    requirements: Requirements
    provenance: Provenance
    verification: Verification | None
    """None only for artifacts with random weights, made for tests and benchmarks."""
    files: dict[str, FileDigest]
    self_test: SelfTest | None = None
    """None if the export chose no sentence."""
    template: Template | None = None
    """None if the model reads nothing but the tokens of a text and the end token."""
    shortlist: ShortlistRecord | None = None
    """None if requests choose among all tokens."""
    generation: dict[str, Any] = field(default_factory=dict)
    """Decoding options of requests that do not set them, by the names of the API."""
    quantization: Quantization | None = None
    """None if the model is not rounded, or of a release that did not write it."""
    format: int = field(default=FORMAT)

    @property
    def label(self) -> str:
        """Name for people: ``en-de/1``."""
        return f"{self.name}/{self.version}"

    @property
    def can_score(self) -> bool:
        """Whether there is a scorer graph, which attention needs; a model generates without too."""
        return SCORER in self.files

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Reads the manifest of a folder and checks the hash of every file; or ArtifactError."""
        manifest = cls.read(folder)
        for name, digest in manifest.files.items():
            check_file(folder / name, digest)
        return manifest

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Reads the manifest as :meth:`load` does, without checking the other files."""
        path = folder / FILE
        check_place(path)
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from None
        return cls.parse(content, str(path))

    @classmethod
    def parse(cls, content: bytes, label: str) -> Manifest:
        """Reads the manifest from the bytes of its file, which errors call ``label``."""
        if len(content) > MAX_BYTES:
            raise ArtifactError(f"{label}: is larger than {MAX_BYTES >> 20} MiB")
        values = parsed(content, label)
        if not isinstance(values, dict):
            raise ArtifactError(f"{label}: not a JSON object")
        if values.get("format") == FORMAT - 1:
            raise ArtifactError(
                f"{label}: format is {FORMAT - 1}; this server reads format {FORMAT}: convert it"
                f" with `seqserve upgrade {shlex.quote(str(Path(label).parent))}`"
            )
        if values.get("format") != FORMAT:
            raise ArtifactError(
                f"{label}: format is {values.get('format')!r:.80}; this server reads format"
                f" {FORMAT}. Export the model again, or take the release that wrote it"
            )
        manifest: Manifest = build(cls, values, label)
        for name, problem in (*manifest._wrong_names(), *manifest._wrong_numbers()):
            raise ArtifactError(f"{label}: {name}: {problem}")
        return manifest

    def write(self, folder: Path) -> None:
        """Writes ``manifest.json`` into ``folder``."""
        text = json.dumps(asdict(self), indent=2, ensure_ascii=False)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")

    def _wrong_names(self) -> Iterator[tuple[str, str]]:
        for name in REQUIRED_FILES:
            if name not in self.files:
                yield "files", f"{name} is missing"
        for name in self.files:
            # A name with a slash could lead out of the artifact.
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name):
                yield "files", f"{name!r:.80} is not a plain file name"
        if not re.fullmatch(NAME, self.name):
            yield "name", f"{self.name!r:.80} is not a model name"
        if self.precision not in PRECISIONS:
            yield "precision", f"{self.precision!r:.80} is not one of {', '.join(PRECISIONS)}"
        onnxruntime = self.requirements.onnxruntime
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})*", onnxruntime):
            yield "requirements.onnxruntime", f"{onnxruntime!r:.80} is not a version"

    def _wrong_numbers(self) -> Iterator[tuple[str, str]]:
        numbers = {"version": self.version, **asdict(self.architecture), **asdict(self.limits)}
        for name, value in numbers.items():
            if isinstance(value, int) and value < 1:
                yield name, f"{value!r:.80} is less than 1"
            if isinstance(value, int) and value > _MAX_NUMBER:
                yield name, f"{value!r:.80} is more than {_MAX_NUMBER}"
        size = self.architecture.vocabulary_size
        sizes = dict.fromkeys(asdict(self.tokens), size)
        # These are read as sources too.
        sizes |= dict.fromkeys(("pad", "eos"), min(size, self.architecture.source_tokens))
        for name, token_id in asdict(self.tokens).items():
            if not 0 <= token_id < sizes[name]:
                yield f"tokens.{name}", f"{token_id} is not a token id"


MAX_SMALL_BYTES = 128 << 20
"""Models of up to this size of weights are small: further copies cost little."""


def is_small(folder: Path) -> bool:
    """Whether copies of an artifact's weights cost little memory."""
    return (folder / WEIGHTS).stat().st_size <= MAX_SMALL_BYTES
