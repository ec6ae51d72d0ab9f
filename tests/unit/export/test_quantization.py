import copy
import weakref

import numpy as np
import onnxruntime as ort
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from seqserve_export.options import Caches, Scales
from seqserve_export.quantization import (
    _MAX_EXACT_INPUTS,
    Calibration,
    QuantizedLinear,
    Range,
    RoundedCache,
    cache_scales,
    precision_of,
    quantize,
    quantize_in_place,
)
from seqserve_export.weight_rounding import MIN_SCALE, quantized_weight
from seqserve_model.attention import MultiHeadAttention
from seqserve_model.transformer import Transformer

TOP, MIDDLE = 255, 128
SIGNED, UNSIGNED = Range(-2.0, 3.0), Range(0.0, 3.0)


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("seen", "zero_point", "scale"),
    [
        (Range(-2.0, 1.0), 128, 2 / 127),
        (Range(-1.0, 2.0), 128, 2 / 127),
        (Range(0.0, 2.0), 0, 2 / 255),
        (Range(0.5, 2.0), 0, 2 / 255),
        (Range(-2.0, -1.0), 128, 2 / 127),
        (Range(0.0, 0.0), 0, MIN_SCALE / 255),
    ],
)
def test_range_is_laid_over_the_integers(seen: Range, zero_point: int, scale: float) -> None:
    assert seen.zero_point == zero_point
    assert seen.scale == pytest.approx(scale, rel=1e-12)
    for value in (seen.low, 0.0, seen.high):
        assert 0 <= round(value / seen.scale) + seen.zero_point <= TOP


rows = st.integers(1, 9).flatmap(
    lambda width: st.lists(
        st.lists(st.floats(-1e3, 1e3, width=32), min_size=width, max_size=width),
        min_size=1,
        max_size=4,
    )
)


def pair_sums(weight: Tensor) -> list[int]:
    """Lists the sums that a CPU makes of neighbours before it has more than sixteen bits."""
    return [
        abs(sum(part))
        for row in weight.tolist()
        for first in range(0, len(row), 2)
        for part in (
            [w for w in row[first : first + 2] if w > 0],
            [w for w in row[first : first + 2] if w < 0],
        )
    ]


@settings(deadline=None)
@given(rows)
def test_weight_is_rounded_to_the_nearest_and_pairs_fit(values: list[list[float]]) -> None:
    weight = torch.tensor(values)
    integers, scale = quantized_weight(weight)
    assert integers.dtype is torch.int8
    assert integers.shape == weight.shape
    assert scale.shape == (len(values),)
    assert (scale > 0).all()
    # Twelve digits, of which single precision holds some seven.
    error = (weight - integers * scale[:, None]).abs() / scale[:, None]
    assert error.max() <= 0.5 + 1e-4
    assert int(integers.min()) > -128
    assert max(pair_sums(integers)) <= 128


@settings(deadline=None)
@given(rows)
def test_channel_is_rounded_no_coarser_than_it_must(values: list[list[float]]) -> None:
    """Half a bit or less is lost to pairs; without that, the largest weight would be 127.

    A coarser scale is taken only where it loses nothing.
    """
    weight = torch.tensor(values)
    integers, scale = quantized_weight(weight)
    error = (weight - integers * scale[:, None]).abs()
    rounded = (error > 1e-5 * weight.abs()).any(1)
    largest = weight.abs().amax(1)
    assert (scale <= (2 * largest / 127).clamp(min=MIN_SCALE) * (1 + 1e-6))[rounded].all()
    assert (scale >= largest / 127 * (1 - 1e-6)).all()
    full = [max(pair_sums(row[None])) >= 126 for row in integers[rounded & (largest > 1e-6)]]
    assert all(full)


def test_rows_that_were_rounded_before_keep_their_integers_where_pairs_fit() -> None:
    before = torch.tensor([[127, 1, -60, 61], [3, -5, 0, 7], [90, 90, 2, 1]], dtype=torch.int8)
    step = torch.tensor(0.0137)
    integers, scale = quantized_weight(before / (1 / step))
    assert torch.equal(integers[:2], before[:2])
    assert scale[:2].tolist() == pytest.approx([step.item()] * 2, rel=1e-6)
    assert scale[2].item() == pytest.approx(180 / 127 * step.item(), rel=1e-6)


def test_rows_of_zeros_stay_zeros() -> None:
    weight = torch.zeros(2, 5)
    weight[1, 4] = -3.0
    integers, scale = quantized_weight(weight)
    assert integers.tolist() == [[0] * 5, [0, 0, 0, 0, -127]]
    assert scale[1] == torch.tensor(3.0) / 127


def test_channel_is_rounded_by_itself() -> None:
    weight = normal(3, 8)
    alone = quantized_weight(weight[:1])
    weight[1] *= 1000
    for together, single in zip(quantized_weight(weight), alone, strict=True):
        assert torch.equal(together[:1], single)


def make_linear(inputs: int = 16, outputs: int = 6, bias: bool = True) -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(inputs, outputs, bias=bias).requires_grad_(False)


def most_rounding(linear: nn.Linear, x: Tensor, input_scale: Tensor | float) -> Tensor:
    """Bounds what half a step of every input and every weight can add up to, ``[.., N]``."""
    integers, weight_scale = quantized_weight(linear.weight)
    kept = (integers * weight_scale[:, None]).abs().sum(1)
    of_weights = x.abs().sum(-1, keepdim=True) * weight_scale / 2
    return of_weights + input_scale / 2 * kept + 1e-5


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("seen", [SIGNED, UNSIGNED])
def test_static_scale_is_as_close_as_rounding_allows(seen: Range, bias: bool) -> None:
    linear = make_linear(bias=bias)
    x = normal(4, 7, 16).clamp(seen.low, seen.high)
    x[0, 0, :2] = torch.tensor([seen.low, seen.high])
    computed = QuantizedLinear.of(linear, seen, Scales.STATIC)(x)
    assert computed.shape == (4, 7, 6)
    error = (computed - linear(x)).abs()
    assert (error <= most_rounding(linear, x, seen.scale)).all()
    assert error.max() > 1e-5, "nothing was rounded"


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("seen", [SIGNED, UNSIGNED])
def test_row_scale_is_as_close_as_rounding_allows(seen: Range, bias: bool) -> None:
    linear = make_linear(bias=bias)
    # Far from what was seen: a row brings its own scale.
    x = normal(5, 16) * torch.tensor([1e-3, 0.1, 1.0, 40.0, 1e4])[:, None]
    x = x if seen is SIGNED else x.abs()
    computed = QuantizedLinear.of(linear, seen, Scales.ROW)(x)
    scale = x.abs().amax(-1, keepdim=True) / (TOP - seen.zero_point)
    error = (computed - linear(x)).abs()
    assert (error <= most_rounding(linear, x, scale) + 1e-6 * x.abs().sum(-1, keepdim=True)).all()


@pytest.mark.parametrize(
    ("seen", "lowest", "highest"),
    [(SIGNED, -128 * SIGNED.scale, 127 * SIGNED.scale), (UNSIGNED, 0.0, 255 * UNSIGNED.scale)],
)
def test_static_scale_cuts_off_what_was_never_seen(
    seen: Range, lowest: float, highest: float
) -> None:
    linear = QuantizedLinear.of(make_linear(), seen, Scales.STATIC)
    x = 100 * normal(4, 16)
    assert torch.equal(linear(x), linear(x.clamp(lowest, highest)))
    assert not torch.equal(linear(x), linear(x.clamp(lowest / 2, highest / 2)))


@pytest.mark.parametrize("scales", Scales)
def test_row_is_the_same_alone_and_beside_any_neighbours(scales: Scales) -> None:
    linear = QuantizedLinear.of(make_linear(inputs=33), SIGNED, scales)
    row = normal(33)
    alone = linear(row[None])
    for count in (1, 2, 7, 64):
        for size in (0.0, 1e-6, 1.0, 1e6):
            neighbours = size * normal(count, 33, seed=count)
            together = linear(torch.cat([neighbours, row[None], neighbours]))
            assert torch.equal(together[count], alone[0]), (count, size)


def test_row_of_zeros_gives_the_bias() -> None:
    linear = make_linear()
    for scales in Scales:
        computed = QuantizedLinear.of(linear, SIGNED, scales)(torch.zeros(2, 16))
        assert torch.equal(computed, linear.bias.expand(2, -1))


@pytest.mark.parametrize("biases", [(True,) * 3, (False,) * 3, (False, True, False)])
@pytest.mark.parametrize("scales", Scales)
def test_joined_projections_give_what_each_gives(scales: Scales, biases: tuple[bool, ...]) -> None:
    torch.manual_seed(4)
    sizes = zip((3, 5, 2), biases, strict=True)
    linears = [nn.Linear(16, width, bias=bias).requires_grad_(False) for width, bias in sizes]
    parts = [QuantizedLinear.of(linear, SIGNED, scales) for linear in linears]
    x = normal(2, 3, 16)
    joined = QuantizedLinear.joined(parts)(x)
    assert torch.equal(joined, torch.cat([part(x) for part in parts], dim=-1))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scales", Scales)
def test_divided_projection_gives_other_units(scales: Scales, bias: bool) -> None:
    linear = QuantizedLinear.of(make_linear(bias=bias), SIGNED, scales)
    units = torch.tensor([0.25, 1.0, 3.0, 0.01, 7.0, 50.0])
    x = normal(5, 16)
    torch.testing.assert_close(linear.divided(units)(x) * units, linear(x), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(linear.divided(units)(x), linear(x))


@pytest.mark.parametrize("zero_point", [0, MIDDLE])
@pytest.mark.parametrize("inputs", [_MAX_EXACT_INPUTS, _MAX_EXACT_INPUTS + 1, 8192])
def test_sums_are_exact_however_wide(inputs: int, zero_point: int) -> None:
    draw = torch.Generator().manual_seed(inputs)
    weight = torch.randint(50, 65, (64, inputs), generator=draw, dtype=torch.int8)
    weight[1] = -64
    weight[0] = 64
    x = torch.randint(200, TOP + 1, (64, inputs), generator=draw)
    x[0] = TOP
    x[1] = 0
    sums = (x - zero_point) @ weight.long().t()
    linear = QuantizedLinear(weight, torch.ones(64), None, torch.tensor(1.0), zero_point)
    # One of more than 24 bits is rounded once, when it is done, and not after each addition.
    assert torch.equal(linear((x - zero_point).float()), sums.float())
    if not zero_point:
        assert (sums.abs().max() <= 2**24) == (inputs <= _MAX_EXACT_INPUTS)


def run_kernel(x: np.ndarray, weight: np.ndarray, zero_point: int) -> np.ndarray:
    """Runs the one node that stands for a projection, ``[M, K]`` and ``[K, N]`` → ``[M, N]``."""
    constants = {
        "weight": weight,
        "scale": np.array(1.0, np.float32),
        "weight_scale": np.ones(weight.shape[1], np.float32),
        "zero_point": np.array(zero_point, np.uint8),
    }
    node = helper.make_node(
        "MatMulIntegerToFloat", ["x", *constants], ["y"], domain="com.microsoft"
    )
    graph = helper.make_graph(
        [node],
        "kernel",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (len(x), weight.shape[1]))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [y] = session.run(None, {"x": x})
    return y


def extreme_weights(inputs: int) -> Tensor:
    """Makes channels ``[N, K]`` whose neighbours would sum to the most they can, if they might."""
    patterns = [(1.0,), (1.0, 1.0, -1.0, -1.0), (1.0, 0.0), (1.0, -1.0), (1.0, 0.99)]
    rows = [torch.tensor(pattern).repeat(inputs)[:inputs] for pattern in patterns]
    return torch.stack([*rows, *(-row for row in rows), *normal(7, inputs)])


@pytest.mark.parametrize("inputs", [1, 2, 7, 32, 65, 512])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_kernel_sums_exactly_even_without_vnni(rows: int, inputs: int) -> None:
    """CPUs without VNNI add two products in sixteen bits, and what does not fit is cut off."""
    weight, _ = quantized_weight(extreme_weights(inputs))
    kernel_weight = np.ascontiguousarray(weight.numpy().T)
    draw = np.random.default_rng(inputs)
    for x in (
        np.full((rows, inputs), TOP, np.uint8),
        np.zeros((rows, inputs), np.uint8),
        draw.integers(0, TOP + 1, (rows, inputs), np.uint8),
    ):
        for zero_point in (0, MIDDLE):
            exact = (x.astype(np.int64) - zero_point) @ kernel_weight.astype(np.int64)
            assert np.abs(exact).max() < 2**24
            np.testing.assert_array_equal(run_kernel(x, kernel_weight, zero_point), exact)


def test_cache_rounds_each_channel_by_its_own_scale() -> None:
    key = normal(3, 2, 9, 4) * torch.tensor([0.01, 1.0, 5.0, 300.0])  # [B, H, K, D]
    value = normal(3, 2, 9, 4, seed=2)
    largest = [part.abs().amax((0, 2)) for part in (key, value)]
    rounding = RoundedCache(*largest)
    for part, most, rounded in zip((key, value), largest, rounding(key, value), strict=True):
        scale = most[None, :, None] / 127
        steps = rounded / scale
        torch.testing.assert_close(steps, steps.round(), atol=1e-4, rtol=0)
        assert ((rounded - part).abs() <= scale * 0.5001).all()
        assert steps.abs().max() == pytest.approx(127, abs=1e-3)
        assert not torch.equal(rounded, part)


def test_cache_cuts_off_what_was_never_seen_and_keeps_empty_channels() -> None:
    rounding = RoundedCache(torch.tensor([[127.0, 0.0]]), torch.tensor([[1.27, 12.7]]))
    seen = torch.tensor([[[[1000.0, 0.0]], [[-1000.0, 0.0]]]]).transpose(1, 2)  # [1, 1, 2, 2]
    key, value = rounding(seen, seen)
    assert key.tolist() == [[[[127.0, 0.0], [-128.0, 0.0]]]]
    torch.testing.assert_close(value, torch.tensor([[[[1.27, 0.0], [-1.28, 0.0]]]]))


def test_rounded_cache_tells_its_scales() -> None:
    attention = MultiHeadAttention(8, 2)
    assert cache_scales(attention) is None
    attention.rounding = RoundedCache(torch.full((2, 4), 127.0), torch.full((2, 4), 254.0))
    scales = cache_scales(attention)
    assert scales is not None
    for scale, worth in zip(scales, (1.0, 2.0), strict=True):
        assert torch.equal(scale, torch.full((1, 2, 1, 4), worth))


@pytest.mark.parametrize("caches", Caches)
@pytest.mark.parametrize("scales", Scales)
def test_every_projection_of_a_copy_is_rounded(
    tiny_model: Transformer, tiny_calibration: Calibration, scales: Scales, caches: Caches
) -> None:
    before = copy.deepcopy(tiny_model)
    quantized = quantize(tiny_model, tiny_calibration, scales, caches)
    assert [*map(type, tiny_model.modules())] == [*map(type, before.modules())]
    torch.testing.assert_close(tiny_model.state_dict(), before.state_dict(), atol=0, rtol=0)
    assert (precision_of(tiny_model), precision_of(quantized)) == ("fp32", "int8")

    linears = {name for name, part in tiny_model.named_modules() if isinstance(part, nn.Linear)}
    for name, module in quantized.named_modules():
        assert not isinstance(module, nn.Linear), name
        assert isinstance(module, QuantizedLinear) == (name in linears), name
        if isinstance(module, QuantizedLinear):
            seen = tiny_calibration.inputs[name]
            assert module.zero_point == seen.zero_point
            assert (module.input_scale is None) == (scales is Scales.ROW)
            if module.input_scale is not None:
                assert float(module.input_scale) == pytest.approx(seen.scale)
        if isinstance(module, MultiHeadAttention):
            rounded = caches is Caches.INT8 and name in tiny_calibration.caches
            assert isinstance(module.rounding, RoundedCache) == rounded, name


def test_norms_stay_as_they_are(tiny_model: Transformer, tiny_calibration: Calibration) -> None:
    assert tiny_model.config.tied_output
    quantized = quantize(tiny_model, tiny_calibration, Scales.STATIC, Caches.INT8)
    kept = dict(quantized.named_parameters())
    assert kept, "nothing was kept"
    for name, weight in kept.items():
        assert weight.dtype is torch.float32
        assert torch.equal(weight, tiny_model.get_parameter(name)), name
        assert weight is tiny_model.get_parameter(name), "memory for it is taken twice"
    names = {name.rpartition(".")[0] for name in kept}
    assert {"encoder_norm", "decoder_norm"} <= names
    assert "source_embedding" not in names
    assert quantized.target_embedding is quantized.source_embedding
    output = quantized.output_projection
    assert isinstance(output, QuantizedLinear)
    assert output.weight.dtype is torch.int8


def test_model_that_is_rounded_in_place_drops_its_weights(
    tiny_model: Transformer, tiny_calibration: Calibration
) -> None:
    scheme = tiny_calibration, Scales.STATIC, Caches.INT8
    expected = quantize(tiny_model, *scheme).state_dict()
    model = copy.deepcopy(tiny_model)
    matrices = [weakref.ref(weight) for weight in model.parameters() if weight.dim() > 1]
    assert quantize_in_place(model, *scheme) is model
    assert len(matrices) > 10
    assert [matrix() for matrix in matrices] == [None] * len(matrices)
    torch.testing.assert_close(model.state_dict(), expected, atol=0, rtol=0)


def test_rounded_model_says_almost_the_same(
    tiny_model: Transformer, tiny_calibration: Calibration
) -> None:
    source, lengths = torch.tensor([[9, 8, 7, 2]]), torch.tensor([4])
    target = torch.tensor([[1, 30, 40, 50, 60]])
    with torch.inference_mode():
        whole = tiny_model(source, lengths, target)
        for scales in Scales:
            for caches in Caches:
                quantized = quantize(tiny_model, tiny_calibration, scales, caches)
                error = quantized(source, lengths, target) - whole
                assert 0 < error.abs().mean() < 0.1 * whole.std(), (scales, caches)
