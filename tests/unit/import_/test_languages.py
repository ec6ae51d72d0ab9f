import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from seqserve_import.checkpoint import Checkpoint, Settings
from seqserve_import.files import CheckpointError
from seqserve_import.languages import pair_of, template_of
from seqserve_import.marian_checkpoint import MarianCheckpoint, MarianFolder
from seqserve_server.artifact.records import Template


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    return tmp_path


def checkpoint_of(folder: Path, **settings: Any) -> Checkpoint:
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 2} | settings))
    return Checkpoint(folder)


def template_from(folder: Path, tokens: list[str], **settings: Any) -> Template | None:
    vocabulary = dict(enumerate(tokens))
    return template_of(checkpoint_of(folder, **settings), vocabulary, vocabulary)


def found(folder: Path, tokens: list[str], **settings: Any) -> Template:
    template = template_from(folder, tokens, **settings)
    assert template is not None
    return template


def test_nllb_has_the_source_language_in_front_and_the_target_language_first(folder: Path) -> None:
    tokens = ["a", "eng_Latn", "deu_Latn", "zho_Hans", "zho_Hant", "arb_Arab"]
    template = found(folder, tokens, model_type="m2m_100", forced_bos_token_id=1)
    assert (template.source_prefix, template.target_prefix) == (["{source}"], ["{target}"])
    assert template.source_languages == {code: code for code in tokens[1:]}
    assert template.target_languages == template.source_languages
    assert template.aliases["de"] == template.aliases["deu"] == "deu_Latn"
    assert template.aliases["ar"] == "arb_Arab"
    assert "zh" not in template.aliases, "it may be one of two"


@pytest.mark.parametrize("model_type", ["m2m_100", "mbart"])
def test_vocabulary_without_languages_asks_for_none(folder: Path, model_type: str) -> None:
    assert template_from(folder, ["a", "b"], model_type=model_type) is None


def test_a_language_that_nllb_was_taught_is_known(folder: Path) -> None:
    template = found(folder, ["a", "eng_Latn", "tyv_Cyrl"], model_type="m2m_100")
    assert template.target_languages == {"eng_Latn": "eng_Latn", "tyv_Cyrl": "tyv_Cyrl"}
    assert template.aliases["tyv"] == "tyv_Cyrl"


@pytest.mark.parametrize("model_type", ["m2m_100", "mbart"])
@pytest.mark.parametrize(
    ("token", "code", "alias"),
    [
        ("__pt-br__", "pt-br", "pt"),
        ("__zh_Hant__", "zh_Hant", "zh"),
        ("tyv_Cyrl", "tyv_Cyrl", "tyv"),
        ("uz_Cyrl", "uz_Cyrl", "uz"),
        ("zh_Hant_TW", "zh_Hant_TW", "zh"),
        ("<2zh-Hant>", "zh-Hant", "zh"),
    ],
)
def test_spellings(folder: Path, model_type: str, token: str, code: str, alias: str) -> None:
    template = found(folder, ["a", "__en__", token], model_type=model_type)
    assert template.target_languages == {"en": "__en__", code: token}
    assert template.aliases[alias] == code


def test_a_piece_of_text_is_no_language(folder: Path) -> None:
    checkpoint = checkpoint_of(folder, model_type="m2m_100")
    vocabulary = dict(enumerate(["en_US", "eng_Latn", "a"]))
    template = template_of(checkpoint, vocabulary, vocabulary, ["<pad>", "eng_Latn"])
    assert template is not None and set(template.target_languages) == {"eng_Latn"}


def test_an_mbart_50_with_one_target_needs_no_name_for_it(folder: Path) -> None:
    settings = {"model_type": "mbart", "decoder_start_token_id": 2, "forced_bos_token_id": 1}
    template = found(folder, ["de_DE", "en_XX", "fr_XX"], **settings)
    assert template.target_prefix == ["{target}"]
    assert template.target_languages == {"en_XX": "en_XX"}
    assert set(template.source_languages) == {"de_DE", "en_XX", "fr_XX"}


def test_indicbart_has_tags_behind_the_source_and_first_in_the_target(folder: Path) -> None:
    template = found(folder, ["<2hi>", "<2en>"], model_type="mbart", decoder_start_token_id=7)
    assert (template.source_suffix, template.target_start) == (["{source}"], "{target}")
    assert template.target_languages == {"hi": "<2hi>", "en": "<2en>"}


@pytest.mark.parametrize("file", ["tokenization_small100.py", "tokenizer_config.json"])
def test_small100_has_the_target_in_front_of_the_source_alone(folder: Path, file: str) -> None:
    (folder / file).write_text('{"tokenizer_class": "SMALL100Tokenizer"}')
    template = template_from(folder, ["__en__", "__de__", "x"], model_type="m2m_100")
    assert template == Template(
        source_prefix=["{target}"], target_languages={"en": "__en__", "de": "__de__"}
    )


def test_opus_mt_of_several_targets_has_the_target_in_front(folder: Path) -> None:
    template = template_from(folder, ["</s>", ">>fra<<", ">>por<<"], model_type="marian")
    assert template == Template(
        source_prefix=["{target}"],
        target_languages={"fra": ">>fra<<", "por": ">>por<<"},
        aliases={"fr": "fra", "pt": "por"},
    )
    assert template_from(folder, ["</s>", "a"], model_type="marian") is None


def test_t5_names_languages_in_words(folder: Path) -> None:
    tasks = {
        "summarization": {"prefix": "summarize: "},
        "translation_en_to_de": {"prefix": "translate English to German: "},
        "translation_en_to_fr": {"prefix": "translate English to French: "},
    }
    template = template_from(folder, ["a"], model_type="t5", task_specific_params=tasks)
    assert template == Template(
        text_prefix="translate {source} to {target}: ",
        source_languages={"en": "English"},
        target_languages={"de": "German", "fr": "French"},
    )
    assert template_from(folder, ["a"], model_type="t5") is None


def test_madlad_has_the_target_in_front(folder: Path) -> None:
    template = found(folder, ["<2pt>", "<2de>", "a"], model_type="t5")
    assert template.source_prefix == ["{target}"]
    assert template.target_languages == {"pt": "<2pt>", "de": "<2de>"}


@pytest.mark.parametrize(
    ("start", "prefix", "suffix", "target_start"),
    [(2, ["{source}"], [], ""), (7, [], ["{source}"], "{target}")],
)
def test_mbart_50_has_the_source_language_in_front_and_mbart_behind(
    folder: Path, start: int, prefix: list[str], suffix: list[str], target_start: str
) -> None:
    settings = {"model_type": "mbart", "decoder_start_token_id": start}
    template = found(folder, ["en_XX", "de_DE"], **settings)
    assert (template.source_prefix, template.source_suffix) == (prefix, suffix)
    assert template.target_start == target_start
    assert set(template.target_languages) == {"en_XX", "de_DE"}
    assert template.aliases == {"de": "de_DE", "en": "en_XX"}


def test_forced_first_token_begins_every_target(folder: Path) -> None:
    settings = {"model_type": "bart", "forced_bos_token_id": 0}
    assert template_from(folder, ["<s>"], **settings) == Template(target_prefix=["<s>"])
    older = {"model_type": "bart", "bos_token_id": 0, "force_bos_token_to_be_generated": True}
    assert template_from(folder, ["<s>"], **older) == Template(target_prefix=["<s>"])
    with pytest.raises(CheckpointError, match="forced_bos_token_id is not a token"):
        template_from(folder, [], **settings)


def test_opus_mt_of_one_pair_tells_it(folder: Path) -> None:
    checkpoint = checkpoint_of(folder, model_type="marian")
    assert pair_of(checkpoint) == ("", "")
    for source, target, expected in (
        ("en", "de", ("en", "de")),
        ("eng", "ROMANCE", ("eng", "")),
        ("mul", "zh_Hant", ("", "zh_Hant")),
    ):
        values = {"source_lang": source, "target_lang": target}
        (folder / "tokenizer_config.json").write_text(json.dumps(values))
        assert pair_of(checkpoint) == expected
    assert pair_of(checkpoint_of(folder, model_type="t5")) == ("", "")


OPUS = "opus.spm32k-spm32k.transformer-align.model1.npz.best-perplexity.npz"


@pytest.mark.parametrize(
    ("model", "folder_name", "expected"),
    [
        ("model.enpt.intgemm.alphas.bin", "m", ("en", "pt")),
        ("model.bin", "enpt-1693087644", ("en", "pt")),
        ("model.npz", "en-de", ("en", "de")),
        ("model.en-de.npz", "m", ("en", "de")),
        ("model.npz", "opus-mt-en_de", ("en", "de")),
        ("model.npz", "trained-en-de-2020-02-26", ("en", "de")),
        (OPUS, "en-de", ("en", "de")),
        (OPUS, "opus-2020-02-26", ("", "")),
        (OPUS, "best-1", ("", "")),
        ("model.tiny.bin", "m", ("", "")),
        ("model.npz", "de-en-fr", ("", "")),
        ("model.alphas.bin", "models", ("", "")),
        ("model.xxqq.bin", "m", ("", "")),
        ("model.xx-qq.npz", "en-deu", ("", "")),
    ],
)
@pytest.mark.parametrize("described", ["", "/home/them/{}/model.npz"])
def test_marian_and_firefox_tell_their_pair_by_names(
    tmp_path: Path, model: str, folder_name: str, expected: tuple[str, str], described: str
) -> None:
    checkpoint = MarianCheckpoint.__new__(MarianCheckpoint)
    checkpoint.folder = tmp_path / ("m" if described else folder_name)
    checkpoint.config = Settings(tmp_path, {"model_type": "marian-native"})
    models = [described.format(folder_name)] if described else []
    vocabulary = tmp_path / ("vocab.enpt.spm" if "enpt" in model else "vocab.yml")
    checkpoint.files = MarianFolder(
        model=checkpoint.folder / model,
        source_vocabulary=vocabulary,
        target_vocabulary=vocabulary,
        shortlist=None,
        decoding=Settings(tmp_path, {"models": models}),
    )
    assert pair_of(checkpoint) == expected
