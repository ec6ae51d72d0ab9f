"""The generation settings that a checkpoint recommends, as options of our API.

Lengths in transformers count the token that starts a target, except in settings for new tokens;
ours do not count it.
"""

from typing import Any

from seqserve.declarations import DECLARATIONS
from seqserve_import.checkpoint import Settings
from seqserve_server.text.tokenizer import Tokenizer

_START = 1

_WITHOUT_EFFECT: dict[str, Any] = {
    "begin_suppress_tokens": [],
    "diversity_penalty": 0.0,
    "do_sample": False,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "forced_decoder_ids": [],
    "guidance_scale": 1.0,
    "num_beam_groups": 1,
    "num_return_sequences": 1,
    "penalty_alpha": 0.0,
    "prefix": "",
    "sequence_bias": {},
    "stop_strings": [],
}
"""Settings that change what a checkpoint generates and have no option here, with the value of each
that changes nothing."""


def recommended_options(
    generation: Settings, tokenizer: Tokenizer, max_target_length: int
) -> dict[str, Any]:
    """Returns the recommended decoding options, by their names in the API."""
    shortest = generation.number("min_length", 0) - _START
    shortest = generation.number("min_new_tokens", shortest)
    longest = generation.number("max_length", 0) - _START
    longest = generation.number("max_new_tokens", longest)
    is_limited = 0 < longest < max_target_length
    options: dict[str, Any] = {
        "beam_size": generation.number("num_beams", 1),
        "early_stopping": _early_stopping(generation),
        "length_penalty": generation.real("length_penalty", 1.0),
        "repetition_penalty": generation.real("repetition_penalty", 1.0),
        "no_repeat_ngram_size": generation.number("no_repeat_ngram_size", 0),
        "disable_unk": generation.flag("disable_unk", False),
        "min_decoding_length": max(0, min(shortest, longest if is_limited else max_target_length)),
        "force_end_token": generation.numbers("forced_eos_token_id") == [tokenizer.eos_id],
    }
    if is_limited:
        options["max_decoding_length"] = longest
    sequences = [
        {"tokens": tokenizer.target.tokens(sequence)}
        for sequence in generation.number_lists("bad_words_ids")
        # A single token is never generated in any case.
        if len(sequence) > 1
    ]
    if sequences:
        options["suppress_sequences"] = sequences
    return {name: value for name, value in options.items() if value != DECLARATIONS[name].default}


def _early_stopping(generation: Settings) -> str:
    """Returns the rule by which beams end: also for requests that choose a beam themselves."""
    name = "early_stopping"
    rule = str(generation.some([name]).get(name, False)).lower()
    if rule not in DECLARATIONS[name].choices:
        raise generation.wrong(name, 'is not one of true, false and "never"')
    return rule


def forced_first_token(generation: Settings) -> int | None:
    """Returns the token that every target begins with; None without one."""
    forced = generation.optional_number("forced_bos_token_id")
    # As transformers 3 wrote it.
    if forced is None and generation.flag("force_bos_token_to_be_generated", False):
        return generation.optional_number("bos_token_id")
    return forced


def not_taken(generation: Settings, eos_id: int) -> list[str]:
    """Lists the settings that change what a checkpoint generates and have no option here."""
    names = [
        name
        for name, value in generation.some(_WITHOUT_EFFECT).items()
        if value != _WITHOUT_EFFECT[name] and value is not False
    ]
    if generation.numbers("forced_eos_token_id") not in ([], [eos_id]):
        names.append("forced_eos_token_id")
    # There transformers counts the first token, which the decoder starts from, as generated.
    is_start = generation.optional_number("decoder_start_token_id") == eos_id
    if is_start and generation.real("repetition_penalty", 1.0) != 1.0:
        names.append("repetition_penalty of the end token")
    tasks = generation.some(["task_specific_params"]).get("task_specific_params")
    for task in tasks if isinstance(tasks, dict) else ():
        # Those are the languages of T5.
        if not task.startswith("translation_"):
            names.append(f"task_specific_params.{task}")
    return [f"{name:.80}" for name in sorted(names)]
