"""A shortlist of this engine, compared with the vocabulary map of CTranslate2.

Both choose among the same tokens for a sentence alone. The sentences of a batch share theirs in
CTranslate2, so there a larger batch has more to compute, and may write other words; here a sentence
keeps its own. Weights are random, and targets have a fixed number of tokens. Shortlist and sources
are drawn as often as words occur in texts, because how many tokens a batch may choose from depends
on how many words its sentences share.

Source: Mandelbrot 1953, "An Informational Theory of the Statistical Structure of Language": the
word of rank r is as frequent as 1 / (r + 2.7).
"""

import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from bench.comparison import check_equal, columns_of, compare, equal_share, ratio_of
from bench.drivers import Driver, Rows
from bench.drivers.ctranslate2 import CTranslate2Converter, CTranslate2Driver, write_map
from bench.drivers.seqserve import SeqserveDriver
from bench.models import MARIAN_BASE, marian_base, random_sources
from bench.scenarios.offline import FORCED, Case, Weights, builds, write_artifacts
from bench.tables import Table
from seqserve.processes import available_cores
from seqserve_export.shortlist import write_shortlist
from seqserve_model.config import TransformerConfig
from seqserve_model.transformer import Transformer
from seqserve_model.vocabulary import CONTROL_TOKENS
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.shortlist import Shortlist

SHAPES = {
    "a student": replace(MARIAN_BASE, width=256, feed_forward_width=1536, decoder_layers=2),
    "Marian base shape": MARIAN_BASE,
}
"""The first is the shape of students of Marian and Firefox, but that their decoders are
recurrent."""
FREQUENT, BEST = 50, 50
"""Tokens that every source may choose, and translations of each source token, itself among them."""

_OFFSET = 2.7
_SPARE = 2
"""Times as many translations are drawn as are needed, because some repeat."""
_PROVEN = 16
"""Sentences of the proof."""
_MIN_SOURCES = 32


def draw_shortlist(config: TransformerConfig = MARIAN_BASE, seed: int = 7) -> Shortlist:
    """Draws the translations of each word; control tokens are among the frequent ones."""
    draw, weights = random.Random(seed), _weights(config)
    words = range(len(CONTROL_TOKENS), config.vocabulary_size)
    translations = {}
    for word in words:
        drawn = [word, *draw.choices(words, cum_weights=weights, k=_SPARE * BEST)]
        translations[word] = sorted(list(dict.fromkeys(drawn))[:BEST])
    return Shortlist.of(range(FREQUENT), translations)


def draw_sources(count: int, config: TransformerConfig = MARIAN_BASE) -> Rows:
    """Draws sources that are as long as in other benchmarks."""
    return random_sources(count, config=config, cum_weights=_weights(config))


def _weights(config: TransformerConfig) -> Sequence[float]:
    ranks = range(1, config.vocabulary_size - len(CONTROL_TOKENS) + 1)
    return list(accumulate(1 / (rank + _OFFSET) for rank in ranks))


@dataclass(frozen=True, slots=True)
class _Model:
    config: TransformerConfig
    weights: Weights
    shortlist: Shortlist

    def candidates(self, sources: Rows) -> set[int]:
        tokens = [token for source in sources for token in source]
        return {*self.shortlist.candidates(tokens, (), self.config.vocabulary_size).tolist()}


def measure(
    rounds: int, rows: Sequence[int] = (1, 8, 32), options: DecodingOptions = FORCED
) -> list[dict[str, Any]]:
    """Compares every shape with and without a shortlist, at every number of rows."""
    tables = []
    for name, config in SHAPES.items():
        with _written(marian_base(config)) as model:
            _prove(model, max(rows), options)
            for count in rows:
                table = _compare(model, count, min(rounds, 3), options)
                tables.append({"name": name, **table})
    return tables


@contextmanager
def _written(model: Transformer) -> Iterator[_Model]:
    shortlist = draw_shortlist(model.config)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        artifacts = write_artifacts(model, folder)
        for artifact in artifacts:
            write_shortlist(artifact, Manifest.read(artifact), shortlist, "drawn at random")
        converted = folder / "converted"
        vmap = write_map(shortlist, folder / "vmap.txt")
        CTranslate2Converter(model).convert(str(converted), vmap=str(vmap))
        yield _Model(model.config, Weights(artifacts, converted), shortlist)


def _prove(model: _Model, rows: int, options: DecodingOptions) -> None:
    sources, batch = (draw_sources(count, model.config) for count in (_PROVEN, rows))
    alone = [model.candidates([source]) for source in sources]
    theirs = partial(CTranslate2Driver, model.weights.converted, "float32", (1, 1))
    with SeqserveDriver(model.weights.artifacts[-1], rows, options) as driver:
        ours = _decode_allowed(driver, sources, alone)
    with theirs(1, options) as driver:
        check_equal({driver.name: equal_share(ours, _decode_allowed(driver, sources, alone))})
    with theirs(rows, options) as driver:
        # As many sources as a batch has are one.
        _decode_allowed(driver, batch, [model.candidates(batch)] * rows)


def _decode_allowed(driver: Driver[list[int]], sources: Rows, allowed: Sequence[set[int]]) -> Rows:
    targets = driver.decode(sources)
    if any(not tokens.issuperset(row) for row, tokens in zip(targets, allowed, strict=True)):
        raise SystemExit(f"{driver.name} writes tokens that its shortlist does not allow")
    return targets


def _compare(model: _Model, rows: int, rounds: int, options: DecodingOptions) -> dict[str, Any]:
    # Two full batches for each worker, and not less than tenths of a second.
    sources = draw_sources(max(2 * rows * available_cores(), _MIN_SOURCES), model.config)
    engines = [
        build
        for way in (options, replace(options, shortlist=False))
        for build in builds(model.weights, Case(sources, rows, way))
    ]
    # Which words are written depends on the candidates.
    table = compare(engines, sources, rows, rounds, may_differ=True)
    by_length = sorted(sources, key=len)
    batches = [by_length[begin : begin + rows] for begin in range(0, len(sources), rows)]
    return table | {
        "length": options.max_decoding_length,
        "candidates": statistics.fmean(len(model.candidates([source])) for source in sources),
        "candidates_of_batch": statistics.fmean(len(model.candidates(batch)) for batch in batches),
    }


def tables(report: list[dict[str, Any]]) -> list[Table]:
    """Lays out what :func:`measure` returned: a table for each shape, a column for each rows."""
    shapes = groupby(report, key=lambda table: str(table["name"]))
    return [_table(name, list(columns)) for name, columns in shapes]


def _table(name: str, columns: list[dict[str, Any]]) -> Table:
    counts = [f"{t['candidates']:,.0f}; {t['candidates_of_batch']:,.0f}" for t in columns]
    rows = [["candidates of a sentence; of a batch in CTranslate2", *counts]]
    peers = columns_of(columns)
    for precision in ("int8", "fp32"):
        ours, theirs = f"seqserve {precision}", f"CTranslate2 {precision}"
        rows += [
            [engine, *(_gain(column, engine) for column in peers)] for engine in (ours, theirs)
        ]
        for suffix, note in ((_SUFFIX, ""), ("", " without a shortlist")):
            ratios = [ratio_of(column, ours + suffix, theirs + suffix) for column in peers]
            rows.append([f"**seqserve / CTranslate2, {precision}**{note}", *ratios])
    title = f"{name}, {columns[0]['length']} target tokens; tokens/s (times without a shortlist)"
    return Table([title, *(str(table["rows"]) for table in columns)], rows)


_SUFFIX = " with shortlist"


def _gain(peers: dict[str, Any], engine: str) -> str:
    plain, listed = peers[engine], peers[engine + _SUFFIX]
    return f"{listed['tokens_per_s']:,.0f} ({listed['ratios'][plain['name']]['median']:.2f})"
