from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.unit.plot.pictures import heat_maps, labels

from seqserve.errors import OptionError
from seqserve_model.config import DecoderCell, PositionScheme, TransformerConfig
from seqserve_model.positions import marian_sinusoids, sinusoids
from seqserve_model.transformer import Transformer
from seqserve_plot.positions import draw_scheme, draw_trained

LENGTH, WIDTH, HEADS = 12, 8, 2


def model(scheme: PositionScheme, cell: DecoderCell = DecoderCell.ATTENTION) -> Transformer:
    config = TransformerConfig(
        vocabulary_size=8,
        width=WIDTH,
        heads=HEADS,
        feed_forward_width=8,
        encoder_layers=2,
        decoder_layers=1,
        positions=scheme,
        decoder_cell=cell,
        relative_distance=3,
        relative_buckets=8,
        max_source_length=LENGTH,
        max_target_length=LENGTH,
    )
    return Transformer(config).eval()


@pytest.mark.parametrize(
    ("scheme", "table"),
    [(PositionScheme.SINUSOIDAL, sinusoids), (PositionScheme.MARIAN, marian_sinusoids)],
)
def test_waves_are_those_of_the_network_with_their_products(
    scheme: PositionScheme, table: Callable[[int, int], torch.Tensor]
) -> None:
    waves, products = heat_maps(draw_scheme(scheme, LENGTH, WIDTH, HEADS))
    np.testing.assert_array_equal(waves, table(LENGTH, WIDTH).numpy())
    assert products.shape == (LENGTH, LENGTH)
    # Each row has the same length: sin² + cos² for every wave.
    np.testing.assert_allclose(products.diagonal(), WIDTH / 2, rtol=1e-5)


def test_learned_positions_are_drawn_of_a_model_alone() -> None:
    with pytest.raises(OptionError, match="--trained"):
        draw_scheme(PositionScheme.LEARNED, LENGTH, WIDTH, HEADS)
    trained = model(PositionScheme.LEARNED)
    tables = [trained.encoder_positions, trained.decoder_positions]
    shown = heat_maps(draw_trained(trained, LENGTH))[::2]
    for drawn, positions in zip(shown, tables, strict=True):
        table = next(positions.parameters()).detach()
        np.testing.assert_array_equal(drawn, table[:LENGTH].numpy())


def test_far_distances_are_clipped() -> None:
    [clipped] = heat_maps(draw_scheme(PositionScheme.RELATIVE, 40, WIDTH, HEADS))
    assert clipped[0, 0] == 0
    assert (clipped.min(), clipped.max()) == (-16, 16)


def test_a_trained_model_shows_each_layers_vectors() -> None:
    _, *layers = heat_maps(draw_trained(model(PositionScheme.RELATIVE), LENGTH))
    assert [sizes.shape for sizes in layers] == [(HEADS, 7)] * 2


def test_buckets_of_the_decoder_hold_the_past_alone() -> None:
    figure = draw_scheme(PositionScheme.T5, LENGTH, WIDTH, HEADS)
    [encoder], [decoder] = (axes.lines for axes in figure.axes)
    assert {encoder.get_drawstyle(), decoder.get_drawstyle()} == {"steps-mid"}
    assert list(encoder.get_xdata()) == [*range(-LENGTH + 1, LENGTH)]
    assert list(decoder.get_xdata()) == [*range(-LENGTH + 1, 1)]
    assert max(encoder.get_ydata()) > max(decoder.get_ydata())
    assert decoder.get_ydata()[-1] == encoder.get_ydata()[LENGTH - 1] == 0


@pytest.mark.parametrize(("cell", "stacks"), [(DecoderCell.ATTENTION, 2), (DecoderCell.SSRU, 1)])
def test_the_bias_of_buckets_is_drawn_by_head(cell: DecoderCell, stacks: int) -> None:
    figure = draw_trained(model(PositionScheme.T5, cell), LENGTH)
    named = [label for label in labels(figure) if label.startswith("head")]
    assert named == ["head 0", "head 1"] * stacks


def test_angles_grow_with_the_position() -> None:
    figure = draw_scheme(PositionScheme.ROTARY, LENGTH, 16, HEADS)
    assert all(tick == int(tick) for tick in figure.axes[0].get_xticks())
    [angles] = heat_maps(figure)
    assert angles.shape == (LENGTH, 4)
    np.testing.assert_allclose(np.exp(1j * angles[:, 0]), np.exp(1j * np.arange(LENGTH)), atol=1e-5)


def test_slopes_are_named_by_head() -> None:
    figure = draw_scheme(PositionScheme.ALIBI, LENGTH, WIDTH, HEADS)
    assert labels(figure) == ["head 0: 0.0625", "head 1: 0.00391"]
    [bias] = heat_maps(figure)
    assert bias[0, 1] == bias[1, 0] == -0.0625


def test_a_model_that_is_shorter_than_asked_is_drawn_whole() -> None:
    drawn = heat_maps(draw_trained(model(PositionScheme.SINUSOIDAL), 999))
    assert drawn[0].shape == (LENGTH, WIDTH)
