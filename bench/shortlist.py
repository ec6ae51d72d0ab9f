"""Compares a shortlist of this engine with the vocabulary map of CTranslate2.

Both choose among the same tokens for a sentence alone. The sentences of a batch share theirs in
CTranslate2, so there a larger batch has more to compute, and may write other words; here a sentence
keeps its own. Weights are random, and targets have a fixed number of tokens.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import marian, offline
from bench.comparison import MIN_EQUAL_SHARE, equal_share, shown
from bench.drawn_shortlist import draw_shortlist, draw_sources
from bench.marian import MARIAN_BASE
from bench.peers import CTranslate2Converter, CTranslate2Peer, Peer, Rows, SeqservePeer
from bench.provenance import print_signature
from bench.vocabulary_map import write_map
from seqserve_export.shortlist.attach import write_shortlist
from seqserve_model.config import TransformerConfig
from seqserve_model.transformer import Transformer
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.shortlist import Shortlist
from seqserve_server.front.cores import available_cores

SHAPES = {
    "a student": replace(MARIAN_BASE, width=256, feed_forward_width=1536, decoder_layers=2),
    "Marian base": MARIAN_BASE,
}
"""The first is that of students of Marian and Firefox, but that their decoders are recurrent."""

_PROVEN = 16
"""Sentences of the proof."""
_MIN_SOURCES = 32
_PRECISIONS = ("int8", "fp32")
_ENGINES = ("seqserve", "CTranslate2")


@dataclass(frozen=True, slots=True)
class _Model:
    """The same weights and the same shortlist for both engines."""

    config: TransformerConfig
    artifacts: list[Path]
    """At int8 and at fp32."""
    converted: Path
    shortlist: Shortlist

    def sources(self, count: int) -> Rows:
        """Draws sources."""
        return draw_sources(count, self.config)

    def candidates(self, sources: Rows) -> set[int]:
        """Gives the tokens that some sources may choose from together."""
        tokens = [token for source in sources for token in source]
        return {*self.shortlist.candidates(tokens, (), self.config.vocabulary_size).tolist()}


def measure(rows: Sequence[int], rounds: int, *, length: int) -> list[dict[str, Any]]:
    """Measures every shape, and prints each table.

    Args:
        rows: Sources in flight on each core, each number a table.
        rounds: Turns of each engine, with and without a shortlist.
        length: Target tokens.

    Raises:
        SystemExit: An engine writes what its shortlist does not allow, or words differ at fp32.
    """
    tables, options = [], offline.forced(length)
    for name, config in SHAPES.items():
        with _written(marian.marian_base(config)) as model:
            _prove(model, max(rows), options)
            for count in rows:
                tables.append({"name": name, **_measure(model, count, rounds, options)})
                print_table(tables[-1])
    return tables


@contextmanager
def _written(model: Transformer) -> Iterator[_Model]:
    """Writes a model for both engines."""
    shortlist = draw_shortlist(model.config)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        artifacts = offline.write_artifacts(model, folder)
        for artifact in artifacts:
            write_shortlist(artifact, Manifest.read(artifact), shortlist, "drawn at random")
        converted = folder / "converted"
        vmap = write_map(shortlist, folder / "vmap.txt")
        CTranslate2Converter(model).convert(str(converted), vmap=str(vmap))
        yield _Model(model.config, artifacts, converted, shortlist)


def _prove(model: _Model, rows: int, options: DecodingOptions) -> None:
    """Checks at fp32 that each engine keeps to its shortlist, and that both write the same alone.

    Raises:
        SystemExit: One does not, or words differ.
    """
    sources, batch = model.sources(_PROVEN), model.sources(rows)
    alone = [model.candidates([source]) for source in sources]
    theirs = partial(CTranslate2Peer, model.converted, "float32", (1, 1))
    whole = model.artifacts[_PRECISIONS.index("fp32")]
    with closing(SeqservePeer(whole, rows, options)) as peer:
        ours = _kept(peer, sources, alone)
    with closing(theirs(1, options)) as peer:
        share = equal_share(ours, _kept(peer, sources, alone))
        if share < MIN_EQUAL_SHARE:
            raise SystemExit(f"{peer.name} agrees on {share:.1%} of sources: not comparable")
    with closing(theirs(rows, options)) as peer:
        # As many sources as a batch has are one.
        _kept(peer, batch, [model.candidates(batch)] * rows)


def _kept(peer: Peer, sources: Rows, allowed: Sequence[set[int]]) -> Rows:
    """Decodes sources, and checks that nothing but allowed tokens is written."""
    found = peer.decode(sources)
    if any(not tokens.issuperset(row) for row, tokens in zip(found, allowed, strict=True)):
        raise SystemExit(f"{peer.name} writes tokens that its shortlist does not allow")
    return found


def _measure(model: _Model, rows: int, rounds: int, options: DecodingOptions) -> dict[str, Any]:
    """Lets both engines take turns at both precisions, with and without a shortlist."""
    # Two full batches for each worker, and not less than tenths of a second.
    sources = model.sources(max(2 * rows * available_cores(), _MIN_SOURCES))
    peers: list[offline.Build] = []
    for way in (options, replace(options, shortlist=False)):
        peers += [partial(SeqservePeer, artifact, rows, way) for artifact in model.artifacts]
        peers += offline.ctranslate2(model.converted, rows, way, sources)
    # Which words are written depends on the candidates.
    table = offline.take_turns(peers, sources, rows, rounds, may_differ=True)
    by_length = sorted(sources, key=len)
    batches = [by_length[begin : begin + rows] for begin in range(0, len(sources), rows)]
    return table | {
        "length": options.max_decoding_length,
        "candidates": statistics.fmean(len(model.candidates([source])) for source in sources),
        "candidates_of_batch": statistics.fmean(len(model.candidates(batch)) for batch in batches),
    }


def print_table(table: dict[str, Any]) -> None:
    """Prints what was measured of one shape: speeds, what a shortlist gives, and ratios."""
    print(
        f"\n{table['name']}, {table['length']} target tokens, {table['rows']} sources in flight a"
        f" worker; {table['candidates']:,.0f} candidates of a source,"
        f" {table['candidates_of_batch']:,.0f} of a batch\n"
    )
    print(f"  {'':18}{'without':>9}{'with shortlist, tokens/s':>27}   times without")
    for precision in _PRECISIONS:
        pairs = [_pair(table, f"{engine} {precision}") for engine in _ENGINES]
        for engine, (plain, listed) in zip(_ENGINES, pairs, strict=True):
            print(
                f"  {f'{engine} {precision}':18}{plain['tokens_per_s']:9,.0f}"
                f"{listed['tokens_per_s']:27,.0f}   {shown(listed['ratios'][plain['name']])}"
            )
        ratios = [
            shown(ours["ratios"][theirs["name"]]) for ours, theirs in zip(*pairs, strict=True)
        ]
        print(f"  seqserve / CTranslate2, {precision}: {ratios[0]}, with shortlist {ratios[1]}")
    print_signature()


def _pair(table: dict[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Finds one engine at one precision, without and with a shortlist."""
    plain, listed = sorted(
        (peer for peer in table["peers"] if peer["name"].startswith(name)),
        key=lambda peer: str(peer["name"]).endswith("with shortlist"),
    )
    return plain, listed
