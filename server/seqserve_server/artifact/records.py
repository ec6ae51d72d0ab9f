"""Records in a manifest: a model's tokens and languages, and how it was made, rounded and proved.

Also how JSON becomes records.
"""

import json
import typing
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from types import UnionType
from typing import Any

from seqserve.language_codes import code_among
from seqserve_server.contract.errors import ArtifactError


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Tokens that the model reads around a text, and the languages that it knows.

    Elements of the three lists, and the start, are tokens as spelled in the vocabulary.
    ``{source}`` and ``{target}`` mean the tokens of the source and the target language. A model
    serves every pair of a source and a target language that differ.
    """

    source_prefix: list[str] = field(default_factory=list)
    """Tokens before the source."""
    source_suffix: list[str] = field(default_factory=list)
    """Tokens after the end token of a source."""
    target_prefix: list[str] = field(default_factory=list)
    """Tokens that every target begins with."""
    target_start: str = ""
    """Token that the decoder reads first instead of the begin token, if its language is named."""
    text_prefix: str = ""
    """Text before a source whose languages are named; it contains ``{source}`` and ``{target}``."""
    source_languages: dict[str, str] = field(default_factory=dict)
    """Token or, for ``text_prefix``, name of each source language, by its code; empty where the
    model reads none."""
    target_languages: dict[str, str] = field(default_factory=dict)
    """The same of each target language."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Other codes of languages, such as ISO 639, and the codes that they mean."""

    @property
    def languages(self) -> dict[str, dict[str, str]]:
        """The languages of each role: ``source`` and ``target``."""
        return {"source": self.source_languages, "target": self.target_languages}

    def code_of(self, role: str, code: str) -> str | None:
        """Finds the code that this template has for a language of a role; None if not clear."""
        return code_among(code, self.languages[role], self.aliases)

    @property
    def source_tokens(self) -> set[str]:
        """Every token that it may add to a source."""
        return self._filled([*self.source_prefix, *self.source_suffix])

    @property
    def target_tokens(self) -> set[str]:
        """Every token that it may add to a target."""
        start = [self.target_start] if self.target_start else []
        return self._filled([*self.target_prefix, *start])

    def _filled(self, elements: list[str]) -> set[str]:
        languages = {f"{{{role}}}": known for role, known in self.languages.items()}
        tokens: set[str] = set()
        for element in elements:
            tokens.update(languages[element].values() if element in languages else [element])
        return tokens


def shared_languages(templates: Sequence[Template | None]) -> Template:
    """Returns the last of some templates with the languages that all of them know."""
    *others, last = [template or Template() for template in templates]
    languages = {
        role: {
            code: token
            for code, token in known.items()
            if all(other.code_of(role, code) is not None for other in others)
        }
        for role, known in last.languages.items()
    }
    return replace(last, source_languages=languages["source"], target_languages=languages["target"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Results of running the torch model and the artifact on the same sentences."""

    data: str
    """File of the sentences."""
    sentences: int
    sentences_equal: int
    """Sentences whose greedy tokens all equal torch's at the same precision."""
    top1_agreement: float
    """Share of the artifact's tokens that torch at full precision chooses too."""
    tokens: int
    max_logprob_difference: float
    """Largest difference of log-probabilities of the same target tokens."""
    bleu_torch: float | None
    """None, as the other scores, where the sentences came without references."""
    bleu_artifact: float | None
    chrf_torch: float | None
    chrf_artifact: float | None
    bleu_signature: str
    """Signature of the BLEU above; empty without BLEU."""
    chrf_signature: str
    torch: str
    onnxruntime: str
    mean_logprob_difference: float | None = None
    """Difference for the same tokens; None in artifacts of older releases."""
    logprob_sensitivity: float | None = None
    """Mean by which a change of last bits moves torch's own; measured only where it matters."""
    sentences_as_original: int | None = None
    """Those of which torch at full precision chooses every token; None in older artifacts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortlistVerification:
    """Results of decoding the same sentences with and without the shortlist."""

    data: str
    """File of the sentences."""
    sentences: int
    sentences_equal: int
    """Sentences whose translations are the same."""
    candidates: float
    """Tokens that a sentence may choose from, on average."""
    bleu_with: float | None
    """None, as the other scores, where the sentences came without references."""
    bleu_without: float | None
    chrf_with: float | None
    chrf_without: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortlistRecord:
    """Contents of ``shortlist.bin``, and their cost."""

    frequent: int
    """Tokens that every request may choose."""
    best: int
    """The most translations that a source token has."""
    origin: str
    """The data it was made of."""
    verification: ShortlistVerification | None
    """None only while it is being proved, and for tests and benchmarks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Origin of the model: data, command and commit."""

    command: str
    commit: str
    data_licence: str
    attribution: str
    steps: int = 0
    """Training steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """A sentence and its greedy translation, which every server must reproduce at load."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How an int8 model rounds."""

    scales: str
    """Scales of projection inputs: ``static``, from calibration, or ``row``, at run time."""
    caches: str
    """Type of the K/V caches: ``float`` or ``int8``."""
    reason: str = ""
    """Why the import chose these scales; empty where a person did."""


def parsed(content: bytes, label: str) -> Any:
    """Reads JSON whose texts can be sent; ArtifactError, which calls it ``label``, for others."""
    try:
        values = json.loads(content)
        # JSON may contain lone surrogates (\ud800), which protobuf cannot encode.
        json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{label}: not JSON: {error}") from None
    return values


def build(kind: Any, values: Any, path: str, prefix: str = "") -> Any:
    """Builds a dataclass from JSON; ArtifactError names the file, ``path``, and the wrong field."""
    if not isinstance(values, dict):
        raise ArtifactError(f"{path}: {prefix.rstrip('.')}: not an object")
    hints = typing.get_type_hints(kind)
    known = {entry.name for entry in fields(kind)}
    for name in sorted(set(values) - known):
        raise ArtifactError(f"{path}: {prefix}{name:.80}: not known to this server")
    built = {}
    for entry in fields(kind):
        where = f"{prefix}{entry.name}"
        if entry.name in values:
            built[entry.name] = _value(hints[entry.name], values[entry.name], path, where)
        elif entry.default is MISSING and entry.default_factory is MISSING:
            raise ArtifactError(f"{path}: {where}: missing")
    return kind(**built)


def _value(hint: Any, value: Any, path: str, where: str) -> Any:
    if typing.get_origin(hint) is UnionType:
        if value is None:
            return None
        hint, _ = typing.get_args(hint)  # X | None
    if is_dataclass(hint):
        return build(hint, value, path, where + ".")
    if typing.get_origin(hint) is dict:
        if not isinstance(value, dict):
            raise ArtifactError(f"{path}: {where}: not an object")
        kind = typing.get_args(hint)[1]
        return {
            name: entry if kind is Any else _value(kind, entry, path, f"{where}.{name:.80}")
            for name, entry in value.items()
        }
    if typing.get_origin(hint) is list:
        if not isinstance(value, list):
            raise ArtifactError(f"{path}: {where}: not a list")
        [kind] = typing.get_args(hint)
        return [_value(kind, entry, path, where) for entry in value]
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ArtifactError(f"{path}: {where}: {value!r:.80} is not of type {hint.__name__}")
    return value
