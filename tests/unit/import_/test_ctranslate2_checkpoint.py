"""What becomes of a folder of CTranslate2, or a package of Argos, and what is refused."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests import ctranslate2_files
from tests.ctranslate2_files import POSITIONS, TOKENS, WIDTH, variables, write

from seqserve.errors import SeqserveError
from seqserve_export.artifact import declared
from seqserve_import.collection import checkpoints_below, languages_in, unpacked
from seqserve_import.files import CheckpointError
from seqserve_import.languages import pair_of
from seqserve_import.loading import Loaded, load, open_checkpoint

TEXT = "t7 t9"


def loaded(folder: Path) -> Loaded:
    return load(open_checkpoint(folder))


def changed(**values: Any) -> dict[str, Any]:
    """Returns variables; in the names of changed ones, ``__`` is ``/``."""
    return variables() | {name.replace("__", "/"): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("config", "ids"),
    [
        ({}, [7, 9]),
        ({"add_source_eos": True}, [7, 9, 3]),
        ({"add_source_bos": True}, [2, 7, 9]),
        ({"decoder_start_token": "</s>"}, [7, 9, 3]),
    ],
)
def test_the_settings_say_what_is_added_to_a_source(
    tmp_path: Path, config: dict[str, Any], ids: list[int]
) -> None:
    tokenizer = loaded(write(tmp_path, **config)).tokenizer
    assert tokenizer.encode(TEXT) == ids
    assert tokenizer.num_added == len(ids) - 2
    assert tokenizer.encode_target(TEXT) == [7, 9, 3]


def test_a_source_without_an_end_token_is_cut_off_to_the_last(tmp_path: Path) -> None:
    assert loaded(write(tmp_path)).tokenizer.truncate([7, 9, 11], 2) == [7, 9]


def test_an_added_token_pads_and_is_never_generated(tmp_path: Path) -> None:
    imported = loaded(write(tmp_path))
    config = imported.model.config
    assert (config.pad_id, config.bos_id, config.eos_id) == (len(TOKENS), 2, 3)
    assert set(imported.suppressed) >= set(range(len(TOKENS), config.vocabulary_size))
    assert config.max_source_length == POSITIONS


def test_a_model_that_starts_from_zeros_starts_from_the_added_token(tmp_path: Path) -> None:
    imported = loaded(write(tmp_path, changed(decoder__start_from_zero_embedding=np.int8(1))))
    start = imported.model.config.bos_id
    assert start == imported.model.config.pad_id == len(TOKENS)
    assert not imported.model.target_embedding.weight[start].any()
    assert imported.tokenizer.encode(TEXT)[-1] == 3, "Marian reads an end token"


def test_biases_that_are_left_out_are_zero(tmp_path: Path) -> None:
    written = variables()
    del written["encoder/layer_0/self_attention/linear_0/bias"]
    layer = loaded(write(tmp_path, written)).model.encoder_layers[0]
    assert not layer.self_attention.query.bias.any()
    assert layer.feed_forward.up.bias.any()


def test_a_file_without_positions_has_those_of_opennmt(tmp_path: Path) -> None:
    written = {name: value for name, value in variables().items() if "position" not in name}
    table = loaded(write(tmp_path, written)).model.encoder_positions.table
    assert isinstance(table, torch.Tensor)
    assert table.shape == (1025, WIDTH)
    assert table[0, 0].item() == pytest.approx(np.sin(1.0)), "the first position is one"


def test_control_tokens_get_the_spelling_of_the_server(tmp_path: Path) -> None:
    tokens = ["[UNK]", "<blank>", "[CLS]", "[SEP]", *TOKENS[4:]]
    names = {"unk_token": "[UNK]", "bos_token": "[CLS]", "eos_token": "[SEP]"}
    folder = write(tmp_path, tokens=tokens, **names, decoder_start_token="[CLS]")
    tokenizer = loaded(folder).tokenizer
    assert (tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 2, 3)


def test_older_files_have_no_settings_and_lists_of_lines(tmp_path: Path) -> None:
    written = changed(with_source_eos=np.int8(1), num_heads=np.int8(2))
    del written["encoder/num_heads"], written["decoder/num_heads"]
    folder = write(tmp_path, written)
    content = ctranslate2_files.content_of(written, version=4, revision=4)
    (folder / "model.bin").write_bytes(content)
    (folder / "config.json").unlink()
    (folder / "shared_vocabulary.json").unlink()
    for side in ("source", "target"):
        (folder / f"{side}_vocabulary.txt").write_text("\n".join([*TOKENS, ""]))
    imported = loaded(folder)
    assert imported.model.config.heads == 2
    assert imported.tokenizer.encode(TEXT) == [7, 9, 3]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("decoder__alibi", np.int8(1), "decoder/alibi is 1, which is not supported"),
        ("encoder__layer_0__self_attention__rotary_dim", np.int32(0), "rotary_dim is 0, which"),
        ("decoder__final_logit_softcapping", np.float32(30), "softcapping is 30, which"),
        ("encoder__scale_embeddings", np.float32(3), "encoder/scale_embeddings is 3; it must be 1"),
        ("decoder__scale_embeddings", np.int8(1), "decoder/scale_embeddings is 4"),
        ("decoder__pre_norm", np.int8(0), "decoder/pre_norm differs from the encoder's"),
        ("encoder__embeddings_1__weight", np.ones((4, 4), "f4"), "embeddings_1/weight: features"),
        ("encoder__layer_0__input_norm__gamma", np.ones(4, "f4"), "input_norm/gamma is left over"),
        ("encoder__num_heads", np.int16(5), "must be a multiple of"),
        ("encoder__num_heads", np.float32("nan"), "model.bin: encoder/num_heads is nan; copy"),
        ("encoder__position_encodings__encodings", np.ones((9, 4, 1), "f4"), "must be a matrix"),
        (
            "decoder__layer_0__attention__queries_scale",
            np.float32(1),
            "decoder/layer_0/attention/queries_scale differs from the others",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_by_its_name(
    tmp_path: Path, name: str, value: Any, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message) as refused:
        loaded(write(tmp_path, changed(**{name: value})))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("activation", [4, 5, 99])
def test_an_unknown_activation_is_refused(tmp_path: Path, activation: int) -> None:
    both = [f"{stack}__activation" for stack in ("encoder", "decoder")]
    written = changed(**dict.fromkeys(both, np.int8(activation)))
    with pytest.raises(CheckpointError, match=f"encoder/activation {activation} is not supported"):
        loaded(write(tmp_path, written))


def test_a_variable_that_is_missing_is_named(tmp_path: Path) -> None:
    written = variables()
    del written["decoder/layer_0/attention/linear_2/weight"]
    with pytest.raises(CheckpointError, match="decoder/layer_0/attention/linear_2/weight is missi"):
        loaded(write(tmp_path, written))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('["a", 1]', "is not a list of tokens"),
        ("{}", "is not a list of tokens"),
        ("[" * 200_000, "shared_vocabulary.json: cannot be read"),
        (json.dumps(TOKENS + ["more"] * 5), r"embeddings_0/weight has the shape \[20, 16\]"),
        (json.dumps(TOKENS[4:]), "its target vocabulary has no </s>"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused(
    tmp_path: Path, content: str, message: str
) -> None:
    (write(tmp_path) / "shared_vocabulary.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        loaded(tmp_path)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    (write(tmp_path) / "sentencepiece.model").unlink()
    with pytest.raises(CheckpointError, match=r"source\.spm: is missing; it divides texts into"):
        loaded(tmp_path)


@pytest.mark.parametrize(
    ("codes", "pair"), [(("en", "de"), ("en", "de")), (("en", "zt"), ("en", "zh-Hant"))]
)
def test_a_package_of_argos_names_its_languages(
    tmp_path: Path, codes: tuple[str, str], pair: tuple[str, str]
) -> None:
    package = ctranslate2_files.write_package(tmp_path, write(tmp_path / "m"), *codes)
    assert languages_in(package) == pair
    with unpacked(package) as folder:
        checkpoint = open_checkpoint(folder)
        assert pair_of(checkpoint) == pair
        assert checkpoint.recommended.number("num_beams") == 4
        assert load(checkpoint).tokenizer.encode(TEXT) == [7, 9]
        assert not (folder / "stanza").exists()
    assert not folder.exists()


def test_a_package_may_begin_each_target_with_a_token(tmp_path: Path) -> None:
    model = write(tmp_path / "m")
    package = ctranslate2_files.write_package(tmp_path, model, "en", "de", target_prefix="▁t5")
    with unpacked(package) as folder:
        template = loaded(folder).template
    assert template
    assert template.target_prefix == ["▁t5"]


def test_callers_may_use_the_codes_of_argos(tmp_path: Path) -> None:
    package = ctranslate2_files.write_package(tmp_path, write(tmp_path / "m"), "pb", "zt")
    with unpacked(package) as folder:
        checkpoint = open_checkpoint(folder)
        template = declared(load(checkpoint).template, *pair_of(checkpoint))
    assert template
    assert template.code_of("source", "pb") == "pt-BR"
    assert template.code_of("target", "zt") == "zh-Hant"


def test_packages_and_installed_ones_are_found_once(tmp_path: Path) -> None:
    model = write(tmp_path / "models" / "opus-mt-en-fr-ct2")
    package = ctranslate2_files.write_package(tmp_path / "models", model, "en", "de")
    installed = tmp_path / "models" / "translate-de_en-1_0"
    write(installed / "model")
    (installed / "metadata.json").write_text('{"from_code": "de", "to_code": "en"}')
    found = checkpoints_below(tmp_path / "models")
    assert found == [model, installed, package]
    assert [languages_in(path) for path in found] == [("en", "fr"), ("de", "en"), ("en", "de")]


def archive(folder: Path, parts: dict[str, bytes]) -> Path:
    path = folder / "x.argosmodel"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in parts.items():
            written.writestr(name, content)
    return path


def test_an_archive_cannot_write_elsewhere(tmp_path: Path) -> None:
    parts = {"p/metadata.json": b"{}", "p/../../evil": b"x", "/etc/evil": b"x"}
    with unpacked(archive(tmp_path, parts)) as folder:
        files = [path for path in folder.parent.rglob("*") if path.is_file()]
        assert files == [folder / "metadata.json"]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"p/model/model.bin": b""}, "has no metadata.json"),
        ({"a/metadata.json": b"{}", "b/metadata.json": b"{}"}, "has no metadata.json, or several"),
        ({"p/metadata.json": b"[]", "p/model/model.bin": b""}, "is not a JSON object|is damaged"),
        ({"p/metadata.json": b'{"type": "sbd"}'}, "is not a checkpoint"),
        ({"p/metadata.json": b"{}", "p/bomb": bytes(1 << 20)}, "2 parts .* 65,536 can be read"),
    ],
)
def test_what_is_no_package_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, bytes], message: str
) -> None:
    monkeypatch.setattr("seqserve_import.collection._MAX_PACKAGE_BYTES", 1 << 16)
    with (
        pytest.raises(SeqserveError, match=message),
        unpacked(archive(tmp_path, parts)) as folder,
    ):
        pair_of(open_checkpoint(folder))


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    package = ctranslate2_files.write_package(tmp_path, write(tmp_path / "m"), "en", "de")
    content = bytearray(package.read_bytes())
    content[content.index(b"model.bin") + 200] ^= 255
    package.write_bytes(content)
    with pytest.raises(SeqserveError, match=r"argosmodel: .*model\.bin: cannot be read"):
        unpacked(package).__enter__()
    package.write_bytes(b"PK")
    with pytest.raises(SeqserveError, match="is not a readable archive"):
        unpacked(package).__enter__()
