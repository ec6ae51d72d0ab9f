"""Static scales are taken unless those of rows keep more of what the model decodes."""

from __future__ import annotations

import pytest
from tests.tiny import SENTENCES

from seqserve_export import calibration
from seqserve_export.calibration import choose_scales
from seqserve_export.options import Caches, Scales
from seqserve_export.quantization import Calibration, QuantizedLinear, quantize
from seqserve_model.transformer import Transformer
from seqserve_server.text.tokenizer import Tokenizer


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
    monkeypatch.setattr(
        calibration, "agreement", lambda how, _: {"static": static, "row": row}[how]
    )
    selected, reason = choose_scales(rounded, tiny_calibration, [])
    assert selected.value == chosen
    assert f"static ones choose {static:.1%} of the tokens" in reason
    assert f"those of rows {row:.1%}" in reason


def test_range_that_one_row_stretches_calls_for_scales_of_rows(
    rounded: Transformer, tiny_calibration: Calibration, tiny_tokenizer: Tokenizer
) -> None:
    sources = [tiny_tokenizer.encode(sentence) for sentence in SENTENCES]
    _, plain_reason = choose_scales(rounded, tiny_calibration, sources)
    stretched = Calibration(
        inputs={
            name: type(seen)(10 * seen.low, 10 * seen.high)
            for name, seen in tiny_calibration.inputs.items()
        },
        caches=tiny_calibration.caches,
        targets=tiny_calibration.targets,
    )
    selected, reason = choose_scales(rounded, stretched, sources)
    assert selected is Scales.ROW
    assert reason != plain_reason
