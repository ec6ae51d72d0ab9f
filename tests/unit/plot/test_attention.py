from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.client.fake_server import FakeServer
from tests.unit.plot.pictures import heat_maps

from seqserve.attention import AttentionResult, Kind
from seqserve.errors import OptionError
from seqserve_model.transformer import AttentionRecord, Transformer
from seqserve_plot.attention import draw, draw_masks, of_artifact
from seqserve_plot.command import main
from seqserve_server.text.tokenizer import Tokenizer

SOURCE, TARGET = "a b c d", "e f"


@pytest.fixture(scope="module")
def result(tiny_artifact: Path) -> AttentionResult:
    return of_artifact(tiny_artifact, SOURCE, TARGET)


@torch.inference_mode()
def test_each_head_is_that_of_torch(
    result: AttentionResult, tiny_model: Transformer, tiny_tokenizer: Tokenizer
) -> None:
    source = torch.tensor([tiny_tokenizer.encode(SOURCE)])
    target = tiny_tokenizer.encode_target(TARGET)
    record, lengths = AttentionRecord(), torch.tensor([source.size(1)])
    memory = tiny_model.encode(source, lengths, record)
    begun = torch.tensor([[tiny_model.config.bos_id, *target[:-1]]])
    tiny_model.advance(begun, tiny_model.begin(memory, lengths), record)
    for kind, layers in zip(Kind, (record.cross, record.encoder, record.decoder), strict=True):
        drawn = heat_maps(draw(result, kind))
        ought = torch.cat([layer[0] for layer in layers]).numpy()
        assert len(drawn) == len(ought)
        np.testing.assert_allclose(np.stack(drawn), ought, atol=1e-4)


def test_cells_are_named_by_their_tokens(result: AttentionResult) -> None:
    first = draw(result, Kind.CROSS).axes[0]
    assert tuple(label.get_text() for label in first.get_xticklabels()) == result.source_tokens
    assert tuple(label.get_text() for label in first.get_yticklabels()) == result.target_tokens


def test_a_target_is_decoded_where_none_is_given(tiny_artifact: Path) -> None:
    result = of_artifact(tiny_artifact, SOURCE, None)
    assert result.target_tokens[-1] == "</s>"
    assert result.cross.queries == len(result.target_tokens)


def test_a_target_that_is_too_long_is_refused(tiny_artifact: Path) -> None:
    with pytest.raises(OptionError, match=r"the target has \d+ tokens; the model reads at most"):
        of_artifact(tiny_artifact, SOURCE, "a b c d e " * 99)


def test_a_recurrent_decoder_has_no_attention_of_its_own(tiny_ssru_artifact: Path) -> None:
    result = of_artifact(tiny_ssru_artifact, SOURCE, TARGET)
    with pytest.raises(OptionError, match="recurrent"):
        draw(result, Kind.DECODER)
    assert heat_maps(draw(result, Kind.CROSS))


def test_a_server_is_asked_where_no_artifact_is_named(tmp_path: Path) -> None:
    server, out = FakeServer(), tmp_path / "heads.svg"
    try:
        called = ["attention", "one two", "--target", server.target, "--model", "m"]
        assert main([*called, "--out", str(out)]) == 0
    finally:
        server.stop()
    assert [(request.source, request.model) for request in server.requests] == [("one two", "m")]
    assert "layer 0, head 0" in out.read_text(encoding="utf-8")


def test_both_is_what_padding_and_causal_allow() -> None:
    padding, causal, both, cross, last = heat_maps(draw_masks(5, 2))
    np.testing.assert_array_equal(both, padding * causal)
    np.testing.assert_array_equal(causal, np.tri(5))
    assert padding.sum(axis=1).tolist() == [3] * 5
    assert cross.shape == (7, 5)
    np.testing.assert_array_equal(last, causal[-2:])


@pytest.mark.parametrize(("length", "padding"), [(2, 0), (4, 4)])
def test_rows_without_padding_and_of_padding_alone(length: int, padding: int) -> None:
    assert heat_maps(draw_masks(length, padding))[0].sum() == length * (length - padding)
