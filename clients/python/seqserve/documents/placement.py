"""Places the markup of a text in its translation, around the words that come from its words.

Each element appears once, is whole, and stays within the element that it was in; what it is around
is one run of words. The alignment follows attention, as in Bergamot's translator,
https://github.com/browsermt/bergamot-translator, ``src/translator/html.cpp``.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from seqserve.documents.aligned_words import Word, with_copied, without_kept, words_of
from seqserve.documents.marked_text import Mark, kept_in
from seqserve.documents.passage import Translation
from seqserve.words import has_words

# A place within a word, as of aligned_words.
_IN_WORD = re.compile(r"(?<=\w)(?=['’‑-]?\w)|(?<=\w['’‑-])(?=\w)")


def placed(
    translation: Translation,
    source: str,
    marks: Sequence[Mark],
    write: Callable[[str], str],
    lost: list[str],
) -> str:
    """Writes a translation with the markup of its source.

    An element with words gets some; where the translation has fewer words than there are elements,
    one keeps its source.

    Args:
        source: The text, without its markup.
        marks: Its markup: elements that are in no other, in order.
        lost: Gets the texts of the elements that keep the words of the source.
    """
    translation, places = without_kept(translation, source, marks)
    edges = [place for place in _edges(marks) if _IN_WORD.match(source, place)]
    translation, cuts = with_copied(translation, source, edges) if edges else (translation, [])
    words = words_of(translation, sorted([*places.values(), *cuts]))
    return _Writer(translation.text, source, words, places, lost).within(
        marks, (0, len(words)), (0, len(translation.text)), (0, len(source)), write
    )


def _edges(marks: Sequence[Mark]) -> Iterator[int]:
    for mark in marks:
        yield from (mark.begin, mark.end)
        yield from _edges(mark.children)


@dataclass(frozen=True, slots=True)
class _Writer:
    text: str
    source: str
    words: Sequence[Word]
    places: Mapping[int, int]
    """Where the text had what represents marks, by where that begins in the source."""
    lost: list[str]

    def within(
        self,
        marks: Sequence[Mark],
        words: tuple[int, int],
        place: tuple[int, int],
        whole: tuple[int, int],
        write: Callable[[str], str],
    ) -> str:
        """Writes what is within an element, or the whole text.

        Its words are at a place of the text; as a whole it is at one of the source.
        """
        free = [words]
        # Where each mark begins and ends in the text, its rank there, and its words.
        placed_marks: list[tuple[int, int, int, Mark, tuple[int, int]]] = []
        later = sum(map(self._need, marks))
        for mark in marks:
            if not mark.is_point:
                is_whole = whole == (mark.begin, mark.end)
                chosen = self._chosen(mark, free, is_whole, words[1])
                later -= self._need(mark)
                least = min(self._need(mark), 1)
                chosen = self._shortened(chosen, max(sum(map(self._count, free)) - later, least))
                begin, end = self._with_kept(mark, *self._place(chosen, place))
                free = _without(free, chosen)
                placed_marks.append((begin, end, 0, mark, chosen))
        taken = sorted((begin, end) for begin, end, *_ in placed_marks)
        for mark in marks:
            if mark.is_point:
                at, rank = self._at(mark, words, place, whole[0], taken)
                placed_marks.append((at, at, rank, mark, (0, 0)))
        parts = []
        last = place[0]
        # The character in front of the next mark.
        front = ""
        for begin, end, _, mark, chosen in sorted(placed_marks, key=lambda each: each[:3]):
            parts.append(write(self.text[last:begin]))
            front = self.text[last:begin][-1:] or front
            last = end
            if mark.is_point:
                before, after = self._spaces(mark, begin, place, front)
                parts += [write(before), mark.opening, write(after)]
                front = " " if mark.is_space else after or mark.opening[-1:] or front
                last += mark.is_space and self.text[begin : place[1]].startswith(" ")
            else:
                area = (begin, end), (mark.begin, mark.end)
                front = self.text[begin:end][-1:] or front
                inner = self.within(mark.children, chosen, *area, mark.write or write)
                if begin == end and has_words(self.source[mark.begin : mark.end]):
                    self.lost.append(self.source[mark.begin : mark.end])
                    if self._need(mark):
                        inner = self._untranslated(mark, write)
                        is_apart = begin > place[0] and not self.text[begin - 1].isspace()
                        parts.append(write(" " * is_apart))
                parts += [mark.opening, inner, mark.closing]
        return "".join([*parts, write(self.text[last : place[1]])])

    def _spaces(self, mark: Mark, at: int, place: tuple[int, int], front: str) -> tuple[str, str]:
        """Returns the white space that a point needs on both sides, as it had in the source."""
        # Code or mathematics of Markdown would go on in what follows without white space.
        is_joint = front in ("`", "$") and mark.opening.startswith(front)
        is_joint = is_joint and not self.source.startswith(front, mark.begin - 1)
        if mark.is_space or (mark.is_kept and self.places.get(mark.begin) == at):
            return " " * is_joint, ""
        behind = self.text[at : place[1]][:1]
        is_before = is_joint or (mark.is_apart and bool(front) and not front.isspace())
        is_behind = behind.isalnum() and not mark.is_glued and (mark.is_apart or at == place[0])
        return " " * is_before, " " * is_behind

    def _chosen(
        self, mark: Mark, free: list[tuple[int, int]], is_whole: bool, last: int
    ) -> tuple[int, int]:
        if is_whole and len(free) == 1:
            return free[0]
        best = 0, 0, 0.0, (0, 0)
        middle = (mark.begin + mark.end) / max(1, len(self.source))
        for begin, end in free:
            gain, first = 0, begin
            for index in range(begin, end):
                value = self._value(mark, self.words[index])
                # The shortest of equal runs.
                if gain <= 0 or (gain == value == 0):
                    gain, first = 0, index
                gain += value
                if value > 0:
                    # Of equal runs the shortest, or the one whose place is most like the source's.
                    own = (self.words[first].begin + self.words[index].end) / len(self.text)
                    best = max(best, (gain, first - index, -abs(own - middle), (first, index + 1)))
        if best[0]:
            return best[3]
        known = [index for run in free for index in range(*run) if self.words[index].counts]
        # A link on a wrong word is better than an invisible link.
        nearest = min(known, key=lambda index: self._distance(mark, index), default=None)
        if nearest is not None:
            return nearest, nearest + 1
        begin = free[-1][1] if free else last
        return begin, begin

    def _need(self, mark: Mark) -> int:
        """Returns how many words a mark needs, so that no element is empty.

        One that begins within a word needs none, because another one has the word.
        """
        if mark.is_point or _IN_WORD.match(self.source, mark.begin):
            return 0
        is_text = has_words(self.source[mark.begin : mark.end])
        return max(is_text, sum(map(self._need, mark.children)))

    def _count(self, run: tuple[int, int]) -> int:
        return sum(word.counts for word in self.words[slice(*run)])

    def _shortened(self, run: tuple[int, int], most: int) -> tuple[int, int]:
        """Leaves words at the end of a run to others, so that it has so many at most."""
        first, last = run
        spare = self._count(run) - most
        while spare > 0:
            last -= 1
            spare -= self.words[last].counts
        return first, last

    def _untranslated(self, mark: Mark, write: Callable[[str], str]) -> str:
        """Writes the text of the source in an element, for which the translation has no word."""
        own, parts, last = mark.write or write, [], mark.begin
        for child in mark.children:
            parts.append(own(self.source[last : child.begin]))
            inner = "" if child.is_point else self._untranslated(child, own)
            parts += [child.opening, inner, child.closing]
            last = child.end
        return "".join([*parts, own(self.source[last : mark.end])])

    def _value(self, mark: Mark, word: Word) -> int:
        if word.source is not None and mark.begin <= word.source < mark.end:
            return 1
        return -1 if word.counts and word.source is not None else 0

    def _distance(self, mark: Mark, index: int) -> int:
        word = self.words[index]
        if word.source is None:
            return len(self.source)
        return max(mark.begin - word.source_end + 1, word.source - mark.end, 0)

    def _place(self, words: tuple[int, int], within: tuple[int, int]) -> tuple[int, int]:
        first, last = words
        if first < last:
            return self.words[first].begin, self.words[last - 1].end
        at = self.words[first - 1].end if first else within[0]
        return (min(max(at, within[0]), within[1]),) * 2

    def _with_kept(self, mark: Mark, begin: int, end: int) -> tuple[int, int]:
        for kept in kept_in(mark.children):
            at = self.places.get(kept.begin, begin)
            if at < begin and not has_words(self.text[at:begin]):
                begin = at
            if at > end and not has_words(self.text[end:at]):
                end = at
        return begin, end

    def _at(
        self,
        mark: Mark,
        words: tuple[int, int],
        within: tuple[int, int],
        first: int,
        taken: list[tuple[int, int]],
    ) -> tuple[int, int]:
        """Returns where a point is, and its rank there; ``first`` is where its element begins."""
        at = self.places.get(mark.begin, -1) if mark.is_kept else -1
        if within[0] <= at <= within[1]:
            return _outside(at, taken), [*self.places].index(mark.begin)
        # Behind the word, or what is kept, that it followed.
        found = [
            (word.source or 0, word.end, 0)
            for word in self.words[slice(*words)]
            if word.source is not None
        ]
        found += [
            (begin, at, rank)
            for rank, (begin, at) in enumerate(self.places.items())
            if begin >= first and within[0] <= at <= within[1]
        ]
        _, at, rank = max(
            (each for each in found if each[0] < mark.begin), default=(0, within[0], 0)
        )
        at = _outside(at, taken)
        # A space before it stays before that.
        return at + (mark.is_apart and self.text[at : within[1]][:1].isspace()), rank


def _outside(place: int, taken: list[tuple[int, int]]) -> int:
    for begin, end in taken:
        if begin < place < end:
            return end
    return place


def _without(free: list[tuple[int, int]], taken: tuple[int, int]) -> list[tuple[int, int]]:
    if taken[0] == taken[1]:
        return free
    rest = []
    for begin, end in free:
        if begin <= taken[0] < end:
            rest += [(begin, taken[0]), (taken[1], end)]
        else:
            rest.append((begin, end))
    return [run for run in rest if run[0] < run[1]]
