from seqserve.v1 import options_pb2 as _options_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_NORMAL: _ClassVar[Priority]
    PRIORITY_LOW: _ClassVar[Priority]

class SourceWarning(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SOURCE_WARNING_UNSPECIFIED: _ClassVar[SourceWarning]
    SOURCE_WARNING_UNKNOWN_CHARACTERS: _ClassVar[SourceWarning]
    SOURCE_WARNING_OTHER_SCRIPT: _ClassVar[SourceWarning]
    SOURCE_WARNING_MARKUP: _ClassVar[SourceWarning]

class TextWarningKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TEXT_WARNING_KIND_UNSPECIFIED: _ClassVar[TextWarningKind]
    TEXT_WARNING_KIND_NUMBERS_DIFFER: _ClassVar[TextWarningKind]

class Placement(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLACEMENT_UNSPECIFIED: _ClassVar[Placement]
    PLACEMENT_GENERATED: _ClassVar[Placement]
    PLACEMENT_ALIGNED: _ClassVar[Placement]
    PLACEMENT_INSERTED: _ClassVar[Placement]
    PLACEMENT_LOST: _ClassVar[Placement]

class StopReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOP_REASON_UNSPECIFIED: _ClassVar[StopReason]
    STOP_REASON_EOS: _ClassVar[StopReason]
    STOP_REASON_LENGTH: _ClassVar[StopReason]
    STOP_REASON_STOP_SEQUENCE: _ClassVar[StopReason]
    STOP_REASON_TIME_LIMIT: _ClassVar[StopReason]
PRIORITY_UNSPECIFIED: Priority
PRIORITY_NORMAL: Priority
PRIORITY_LOW: Priority
SOURCE_WARNING_UNSPECIFIED: SourceWarning
SOURCE_WARNING_UNKNOWN_CHARACTERS: SourceWarning
SOURCE_WARNING_OTHER_SCRIPT: SourceWarning
SOURCE_WARNING_MARKUP: SourceWarning
TEXT_WARNING_KIND_UNSPECIFIED: TextWarningKind
TEXT_WARNING_KIND_NUMBERS_DIFFER: TextWarningKind
PLACEMENT_UNSPECIFIED: Placement
PLACEMENT_GENERATED: Placement
PLACEMENT_ALIGNED: Placement
PLACEMENT_INSERTED: Placement
PLACEMENT_LOST: Placement
STOP_REASON_UNSPECIFIED: StopReason
STOP_REASON_EOS: StopReason
STOP_REASON_LENGTH: StopReason
STOP_REASON_STOP_SEQUENCE: StopReason
STOP_REASON_TIME_LIMIT: StopReason

class GenerateRequest(_message.Message):
    __slots__ = ("model", "version", "source", "options", "priority")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    source: str
    options: GenerationOptions
    priority: Priority
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., source: _Optional[str] = ..., options: _Optional[_Union[GenerationOptions, _Mapping]] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class GenerationOptions(_message.Message):
    __slots__ = ("source_language", "target_language", "segmentation", "segmentation_language", "time_limit_ms", "max_decoding_length", "min_decoding_length", "force_end_token", "beam_size", "patience", "early_stopping", "length_penalty", "coverage_penalty", "num_hypotheses", "return_alternatives", "min_alternative_expansion_prob", "temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty", "no_repeat_ngram_size", "disable_unk", "replace_unknowns", "suppress_tokens", "suppress_sequences", "end_tokens", "stop_sequences", "target_prefix", "target_prefix_tokens", "prefix_bias_beta", "terms", "keep_placeholders", "keep", "lower_capitals", "verify_numbers", "formality", "glossary", "target_draft", "draft_source", "vocabulary_allow", "shortlist", "return_scores", "return_token_scores", "return_top_tokens", "return_attention", "return_alignment")
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTATION_FIELD_NUMBER: _ClassVar[int]
    SEGMENTATION_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_DECODING_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MIN_DECODING_LENGTH_FIELD_NUMBER: _ClassVar[int]
    FORCE_END_TOKEN_FIELD_NUMBER: _ClassVar[int]
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    EARLY_STOPPING_FIELD_NUMBER: _ClassVar[int]
    LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    NUM_HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    RETURN_ALTERNATIVES_FIELD_NUMBER: _ClassVar[int]
    MIN_ALTERNATIVE_EXPANSION_PROB_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    NO_REPEAT_NGRAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    DISABLE_UNK_FIELD_NUMBER: _ClassVar[int]
    REPLACE_UNKNOWNS_FIELD_NUMBER: _ClassVar[int]
    SUPPRESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SUPPRESS_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    END_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    TARGET_PREFIX_FIELD_NUMBER: _ClassVar[int]
    TARGET_PREFIX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_BIAS_BETA_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    KEEP_PLACEHOLDERS_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    LOWER_CAPITALS_FIELD_NUMBER: _ClassVar[int]
    VERIFY_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    FORMALITY_FIELD_NUMBER: _ClassVar[int]
    GLOSSARY_FIELD_NUMBER: _ClassVar[int]
    TARGET_DRAFT_FIELD_NUMBER: _ClassVar[int]
    DRAFT_SOURCE_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_ALLOW_FIELD_NUMBER: _ClassVar[int]
    SHORTLIST_FIELD_NUMBER: _ClassVar[int]
    RETURN_SCORES_FIELD_NUMBER: _ClassVar[int]
    RETURN_TOKEN_SCORES_FIELD_NUMBER: _ClassVar[int]
    RETURN_TOP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RETURN_ATTENTION_FIELD_NUMBER: _ClassVar[int]
    RETURN_ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    source_language: str
    target_language: str
    segmentation: str
    segmentation_language: str
    time_limit_ms: int
    max_decoding_length: int
    min_decoding_length: int
    force_end_token: bool
    beam_size: int
    patience: float
    early_stopping: str
    length_penalty: float
    coverage_penalty: float
    num_hypotheses: int
    return_alternatives: bool
    min_alternative_expansion_prob: float
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    repetition_penalty: float
    no_repeat_ngram_size: int
    disable_unk: bool
    replace_unknowns: bool
    suppress_tokens: _containers.RepeatedScalarFieldContainer[str]
    suppress_sequences: _containers.RepeatedCompositeFieldContainer[TokenSequence]
    end_tokens: _containers.RepeatedScalarFieldContainer[str]
    stop_sequences: _containers.RepeatedScalarFieldContainer[str]
    target_prefix: str
    target_prefix_tokens: _containers.RepeatedScalarFieldContainer[str]
    prefix_bias_beta: float
    terms: _containers.RepeatedCompositeFieldContainer[Term]
    keep_placeholders: bool
    keep: _containers.RepeatedScalarFieldContainer[str]
    lower_capitals: bool
    verify_numbers: bool
    formality: str
    glossary: str
    target_draft: str
    draft_source: bool
    vocabulary_allow: _containers.RepeatedScalarFieldContainer[str]
    shortlist: bool
    return_scores: bool
    return_token_scores: bool
    return_top_tokens: int
    return_attention: bool
    return_alignment: bool
    def __init__(self, source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., segmentation: _Optional[str] = ..., segmentation_language: _Optional[str] = ..., time_limit_ms: _Optional[int] = ..., max_decoding_length: _Optional[int] = ..., min_decoding_length: _Optional[int] = ..., force_end_token: bool = ..., beam_size: _Optional[int] = ..., patience: _Optional[float] = ..., early_stopping: _Optional[str] = ..., length_penalty: _Optional[float] = ..., coverage_penalty: _Optional[float] = ..., num_hypotheses: _Optional[int] = ..., return_alternatives: bool = ..., min_alternative_expansion_prob: _Optional[float] = ..., temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., seed: _Optional[int] = ..., repetition_penalty: _Optional[float] = ..., no_repeat_ngram_size: _Optional[int] = ..., disable_unk: bool = ..., replace_unknowns: bool = ..., suppress_tokens: _Optional[_Iterable[str]] = ..., suppress_sequences: _Optional[_Iterable[_Union[TokenSequence, _Mapping]]] = ..., end_tokens: _Optional[_Iterable[str]] = ..., stop_sequences: _Optional[_Iterable[str]] = ..., target_prefix: _Optional[str] = ..., target_prefix_tokens: _Optional[_Iterable[str]] = ..., prefix_bias_beta: _Optional[float] = ..., terms: _Optional[_Iterable[_Union[Term, _Mapping]]] = ..., keep_placeholders: bool = ..., keep: _Optional[_Iterable[str]] = ..., lower_capitals: bool = ..., verify_numbers: bool = ..., formality: _Optional[str] = ..., glossary: _Optional[str] = ..., target_draft: _Optional[str] = ..., draft_source: bool = ..., vocabulary_allow: _Optional[_Iterable[str]] = ..., shortlist: bool = ..., return_scores: bool = ..., return_token_scores: bool = ..., return_top_tokens: _Optional[int] = ..., return_attention: bool = ..., return_alignment: bool = ...) -> None: ...

class Term(_message.Message):
    __slots__ = ("source", "target")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class TokenSequence(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("model", "version", "hypotheses", "source_tokens", "generated_tokens", "timings", "source_pieces", "segments", "source_warnings", "legs", "detected_language")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PIECES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_WARNINGS_FIELD_NUMBER: _ClassVar[int]
    LEGS_FIELD_NUMBER: _ClassVar[int]
    DETECTED_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    hypotheses: _containers.RepeatedCompositeFieldContainer[Hypothesis]
    source_tokens: int
    generated_tokens: int
    timings: Timings
    source_pieces: _containers.RepeatedScalarFieldContainer[str]
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    source_warnings: _containers.RepeatedScalarFieldContainer[SourceWarning]
    legs: _containers.RepeatedCompositeFieldContainer[Leg]
    detected_language: DetectedLanguage
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., hypotheses: _Optional[_Iterable[_Union[Hypothesis, _Mapping]]] = ..., source_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., source_pieces: _Optional[_Iterable[str]] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., source_warnings: _Optional[_Iterable[_Union[SourceWarning, str]]] = ..., legs: _Optional[_Iterable[_Union[Leg, _Mapping]]] = ..., detected_language: _Optional[_Union[DetectedLanguage, _Mapping]] = ...) -> None: ...

class Leg(_message.Message):
    __slots__ = ("model", "version", "source_language", "target_language", "text", "confidence", "stop_reason", "source_tokens", "generated_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    source_language: str
    target_language: str
    text: str
    confidence: float
    stop_reason: StopReason
    source_tokens: int
    generated_tokens: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., text: _Optional[str] = ..., confidence: _Optional[float] = ..., stop_reason: _Optional[_Union[StopReason, str]] = ..., source_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ...) -> None: ...

class DetectedLanguage(_message.Message):
    __slots__ = ("language", "confidence")
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    language: str
    confidence: float
    def __init__(self, language: _Optional[str] = ..., confidence: _Optional[float] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("source_begin", "source_end", "target_begin", "target_end", "is_wrapped", "hypotheses", "source_tokens", "source_pieces", "source_warnings")
    SOURCE_BEGIN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_END_FIELD_NUMBER: _ClassVar[int]
    TARGET_BEGIN_FIELD_NUMBER: _ClassVar[int]
    TARGET_END_FIELD_NUMBER: _ClassVar[int]
    IS_WRAPPED_FIELD_NUMBER: _ClassVar[int]
    HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PIECES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_WARNINGS_FIELD_NUMBER: _ClassVar[int]
    source_begin: int
    source_end: int
    target_begin: int
    target_end: int
    is_wrapped: bool
    hypotheses: _containers.RepeatedCompositeFieldContainer[Hypothesis]
    source_tokens: int
    source_pieces: _containers.RepeatedScalarFieldContainer[str]
    source_warnings: _containers.RepeatedScalarFieldContainer[SourceWarning]
    def __init__(self, source_begin: _Optional[int] = ..., source_end: _Optional[int] = ..., target_begin: _Optional[int] = ..., target_end: _Optional[int] = ..., is_wrapped: bool = ..., hypotheses: _Optional[_Iterable[_Union[Hypothesis, _Mapping]]] = ..., source_tokens: _Optional[int] = ..., source_pieces: _Optional[_Iterable[str]] = ..., source_warnings: _Optional[_Iterable[_Union[SourceWarning, str]]] = ...) -> None: ...

class GenerateBatchRequest(_message.Message):
    __slots__ = ("model", "version", "sources", "options", "priority")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    sources: _containers.RepeatedScalarFieldContainer[str]
    options: GenerationOptions
    priority: Priority
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., sources: _Optional[_Iterable[str]] = ..., options: _Optional[_Union[GenerationOptions, _Mapping]] = ..., priority: _Optional[_Union[Priority, str]] = ...) -> None: ...

class GenerateBatchResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("response", "failure")
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    response: GenerateResponse
    failure: Failure
    def __init__(self, response: _Optional[_Union[GenerateResponse, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class GenerateBulkRequest(_message.Message):
    __slots__ = ("id", "request", "more", "max_response_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    MAX_RESPONSE_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: int
    request: GenerateRequest
    more: _containers.RepeatedCompositeFieldContainer[GenerateBulkRequest]
    max_response_bytes: int
    def __init__(self, id: _Optional[int] = ..., request: _Optional[_Union[GenerateRequest, _Mapping]] = ..., more: _Optional[_Iterable[_Union[GenerateBulkRequest, _Mapping]]] = ..., max_response_bytes: _Optional[int] = ...) -> None: ...

class GenerateBulkResponse(_message.Message):
    __slots__ = ("id", "outcome", "more", "max_requests")
    ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    id: int
    outcome: Outcome
    more: _containers.RepeatedCompositeFieldContainer[GenerateBulkResponse]
    max_requests: int
    def __init__(self, id: _Optional[int] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ..., more: _Optional[_Iterable[_Union[GenerateBulkResponse, _Mapping]]] = ..., max_requests: _Optional[int] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message", "field", "retry_after_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    field: str
    retry_after_ms: float
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., field: _Optional[str] = ..., retry_after_ms: _Optional[float] = ...) -> None: ...

class Hypothesis(_message.Message):
    __slots__ = ("text", "tokens", "token_ids", "score", "stop_reason", "normalized_score", "token_scores", "top_tokens", "attention", "unmet_terms", "confidence", "alignment", "kept", "warnings")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    NORMALIZED_SCORE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_SCORES_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_FIELD_NUMBER: _ClassVar[int]
    UNMET_TERMS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: _containers.RepeatedScalarFieldContainer[str]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    score: float
    stop_reason: StopReason
    normalized_score: float
    token_scores: _containers.RepeatedScalarFieldContainer[float]
    top_tokens: _containers.RepeatedCompositeFieldContainer[TopTokens]
    attention: _containers.RepeatedCompositeFieldContainer[TokenAttention]
    unmet_terms: _containers.RepeatedCompositeFieldContainer[Term]
    confidence: float
    alignment: Alignment
    kept: _containers.RepeatedCompositeFieldContainer[KeptText]
    warnings: _containers.RepeatedCompositeFieldContainer[TextWarning]
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[_Iterable[str]] = ..., token_ids: _Optional[_Iterable[int]] = ..., score: _Optional[float] = ..., stop_reason: _Optional[_Union[StopReason, str]] = ..., normalized_score: _Optional[float] = ..., token_scores: _Optional[_Iterable[float]] = ..., top_tokens: _Optional[_Iterable[_Union[TopTokens, _Mapping]]] = ..., attention: _Optional[_Iterable[_Union[TokenAttention, _Mapping]]] = ..., unmet_terms: _Optional[_Iterable[_Union[Term, _Mapping]]] = ..., confidence: _Optional[float] = ..., alignment: _Optional[_Union[Alignment, _Mapping]] = ..., kept: _Optional[_Iterable[_Union[KeptText, _Mapping]]] = ..., warnings: _Optional[_Iterable[_Union[TextWarning, _Mapping]]] = ...) -> None: ...

class TextWarning(_message.Message):
    __slots__ = ("kind", "source_text", "source_begin", "source_end", "target_text", "target_begin", "target_end")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TEXT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_BEGIN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_END_FIELD_NUMBER: _ClassVar[int]
    TARGET_TEXT_FIELD_NUMBER: _ClassVar[int]
    TARGET_BEGIN_FIELD_NUMBER: _ClassVar[int]
    TARGET_END_FIELD_NUMBER: _ClassVar[int]
    kind: TextWarningKind
    source_text: str
    source_begin: int
    source_end: int
    target_text: str
    target_begin: int
    target_end: int
    def __init__(self, kind: _Optional[_Union[TextWarningKind, str]] = ..., source_text: _Optional[str] = ..., source_begin: _Optional[int] = ..., source_end: _Optional[int] = ..., target_text: _Optional[str] = ..., target_begin: _Optional[int] = ..., target_end: _Optional[int] = ...) -> None: ...

class KeptText(_message.Message):
    __slots__ = ("text", "source_begin", "source_end", "target_begin", "target_end", "placement")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_BEGIN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_END_FIELD_NUMBER: _ClassVar[int]
    TARGET_BEGIN_FIELD_NUMBER: _ClassVar[int]
    TARGET_END_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    text: str
    source_begin: int
    source_end: int
    target_begin: int
    target_end: int
    placement: Placement
    def __init__(self, text: _Optional[str] = ..., source_begin: _Optional[int] = ..., source_end: _Optional[int] = ..., target_begin: _Optional[int] = ..., target_end: _Optional[int] = ..., placement: _Optional[_Union[Placement, str]] = ...) -> None: ...

class Alignment(_message.Message):
    __slots__ = ("source_begins", "source_ends", "target_begins", "target_ends")
    SOURCE_BEGINS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ENDS_FIELD_NUMBER: _ClassVar[int]
    TARGET_BEGINS_FIELD_NUMBER: _ClassVar[int]
    TARGET_ENDS_FIELD_NUMBER: _ClassVar[int]
    source_begins: _containers.RepeatedScalarFieldContainer[int]
    source_ends: _containers.RepeatedScalarFieldContainer[int]
    target_begins: _containers.RepeatedScalarFieldContainer[int]
    target_ends: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, source_begins: _Optional[_Iterable[int]] = ..., source_ends: _Optional[_Iterable[int]] = ..., target_begins: _Optional[_Iterable[int]] = ..., target_ends: _Optional[_Iterable[int]] = ...) -> None: ...

class TopTokens(_message.Message):
    __slots__ = ("tokens", "token_ids", "scores")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[str]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    scores: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, tokens: _Optional[_Iterable[str]] = ..., token_ids: _Optional[_Iterable[int]] = ..., scores: _Optional[_Iterable[float]] = ...) -> None: ...

class TokenAttention(_message.Message):
    __slots__ = ("weights",)
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    weights: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, weights: _Optional[_Iterable[float]] = ...) -> None: ...

class ScoreRequest(_message.Message):
    __slots__ = ("model", "version", "source", "target", "source_language", "target_language")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    source: str
    target: str
    source_language: str
    target_language: str
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., source: _Optional[str] = ..., target: _Optional[str] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ("model", "version", "tokens", "token_ids", "token_scores", "score", "normalized_score", "source_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_SCORES_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    NORMALIZED_SCORE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    tokens: _containers.RepeatedScalarFieldContainer[str]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    token_scores: _containers.RepeatedScalarFieldContainer[float]
    score: float
    normalized_score: float
    source_tokens: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., tokens: _Optional[_Iterable[str]] = ..., token_ids: _Optional[_Iterable[int]] = ..., token_scores: _Optional[_Iterable[float]] = ..., score: _Optional[float] = ..., normalized_score: _Optional[float] = ..., source_tokens: _Optional[int] = ...) -> None: ...

class AttentionRequest(_message.Message):
    __slots__ = ("model", "version", "source", "target", "source_language", "target_language")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    source: str
    target: str
    source_language: str
    target_language: str
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., source: _Optional[str] = ..., target: _Optional[str] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ...) -> None: ...

class AttentionResponse(_message.Message):
    __slots__ = ("model", "version", "source_tokens", "target_tokens", "encoder", "decoder", "cross")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENCODER_FIELD_NUMBER: _ClassVar[int]
    DECODER_FIELD_NUMBER: _ClassVar[int]
    CROSS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    source_tokens: _containers.RepeatedScalarFieldContainer[str]
    target_tokens: _containers.RepeatedScalarFieldContainer[str]
    encoder: AttentionWeights
    decoder: AttentionWeights
    cross: AttentionWeights
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., source_tokens: _Optional[_Iterable[str]] = ..., target_tokens: _Optional[_Iterable[str]] = ..., encoder: _Optional[_Union[AttentionWeights, _Mapping]] = ..., decoder: _Optional[_Union[AttentionWeights, _Mapping]] = ..., cross: _Optional[_Union[AttentionWeights, _Mapping]] = ...) -> None: ...

class AttentionWeights(_message.Message):
    __slots__ = ("layers", "heads", "queries", "keys", "weights")
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    layers: int
    heads: int
    queries: int
    keys: int
    weights: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, layers: _Optional[int] = ..., heads: _Optional[int] = ..., queries: _Optional[int] = ..., keys: _Optional[int] = ..., weights: _Optional[_Iterable[float]] = ...) -> None: ...

class TokenizeRequest(_message.Message):
    __slots__ = ("model", "version", "text", "is_target", "source_language", "target_language")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IS_TARGET_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    text: str
    is_target: bool
    source_language: str
    target_language: str
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., text: _Optional[str] = ..., is_target: bool = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ...) -> None: ...

class TokenizeResponse(_message.Message):
    __slots__ = ("model", "version", "tokens", "token_ids", "begins", "ends", "length", "max_length")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    tokens: _containers.RepeatedScalarFieldContainer[str]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    begins: _containers.RepeatedScalarFieldContainer[int]
    ends: _containers.RepeatedScalarFieldContainer[int]
    length: int
    max_length: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., tokens: _Optional[_Iterable[str]] = ..., token_ids: _Optional[_Iterable[int]] = ..., begins: _Optional[_Iterable[int]] = ..., ends: _Optional[_Iterable[int]] = ..., length: _Optional[int] = ..., max_length: _Optional[int] = ...) -> None: ...

class DetokenizeRequest(_message.Message):
    __slots__ = ("model", "version", "token_ids")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DetectLanguageRequest(_message.Message):
    __slots__ = ("text", "languages")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    text: str
    languages: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, text: _Optional[str] = ..., languages: _Optional[_Iterable[str]] = ...) -> None: ...

class DetectLanguageResponse(_message.Message):
    __slots__ = ("languages",)
    LANGUAGES_FIELD_NUMBER: _ClassVar[int]
    languages: _containers.RepeatedCompositeFieldContainer[DetectedLanguage]
    def __init__(self, languages: _Optional[_Iterable[_Union[DetectedLanguage, _Mapping]]] = ...) -> None: ...

class DetokenizeResponse(_message.Message):
    __slots__ = ("model", "version", "text")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    text: str
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class GenerateStreamResponse(_message.Message):
    __slots__ = ("piece", "result")
    PIECE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    piece: Piece
    result: GenerateResponse
    def __init__(self, piece: _Optional[_Union[Piece, _Mapping]] = ..., result: _Optional[_Union[GenerateResponse, _Mapping]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("text", "token_ids")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    text: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, text: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue_ms", "encode_ms", "decode_ms", "first_token_ms", "total_ms")
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    ENCODE_MS_FIELD_NUMBER: _ClassVar[int]
    DECODE_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    queue_ms: float
    encode_ms: float
    decode_ms: float
    first_token_ms: float
    total_ms: float
    def __init__(self, queue_ms: _Optional[float] = ..., encode_ms: _Optional[float] = ..., decode_ms: _Optional[float] = ..., first_token_ms: _Optional[float] = ..., total_ms: _Optional[float] = ...) -> None: ...
