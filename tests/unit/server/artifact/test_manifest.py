import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqserve_server.artifact.manifest import FILE, REQUIRED_FILES, Manifest
from seqserve_server.artifact.records import SelfTest, Template, Verification
from seqserve_server.contract.errors import ArtifactError

Values = dict[str, Any]

DELETE = object()


FILES = ["encoder.onnx", "decoder.onnx", "scorer.onnx", "weights.bin", "tokenizer.json"]


@pytest.fixture
def artifact(tiny_artifact: Path, tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    return Path(shutil.copytree(tiny_artifact, tmp_path / "1"))


def change(artifact: Path, spoil: Callable[[Values], Any]) -> None:
    path = artifact / FILE
    values = json.loads(path.read_text())
    spoil(values)
    path.write_text(json.dumps(values))


def setting(path: str, value: Any) -> Callable[[Values], Any]:
    """Sets the value at a dotted path, or deletes it."""

    def spoil(values: Values) -> None:
        *parents, name = path.split(".")
        for parent in parents:
            values = values[parent]
        if value is DELETE:
            del values[name]
        else:
            values[name] = value

    return spoil


def test_sound_artifact_is_read(artifact: Path) -> None:
    manifest = Manifest.load(artifact)
    assert manifest.label == "tiny/1"
    assert manifest.limits.max_source_length == 24
    assert manifest.architecture.head_size == 16
    assert sorted(manifest.files) == sorted(
        path.name for path in artifact.iterdir() if path.name != FILE
    )


def test_written_manifest_reads_the_same(artifact: Path, tmp_path: Path) -> None:
    manifest = Manifest.load(artifact)
    manifest.write(tmp_path)
    assert Manifest.read(tmp_path) == manifest


def test_template_and_recommended_options_survive(artifact: Path) -> None:
    template = {"source_prefix": ["{source}", "<s>"], "source_languages": {"en": "<en>"}}
    change(artifact, setting("template", template))
    change(artifact, setting("generation", {"beam_size": 4}))
    manifest = Manifest.read(artifact)
    assert manifest.template == Template(**template)
    assert manifest.template.source_tokens == {"<en>", "<s>"}
    assert manifest.template.target_tokens == set()
    assert manifest.generation == {"beam_size": 4}


@pytest.mark.parametrize("score", [30, None], ids=["scores", "no references"])
def test_verification_survives(artifact: Path, score: int | None) -> None:
    found: Values = {"sentences": 9, "sentences_equal": 9, "tokens": 50, "top1_agreement": 1.0}
    found |= {"max_logprob_difference": 1e-5}
    names = ("bleu_torch", "bleu_artifact", "chrf_torch", "chrf_artifact")
    texts = ("data", "bleu_signature", "chrf_signature", "torch", "onnxruntime")
    change(
        artifact,
        setting("verification", found | dict.fromkeys(names, score) | dict.fromkeys(texts, "text")),
    )
    verification = Manifest.read(artifact).verification
    assert isinstance(verification, Verification)
    assert verification.bleu_torch == score
    assert verification.max_logprob_difference == 1e-5


def test_self_test_may_be_missing(artifact: Path) -> None:
    change(artifact, setting("self_test", DELETE))
    assert Manifest.load(artifact).self_test is None
    change(artifact, setting("self_test", {"source": "a", "target": "b"}))
    assert Manifest.load(artifact).self_test == SelfTest(source="a", target="b")


MALFORMED: list[tuple[str, Any, str]] = [
    ("format", 1, r"format is 1; this server reads format 3.*Export the model again"),
    ("format", 2, r"format is 2; this server reads format 3: convert it with `seqserve upgr"),
    ("format", "1", r"format is '1'"),
    ("format", True, r"format is True"),
    ("format", DELETE, r"format is None"),
    ("name", DELETE, r"name: missing"),
    ("name", "../tiny", r"name: '\.\./tiny' is not a model name"),
    ("name", "", r"name: '' is not a model name"),
    ("name", "a" * 65, r"name: 'a+' is not a model name"),
    ("name", 5, r"name: 5 is not of type str"),
    ("version", "1", r"version: '1' is not of type int"),
    ("version", 1.0, r"version: 1\.0 is not of type int"),
    ("version", 0, r"version: 0 is less than 1"),
    ("precision", "fp8", r"precision: 'fp8' is not one of fp32, fp16, int8"),
    ("version", 1 << 31, r"version: 2147483648 is more than 2147483647"),
    ("limits.max_target_length", 10**99, r"max_target_length: 10+ is more than"),
    ("requirements.onnxruntime", "9" * 5000, r"requirements\.onnxruntime: '9{79} is not a version"),
    ("description", "half \ud800", r"not JSON: .*surrogates not allowed"),
    ("\ud800", 1, r"not JSON: .*surrogates not allowed"),
    ("surprise", 1, r"surprise: not known to this server"),
    ("limits", [], r"limits: not an object"),
    ("limits.max_source_length", 0, r"max_source_length: 0 is less than 1"),
    ("limits.max_target_length", -5, r"max_target_length: -5 is less than 1"),
    ("limits.max_source_length", True, r"limits\.max_source_length: True is not of type int"),
    ("limits.max_source_length", None, r"limits\.max_source_length: None is not of type int"),
    ("limits.more", 1, r"limits\.more: not known"),
    ("architecture.heads", DELETE, r"architecture\.heads: missing"),
    ("architecture.decoder_layers", 0, r"decoder_layers: 0 is less than 1"),
    ("architecture.source_vocabulary_size", 0, r"source_vocabulary_size: 0 is less than 1"),
    ("architecture.source_vocabulary_size", 2, r"tokens\.eos: 2 is not a token id"),
    ("architecture.encoder_heads", "4", r"architecture\.encoder_heads: '4' is not of type int"),
    ("architecture.config", 7, r"architecture\.config: not an object"),
    ("tokens.eos", 384, r"tokens\.eos: 384 is not a token id"),
    ("tokens.pad", -1, r"tokens\.pad: -1 is not a token id"),
    ("requirements.onnxruntime", "new", r"requirements\.onnxruntime: 'new' is not a version"),
    ("verification", {}, r"verification\.data: missing"),
    ("verification", DELETE, r"verification: missing"),
    ("self_test", {"source": "a"}, r"self_test\.target: missing"),
    ("self_test", "a", r"self_test: not an object"),
    ("self_test", {"source": "a", "target": 1}, r"self_test\.target: 1 is not of type str"),
    ("provenance", None, r"provenance: not an object"),
    ("files", [], r"files: not an object"),
    ("files", {}, r"files: encoder\.onnx is missing"),
    ("files.extra", "abc", r"files\.extra: not an object"),
    ("files.extra", {"sha256": "0"}, r"files\.extra\.bytes: missing"),
    ("template", {"source_prefix": "<s>"}, r"template\.source_prefix: not a list"),
    ("template", {"source_prefix": [7]}, r"template\.source_prefix: 7 is not of type str"),
    ("template", {"source_languages": {"en": 7}}, r"template\.source_languages\.en: 7 is not of"),
    ("template", {"prefix": []}, r"template\.prefix: not known to this server"),
]


@pytest.mark.parametrize(("path", "value", "message"), MALFORMED)
def test_malformed_manifest_is_refused_by_field(
    artifact: Path, path: str, value: Any, message: str
) -> None:
    change(artifact, setting(path, value))
    with pytest.raises(ArtifactError, match=r"manifest\.json: " + message):
        Manifest.load(artifact)


@pytest.mark.parametrize("file", REQUIRED_FILES)
def test_file_that_every_artifact_has_must_be_named(artifact: Path, file: str) -> None:
    change(artifact, lambda values: values["files"].pop(file))
    with pytest.raises(ArtifactError, match=f"files: {file} is missing"):
        Manifest.load(artifact)


@pytest.mark.parametrize(
    "name",
    ["../secret", "/etc/passwd", "a/b", "a\\b", "..", ".", ".hidden", "", "a\0b", "a\n", "-x", "ä"],
)
def test_file_name_cannot_leave_the_folder(artifact: Path, name: str) -> None:
    (artifact.parent / "secret").write_text("")
    digest = {"sha256": "0" * 64, "bytes": 0}
    change(artifact, lambda values: values["files"].update(dict.fromkeys([*FILES, name], digest)))
    with pytest.raises(ArtifactError, match="is not a plain file name"):
        Manifest.load(artifact)


@pytest.mark.parametrize("file", FILES)
def test_changed_bit_is_refused_by_name(artifact: Path, file: str) -> None:
    path = artifact / file
    data = path.read_bytes()
    middle = len(data) // 2
    for spoilt in (data[:-1], data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]):
        path.write_bytes(spoilt)
        with pytest.raises(ArtifactError, match=rf"{file}: sha256 is .*damaged or was changed"):
            Manifest.load(artifact)
    path.unlink()
    with pytest.raises(ArtifactError, match=rf"{file}: cannot be read: No such file"):
        Manifest.load(artifact)


def test_reading_looks_at_the_manifest_only(artifact: Path) -> None:
    (artifact / "weights.bin").unlink()
    assert Manifest.read(artifact).name == "tiny"


def test_wrong_size_in_the_manifest_is_told_as_such(artifact: Path) -> None:
    size = (artifact / "weights.bin").stat().st_size
    change(artifact, lambda values: values["files"]["weights.bin"].update(bytes=size + 1))
    with pytest.raises(ArtifactError) as error:
        Manifest.load(artifact)
    told = f"weights.bin: has {size} bytes", f"the manifest says {size + 1} bytes"
    assert all(each in str(error.value) for each in told)
    assert "…" not in str(error.value), "the hashes are equal"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b'{"format": 1', "not JSON"),
        (b"\xff\xfe\xfa", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b" " * ((1 << 20) + 1), "is larger than 1 MiB"),
        (b"{}", "format is None"),
    ],
)
def test_what_is_no_manifest_is_refused(artifact: Path, content: bytes, message: str) -> None:
    (artifact / FILE).write_bytes(content)
    with pytest.raises(ArtifactError, match=rf"manifest\.json: {message}"):
        Manifest.load(artifact)


@pytest.mark.parametrize("file", [*FILES, FILE])
def test_a_link_out_of_the_folder_is_refused(artifact: Path, file: str) -> None:
    outside = artifact.parent / "outside"
    (artifact / file).rename(outside)
    # The very same content, by every hash.
    (artifact / file).symlink_to(outside)
    with pytest.raises(ArtifactError, match=rf"{file}: is a link that leaves its folder"):
        Manifest.load(artifact)


def test_links_within_the_folder_are_followed(artifact: Path, tmp_path: Path) -> None:
    """As they are where Kubernetes mounts a volume of its own making."""
    (artifact / "..data").mkdir()
    for file in (*FILES, FILE):
        (artifact / file).rename(artifact / "..data" / file)
        (artifact / file).symlink_to(Path("..data", file))
    # The folder itself may be one too.
    (tmp_path / "link").symlink_to(artifact)
    for folder in (artifact, tmp_path / "link"):
        assert Manifest.load(folder).label == "tiny/1"


def test_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"manifest\.json: cannot be read: No such file"):
        Manifest.load(tmp_path)


@pytest.mark.parametrize("file", ["weights.bin", FILE])
def test_what_is_no_plain_file_is_not_even_opened(artifact: Path, file: str) -> None:
    (artifact / file).unlink()
    # Who opens it waits for somebody to write.
    os.mkfifo(artifact / file)
    with pytest.raises(ArtifactError, match=rf"{file}: is not a regular file"):
        Manifest.load(artifact)


def test_a_link_to_itself_is_refused(artifact: Path) -> None:
    (artifact / "weights.bin").unlink()
    (artifact / "weights.bin").symlink_to("weights.bin")
    with pytest.raises(ArtifactError, match=r"weights\.bin: "):
        Manifest.load(artifact)
