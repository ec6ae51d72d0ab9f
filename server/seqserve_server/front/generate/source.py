"""Reads sources: checks them, divides them into parts, tokenizes each part once."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from functools import cached_property

from seqserve.v1 import generation_pb2
from seqserve.words import has_words
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import InvalidRequest, ServiceError
from seqserve_server.contract.limits import MAX_SOURCES
from seqserve_server.contract.options import SegmentationMode
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.generate.job import Job, Window, answer_size, longest_wait_s
from seqserve_server.front.generate.records import GenerateRequest, Options, Part, Route, Source
from seqserve_server.front.models.loaded_model import LoadedModel
from seqserve_server.text.splitting import Segmentation, Span, split, wrap

MAX_CHARACTERS = 1_000_000
"""Longest text that is divided, in code points."""
MAX_SEGMENTS = 4096
"""Most segments of a text, or of all texts of a batch."""
MAX_CHARACTERS_PER_TOKEN = 32
"""A token rarely has more. Longer texts are refused before they are tokenized."""
_LONG_TOKENS = 64
"""Any model reads sentences of so many tokens whole, if its limit allows."""
# Memory of a part and its tokens while a request waits.
_PART_BYTES, _TOKEN_BYTES = 200, 36
_TOO_LONG = "split it into sentences, or set options.segmentation"


async def read(
    request: GenerateRequest, route: Route, call: ServerCall, window: Window | None = None
) -> Job:
    """Reads the sources of a request, and waits until the call holds memory for their answers."""
    hop = route.hops[0]
    reader = SourceReader(hop.model, hop.options)
    max_wait_s = longest_wait_s(hop.options, is_bulk=route.is_bulk)
    request_bytes = call.uncounted_bytes(request)
    if isinstance(request, generation_pb2.GenerateRequest):
        steps, length = reader.read(request.source), len(request.source)
        source = await call.resources.texts.read(
            call.client_id, steps, length, request_bytes, max_wait_s
        )
        call.facts["source_tokens"] = source.num_tokens
        sources: list[Source | ServiceError] = [source]
        route = _route_of(source, route)
    else:
        if not 1 <= (count := len(request.sources)) <= MAX_SOURCES:
            raise InvalidRequest("sources", f"are {count}; a call takes 1 to {MAX_SOURCES}")
        length = sum(map(len, request.sources))
        batch = reader.read_all(request.sources)
        sources = await call.resources.texts.read(
            call.client_id, batch, length, request_bytes, max_wait_s
        )
    job = Job(route=route, sources=sources, call=call, window=window or Window(route.window))
    held_bytes = sum(
        _PART_BYTES * len(source.parts) + _TOKEN_BYTES * source.num_tokens
        for source in sources
        if isinstance(source, Source)
    )
    await call.reserve(answer_size(job), request, max_wait_s=max_wait_s, held_bytes=held_bytes)
    return job


async def read_onward(job: Job, text: str) -> Job:
    """Reads a text that the first model of a pivot has written, for the second."""
    route = job.route._replace(hops=job.route.hops[1:], detected=None)
    hop = route.hops[0]
    steps = SourceReader(hop.model, hop.options).read(text)
    max_wait_s = longest_wait_s(hop.options, is_bulk=route.is_bulk)
    try:
        source = await job.call.resources.texts.read(
            job.call.client_id, steps, len(text), 2 * len(text), max_wait_s
        )
    except InvalidRequest as error:
        if error.field != "source" or job.hop.leg is None:
            raise
        between = f"between the two models, in {job.hop.leg.target!r}, {error.reason}"
        raise InvalidRequest("source", between) from None
    route = _route_of(source, route)
    return Job(route=route, sources=[source], call=job.call, window=job.window.inner)


def _route_of(source: Source, route: Route) -> Route:
    # Parts of a source are as many sources of a call.
    return route._replace(is_bulk=True) if len(source.parts) > 1 else route


class SourceReader:
    """Turns texts into sources for a model, in steps of bounded time."""

    def __init__(self, model: LoadedModel, options: Options) -> None:
        self._tokenizer, self._manifest = model.tokenizer, model.manifest
        self._decoding, self._affixes = options.decoding, options.affixes
        self._segmentation = options.segmentation
        self._shaping = [each for each in options.features if each.shapes_text]
        self._others = [each for each in options.features if not each.shapes_text]
        self._check = options.check
        self._max_tokens = model.manifest.limits.max_source_length

    def read(self, text: str) -> Generator[None, None, Source]:
        """Reads one source."""
        if not text.strip():
            raise InvalidRequest("source", "is empty")
        if self._segmentation is None:
            return self._undivided(text)
        return (yield from self._divided(text, self._segmentation))

    def read_all(self, texts: Sequence[str]) -> Generator[None, None, list[Source | ServiceError]]:
        """Reads the sources of a batch; one that is wrong becomes its error."""
        sources: list[Source | ServiceError] = []
        num_segments = 0
        for text in texts:
            try:
                source = yield from self.read(text)
            except ServiceError as error:
                sources.append(error)
                continue
            yield
            sources.append(source)
            num_segments += len(source.parts) if source.is_divided else 0
            if num_segments > MAX_SEGMENTS:
                reason = f"have more than {MAX_SEGMENTS:,} segments together; send fewer in a call"
                raise InvalidRequest("sources", reason)
        return sources

    def _undivided(self, text: str) -> Source:
        check_length("source", text, self._max_tokens, self._manifest, _TOO_LONG)
        part = self._shaped(Span(0, len(text)), text)
        part = self._whole(part, self._encoded(part.text))
        self._check_tokens(part.tokens)
        return Source(text, [part], len(part.tokens), is_divided=False)

    def _divided(self, text: str, segmentation: Segmentation) -> Generator[None, None, Source]:
        if len(text) > MAX_CHARACTERS:
            raise _too_much(f"{len(text):,} characters", f"{MAX_CHARACTERS:,}")
        parts: list[Part] = []
        for spans in split(text, segmentation):
            yield
            for span in spans:
                for part in self._parts(text[slice(*span)], span.begin):
                    if len(parts) == MAX_SEGMENTS:
                        raise _too_much(f"more than {MAX_SEGMENTS:,} segments", f"{MAX_SEGMENTS:,}")
                    parts.append(part)
                    yield
        if len(parts) > 1:
            for feature in self._others:
                parts = feature.read_divided(parts)
        num_tokens = sum(len(part.tokens) for part in parts)
        if segmentation.is_default and len(parts) == 1 and parts[0].tokens:
            # The request does not ask for segments, and the text cannot be divided.
            if parts[0].span == (0, len(text)):
                return Source(text, parts, num_tokens, is_divided=False)
            # With more white space than the model reads it stays a segment.
            with suppress(InvalidRequest):
                return self._undivided(text)
        return Source(text, parts, num_tokens, is_divided=True)

    def _parts(self, text: str, begin: int) -> Iterator[Part]:
        limit = self._max_tokens
        if self._segmentation and self._segmentation.mode is SegmentationMode.SENTENCES:
            # Models have learnt from few sentences that are longer, and lose themselves in them.
            limit = min(limit, max(_LONG_TOKENS, limit // 2))
        if len(text) <= limit * MAX_CHARACTERS_PER_TOKEN:
            part = self._shaped(Span(begin, begin + len(text)), text)
            tokens = self._encoded(part.text)
            if len(tokens) <= limit:
                yield self._whole(part, tokens)
                return
        for (first, end), tokens in wrap(text, limit, self._tokens, self._ends):
            part = self._shaped(Span(begin + first, begin + end), text[first:end])
            yield self._whole(part._replace(is_wrapped=True), tokens)

    def _shaped(self, span: Span, text: str) -> Part:
        part = Part(span, text, text, [], self._decoding)
        for feature in self._shaping:
            part = feature.read(part)
        return part

    def _whole(self, part: Part, tokens: list[int]) -> Part:
        part = part._replace(tokens=tokens if self._is_translatable(part, tokens) else [])
        for feature in self._others:
            part = feature.read(part)
        return self._check.read(part) if self._check else part

    def _tokens(self, text: str) -> list[int]:
        return self._encoded(self._shaped(Span(0, len(text)), text).text)

    def _ends(self, text: str) -> list[int]:
        """Returns where each token of a text ends, in code points."""
        # Tokens that are added take their places before the first one.
        read = self._shaped(Span(0, len(text)), text).text
        return [0] * self._num_added + [end for _, end in self._tokenizer.pieces(read).offsets]

    def _encoded(self, text: str) -> list[int]:
        affixes = self._affixes
        return affixes.with_special_tokens(self._tokenizer.encode(affixes.text + text))

    def _is_translatable(self, part: Part, tokens: list[int]) -> bool:
        if self._segmentation is not None and not has_words(part.rest):
            return False
        if len(tokens) > self._num_added:
            return True
        # The text in front of it may have taken its tokens.
        return bool(self._affixes.text and self._tokenizer.pieces(part.rest).ids)

    @cached_property
    def _num_added(self) -> int:
        if self._affixes.text:
            return len(self._encoded(""))
        return len(self._affixes.with_special_tokens([])) + self._tokenizer.num_added

    def _check_tokens(self, tokens: list[int]) -> None:
        if len(tokens) > self._max_tokens:
            num_affixes = len(self._affixes.with_special_tokens([]))
            end = "the end token" if self._tokenizer.num_added else ""
            of_model = f"{num_affixes} of the model" if num_affixes else ""
            added = " and ".join(filter(None, (end, of_model)))
            raise InvalidRequest(
                "source",
                f"has {len(tokens)} tokens{added and f' with {added}'}; {self._manifest.label}"
                f" reads at most {self._max_tokens}: {_TOO_LONG}",
            )
        if not tokens:
            raise InvalidRequest("source", "has no character that the model reads")


def check_length(field: str, text: str, limit: int, manifest: Manifest, advice: str = "") -> None:
    """Refuses a text that has more characters than so many tokens may have."""
    if len(text) > limit * MAX_CHARACTERS_PER_TOKEN:
        reason = f"has {len(text):,} characters; {manifest.label} takes at most {limit} tokens"
        raise InvalidRequest(field, f"{reason}: {advice}" if advice else reason)


def _too_much(what: str, limit: str) -> InvalidRequest:
    return InvalidRequest("source", f"has {what}; a text takes at most {limit}: send it in parts")
