"""Chooses the scales of an int8 model's inputs, by what each choice costs."""

from __future__ import annotations

from collections.abc import Sequence

from seqserve_export.forced_decoding import agreement, score_targets
from seqserve_export.precision import Scales
from seqserve_export.quantization import Calibration, QuantizedLinear
from seqserve_model.transformer import Transformer

_MAX_LOSS = 0.005
"""Share of tokens that static scales, which are faster, may cost more than those of rows."""
_SENTENCES = 256


def choose_scales(
    model: Transformer, calibration: Calibration, sources: Sequence[list[int]]
) -> tuple[Scales, str]:
    """Compares static scales with those of rows on what the model at full precision decodes.

    Args:
        model: In int8, in evaluation mode. The scales of its inputs change.
        calibration: Of these sources.
        sources: Token ids, the end token last.

    Returns:
        The scales, and the reason for them.
    """
    end = model.config.eos_id
    # The end of a target that reached the limit was not chosen; any token will do to compare.
    targets = [[*target, end] for target in calibration.targets[:_SENTENCES]]
    kept = {}
    for scales in Scales:
        _scale_inputs(model, calibration, scales)
        kept[scales] = agreement(score_targets(model, sources[:_SENTENCES], targets), targets)
    static, row = kept[Scales.STATIC], kept[Scales.ROW]
    chosen = Scales.ROW if row - static > _MAX_LOSS else Scales.STATIC
    reason = (
        f"static ones choose {static:.1%} of the tokens that fp32 chooses, those of rows {row:.1%}"
    )
    return chosen, reason


def _scale_inputs(model: Transformer, calibration: Calibration, scales: Scales) -> None:
    for name, module in model.named_modules():
        if isinstance(module, QuantizedLinear):
            module.scale_inputs(calibration.inputs[name], scales)
