"""How rows come by their next words, whatever each request has asked for.

Rows that want the best word are searched all together; requests that want more have a search of
their own, which sees only their rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from seqserve_server.engine.beam import BeamSearch, ranked
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.choice import Candidate, Choice, RequestSearch, View
from seqserve_server.engine.constraints import Constraints, Detokenize
from seqserve_server.engine.greedy import GreedyRows
from seqserve_server.engine.independent import IndependentSearch
from seqserve_server.engine.limits import MOST_RANKS
from seqserve_server.engine.request import DecodingOptions, Finished, Request
from seqserve_server.manifest import Manifest

MOST_BEAMS = MOST_RANKS // 2
"""Hypotheses that a beam can keep: twice as many words are ranked."""


class Advance(NamedTuple):
    """What a step has ended."""

    rows: list[int]
    """Rows that are free now, in rising order."""
    finished: list[tuple[Request, Finished]]
    """Requests that have got their answer."""


@dataclass(slots=True, eq=False)
class _Group:
    """The rows of a request that searches for itself."""

    request: Request
    search: RequestSearch
    rows: list[int]


class Search:
    """The searches of all rows. Rows join, move and leave with those of the cache."""

    def __init__(self, cache: SlotCache, manifest: Manifest, detokenize: Detokenize) -> None:
        """Begins with no row.

        Args:
            cache: Whose rows it reads, and tells what to say.
            manifest: Of the model.
            detokenize: Gives the text of tokens.
        """
        self._cache = cache
        self._eos = manifest.tokens.eos
        self._most = min(MOST_RANKS, manifest.architecture.vocabulary_size)
        self._detokenize = detokenize
        self._greedy = GreedyRows(cache, self._eos, manifest.limits.max_target_length)
        self._requests: dict[int, Request] = {}
        self._groups: dict[int, _Group] = {}

    def join(self, rows: list[int], request: Request) -> None:
        """Starts the rows of a request, as many as its options say."""
        for row in rows:
            self._requests[row] = request
        if request.options.is_plain:
            self._greedy.join(rows[0], request.options)
            return
        group = _Group(request, self._search(request.options), rows)
        self._groups.update(dict.fromkeys(rows, group))
        self._ban(group)
        self._ask()

    def _search(self, options: DecodingOptions) -> RequestSearch:
        constraints = Constraints(options, self._eos, self._detokenize)
        kind = BeamSearch if options.beam_size > 1 else IndependentSearch
        return kind(options, constraints)

    def move(self, source: int, target: int) -> None:
        """Brings a row to the place of one that has left."""
        self._requests[target] = self._requests.pop(source)
        group = self._groups.pop(source, None)
        if group is None:
            self._greedy.move(source, target)
        else:
            group.rows[group.rows.index(source)] = target
            self._groups[target] = group

    def leave(self, row: int) -> None:
        """Forgets a row."""
        self._cache.unban(row)
        self._requests.pop(row, None)
        if self._groups.pop(row, None) is None:
            self._greedy.leave(row)
        else:
            self._ask()

    def word(self, row: int) -> int:
        """Gives the newest word of a row."""
        return int(self._cache.tokens[row, 0])

    def advance(self, rows: int) -> Advance:
        """Takes in the step just run over the leading ``rows`` and writes what each says next."""
        done = self._greedy.advance(rows)
        finished = [(self._requests[row], self._greedy.result(row)) for row in done]
        sources: list[int] = []
        targets: list[int] = []
        groups = list(dict.fromkeys(self._groups.values()))
        candidates = self._ranked(groups)
        for group in groups:
            view = View(self._cache, group.rows, candidates.get(group))
            choice = group.search.choose(view)
            free, copies = self._follow(group, choice)
            sources += [source for source, _ in copies]
            targets += [target for _, target in copies]
            done += free
            if choice.finished:
                finished.append((group.request, Finished(choice.finished)))
        if targets:
            self._cache.branch(sources, targets)
        return Advance(sorted(done), finished)

    def _ranked(self, groups: list[_Group]) -> dict[_Group, list[Candidate]]:
        """Ranks continuations of beams, all requests of one size at once: for speed alone."""
        sizes: dict[int, list[_Group]] = {}
        for group in groups:
            search = group.search
            if isinstance(search, BeamSearch) and search.ranked == 2 * search.size:
                sizes.setdefault(search.size, []).append(group)
        found: dict[_Group, list[Candidate]] = {}
        for size, alike in sizes.items():
            words, log_probabilities = self._cache.best(
                [row for group in alike for row in group.rows]
            )
            shape = (len(alike), size, -1)
            scores = [group.search.scores for group in alike]  # type: ignore[attr-defined]
            candidates = ranked(
                scores,
                words[:, : 2 * size].reshape(shape),
                log_probabilities[:, : 2 * size].reshape(shape),
            )
            found.update(zip(alike, candidates, strict=True))
        return found

    def _follow(self, group: _Group, choice: Choice) -> tuple[list[int], list[tuple[int, int]]]:
        """Gives each next row of a group a place, that of its parent where it is still free.

        Returns:
            Places left over, and which rows are to be copied where.
        """
        free = dict.fromkeys(group.rows)
        parents = [group.rows[parent] for parent in choice.parents]
        # The first of a row's children stays where it is.
        stays = [free.pop(parent, parent) is None for parent in parents]
        left = list(free)
        rows = [parent if stay else left.pop() for parent, stay in zip(parents, stays, strict=True)]
        copies = [(parent, row) for parent, row in zip(parents, rows, strict=True) if parent != row]
        # What is left over is known to the group until it leaves.
        group.rows = rows
        for row, word in zip(rows, choice.words, strict=True):
            self._cache.tokens[row, 0] = word
        self._ban(group)
        return left, copies

    def _ban(self, group: _Group) -> None:
        if not (group.rows and group.search.bans_some):
            return
        for row, words in zip(group.rows, group.search.bans(), strict=True):
            if words:
                self._cache.ban(row, words)
            else:
                self._cache.unban(row)

    def _ask(self) -> None:
        """Asks the next step for what the searches need."""
        searches = [group.search for group in self._groups.values()]
        ranked = max((search.ranked for search in searches), default=0)
        # Few sizes, so that few bindings are made.
        self._cache.ranked = min(1 << (ranked - 1).bit_length(), self._most) if ranked else 0
        self._cache.shows_scores = any(search.shows_scores for search in searches)
