from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from seqserve_server.contract.errors import ArtifactError, NoScorer, ProviderError
from seqserve_server.contract.manifest import Manifest, Requirements
from seqserve_server.contract.provider import Provider
from seqserve_server.engine import runtime as module
from seqserve_server.engine.runtime import Runtime, check_provider


@pytest.fixture
def manifest(tiny_artifact: Path) -> Manifest:
    return Manifest.load(tiny_artifact)


@pytest.fixture
def artifact(tiny_artifact: Path, tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    return Path(shutil.copytree(tiny_artifact, tmp_path / "1"))


def test_encoder_gives_key_and_value_of_each_layer(tiny_runtime: Runtime) -> None:
    sources = [[5, 6, 2], [7, 2], [2]]
    memory = tiny_runtime.encode(sources)
    assert [array.shape for array in memory.packed] == [(6, 32)] * 2
    assert [array.shape for array in memory.last] == [(3, 1, 32)] * 2
    for index, source in enumerate(sources):
        alone = tiny_runtime.encode([source])
        assert memory.length(index) == len(source)
        for together, single in zip(memory.packed, alone.packed, strict=True):
            # Bit for bit: neither neighbours nor what attention is padded with may be seen.
            np.testing.assert_array_equal(memory.of_source(together, index), single)
        for kept, last in zip(memory.packed, memory.last, strict=True):
            np.testing.assert_array_equal(last[index, 0], memory.of_source(kept, index)[-1])


def test_provider_that_is_not_there_is_refused_with_the_remedy(
    artifact: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None)
    with pytest.raises(ProviderError, match=r"cuda.*\.\[server-gpu\].*--provider cpu"):
        Runtime(artifact, manifest, Provider.CUDA, threads=1)
    check_provider(Provider.CPU)


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="it is there"
)
def test_this_build_has_no_cuda_and_says_so() -> None:
    with pytest.raises(ProviderError, match="not in this build"):
        check_provider(Provider.CUDA)


@pytest.mark.parametrize("file", ["encoder.onnx", "decoder.onnx", "scorer.onnx"])
@pytest.mark.parametrize("content", [b"", b"garbage", None])
def test_graph_that_is_none_is_refused_by_name(
    artifact: Path, manifest: Manifest, file: str, content: bytes | None
) -> None:
    path = artifact / file
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    refusal = "(ONNX Runtime refuses it|cannot be read as a graph)"
    with pytest.raises(ArtifactError, match=rf"{file}: {refusal}"):
        Runtime(artifact, manifest, Provider.CPU, threads=1)


def rewrite(path: Path, spoil: Callable[[onnx.ModelProto], None]) -> None:
    """Changes a graph."""
    model = onnx.load(path, load_external_data=False)
    spoil(model)
    path.write_bytes(model.SerializeToString())


def test_operators_of_others_are_refused(artifact: Path, manifest: Manifest) -> None:
    """They would be code; no library that could bring them is ever loaded."""

    def spoil(model: onnx.ModelProto) -> None:
        model.graph.node[0].domain = "com.example"
        model.opset_import.append(onnx.helper.make_opsetid("com.example", 1))

    rewrite(artifact / "decoder.onnx", spoil)
    with pytest.raises(ArtifactError, match=r"decoder\.onnx: ONNX Runtime refuses .*com\.example"):
        Runtime(artifact, manifest, Provider.CPU, threads=1)


def test_weights_of_another_folder_are_refused(artifact: Path, manifest: Manifest) -> None:
    def spoil(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = "../weights.bin"

    shutil.copy(artifact / "weights.bin", artifact.parent)
    rewrite(artifact / "encoder.onnx", spoil)
    with pytest.raises(ArtifactError, match=r"encoder\.onnx: takes weights from '\.\./weights"):
        Runtime(artifact, manifest, Provider.CPU, threads=1)


def test_short_weights_are_refused(artifact: Path, manifest: Manifest) -> None:
    (artifact / "weights.bin").write_bytes(b"")
    with pytest.raises(ArtifactError, match="refuses it"):
        Runtime(artifact, manifest, Provider.CPU, threads=1)


def test_files_that_change_or_go_after_loading_change_nothing(
    artifact: Path, manifest: Manifest, tiny_runtime: Runtime
) -> None:
    """What runs is what was checked."""
    runtime = Runtime(artifact, manifest, Provider.CPU, threads=1)
    shutil.rmtree(artifact)
    pair = np.array([[5, 2]]), np.array([2], np.int32), np.array([[1, 5, 2]])
    [found], [ought] = (one.score(*pair, ["log_probabilities"]) for one in (runtime, tiny_runtime))
    np.testing.assert_array_equal(found, ought)


@pytest.mark.parametrize(
    ("here", "least", "fits"),
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
def test_too_old_a_runtime_is_refused(
    artifact: Path,
    manifest: Manifest,
    monkeypatch: pytest.MonkeyPatch,
    here: str,
    least: str,
    fits: bool,
) -> None:
    monkeypatch.setattr(onnxruntime, "__version__", here)
    changed = dataclasses.replace(manifest, requirements=Requirements(opset=21, onnxruntime=least))
    if fits:
        module.check_version(artifact, changed)
    else:
        with pytest.raises(ArtifactError, match=rf"needs {least}, here is {here}; upgrade"):
            module.check_version(artifact, changed)


def test_steps_share_a_runtime_but_no_buffers(tiny_runtime: Runtime) -> None:
    from seqserve_server.engine.cache import SlotCache

    memory = tiny_runtime.encode([[5, 6, 7, 2]])
    first, second = SlotCache(tiny_runtime, 2), SlotCache(tiny_runtime, 2)
    for cache in (first, second):
        cache.join(0, memory, 0)
    first.advance(1)
    assert second.tokens[0, 0] == tiny_runtime.manifest.tokens.bos
    second.advance(1)
    assert second.tokens[0, 0] == first.tokens[0, 0]
    assert second.log_probabilities[0] == first.log_probabilities[0] < 0


def test_a_file_that_the_manifest_does_not_name_is_not_opened(
    artifact: Path, manifest: Manifest
) -> None:
    files = {name: digest for name, digest in manifest.files.items() if name != "scorer.onnx"}
    runtime = Runtime(artifact, dataclasses.replace(manifest, files=files), Provider.CPU, threads=1)
    assert not runtime.can_score
    source = np.array([[5, 2]])
    with pytest.raises(NoScorer, match=r"has no scorer\.onnx.*export it again"):
        runtime.score(source, np.array([2], np.int32), np.array([[1, 5]]), ["log_probabilities"])


def test_step_without_scores_finds_the_same_words(tiny_runtime: Runtime) -> None:
    from seqserve_server.engine.cache import SlotCache

    memory = tiny_runtime.encode([[5, 6, 7, 2]])
    scored, plain = SlotCache(tiny_runtime, 2), SlotCache(tiny_runtime, 2)
    plain.log_probabilities[:] = -1.0
    for cache in (scored, plain):
        cache.join(0, memory, 0)
    for _ in range(5):
        scored.advance(1)
        plain.advance(1, return_logprobs=False)
        assert scored.tokens[0, 0] == plain.tokens[0, 0]
        assert scored.log_probabilities[0] < 0
        assert plain.log_probabilities[0] == 0.0
    # As soon as a row asks, there are scores.
    scored.advance(1)
    plain.advance(1)
    assert plain.log_probabilities[0] == scored.log_probabilities[0] < 0


@pytest.mark.parametrize(
    "fixture",
    [
        "tiny_artifact",
        "tiny_int8_artifact",
        pytest.param("tiny_row_scaled_artifact", marks=pytest.mark.parity),
    ],
)
def test_allowed_tokens_have_the_logits_of_the_whole_vocabulary_whatever_runs_beside(
    request: pytest.FixtureRequest, fixture: str
) -> None:
    from seqserve_server.engine.cache import SlotCache

    folder = request.getfixturevalue(fixture)
    runtime = Runtime(folder, Manifest.load(folder), Provider.CPU, threads=1)
    words = runtime.manifest.architecture.vocabulary_size
    sources = [[5, 6, 7, 2], [8, 2], [2], [9, 10, 11, 12, 13, 2], [14, 15, 2]]
    whole, some = SlotCache(runtime, 5), SlotCache(runtime, 5)
    nothing = np.empty(0, np.int64)
    whole.request(top_k=0, logits=True, allowed=nothing, projects=True)
    for row in range(5):
        for cache in (whole, some):
            cache.join(row, runtime.encode([sources[row]]), 0)
    draw = np.random.default_rng(4)
    for rows, count in [(5, words), (1, words), (4, 1), (5, 65), (3, 64), (2, 200)]:
        allowed = draw.permutation(words)[:count]
        some.request(top_k=0, logits=False, allowed=allowed, projects=False)
        some.tokens[:rows] = whole.tokens[:rows]
        whole.advance(rows)
        some.advance(rows)
        for row in range(rows):
            scores = whole.logits(row)
            np.testing.assert_array_equal(some.allowed_logits(row), scores[allowed])
            if count == words:
                assert allowed[some.allowed_logits(row).argmax()] == whole.tokens[row, 0]


def test_a_step_that_does_not_project_gives_nothing_of_all_words(tiny_runtime: Runtime) -> None:
    from seqserve_server.engine.cache import SlotCache

    cache, memory = SlotCache(tiny_runtime, 2), tiny_runtime.encode([[5, 6, 2], [7, 2]])
    for row in range(2):
        cache.join(row, memory, row)
    cache.request(top_k=3, logits=True, allowed=np.empty(0, np.int64), projects=False)
    cache.suppress(0, [5, 6, 7])
    cache.log_probabilities[:] = 1.0
    for scored in (True, False):
        cache.tokens[:, 0] = 9
        cache.advance(2, return_logprobs=scored)
        assert cache.tokens[:, 0].tolist() == [9, 9]
        assert cache.log_probabilities.tolist() == [1.0, 1.0]
        assert not cache.logits(0).any()
        assert not cache.top_tokens([0, 1])[0].any()


def test_no_thread_shares_a_group_of_words(artifact: Path, manifest: Manifest) -> None:
    for threads in (1, 3):
        runtime = Runtime(artifact, manifest, Provider.CPU, threads=threads)
        groups = [runtime.allowed_shape(words)[0] for words in (0, 1, 64, 65, 1000)]
        assert groups == [0, threads, threads, max(2, threads), 16]
        assert runtime.allowed_shape(1)[1] == 64


def test_steps_of_an_older_release_are_refused(artifact: Path, manifest: Manifest) -> None:
    path = artifact / "decoder.onnx"
    path.write_bytes(path.read_bytes().replace(b"allowed_", b"unknown_"))
    with pytest.raises(ArtifactError, match=r"no allowed_logits, allowed_tokens; .* export"):
        Runtime(artifact, manifest, Provider.CPU, threads=1)


@pytest.mark.parity
def test_cache_is_of_the_type_that_the_graph_keeps(
    tiny_runtime: Runtime, tiny_row_scaled_artifact: Path
) -> None:
    manifest = Manifest.load(tiny_row_scaled_artifact)
    rounded = Runtime(tiny_row_scaled_artifact, manifest, Provider.CPU, threads=1)
    for runtime, kept in ((tiny_runtime, np.float32), (rounded, np.int8)):
        assert runtime.cache_type == kept
        memory = runtime.encode([[5, 6, 2], [7, 8, 2]])
        assert {array.dtype for array in memory.packed} == {np.dtype(kept)}
        assert {array.dtype for array in memory.last} == {np.dtype(np.float32)}
