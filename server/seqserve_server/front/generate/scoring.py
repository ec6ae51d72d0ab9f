"""Answers the calls that generate nothing: Score, Attention, Tokenize and Detokenize."""

import asyncio
from collections.abc import Generator
from dataclasses import replace

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.events import floats
from seqserve_server.contract.request import GenerateSpec, ScoreSpec
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.generate.engine_call import EngineCall, answer_of
from seqserve_server.front.generate.languages import Affixes, affixes_of
from seqserve_server.front.generate.options import default_options
from seqserve_server.front.generate.records import (
    ANSWER_BYTES,
    FLOAT_BYTES,
    ID_BYTES,
    STRING_BYTES,
    Options,
)
from seqserve_server.front.generate.source import SourceReader, check_length
from seqserve_server.front.models.loaded_model import LoadedModel, ServedModel
from seqserve_server.front.overload.memory import AnswerSize
from seqserve_server.text.tokenizer import Tokenizer
from seqserve_server.text.vocabulary import Pieces

MAX_CHARACTERS = MAX_TOKENS = 100_000
"""Longest text, in code points, and most tokens."""
MAX_TOKENS_PER_CHARACTER = 4
"""As many as bytes; a text whose normal form has more is refused."""

_Request = generation_pb2.ScoreRequest | generation_pb2.AttentionRequest


async def score(
    model: ServedModel, request: generation_pb2.ScoreRequest, call: ServerCall
) -> generation_pb2.ScoreResponse:
    """Scores a given target."""
    affixes = _affixes(model, request)
    source = await _source_tokens(model, request, affixes, call)
    target = target_tokens(model, request.target, affixes)
    string = model.tokenizer.token_bytes + STRING_BYTES
    tokens = len(source) + len(target)
    size = ANSWER_BYTES + tokens * (string + ID_BYTES + FLOAT_BYTES)
    await call.reserve(AnswerSize({"target": size}), request)
    spec = ScoreSpec(
        source=source, target=target, start_token=affixes.start_token, **call.spec_fields()
    )
    scores = (await EngineCall(model.engine, spec, call, answer_of).begin()).token_scores
    # The model's forced first tokens are given, like the prefix of a generated text.
    num_given = len(affixes.target)
    target, scores = target[num_given:], scores[num_given:]
    return generation_pb2.ScoreResponse(
        model=model.manifest.name,
        version=model.manifest.version,
        tokens=model.tokenizer.target.tokens(target),
        token_ids=target,
        token_scores=scores,
        score=sum(scores),
        normalized_score=sum(scores) / len(scores),
        source_tokens=len(source),
    )


async def attention(
    model: ServedModel, request: generation_pb2.AttentionRequest, call: ServerCall
) -> generation_pb2.AttentionResponse:
    """Returns the attention of a target, which is generated if the request has none."""
    affixes = _affixes(model, request)
    source = await _source_tokens(model, request, affixes, call)
    most = model.manifest.limits.max_target_length + 1
    if request.HasField("target"):
        target = target_tokens(model, request.target, affixes)
        most = len(target)
    size = attended_size(model.manifest, model.tokenizer, len(source), most)
    await call.reserve(size, request)
    if not request.HasField("target"):
        options = replace(default_options(model.manifest), prefix=affixes.target)
        generate = GenerateSpec(
            source=source, options=options, start_token=affixes.start_token, **call.spec_fields()
        )
        answer = await EngineCall(model.engine, generate, call, answer_of).begin()
        target = [*answer.best.token_ids, model.manifest.tokens.eos]
    spec = ScoreSpec(
        source=source,
        target=target,
        wants_attention=True,
        start_token=affixes.start_token,
        **call.spec_fields(),
    )
    scored = await EngineCall(model.engine, spec, call, answer_of).begin()
    encoder, decoder, cross = scored.weights
    shape, read, written = model.manifest.architecture, len(source), len(target)
    return generation_pb2.AttentionResponse(
        model=model.manifest.name,
        version=model.manifest.version,
        source_tokens=model.tokenizer.source.tokens(source),
        target_tokens=model.tokenizer.target.tokens(target),
        encoder=weights_of(encoder, shape.encoder_heads or shape.heads, read, read),
        decoder=weights_of(decoder, shape.heads, written, written),
        cross=weights_of(cross, shape.heads, written, read),
    )


async def tokenize(
    model: ServedModel, request: generation_pb2.TokenizeRequest, call: ServerCall
) -> generation_pb2.TokenizeResponse:
    """Divides a text into tokens."""
    text, tokenizer = request.text, model.tokenizer
    if len(text) > MAX_CHARACTERS:
        reason = f"has {len(text):,} characters; a call takes at most {MAX_CHARACTERS:,}"
        raise InvalidRequest("text", reason)
    affixes = _affixes(model, request)
    max_tokens = MAX_TOKENS_PER_CHARACTER * len(text)
    await call.reserve(_tokenized_size(max_tokens, tokenizer.token_bytes), request)
    steps = _tokenized(tokenizer, text, affixes, is_target=request.is_target)
    pieces, length = await call.resources.texts.read(call.client_id, steps, len(text))
    if len(pieces.ids) > max_tokens:
        reason = f"has {len(pieces.ids):,} tokens, more than {MAX_TOKENS_PER_CHARACTER} a character"
        raise InvalidRequest("text", reason)
    limits = model.manifest.limits
    call.facts["source_tokens"] = len(pieces.ids)
    return generation_pb2.TokenizeResponse(
        model=model.manifest.name,
        version=model.manifest.version,
        tokens=(tokenizer.target.tokens if request.is_target else tokenizer.source.tokens)(
            pieces.ids
        ),
        token_ids=pieces.ids,
        begins=[begin for begin, _ in pieces.offsets],
        ends=[end for _, end in pieces.offsets],
        length=length,
        max_length=limits.max_target_length if request.is_target else limits.max_source_length,
    )


def _tokenized(
    tokenizer: Tokenizer, text: str, affixes: Affixes, *, is_target: bool
) -> Generator[None, None, tuple[Pieces, int]]:
    pieces = tokenizer.pieces(text, is_target=is_target)
    if is_target:
        return pieces, len(affixes.target) + len(pieces.ids)
    yield
    return pieces, len(affixes.with_special_tokens(tokenizer.encode(affixes.text + text)))


async def detokenize(
    model: ServedModel, request: generation_pb2.DetokenizeRequest, call: ServerCall
) -> generation_pb2.DetokenizeResponse:
    """Joins tokens to a text."""
    ids = list(request.token_ids)
    if len(ids) > MAX_TOKENS:
        raise InvalidRequest("token_ids", f"are {len(ids):,}; a call takes at most {MAX_TOKENS:,}")
    size = model.manifest.architecture.vocabulary_size
    for index, id_ in enumerate(ids):
        if id_ >= size:
            reason = f"is {id_}; {model.manifest.label} has the ids 0 to {size - 1}"
            raise InvalidRequest(f"token_ids[{index}]", reason)
    await call.reserve(_tokenized_size(len(ids), model.tokenizer.token_bytes), request)
    return generation_pb2.DetokenizeResponse(
        model=model.manifest.name,
        version=model.manifest.version,
        text=await asyncio.to_thread(model.tokenizer.decode, ids),
    )


def target_tokens(model: LoadedModel, text: str, affixes: Affixes) -> list[int]:
    """Tokenizes a target, the end token last, and adds what the model wants first."""
    limit = model.manifest.limits.max_target_length
    check_length("target", text, limit, model.manifest)
    tokens = [*affixes.target, *model.tokenizer.encode_target(text)]
    # The end token does not count.
    if len(tokens) - 1 > limit:
        reason = f"has {len(tokens) - 1} tokens; {model.manifest.label} writes at most {limit}"
        raise InvalidRequest("target", reason)
    return tokens


def _affixes(model: ServedModel, request: _Request | generation_pb2.TokenizeRequest) -> Affixes:
    languages = request.source_language, request.target_language
    return affixes_of(*languages, model.manifest, model.tokenizer, section="")


async def _source_tokens(
    model: ServedModel, request: _Request, affixes: Affixes, call: ServerCall
) -> list[int]:
    options = Options(decoding=default_options(model.manifest), affixes=affixes)
    steps = SourceReader(model, options).read(request.source)
    source = await call.resources.texts.read(call.client_id, steps, len(request.source))
    [part] = source.parts
    call.facts["source_tokens"] = len(part.tokens)
    return part.tokens


def weights_of(data: bytes, heads: int, queries: int, keys: int) -> generation_pb2.AttentionWeights:
    """Builds the message of all layers and heads from float32 ``[L, H, Q, K]``."""
    weights = floats(data)
    return generation_pb2.AttentionWeights(
        layers=len(weights) // (heads * queries * keys),
        heads=heads,
        queries=queries,
        keys=keys,
        weights=weights,
    )


def _tokenized_size(tokens: int, token_bytes: int) -> AnswerSize:
    # Each token has an id, a beginning and an end; invalid UTF-8 takes three bytes for two.
    each = 3 * token_bytes // 2 + STRING_BYTES + 3 * ID_BYTES
    return AnswerSize({"text": ANSWER_BYTES + tokens * each})


def attended_size(
    manifest: Manifest, tokenizer: Tokenizer, source_tokens: int, target_tokens: int
) -> AnswerSize:
    """Bounds the weights of all layers and heads for a target."""
    shape = manifest.architecture
    source, target = source_tokens, target_tokens
    read = shape.encoder_layers * (shape.encoder_heads or shape.heads) * source * source
    # A recurrent decoder has no self-attention.
    own = 0 if shape.cell_width else target
    written = shape.decoder_layers * shape.heads * target * (own + source)
    names = (source + target) * (tokenizer.token_bytes + STRING_BYTES)
    return AnswerSize({"target": ANSWER_BYTES + (read + written) * FLOAT_BYTES + names})
