"""Draws calls of every method that generates, scores or tokenizes, for several models."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from tests.unit.server.front.services.open_inference.tensor import asking

from seqserve.open_inference import open_inference_pb2
from seqserve.v1 import generation_pb2 as pb
from seqserve_server.artifact.records import Template

SERVERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "languages": {
        "template": Template(
            source_prefix=["{source}"],
            source_suffix=["s"],
            target_prefix=["{target}"],
            source_languages={"en": "e", "de": "d"},
            target_languages={"en": "e", "de": "d"},
        )
    },
    "defaults": {"generation": {"segmentation": "sentences", "beam_size": 2}},
    "features": {
        "template": Template(
            source_suffix=["s"], source_languages={"en": ""}, target_languages={"de": ""}
        ),
        "generation": {"keep_placeholders": True, "lower_capitals": True},
    },
    "pivot": {"template": Template(source_languages={"en": ""}, target_languages={"de": ""})},
}
"""What differs in the manifest of the model of each server."""
OTHERS: dict[str, dict[str, Template]] = {
    "pivot": {"onward": Template(source_languages={"de": ""}, target_languages={"fr": ""})}
}
"""The templates of the other models of a server, by their names."""
GLOSSARY = {"coffee": "Kaffee", "tea": "Tee", "green tea": "Gruentee", "rain": "Regen", "ask": "?"}
"""The entries of the glossary ``drinks`` of the servers with features, of English to German."""
_CALLS = {"plain": 160, "languages": 70, "defaults": 100, "features": 140, "pivot": 120}

_SENTENCES = [
    "Hello there.",
    "It rains. We go.",
    "Dr. Smith is late. Is he?",
    "  white space around  ",
    "Grüße, 🙂!",
    "Она читает.",
    "これは本です。はい。",
    "one",
    "<b>bold</b>",
    "busy bees.",
    "busy. Bees hum. busy too.",
    "broken glass",
    "It is broken. broken again.",
    "",
    " \n",
    "first line\nsecond line\n\nlast line  ",
    "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w",
    "A long sentence, which has more than sixty-four bytes, so that it must be divided, somewhere.",
    "x" * 70,
    "e\u0301" * 40,
    "y" * 3000,
    "coffee and tea",
]
_TARGETS = ["Hallo.", "", "z" * 60, "ein Kaffee"]
_OPTIONS: list[dict[str, Any]] = [
    {"segmentation": "sentences"},
    {"segmentation": "sentences"},
    {"segmentation": "lines"},
    {"segmentation": "none"},
    {"segmentation": "sentences", "segmentation_language": "de"},
    {"time_limit_ms": 5000},
    {"max_decoding_length": 5},
    {"max_decoding_length": 48, "min_decoding_length": 2},
    {"beam_size": 2},
    {"beam_size": 4, "patience": 2.0, "num_hypotheses": 3},
    {"beam_size": 2, "coverage_penalty": 0.5},
    {"num_hypotheses": 2, "return_alternatives": True, "beam_size": 1},
    {"temperature": 0.5, "num_hypotheses": 2, "beam_size": 1},
    {"temperature": 0.5, "seed": 3, "beam_size": 1},
    {"disable_unk": True, "suppress_tokens": ["a"]},
    {"replace_unknowns": True},
    {"end_tokens": ["b"]},
    {"stop_sequences": ["ai"]},
    {"stop_sequences": ["e", "o"]},
    {"target_prefix": "So: "},
    {"target_prefix_tokens": ["S", "o"]},
    {
        "beam_size": 2,
        "terms": [pb.Term(source="coffee", target="Kaffee"), pb.Term(source="tea", target="Tee")],
    },
    {"vocabulary_allow": ["a", "b"]},
    {"return_scores": False},
    {"return_token_scores": True},
    {"return_top_tokens": 2},
    {"return_attention": True},
    {"return_alignment": True},
    {"return_alignment": True, "segmentation": "sentences"},
]
"""Options that go together."""
_WRONG_OPTIONS: list[dict[str, Any]] = [
    {"segmentation": "verses"},
    {"source_language": "xx"},
    {"max_decoding_length": 49},
    {"max_decoding_length": -1},
    {"min_decoding_length": 60},
    {"beam_size": 9},
    {"num_hypotheses": 3},
    {"coverage_penalty": 0.5},
    {"suppress_tokens": ["no such token"]},
    {"stop_sequences": [""]},
    {"target_prefix": "So: ", "segmentation": "sentences"},
    {"beam_size": 2, "terms": [pb.Term(source="rains", target="regnet" * 9)]},
]
_WRONG_SHARE = 0.15
_PARAMETERS: list[dict[str, Any]] = [
    {"beam_size": 2, "num_hypotheses": 2},
    {"max_decoding_length": 5},
    {"beam_size": 9},
    {"segmentation": "lines"},
]
_MAX_SOURCES = 6
_FEATURE_SENTENCES = [
    "Hello {name}, open https://example.org/a_b?c=1 now.",
    "ITS PRICE IS 50% OF {price}, SAYS KX7-4492.",
    "SHE DRINKS GREEN TEA. He drinks coffee.",
    "{a} {b}",
    "Some tea, some green tea, some COFFEE with {milk}{sugar}.",
    "a quick fox quits. {q} is quiet!",
    "WRITE TO quartz@example.org OR CALL",
    "Read {x}, {x} and {y}. Then {z}!",
    "rain in the   rainforest\n\n- {item}: GRAND TOTAL\n",
    "WE NEED STRASSE AND STRA\u00dfE, AND `code` TOO",
    "one word",
    "...",
    "2.0.1",
    "FIRST LINE HERE {n} AND A LOT MORE THAN SIXTY BYTES, WHICH MUST BE WRAPPED, {m}, SOMEWHERE",
]
_FEATURES: list[dict[str, Any]] = [
    {"keep_placeholders": True},
    {"keep_placeholders": True, "return_alignment": True},
    {"keep_placeholders": False},
    {"keep": ["tea", "fox"]},
    {"keep": ["e"], "keep_placeholders": True, "return_top_tokens": 1},
    {"lower_capitals": True},
    {"lower_capitals": False},
    {"lower_capitals": True, "return_alignment": True},
    {"replace_unknowns": True},
    {"draft_source": True},
    {"target_draft": "A draft of {name}."},
    {"target_draft": "So: a draft", "target_prefix": "So: "},
    {"segmentation": "sentences"},
    {"segmentation": "sentences"},
    {"segmentation": "lines"},
    {"beam_size": 2, "num_hypotheses": 2},
    {"return_attention": True},
    {"return_alignment": True},
    {"stop_sequences": ["fo"]},
    {"return_scores": True},
    {"max_decoding_length": 20},
    {"time_limit_ms": 9000},
    {"vocabulary_allow": ["a", "b", "e"]},
]
_WRONG_FEATURES: list[dict[str, Any]] = [
    {"keep": [" "]},
    {"target_draft": "d" * 20_000},
    {"target_draft": "d", "draft_source": True},
    {"glossary": "none"},
]
_TERM_FEATURES: list[dict[str, Any]] = [
    {"glossary": "drinks"},
    {"glossary": "drinks", "beam_size": 2},
    {"terms": [pb.Term(source="tea", target="Tee"), pb.Term(source="fox", target="Fuchs")]},
    {"glossary": "drinks", "terms": [pb.Term(source="coffee", target="Mokka")]},
]


class Method(NamedTuple):
    """A method of the server."""

    path: str
    request: type[Message]
    response: type[Message]
    client_streaming: bool
    server_streaming: bool


def _methods(file: Any, service: str, *names: str) -> dict[str, Method]:
    descriptor = file.DESCRIPTOR.services_by_name[service]
    return {
        name: Method(
            f"/{descriptor.full_name}/{name}",
            GetMessageClass(descriptor.methods_by_name[name].input_type),
            GetMessageClass(descriptor.methods_by_name[name].output_type),
            descriptor.methods_by_name[name].client_streaming,
            descriptor.methods_by_name[name].server_streaming,
        )
        for name in names
    }


METHODS = _methods(
    pb,
    "GenerationService",
    "Generate",
    "GenerateStream",
    "GenerateBatch",
    "GenerateBulk",
    "Score",
    "Attention",
    "Tokenize",
    "Detokenize",
) | _methods(open_inference_pb2, "GRPCInferenceService", "ModelInfer", "ModelStreamInfer")


@dataclass(frozen=True, slots=True)
class Call:
    """A method and the requests of a call, encoded."""

    server: str
    name: str
    requests: list[bytes]

    @property
    def method(self) -> Method:
        return METHODS[self.name]

    def written(self) -> dict[str, Any]:
        encoded = [base64.b64encode(request).decode() for request in self.requests]
        return {"server": self.server, "name": self.name, "requests": encoded}

    @classmethod
    def parse(cls, written: dict[str, Any]) -> Call:
        requests = [base64.b64decode(request) for request in written["requests"]]
        return cls(written["server"], written["name"], requests)


def calls(server: str, rng: random.Random) -> Iterator[Call]:
    """Draws the calls of a server: some by hand, the others at random."""
    if server in ("plain", "defaults"):
        for name, request in _chosen():
            yield Call(server, name, [request.SerializeToString()])
    names = list(METHODS)
    for index in range(_CALLS[server]):
        # The first six methods have the most ways.
        name = names[index % len(names)] if index % 3 else rng.choice(names[:4])
        count = rng.randint(1, 5) if METHODS[name].client_streaming else 1
        requests = [_DRAWERS[name](rng, place) for place in range(count)]
        for request in requests:
            if server == "languages":
                _name_languages(request, rng)
            elif server in ("features", "pivot"):
                _use_features(request, rng, server)
        # Where a damaged message ends a call, gRPC may report that it could not send the next ones.
        damage = _unchanged if name == "ModelStreamInfer" else _sometimes_damaged
        yield Call(server, name, [damage(rng, request) for request in requests])


def _chosen() -> Iterator[tuple[str, Message]]:
    """A lone segment beside the same text undivided, with white space around it or not."""
    for source in ("It rains.", "  It rains.\n", "It rains. We go.", "..."):
        for segmentation in ("none", "sentences"):
            options = pb.GenerationOptions(segmentation=segmentation)
            for name in ("Generate", "GenerateStream"):
                yield name, pb.GenerateRequest(source=source, options=options)
            yield "GenerateBatch", pb.GenerateBatchRequest(sources=[source], options=options)
    for source in ("busy alone", "busy. We go."):
        for segmentation in ("none", "sentences"):
            options = pb.GenerationOptions(segmentation=segmentation)
            yield "Generate", pb.GenerateRequest(source=source, options=options)


def _name_languages(request: Any, rng: random.Random) -> None:
    """Names the languages that the model needs, in most requests."""
    if isinstance(request, pb.GenerateBulkRequest):
        request = request.request
    named = request.options if hasattr(request, "options") else request
    for name in ("source_language", "target_language"):
        if hasattr(named, name) and rng.random() < 0.95:
            setattr(named, name, rng.choice(["en", "de"]))
        elif hasattr(request, "parameters"):
            request.parameters[name].string_param = "de"


def _use_features(request: Any, rng: random.Random, server: str) -> None:
    """Draws texts and options anew, of those that change a text before and after the model."""
    if isinstance(request, pb.GenerateBulkRequest):
        request = request.request
    sources = [_feature_text(rng) for _ in range(rng.randint(1, 3))]
    if hasattr(request, "source"):
        request.source = sources[0]
    elif hasattr(request, "sources"):
        request.sources[:] = sources
    if hasattr(request, "parameters") and rng.random() < 0.5:
        request.parameters["keep_placeholders"].bool_param = True
        request.parameters["glossary"].string_param = "drinks"
    if isinstance(request, pb.GenerateRequest | pb.GenerateBatchRequest):
        request.options.CopyFrom(_feature_options(rng, server))


def _feature_text(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return " ".join(rng.sample(_FEATURE_SENTENCES, 2))
    return rng.choice(_FEATURE_SENTENCES)


def _feature_options(rng: random.Random, server: str) -> pb.GenerationOptions:
    is_pivot = server == "pivot"
    options: dict[str, Any] = {"max_decoding_length": 47}
    for chosen in rng.sample(_FEATURES, rng.choice([1, 2, 2, 3])):
        options |= chosen
    if rng.random() < (0.05 if is_pivot else 0.4):
        options |= rng.choice(_TERM_FEATURES)
    if rng.random() < 0.08:
        options |= rng.choice(_WRONG_FEATURES)
    if is_pivot and rng.random() < 0.95:
        options |= {"source_language": "en", "target_language": "fr"}
        if rng.random() < 0.9:
            options.pop("return_attention", None)
    return pb.GenerationOptions(**options)


def _unchanged(rng: random.Random, request: Message) -> bytes:
    return request.SerializeToString()


def _sometimes_damaged(rng: random.Random, request: Message) -> bytes:
    data = request.SerializeToString()
    return data + b"\x0a\xff" if rng.random() < 0.02 else data


def _options(rng: random.Random) -> pb.GenerationOptions:
    options: dict[str, Any] = {}
    for chosen in rng.sample(_OPTIONS, rng.choice([0, 1, 1, 2])):
        options |= chosen
    if rng.random() < _WRONG_SHARE:
        options |= rng.choice(_WRONG_OPTIONS)
    return pb.GenerationOptions(**options)


def _common(rng: random.Random) -> dict[str, Any]:
    model, version = rng.choice([("", 0)] * 20 + [("echo", 2), ("echo", 9), ("none", 0)])
    return {"model": model, "version": version}


def _sources(rng: random.Random, most: int = _MAX_SOURCES) -> list[str]:
    return [_text(rng) for _ in range(rng.randint(1, most))]


def _text(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return " ".join(rng.sample(_SENTENCES, 3))
    return rng.choice(_SENTENCES)


def _generate(rng: random.Random, place: int) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        source=_text(rng), options=_options(rng), priority=rng.choice([0, 1, 2]), **_common(rng)
    )


def _batch(rng: random.Random, place: int) -> pb.GenerateBatchRequest:
    return pb.GenerateBatchRequest(
        sources=_sources(rng), options=_options(rng), priority=rng.choice([0, 2]), **_common(rng)
    )


def _bulk(rng: random.Random, place: int) -> pb.GenerateBulkRequest:
    return pb.GenerateBulkRequest(id=place, request=_generate(rng, place))


def _score(rng: random.Random, place: int) -> pb.ScoreRequest:
    target = rng.choice(_TARGETS)
    return pb.ScoreRequest(source=_text(rng), target=target, **_common(rng))


def _attention(rng: random.Random, place: int) -> pb.AttentionRequest:
    target = {"target": rng.choice(_TARGETS)} if rng.random() < 0.5 else {}
    return pb.AttentionRequest(source=_text(rng), **target, **_common(rng))


def _tokenize(rng: random.Random, place: int) -> pb.TokenizeRequest:
    return pb.TokenizeRequest(text=_text(rng), is_target=rng.random() < 0.5, **_common(rng))


def _detokenize(rng: random.Random, place: int) -> pb.DetokenizeRequest:
    ids = [rng.choice([4, 70, 80, 90, 110, 259, 260]) for _ in range(rng.randint(0, 5))]
    return pb.DetokenizeRequest(token_ids=ids, **_common(rng))


def _infer(rng: random.Random, place: int) -> Message:
    parameters: dict[str, Any] = rng.choice([{}, {}, *_PARAMETERS])
    outputs = rng.choice([[], ["text"], ["text", "score"], ["text", "normalized_score"]])
    texts = [rng.choice(_SENTENCES[:8]) for _ in range(rng.randint(1, 3))]
    is_raw = rng.random() < 0.5
    return asking(*texts, raw=is_raw, outputs=outputs, id=str(place), **parameters)


def _stream_infer(rng: random.Random, place: int) -> Message:
    if rng.random() < 0.6:
        return _infer(rng, place)
    source = rng.choice(_SENTENCES[:8])
    return asking(source, raw=rng.random() < 0.5, outputs=["text"], id=str(place), stream=True)


_DRAWERS = {
    "Generate": _generate,
    "GenerateStream": _generate,
    "GenerateBatch": _batch,
    "GenerateBulk": _bulk,
    "Score": _score,
    "Attention": _attention,
    "Tokenize": _tokenize,
    "Detokenize": _detokenize,
    "ModelInfer": _infer,
    "ModelStreamInfer": _stream_infer,
}
