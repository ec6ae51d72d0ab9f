"""The families of checkpoints, by the ``model_type`` of their config.json."""

import re
from collections.abc import Callable, Mapping

from seqserve.errors import OptionError
from seqserve_import.checkpoint import Checkpoint
from seqserve_import.families.bart import bart, m2m100, marian, mbart, pegasus
from seqserve_import.families.ctranslate2 import ctranslate2
from seqserve_import.families.marian_native import marian_native
from seqserve_import.families.t5 import t5
from seqserve_import.family import NAMES, Family, with_wide_heads
from seqserve_import.files import CheckpointError

FAMILIES: Mapping[str, Callable[[Checkpoint], Family]] = {
    "marian": marian,
    "m2m_100": m2m100,
    "t5": t5,
    "mt5": t5,
    "umt5": t5,
    "bart": bart,
    "mbart": mbart,
    "pegasus": pegasus,
    "marian-native": marian_native,
    "ctranslate2": ctranslate2,
}
"""NLLB is of the type m2m_100; Flan-T5, ByT5 and MADLAD are of the type t5. The last two are for
files of Marian and CTranslate2, which name no type."""


def family_of(checkpoint: Checkpoint) -> Family:
    """Finds the family of a checkpoint and reads its configuration.

    Raises:
        CheckpointError: It is of no known family, or a value of its configuration does not fit.
    """
    config = checkpoint.config
    model_type = config.text("model_type", "")
    if model_type not in FAMILIES:
        if config.path.with_name("recipe.json").exists():
            raise CheckpointError(
                f"{checkpoint.folder}: is a training run of seqserve; `seqserve export` converts it"
            )
        raise CheckpointError(
            f"{config.path}: model_type {model_type!r} is not supported; known are"
            f" {', '.join([*FAMILIES][:-2])}"
        )
    if config.has("quantization_config"):
        raise CheckpointError(
            f"{config.path}: quantization_config: the weights are quantised; take the original"
            " checkpoint"
        )
    try:
        return with_wide_heads(FAMILIES[model_type](checkpoint))
    except OptionError as error:

        def theirs(ours: re.Match[str]) -> str:
            names = NAMES["fields"].get(ours[1], "").split()
            return next(filter(checkpoint.generation.over(config).has, names), ours[0])

        shown = re.sub(r"model\.(\w+)", theirs, str(error))
        raise CheckpointError(f"{config.path}: {shown}") from None
