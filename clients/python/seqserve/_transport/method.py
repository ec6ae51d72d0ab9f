"""The methods that a client calls."""

from __future__ import annotations

from enum import Enum


class Method(Enum):
    """A method of GenerationService or ModelService, by its name."""

    GENERATE = "Generate"
    GENERATE_STREAM = "GenerateStream"
    GENERATE_BATCH = "GenerateBatch"
    GENERATE_BULK = "GenerateBulk"
    SCORE = "Score"
    ATTENTION = "Attention"
    TOKENIZE = "Tokenize"
    DETOKENIZE = "Detokenize"
    DETECT_LANGUAGE = "DetectLanguage"
    LIST_MODELS = "ListModels"
    GET_MODEL = "GetModel"
    LOAD_MODEL = "LoadModel"
    UNLOAD_MODEL = "UnloadModel"
    SET_TRAFFIC = "SetTraffic"
    LIST_GLOSSARIES = "ListGlossaries"
    GET_GLOSSARY = "GetGlossary"
