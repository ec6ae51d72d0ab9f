from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.front.echo import byte_tokenizer

from seqserve_import.checkpoint import Settings
from seqserve_import.files import CheckpointError
from seqserve_import.generation import not_taken, recommended_options

TOKENIZER = byte_tokenizer()


def options(**settings: Any) -> dict[str, Any]:
    return recommended_options(Settings(Path("config.json"), settings), TOKENIZER, 48)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {}),
        # For requests that ask for a beam themselves.
        ({"num_beams": 1, "length_penalty": 2.0}, {"length_penalty": 2.0}),
        ({"num_beams": 4, "length_penalty": 2}, {"beam_size": 4, "length_penalty": 2.0}),
        ({"num_beams": 4, "length_penalty": 0.0}, {"beam_size": 4, "length_penalty": 0.0}),
        ({"length_penalty": -1.0}, {"length_penalty": -1.0}),
        ({"early_stopping": True}, {"early_stopping": "true"}),
        ({"early_stopping": "never"}, {"early_stopping": "never"}),
        ({"early_stopping": None}, {}),
        ({"no_repeat_ngram_size": 3}, {"no_repeat_ngram_size": 3}),
        ({"repetition_penalty": 1.2}, {"repetition_penalty": 1.2}),
        ({"min_length": 12}, {"min_decoding_length": 11}),
        ({"max_length": 40}, {"max_decoding_length": 39}),
        ({"forced_eos_token_id": 2}, {"force_end_token": True}),
        ({"forced_eos_token_id": [2]}, {"force_end_token": True}),
        ({"forced_eos_token_id": 3}, {}),
        ({"min_length": 0, "max_length": 512}, {}),
        ({"bad_words_ids": [[3]]}, {}),
        ({"max_new_tokens": 20}, {"max_decoding_length": 20}),
        ({"max_length": 40, "max_new_tokens": 20}, {"max_decoding_length": 20}),
        ({"max_new_tokens": 48}, {}),
        ({"min_new_tokens": 3}, {"min_decoding_length": 3}),
        # generate() never ends there before the maximum.
        ({"min_length": 99}, {"min_decoding_length": 48}),
        ({"min_length": 99, "max_length": 9}, {"min_decoding_length": 8, "max_decoding_length": 8}),
        ({"min_length": 12, "min_new_tokens": 3}, {"min_decoding_length": 3}),
    ],
)
def test_settings_become_options(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    # What generate() does where a checkpoint does not say.
    assert options(**settings) == {"early_stopping": "false"} | expected


@pytest.mark.parametrize("value", [1, "always", 0.5, []])
def test_another_end_of_beams_is_refused(value: object) -> None:
    with pytest.raises(
        CheckpointError, match=r'json: early_stopping is not one of true, .*"never"'
    ):
        options(early_stopping=value)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, []),
        ({"do_sample": False, "prefix": "", "num_beam_groups": 1, "early_stopping": True}, []),
        (
            {"do_sample": True, "begin_suppress_tokens": [220], "encoder_no_repeat_ngram_size": 3},
            ["begin_suppress_tokens", "do_sample", "encoder_no_repeat_ngram_size"],
        ),
        ({"prefix": "summarize: "}, ["prefix"]),
        ({"forced_eos_token_id": 3}, ["forced_eos_token_id"]),
        ({"forced_eos_token_id": 2}, []),
        ({"force_words_ids": [[5]]}, ["force_words_ids"]),
        ({"repetition_penalty": 1.2, "decoder_start_token_id": 0}, []),
        # There transformers counts the first token as generated.
        (
            {"repetition_penalty": 1.2, "decoder_start_token_id": 2},
            ["repetition_penalty of the end token"],
        ),
        (
            {
                "task_specific_params": {
                    "summarization": {"prefix": "summarize: "},
                    "translation_en_to_de": {"prefix": "translate English to German: "},
                }
            },
            ["task_specific_params.summarization"],
        ),
    ],
)
def test_settings_that_are_not_taken_are_listed(settings: dict[str, Any], names: list[str]) -> None:
    assert not_taken(Settings(Path("config.json"), settings), 2) == names


def test_sequences_of_bad_words_are_suppressed() -> None:
    first, second = TOKENIZER.encode("ab")[:2]
    recommended = options(bad_words_ids=[[first, second], [5]])
    assert recommended["suppress_sequences"] == [{"tokens": ["a", "b"]}]
