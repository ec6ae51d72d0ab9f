import dataclasses
import json
from typing import Any

import pytest

from seqserve.errors import OptionError
from seqserve_model.config import (
    Activation,
    DecoderCell,
    Norm,
    NormPosition,
    PositionScheme,
    TransformerConfig,
)


def test_head_size_is_the_share_of_the_width() -> None:
    assert TransformerConfig(width=96, heads=6).head_size == 16
    assert TransformerConfig(width=96, heads=5, attention_width=40).head_size == 8


def test_configuration_survives_json() -> None:
    config = TransformerConfig(
        width=32,
        dropout=0.25,
        norm_position=NormPosition.POST,
        norm=Norm.RMS,
        activation=Activation.SWIGLU,
        positions=PositionScheme.ROTARY,
        decoder_cell=DecoderCell.SSRU,
        tied_output=False,
    )
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_to_dict_holds_every_field() -> None:
    names = {field.name for field in dataclasses.fields(TransformerConfig)}
    assert set(TransformerConfig().to_dict()) == names


def test_decoder_may_have_other_heads() -> None:
    config = TransformerConfig(width=96, heads=6, decoder_heads=3, decoder_feed_forward_width=7)
    assert (config.head_size, config.decoder.head_size) == (16, 32)
    assert config.decoder == TransformerConfig(width=96, heads=3, feed_forward_width=7)
    same = TransformerConfig(width=96, heads=6)
    assert same.decoder is same


def test_what_is_left_out_takes_its_default() -> None:
    assert TransformerConfig.from_dict({"width": 64}) == TransformerConfig(width=64)


def test_whole_number_serves_as_float() -> None:
    config = TransformerConfig.from_dict({"rotary_base": 500})
    assert config.rotary_base == 500.0
    assert isinstance(config.rotary_base, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"widht": 64}, "model.widht is not known; known are vocabulary_size, source"),
        ({"width": "64"}, "model.width: '64' is not of type int"),
        ({"width": 64.0}, "model.width: 64.0 is not of type int"),
        ({"width": True}, "model.width: True is not of type int"),
        ({"tied_output": 1}, "model.tied_output: 1 is not of type bool"),
        ({"dropout": True}, "model.dropout: True is not of type float"),
        ({"norm": "batch"}, "model.norm: 'batch' is not one of layer, rms"),
        ({"norm": ["layer"]}, r"model.norm: \['layer'\] is not one of layer, rms"),
    ],
)
def test_refuses_what_a_file_may_not_hold(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}"):
        TransformerConfig.from_dict(values)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"encoder_layers": 0}, "model.encoder_layers is 0"),
        ({"max_target_length": -1}, "model.max_target_length is -1"),
        ({"width": 10, "heads": 4}, r"model.width \(10\) .* model.heads \(4\)"),
        ({"attention_width": 10, "heads": 4}, r"model.attention_width \(10\) .* model.heads \(4\)"),
        ({"attention_width": -8}, "model.attention_width is -8"),
        ({"width": 12, "decoder_heads": 5}, r"model.width \(12\) .* model.decoder_heads \(5\)"),
        (
            {"decoder_attention_width": 10, "heads": 4},
            r"model.decoder_attention_width \(10\) .* model.heads \(4\)",
        ),
        ({"decoder_heads": -1}, "model.decoder_heads is -1"),
        (
            {"source_vocabulary_size": 7, "vocabulary_size": 9},
            r"model.source_vocabulary_size \(7\) must equal the one of targets \(9\)",
        ),
        (
            {"source_vocabulary_size": 2, "shared_embeddings": False},
            r"model.eos_id is 2; .* model.source_vocabulary_size \(2\)",
        ),
        ({"norm_epsilon": -1e-6}, "model.norm_epsilon is -1e-06"),
        ({"dropout": 1.0}, "model.dropout is 1.0"),
        ({"attention_dropout": -0.1}, "model.attention_dropout is -0.1"),
        ({"dropout": float("nan")}, "model.dropout is nan"),
        ({"width": 12, "heads": 4, "positions": PositionScheme.ROTARY}, "even"),
        (
            {"width": 12, "heads": 3, "decoder_heads": 4, "positions": PositionScheme.ROTARY},
            "even size, not 3",
        ),
        ({"width": 9, "heads": 3, "positions": PositionScheme.MARIAN}, "even width .* not 9"),
        ({"width": 2, "heads": 1, "positions": PositionScheme.MARIAN}, "at least 4, not 2"),
        ({"rotary_base": 1.0, "positions": PositionScheme.ROTARY}, "model.rotary_base is 1.0"),
        ({"relative_buckets": 3, "positions": PositionScheme.T5}, "model.relative_buckets is 3"),
        (
            {"relative_bucket_distance": 16, "positions": PositionScheme.T5},
            "model.relative_bucket_distance",
        ),
        ({"unk_id": -1}, "model.unk_id is -1"),
        ({"eos_id": 100, "vocabulary_size": 100}, "model.eos_id is 100"),
        ({"eos_id": 0}, "model.eos_id and model.pad_id are both 0"),
    ],
)
def test_refuses_shapes_that_cannot_be_built(values: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        TransformerConfig(**values)


def test_accepts_the_special_tokens_of_other_models() -> None:
    marian = TransformerConfig(vocabulary_size=100, eos_id=0, unk_id=1, pad_id=99, bos_id=99)
    bart = TransformerConfig(vocabulary_size=100, bos_id=2, pad_id=1, eos_id=2, unk_id=3)
    assert marian.bos_id == marian.pad_id
    assert bart.bos_id == bart.eos_id
