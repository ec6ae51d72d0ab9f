"""Peers refuse models that they cannot compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bench.huggingface import marian_of
from bench.peers import CTranslate2Converter
from tests import tiny


@pytest.mark.parametrize(
    ("convert", "peer"), [(CTranslate2Converter, "CTranslate2"), (marian_of, "transformers")]
)
def test_a_recurrent_decoder_is_refused_and_marian_named(
    convert: Callable[[Any], Any], peer: str
) -> None:
    model = tiny.make_ssru_model(tiny.make_tokenizer())
    with pytest.raises(ValueError, match=f"{peer} knows no decoder with ssru; .* Marian"):
        convert(model)
