"""The models, language pairs and glossaries of a server."""

from dataclasses import dataclass
from enum import Enum


class ModelState(Enum):
    """Whether a model takes calls."""

    UNSPECIFIED = "unspecified"
    """The server gave no state, or one that this client does not know."""
    READY = "ready"
    """Takes calls."""
    LOADING = "loading"
    """Being verified, loaded, warmed up and tested."""
    FAILED = "failed"
    """Could not be loaded; see the model's ``state_reason``."""
    DRAINING = "draining"
    """Finishes its calls and takes no new ones."""
    AVAILABLE = "available"
    """In the server's repository, not loaded."""
    RESTARTING = "restarting"
    """Loaded, but its engine has failed and has not proven itself again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One version of one model."""

    name: str
    version: int
    state: ModelState
    state_reason: str
    """Why it takes no calls; may be empty."""
    is_default: bool
    """Whether it gets calls without model and version, all or some."""
    precision: str
    """Precision of weights and arithmetic: fp32, fp16 or int8."""
    provider: str
    """Execution provider: cpu or cuda."""
    max_source_length: int
    """Maximum source length in tokens, including the end token."""
    max_target_length: int
    """Maximum target length in tokens, without the end token."""
    vocabulary_size: int
    """Number of tokens in the vocabulary."""
    description: str
    licence: str
    """Licence of the model, an SPDX identifier."""
    traffic_share: float = 0.0
    """Share of the calls without a version, from 0 to 1."""
    source_languages: tuple[str, ...] = ()
    """Codes of the languages of sources; empty if the model does not declare them."""
    target_languages: tuple[str, ...] = ()
    """Codes of the languages that it generates; empty if the model does not declare them."""
    has_shortlist: bool = False
    """Whether requests choose from a shortlist, where they do not switch it off."""
    slots: int = 0
    """Rows that can run at once; 0 if it is not loaded."""
    slots_in_use: int = 0
    """Rows that ran when the server answered."""
    queue_depth: int = 0
    """Requests that waited then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguagePair:
    """A source and a target language, and what answers calls that name both and no model."""

    source_language: str
    target_language: str
    models: tuple[str, ...]
    """The model, or the two models of a pivot in their order."""
    pivot_language: str
    """Code of the language between them; empty where one model serves the pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Usage of one token name in a period, and its quotas."""

    period: str
    """``"day"`` or ``"month"``, in UTC."""
    ends_s: int
    """Time at which it ends, in seconds since 1970."""
    requests: int
    """Sources that were answered."""
    characters: int
    """Characters of these sources."""
    tokens: int
    """Tokens of these sources and of all that was generated from them."""
    max_requests: int
    """Quota of requests; 0 for none."""
    max_characters: int
    """Quota of characters; 0 for none."""
    max_tokens: int
    """Quota of tokens; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glossary:
    """Terms of one source and one target language, from one file of the server."""

    name: str
    """Its name, which requests give; glossaries of other languages may have the same one."""
    source_language: str
    target_language: str
    entry_count: int
    modified_s: int
    """Time at which its file was written, in seconds since 1970."""
    fault: str
    """Why the file as it is now is not used, but the last one that was sound; empty if it is."""
    entries: tuple[tuple[str, str], ...] = ()
    """Source and target of each entry, in the order of the file; empty in a list of glossaries."""
