"""A model of Marian's shape decodes alike here, in transformers and in CTranslate2."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bench.huggingface import HuggingFacePeer, marian_of
from bench.marian import MARIAN_BASE, marian_base, numbered_words, sources, write
from bench.peers import CTranslate2Converter, CTranslate2Peer, TorchPeer

from seqserve_model.config import NormPosition, TransformerConfig
from seqserve_model.search import greedy_in_batches
from seqserve_model.transformer import Transformer
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.offline import Offline

LENGTH = 12
TINY = replace(
    MARIAN_BASE,
    vocabulary_size=4000,
    width=64,
    heads=4,
    feed_forward_width=128,
    encoder_layers=2,
    decoder_layers=2,
)

# Two exports; quick enough for what runs after the rest.
pytestmark = pytest.mark.parity


@torch.no_grad()
def shaken(config: TransformerConfig = TINY) -> Transformer:
    """Moves biases and norms off zero and one, so that none can go missing unnoticed."""
    model = marian_base(config)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def test_transformers_gives_our_words_where_the_end_is_held_back(tmp_path: Path) -> None:
    model = shaken()
    with torch.no_grad():
        model.target_embedding.weight[TINY.eos_id] *= 30
    ours = sources(9, config=TINY)
    free = greedy_in_batches(model, ours, LENGTH, 4)
    assert any(len(row) < LENGTH for row in free)  # there is something to hold back
    forced = DecodingOptions(max_decoding_length=LENGTH, min_decoding_length=LENGTH)
    with Offline(write(model, tmp_path), slots=4) as offline:
        expected = [answer.best.token_ids for answer in offline.decode(ours, forced)]
    assert {len(row) for row in expected} == {LENGTH}
    peer = HuggingFacePeer(model, 4, LENGTH, (2, 1))
    try:
        assert peer.decode(ours) == expected
    finally:
        peer.close()


def test_transformers_refuses_another_kind() -> None:
    with pytest.raises(ValueError, match="not of Marian's kind"):
        marian_of(Transformer(replace(TINY, norm_position=NormPosition.PRE)))


@pytest.mark.parametrize("norm_position", NormPosition)
def test_ctranslate2_gives_our_words(tmp_path: Path, norm_position: NormPosition) -> None:
    model = shaken(replace(TINY, norm_position=norm_position))
    ours = sources(9, config=TINY)
    CTranslate2Converter(model).convert(str(tmp_path / "converted"))
    options = DecodingOptions(max_decoding_length=LENGTH)
    peer = CTranslate2Peer(tmp_path / "converted", "float32", (1, 1), 4, options)
    try:
        assert peer.decode(ours) == greedy_in_batches(model, ours, LENGTH, 4)
    finally:
        peer.close()


def test_targets_vary_and_never_end() -> None:
    rows = TorchPeer(marian_base(TINY), 8, LENGTH).decode(sources(8, config=TINY))
    assert {len(row) for row in rows} == {LENGTH}
    assert len({tuple(row) for row in rows}) == 8
    assert sum(len(set(row)) for row in rows) > 8 * LENGTH / 2


def test_sources_are_as_long_as_sentences_and_end() -> None:
    rows = sources(200)
    assert rows == sources(200)
    assert rows != sources(200, seed=8)
    lengths = sorted(map(len, rows))
    assert (lengths[0], lengths[-1]) == (8, 32)
    assert 14 <= lengths[100] <= 18
    assert all(row[-1] == MARIAN_BASE.eos_id and min(row[:-1]) > 3 for row in rows)


def test_words_are_numbered() -> None:
    words = numbered_words(200)
    assert words.vocabulary_size == 200
    assert words.encode("t4 t199 t17") == [4, 199, 17, words.eos_id]
    assert words.decode([4, 199, 17]) == "t4 t199 t17"
