"""What the makers of a checkpoint recommend for its generation, as options of our API.

Lengths of transformers count the token that starts a target, ours do not.
"""

from __future__ import annotations

from typing import Any

from seqserve_import.checkpoint import Settings
from seqserve_server.contract.tokenizer import Tokenizer

_START = 1


def recommended_options(
    generation: Settings, tokenizer: Tokenizer, max_target_length: int
) -> dict[str, Any]:
    """Gives the recommended decoding options, by their names in the API.

    Args:
        generation: Of the checkpoint.
        tokenizer: Spells tokens.
        max_target_length: The limit of the model.
    """
    found: dict[str, Any] = {
        "no_repeat_ngram_size": generation.number("no_repeat_ngram_size", 0),
        "disable_unk": generation.flag("disable_unk", False),
        "min_decoding_length": max(0, generation.number("min_length", 0) - _START),
    }
    beams = generation.number("num_beams", 1)
    if beams > 1:
        found |= {
            "beam_size": beams,
            "length_penalty": generation.real("length_penalty", 1.0),
        }
    penalty = generation.real("repetition_penalty", 1.0)
    if penalty != 1.0:
        found["repetition_penalty"] = penalty
    if generation.numbers("forced_eos_token_id") == [tokenizer.eos_id]:
        found["force_end_token"] = True
    longest = generation.optional_number("max_length")
    if longest is not None and _START < longest <= max_target_length:
        found["max_decoding_length"] = longest - _START
    sequences = [
        {"tokens": tokenizer.tokens(sequence)}
        for sequence in generation.number_lists("bad_words_ids")
        # A single token is never generated in any case.
        if len(sequence) > 1
    ]
    if sequences:
        found["suppress_sequences"] = sequences
    return {name: value for name, value in found.items() if value}
