"""Records in a manifest: how a model was made, rounded and proved."""

from dataclasses import dataclass


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
