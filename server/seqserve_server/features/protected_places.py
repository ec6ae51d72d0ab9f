"""Puts what a source keeps into the text that a model wrote, exactly and once.

A model often writes a placeholder or an address as it is. Where it does not, what it wrote from it
is found by the alignment, and replaced; where it wrote nothing, the text is inserted after what
comes from the word before it.
"""

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from seqserve.v1 import generation_pb2
from seqserve.words import has_words
from seqserve_server.front.generate.records import Link, kept_in, kept_text, links_of, message_of
from seqserve_server.text.protected import CLOSING, TAG, occurrences, text_read, without
from seqserve_server.text.splitting import Span

Hypothesis = generation_pb2.Hypothesis

# Characters next to a word that do not belong to it.
_MARKS = ".,;:!?…\"'()[]„“”‚‘’«»¡¿。、！？"
_GENERATED, _ALIGNED = generation_pb2.PLACEMENT_GENERATED, generation_pb2.PLACEMENT_ALIGNED
_ENDED = (generation_pb2.STOP_REASON_UNSPECIFIED, generation_pb2.STOP_REASON_EOS)


class _Edit(NamedTuple):
    """A kept span, and the place in the model's text that it takes."""

    target: Span
    source: Span
    placement: generation_pb2.Placement
    before: str = ""
    after: str = ""
    """White space that an insertion needs around it."""


def restore(message: Hypothesis, source: str, spans: Sequence[Span], read: str = "") -> None:
    """Puts kept spans into a hypothesis and tells their places; tokens and scores do not change.

    The model has ``read`` another text in some of them, if not the source.
    """
    if not has_words(without(source, spans)):
        # There is nothing to translate.
        message.text = source
        message.ClearField("alignment")
        message.kept.extend(kept_in(source, spans))
        return
    links = links_of(message.alignment)
    places = _Places(message.text, source, read or source, spans, links)
    edits: list[_Edit] = []
    rest = list(spans)
    for find in (places.generated, places.aligned):
        placed = find(rest)
        edits += placed
        taken = {edit.source for edit in placed}
        rest = [span for span in rest if span not in taken]
    if message.stop_reason in _ENDED:
        edits += map(places.missing, rest)
        rest = []
    edits = [*_nested(edits, source), *places.duplicates()]
    _write(message, source, edits, links)
    lost = generation_pb2.PLACEMENT_LOST
    end = Span(len(message.text), len(message.text))
    message.kept.extend(kept_text(source, span, end, lost) for span in rest)
    message.kept.sort(key=lambda kept: kept.source_begin)


def _nested(edits: Iterable[_Edit], source: str) -> Iterator[_Edit]:
    """Yields edits of which each closing tag comes after its opening one."""
    opened: list[tuple[str, _Edit]] = []
    closed = {*CLOSING.findall(source)}
    for edit in sorted(edits, key=lambda edit: edit.source):
        name = TAG.fullmatch(source, *edit.source)
        if name and source[edit.source.begin + 1] != "/" and name[1] in closed:
            opened.append((name[1], edit))
            continue
        if name and opened and opened[-1][0] == name[1]:
            one = opened.pop()[1]
            if edit.target < one.target:
                one, edit = _in_place_of(edit, one), _in_place_of(one, edit)
            yield one
        yield edit
    yield from (edit for _, edit in opened)


def _in_place_of(other: _Edit, edit: _Edit) -> _Edit:
    return other._replace(source=edit.source, placement=edit.placement)


def _is_cased(letter: str) -> bool:
    return letter.lower() != letter.upper()


class _Places:
    def __init__(
        self, text: str, source: str, read: str, spans: Sequence[Span], links: Sequence[Link]
    ) -> None:
        self._text, self._source, self._links = text, source, links
        self._read = {span: text_read(source, read, span) for span in spans}
        self._is_taken = bytearray(len(text))
        read_spans = [*filter(self._read.get, spans)]
        begins = [span.begin for span in read_spans]
        self._origins = [_origin(link.source, read_spans, begins) for link in links]
        """The kept span of each token's source place; None if it has none."""

    def generated(self, spans: Sequence[Span]) -> list[_Edit]:
        by_text: defaultdict[str, list[Span]] = defaultdict(list)
        for span in filter(self._read.get, spans):
            by_text[self._read[span]].append(span)
        edits = []
        # One that is in another counts where it is alone.
        for kept, origins in sorted(by_text.items(), key=lambda each: -len(each[0])):
            for origin, place in self._paired(origins, self._occurrences(kept)):
                self._take(place)
                is_own = self._source[slice(*origin)] == kept
                edits.append(_Edit(place, origin, _GENERATED if is_own else _ALIGNED))
        return edits

    def aligned(self, spans: Sequence[Span]) -> list[_Edit]:
        """Finds the model's text for each span: the run of tokens that attend to it."""
        edits = []
        tokens: defaultdict[Span, list[int]] = defaultdict(list)
        for index, origin in enumerate(self._origins):
            if origin is not None:
                tokens[origin].append(index)
        for span in spans:
            if tokens[span] and (place := self._run(span, tokens[span])) is not None:
                self._take(place)
                edits.append(_Edit(place, span, _ALIGNED))
        return edits

    def missing(self, span: Span) -> _Edit:
        """Chooses a place for a span from which the model wrote nothing."""
        text, source = self._text, self._source
        if self._links:
            # After the translation of the word before it.
            before = [link for link in self._links if link.source.begin < span.begin]
            last = max(before, key=lambda link: (link.source.begin, link.target.end), default=None)
            at = last.target.end if last else 0
            while 0 < at < len(text) and text[at - 1 : at + 1].isalpha() and _is_cased(text[at]):
                # A word of a script with spaces goes on.
                at += 1
        else:
            at = round(len(text) * span.begin / len(source))
            while 0 < at < len(text) and not text[at].isspace():
                at += 1
        while 0 < at < len(text) and self._is_taken[at - 1] and self._is_taken[at]:
            at += 1
        is_apart = source[span.begin - 1 : span.begin].isspace() or not span.begin
        front = " " if is_apart and at and not text[at - 1].isspace() else ""
        follows = source[span.end : span.end + 1]
        is_opening = source[span.begin] == "<" and not source.startswith("</", span.begin)
        if (is_apart or is_opening) and text[at : at + 1] == " " and not follows.isspace():
            at, front = at + 1, ""
        back = " " if follows.isspace() and at < len(text) and text[at].isalnum() else ""
        return _Edit(Span(at, at), span, generation_pb2.PLACEMENT_INSERTED, front, back)

    def duplicates(self) -> list[_Edit]:
        edits = []
        for text in dict.fromkeys(self._read.values()):
            # A letter, digit or mark alone may be there for another reason.
            if len(text) > 1 or not text.isascii():
                for place in self._occurrences(text):
                    begin = place.begin - self._text[: place.begin].endswith(" ")
                    edits.append(_Edit(Span(begin, place.end), Span(0, 0), _UNSPECIFIED))
        return edits

    def _occurrences(self, kept: str) -> list[Span]:
        return [place for place in occurrences(kept, self._text) if self._is_free(place)]

    def _is_free(self, place: Span) -> bool:
        return not any(self._is_taken[slice(*place)])

    def _take(self, place: Span) -> None:
        self._is_taken[slice(*place)] = b"\1" * (place.end - place.begin)

    def _paired(self, origins: list[Span], places: list[Span]) -> Iterator[tuple[Span, Span]]:
        """Pairs spans with places that have their text: by attention, the others in order."""
        if len(origins) != len(places):
            begins = [place.begin for place in places]
            votes = Counter(
                (origin, place)
                for link, origin in zip(self._links, self._origins, strict=True)
                if (place := _origin(link.target, places, begins)) and origin in origins
            )
            for (origin, place), _ in votes.most_common():
                if origin in origins and place in places:
                    origins.remove(origin)
                    places.remove(place)
                    yield origin, place
        yield from zip(origins, places, strict=False)

    def _run(self, span: Span, tokens: Sequence[int]) -> Span | None:
        """Finds the run of tokens with the most from a span and the fewest from elsewhere."""
        best_gain, best, gain, begin = 0, None, 0, 0
        for index in range(tokens[0], tokens[-1] + 1):
            place = self._links[index].target
            if not self._is_free(place):
                gain = 0
                continue
            if gain <= 0:
                gain, begin = 0, place.begin
            comes = self._origins[index] == span
            gain += 1 if comes else -1
            if comes and gain > best_gain:
                best_gain, best = gain, Span(begin, place.end)
        return self._grown(best, span) if best else None

    def _grown(self, place: Span, span: Span) -> Span | None:
        """Takes to a place the rest of its word, if the span is a word, and no marks around it."""
        begin, end = place
        text, source = self._text, self._source
        if _is_word(source, span):
            while begin and self._may_take(begin - 1):
                begin -= 1
            while end < len(text) and self._may_take(end):
                end += 1
        kept = source[slice(*span)]
        while begin < end and text[end - 1] in _MARKS and kept[-1] != text[end - 1]:
            end -= 1
        while begin < end and text[begin] in _MARKS and kept[0] != text[begin]:
            begin += 1
        return Span(begin, end) if begin < end else None

    def _may_take(self, at: int) -> bool:
        return not (self._text[at].isspace() or self._is_taken[at])


_UNSPECIFIED = generation_pb2.PLACEMENT_UNSPECIFIED


def _is_word(source: str, span: Span) -> bool:
    """Returns whether only marks, or a particle, are between a span and the space around it."""
    before = source[: span.begin].rstrip(_MARKS)[-1:]
    after = source[span.end :].lstrip(_MARKS)[:1]
    is_last = not after or after.isspace() or (after.isalpha() and not _is_cased(after))
    return (not before or before.isspace()) and is_last


def _write(message: Hypothesis, source: str, edits: list[_Edit], links: Sequence[Link]) -> None:
    text = message.text
    parts: list[str] = []
    kept: list[generation_pb2.KeptText] = []
    moved: list[Link] = []
    edits = sorted(edits, key=lambda edit: (edit.target.begin, edit.target.end, edit.source))
    read = length = 0
    is_edited = bytearray(len(text))
    for begin, end in (edit.target for edit in edits):
        is_edited[begin:end] = b"\1" * (end - begin)
    rest = deque(link for link in links if not any(is_edited[slice(*link.target)]))
    for edit in [*edits, None]:
        # What is inserted within a duplicate comes after it.
        until = len(text) if edit is None else max(read, edit.target.begin)
        shift = length - read
        while rest and rest[0].target.end <= until:
            moved.append(rest.popleft().moved(0, shift))
        parts.append(text[read:until])
        length += until - read
        if edit is None:
            break
        if edit.placement:
            begin = length + len(edit.before)
            end = begin + edit.source.end - edit.source.begin
            parts += [edit.before, source[slice(*edit.source)], edit.after]
            length = end + len(edit.after)
            kept.append(kept_text(source, edit.source, Span(begin, end), edit.placement))
            moved.append(Link(edit.source, Span(begin, end)))
        read = max(read, edit.target.end)
    message.text = "".join(parts)
    message.kept.extend(kept)
    message.alignment.CopyFrom(message_of(moved))


def _origin(place: Span, spans: Sequence[Span], begins: Sequence[int]) -> Span | None:
    index = bisect_right(begins, max(place.begin, place.end - 1)) - 1
    return spans[index] if index >= 0 and place.begin < spans[index].end else None
