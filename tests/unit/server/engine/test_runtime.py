import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from seqserve_server.artifact import manifest as manifest_file
from seqserve_server.artifact.manifest import Manifest, Requirements
from seqserve_server.contract.errors import ArtifactError, NoScorer, ProviderError
from seqserve_server.contract.limits import Provider
from seqserve_server.engine import runtime as module
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.session import check_provider, check_version


@pytest.fixture
def manifest(tiny_artifact: Path) -> Manifest:
    return Manifest.load(tiny_artifact)


def load(artifact: Path, manifest: Manifest, threads: int = 1) -> Runtime:
    return Runtime(artifact, manifest, Provider.CPU, threads)


@pytest.fixture
def artifact(tiny_artifact: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(tiny_artifact, tmp_path / "1"))


def test_sources_of_a_model_that_fits_a_cache_wait_longer_for_others(
    tiny_runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tiny_runtime.encoding_limits(512)
    monkeypatch.setattr(module, "_CACHED_BYTES", 0)
    large = tiny_runtime.encoding_limits(512)
    assert small.group_sources > large.group_sources
    assert small.rows_for_a_step < large.rows_for_a_step
    assert small[:2] == large[:2]


def test_no_more_tokens_are_encoded_at_once_than_between_two_steps(tiny_runtime: Runtime) -> None:
    assert tiny_runtime.encoding_limits(8)[:2] == (8, 8)
    budget, group = tiny_runtime.encoding_limits(10_000)[:2]
    assert budget == 10_000 > group


def test_a_missing_provider_is_refused_with_the_remedy(
    artifact: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None)
    with pytest.raises(ProviderError, match=r"cuda.*seqserve\[server-gpu\].*--provider cpu"):
        Runtime(artifact, manifest, Provider.CUDA, threads=1)
    check_provider(Provider.CPU)


@pytest.mark.parametrize("file", ["encoder.onnx", "decoder.onnx", "scorer.onnx"])
@pytest.mark.parametrize("content", [b"", b"garbage", None])
def test_a_damaged_graph_is_refused_by_its_file_name(
    artifact: Path, manifest: Manifest, file: str, content: bytes | None
) -> None:
    path = artifact / file
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    refusal = "(ONNX Runtime refuses it|cannot be read as a graph)"
    with pytest.raises(ArtifactError, match=rf"{file}: {refusal}"):
        load(artifact, manifest)


def rewrite(path: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    model = onnx.load(path, load_external_data=False)
    change(model)
    path.write_bytes(model.SerializeToString())


def test_operators_of_others_are_refused(artifact: Path, manifest: Manifest) -> None:
    """Custom operators would be code; no library that defines them is ever loaded."""

    def change(model: onnx.ModelProto) -> None:
        model.graph.node[0].domain = "com.example"
        model.opset_import.append(onnx.helper.make_opsetid("com.example", 1))

    rewrite(artifact / "decoder.onnx", change)
    with pytest.raises(ArtifactError, match=r"decoder\.onnx: ONNX Runtime refuses .*com\.example"):
        load(artifact, manifest)


def test_weights_in_another_folder_are_refused(artifact: Path, manifest: Manifest) -> None:
    def change(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = "../weights.bin"

    shutil.copy(artifact / "weights.bin", artifact.parent)
    rewrite(artifact / "encoder.onnx", change)
    with pytest.raises(ArtifactError, match=r"encoder\.onnx: takes weights from '\.\./weights"):
        load(artifact, manifest)


def test_truncated_weights_are_refused(artifact: Path, manifest: Manifest) -> None:
    (artifact / "weights.bin").write_bytes(b"")
    with pytest.raises(ArtifactError, match="refuses it"):
        load(artifact, manifest)


def test_files_that_vanish_after_loading_change_nothing(
    artifact: Path, manifest: Manifest, tiny_runtime: Runtime
) -> None:
    """A loaded model runs the files that were checked."""
    runtime = load(artifact, manifest)
    shutil.rmtree(artifact)
    pair = np.array([[5, 2]]), np.array([2], np.int32), np.array([[1, 5, 2]])
    outputs = ["log_probabilities"]
    np.testing.assert_array_equal(
        runtime.score(*pair, outputs)[0], tiny_runtime.score(*pair, outputs)[0]
    )


@pytest.mark.parametrize(
    ("installed", "required", "fits"),
    [
        ("1.23.0", "1.23", True),
        ("1.23", "1.23.0", False),
        ("1.9.2", "1.23", False),
        ("1.31.1", "1.23.5", True),
        ("2.0.0", "1.99", True),
        ("1.24.0.dev20250101", "1.24", True),
        ("1.22.1", "1.23", False),
    ],
)
def test_an_onnxruntime_older_than_the_artifact_needs_is_refused(
    artifact: Path,
    manifest: Manifest,
    monkeypatch: pytest.MonkeyPatch,
    installed: str,
    required: str,
    fits: bool,
) -> None:
    monkeypatch.setattr(onnxruntime, "__version__", installed)
    requirements = Requirements(opset=21, onnxruntime=required)
    changed = dataclasses.replace(manifest, requirements=requirements)
    if fits:
        check_version(artifact, changed)
    else:
        with pytest.raises(ArtifactError, match=rf"needs {required}, here is {installed}; upgrade"):
            check_version(artifact, changed)


def test_a_file_that_the_manifest_does_not_name_is_not_opened(
    artifact: Path, manifest: Manifest
) -> None:
    files = {name: digest for name, digest in manifest.files.items() if name != "scorer.onnx"}
    runtime = load(artifact, dataclasses.replace(manifest, files=files))
    assert not runtime.can_score
    source = np.array([[5, 2]])
    with pytest.raises(NoScorer, match=r"has no scorer\.onnx.*export it again"):
        runtime.score(source, np.array([2], np.int32), np.array([[1, 5]]), ["log_probabilities"])


def score(runtime: Runtime) -> list[float]:
    source, lengths, target = np.array([[5, 6, 2]]), np.array([3], np.int32), np.array([[1, 7, 2]])
    [scores] = runtime.score(source, lengths, target, ["log_probabilities"])
    return scores[0].tolist()  # type: ignore[no-any-return]


def test_a_large_model_opens_its_scorer_when_it_is_first_needed(
    artifact: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = load(artifact, manifest)
    assert small.has_open_scorer
    monkeypatch.setattr(manifest_file, "MAX_SMALL_BYTES", 1)
    large = load(artifact, manifest)
    assert large.can_score and not large.has_open_scorer
    large.free_scratch()
    assert score(large) == pytest.approx(score(small), abs=1e-5)
    assert large.has_open_scorer


@pytest.mark.parametrize("name", ["scorer.onnx", "weights.bin"])
def test_a_file_that_was_changed_before_the_scorer_needed_it_is_refused(
    artifact: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(manifest_file, "MAX_SMALL_BYTES", 1)
    runtime = load(artifact, manifest)
    # Another file, because a running engine has the old one mapped.
    content = (artifact / name).read_bytes()
    (artifact / name).unlink()
    (artifact / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=rf"{name}: sha256 is"):
        score(runtime)
    assert not runtime.has_open_scorer
    (artifact / name).write_bytes(content)
    assert len(score(runtime)) == 2


@pytest.mark.parametrize(
    "fixture",
    [
        "tiny_artifact",
        "tiny_int8_artifact",
        pytest.param("tiny_row_scaled_artifact", marks=pytest.mark.parity),
    ],
)
def test_logits_of_candidates_equal_those_of_the_whole_vocabulary_whatever_runs_beside(
    request: pytest.FixtureRequest, fixture: str
) -> None:
    folder = request.getfixturevalue(fixture)
    runtime = load(folder, Manifest.load(folder))
    size = runtime.manifest.architecture.vocabulary_size
    sources = [[5, 6, 7, 2], [8, 2], [2], [9, 10, 11, 12, 13, 2], [14, 15, 2]]
    whole, some = SlotCache(runtime, 5), SlotCache(runtime, 5)
    whole.set_outputs(top_k=0, logits=True)
    for row in range(5):
        for cache in (whole, some):
            cache.join(row, runtime.encode([sources[row]]), 0)
    random = np.random.default_rng(4)
    # Many candidates, few, and none for some of the rows.
    for counts in ([size, 1, 9, 64, 65], [1], [20, 20, 20, 20], [9, 0, 3], [70], [0, 65, 1, 0, 9]):
        rows = len(counts)
        for row in range(5):
            count = counts[row] if row < rows else 0
            chosen = np.sort(random.permutation(size)[:count]) if count else None
            some.limit(row, chosen)
        some.tokens[:rows] = whole.tokens[:rows]
        whole.advance(rows)
        some.advance(rows)
        for row, count in enumerate(counts):
            listed = some.candidates(row)
            if listed is None:
                assert not count
                assert some.tokens[row, 0] == whole.tokens[row, 0]
                assert some.log_probabilities[row] == whole.log_probabilities[row]
                continue
            tokens, logits = listed
            np.testing.assert_array_equal(logits, whole.logits(row)[tokens])
            assert some.tokens[row, 0] == tokens[logits.argmax()]


def test_a_step_writes_no_output_over_the_vocabulary_where_all_rows_have_few_candidates(
    tiny_runtime: Runtime,
) -> None:
    cache, cross_kv = SlotCache(tiny_runtime, 2), tiny_runtime.encode([[5, 6, 2], [7, 2]])
    for row in range(2):
        cache.join(row, cross_kv, row)
        cache.limit(row, np.array([8, 9]))
    cache.set_outputs(top_k=0, logits=True)
    cache.suppress(0, [5, 6, 8])
    cache.advance(2, return_logprobs=False)
    assert cache.tokens[0, 0] == 9
    assert cache.tokens[1, 0] in (8, 9)
    assert not cache.log_probabilities.any()
    assert not cache.logits(0).any()


def test_threads_share_no_group_of_allowed_tokens(artifact: Path, manifest: Manifest) -> None:
    for threads in (1, 3):
        runtime = load(artifact, manifest, threads)
        groups = [runtime.allowed_shape(count)[0] for count in (0, 1, 64, 65, 1000, 4100)]
        # Many are rounded, so that there are few numbers of them.
        assert groups == [0, threads, threads, max(2, threads), 16, 72]
        assert runtime.allowed_shape(1)[1] == 64


def test_a_decoder_graph_of_an_older_release_is_refused(artifact: Path, manifest: Manifest) -> None:
    path = artifact / "decoder.onnx"
    path.write_bytes(path.read_bytes().replace(b"allowed_", b"unknown_"))
    with pytest.raises(ArtifactError, match=r"no allowed_logits, allowed_rows, .* export"):
        load(artifact, manifest)


@pytest.mark.parametrize(
    ("fixture", "cell_width", "missing"),
    [("tiny_artifact", 32, "cell_0"), ("tiny_ssru_artifact", None, "self_key_0")],
)
def test_a_decoder_that_is_not_what_its_manifest_says_is_refused(
    request: pytest.FixtureRequest, fixture: str, cell_width: int | None, missing: str
) -> None:
    folder = request.getfixturevalue(fixture)
    manifest = Manifest.load(folder)
    architecture = dataclasses.replace(manifest.architecture, cell_width=cell_width)
    with pytest.raises(ArtifactError, match=f"has no {missing}; .* export"):
        load(folder, dataclasses.replace(manifest, architecture=architecture))


@pytest.mark.parity
def test_keys_and_values_have_the_type_of_the_graph(
    tiny_runtime: Runtime, tiny_fp16_artifact: Path, tiny_row_scaled_artifact: Path
) -> None:
    halves, int8_caches = (
        load(folder, Manifest.load(folder))
        for folder in (tiny_fp16_artifact, tiny_row_scaled_artifact)
    )
    for runtime, dtype, whole in (
        (tiny_runtime, np.float32, np.float32),
        (halves, np.float16, np.float16),
        (int8_caches, np.int8, np.float32),
    ):
        assert runtime.cache_type == dtype
        cross_kv = runtime.encode([[5, 6, 2], [7, 8, 2]])
        assert {array.dtype for array in cross_kv.packed} == {np.dtype(dtype)}
        assert {array.dtype for array in cross_kv.last} == {np.dtype(whole)}
