import copy
import dataclasses
from functools import partial

import pytest
import torch
from tests.random_weights import random_model
from tests.rounding import assert_same
from tests.tiny import SENTENCES
from torch import Tensor, nn

from seqserve_export import calibration
from seqserve_export.calibration import calibrate, choose_scales
from seqserve_export.options import Caches, Scales
from seqserve_export.quantization import Calibration, QuantizedLinear, Range, quantize
from seqserve_model.attention import MultiHeadAttention
from seqserve_model.config import Activation, NormPosition, TransformerConfig
from seqserve_model.decoding import greedy
from seqserve_model.transformer import Transformer
from seqserve_server.text.tokenizer import Tokenizer

PAD, BOS, EOS, VOCABULARY_SIZE = 0, 1, 2, 40
HEADS, SIZE = 2, 4
SHORT, LONG = [7, 8, EOS], [9, 10, 11, 12, 13, EOS]


CONFIG = TransformerConfig(
    vocabulary_size=VOCABULARY_SIZE,
    width=HEADS * SIZE,
    heads=HEADS,
    feed_forward_width=12,
    encoder_layers=1,
    decoder_layers=2,
    dropout=0.0,
    # What it gives has no sign.
    activation=Activation.RELU,
    shared_embeddings=False,
    tied_output=False,
    max_source_length=8,
    max_target_length=6,
)


@pytest.fixture
def model() -> Transformer:
    return random_model(CONFIG).double()


@torch.inference_mode()
def in_one_pass(
    model: Transformer, source: list[int]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Gives what each projection is given and gives, with no cache."""
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def note(name: str, module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        inputs[name], outputs[name] = given[0], output

    tensor, length = torch.tensor([source]), torch.tensor([len(source)])
    [tokens] = greedy(model, tensor, length, model.config.max_target_length)
    steps = [BOS, *tokens][: model.config.max_target_length]
    handles = [
        module.register_forward_hook(partial(note, name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    model(tensor, length, torch.tensor([steps]))
    for handle in handles:
        handle.remove()
    return inputs, outputs


def test_ranges_are_those_of_one_plain_pass(model: Transformer) -> None:
    calibration = calibrate(model, [LONG])
    inputs, _ = in_one_pass(model, LONG)
    linears = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    assert sorted(calibration.inputs) == sorted(inputs) == sorted(linears)
    for name, given in inputs.items():
        seen = calibration.inputs[name]
        assert seen.low == pytest.approx(min(0.0, float(given.min())), abs=1e-10), name
        assert seen.high == pytest.approx(max(0.0, float(given.max())), abs=1e-10), name
    assert calibration.inputs["decoder_layers.0.feed_forward.down"].zero_point == 0
    assert calibration.inputs["decoder_layers.0.feed_forward.up"].zero_point == 128


def test_caches_have_the_largest_of_each_channel(model: Transformer) -> None:
    calibration = calibrate(model, [LONG])
    _, outputs = in_one_pass(model, LONG)
    assert sorted(calibration.caches) == [
        f"decoder_layers.{layer}.{kind}_attention" for layer in (0, 1) for kind in ("cross", "self")
    ]
    for name, largest in calibration.caches.items():
        for part, most in zip(("key", "value"), largest, strict=True):
            assert most.shape == (HEADS, SIZE)
            kept = outputs[f"{name}.{part}"].view(-1, HEADS, SIZE)
            assert_same(most, kept.abs().amax(0))


def union(one: Calibration, other: Calibration) -> Calibration:
    inputs = {
        name: Range(min(seen.low, other.inputs[name].low), max(seen.high, other.inputs[name].high))
        for name, seen in one.inputs.items()
    }
    caches = {
        name: tuple(map(torch.maximum, largest, other.caches[name]))
        for name, largest in one.caches.items()
    }
    return Calibration(inputs=inputs, caches=caches)  # type: ignore[arg-type]


def test_sources_of_other_lengths_add_what_they_give_alone(model: Transformer) -> None:
    with torch.no_grad():
        # Far out of all that is read, if it were read.
        model.source_embedding.weight[PAD] = 1000.0
    alone = [calibrate(model, [source]) for source in (SHORT, LONG)]
    for sources in ([SHORT, LONG], [LONG, SHORT]):
        found, expected = calibrate(model, sources), union(*alone)
        assert found.inputs == expected.inputs
        torch.testing.assert_close(found.caches, expected.caches, atol=0, rtol=0)
    assert alone[0].inputs != alone[1].inputs


def test_every_source_is_watched_also_beyond_one_batch() -> None:
    # Its first projections are given tokens as they are embedded.
    model = random_model(dataclasses.replace(CONFIG, norm_position=NormPosition.POST))
    with torch.no_grad():
        model.source_embedding.weight[38] = 1000.0
    many, unlike = [[token, EOS] for token in range(4, 37)] * 4, [38, EOS]
    name = "encoder_layers.0.self_attention.query"
    assert calibrate(model, many).inputs[name].high < 1000
    for sources in ([unlike, *many], [*many, unlike]):
        assert calibrate(model, sources).inputs[name].high > 1000


def test_model_is_not_changed(model: Transformer) -> None:
    before = copy.deepcopy(model.state_dict())
    calibrate(model, [SHORT, LONG])
    torch.testing.assert_close(model.state_dict(), before, atol=0, rtol=0)
    for name, module in model.named_modules():
        assert not module._forward_pre_hooks, name
        assert not module._forward_hooks, name
        if isinstance(module, MultiHeadAttention):
            assert module.rounding is None, name


@pytest.fixture
def rounded(tiny_model: Transformer, tiny_calibration: Calibration) -> Transformer:
    return quantize(tiny_model, tiny_calibration, Scales.STATIC, Caches.FLOAT)


@pytest.mark.parametrize(
    ("static", "row", "chosen"),
    [(0.991, 0.995, "static"), (0.98, 0.99, "row"), (0.99, 0.95, "static")],
)
def test_scales_of_rows_must_be_worth_their_time(
    rounded: Transformer,
    tiny_calibration: Calibration,
    monkeypatch: pytest.MonkeyPatch,
    static: float,
    row: float,
    chosen: str,
) -> None:
    def read(model: Transformer, *_: object) -> str:
        output = model.output_projection
        assert isinstance(output, QuantizedLinear)
        return "row" if output.input_scale is None else "static"

    monkeypatch.setattr(calibration, "score_targets", read)
    monkeypatch.setattr(calibration, "agreement", lambda how: {"static": static, "row": row}[how])
    selected, reason = choose_scales(rounded, tiny_calibration, [])
    assert selected.value == chosen
    assert f"static scales choose {static:.1%} of fp32's tokens" in reason
    assert f"row scales {row:.1%}" in reason


def test_range_that_one_row_stretches_calls_for_scales_of_rows(
    rounded: Transformer, tiny_calibration: Calibration, tiny_tokenizer: Tokenizer
) -> None:
    sources = [tiny_tokenizer.encode(sentence) for sentence in SENTENCES]
    _, plain_reason = choose_scales(rounded, tiny_calibration, sources)
    inputs = {
        name: Range(10 * seen.low, 10 * seen.high) for name, seen in tiny_calibration.inputs.items()
    }
    stretched = dataclasses.replace(tiny_calibration, inputs=inputs)
    selected, reason = choose_scales(rounded, stretched, sources)
    assert selected is Scales.ROW
    assert reason != plain_reason
