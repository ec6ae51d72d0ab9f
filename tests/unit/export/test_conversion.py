import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from tests.graph_nodes import nodes_of

from seqserve.errors import OptionError
from seqserve_export import command, conversion
from seqserve_export.conversion import mask_before_branches, upgrade
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.limits import Provider
from seqserve_server.engine.session import open_session
from seqserve_server.engine.step import MASKED_LOGIT

SHIPPED = Path("models/en-de/2")
BEFORE = Path(__file__).with_name("format_2")
"""What differed in the same version before it was converted; its masks are in a branch."""
ROWS, LENGTH, SOURCE_LENGTH, TOP_K = 3, 2, 5, 6


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A model repository with one version of format 2."""
    folder = tmp_path / "models" / "en-de" / "2"
    shutil.copytree(SHIPPED, folder)
    for name in ("candidates.onnx", "draft.onnx"):
        (folder / name).unlink()
    shutil.copytree(BEFORE, folder, dirs_exist_ok=True)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_version_is_converted_where_it_is(earlier: Path) -> None:
    with pytest.raises(ArtifactError, match="format is 2; this server reads format 3: convert it"):
        Manifest.read(earlier)
    assert list(upgrade(earlier)) == [f"{earlier}: converted to format 3"]
    assert contents(earlier) == contents(SHIPPED)
    assert [each.name for each in earlier.parent.iterdir()] == ["2"]
    assert list(upgrade(earlier)) == [f"{earlier}: is of format 3 already"]


def test_version_is_converted_into_another_folder(
    earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, output = contents(earlier), earlier.with_name("3")
    assert command.upgrade([str(earlier), "--output", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}: converted to format 3, from {earlier}\n"
    assert contents(earlier) == before and contents(output) == contents(SHIPPED)
    with pytest.raises(OptionError, match="exists already"):
        command.upgrade([str(earlier), "--output", str(output)])


def test_all_versions_of_models_are_converted(earlier: Path) -> None:
    shutil.copytree(earlier, earlier.with_name("7"))
    models = earlier.parent.parent
    with pytest.raises(OptionError, match="has 2 versions"):
        list(upgrade(models, models / "one"))
    assert list(upgrade(models)) == [
        f"{folder}: converted to format 3" for folder in (earlier, earlier.with_name("7"))
    ]


def test_folder_without_versions_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"has no manifest\.json"):
        list(upgrade(tmp_path))


def with_another_answer(manifest: bytes) -> bytes:
    values = json.loads(manifest)
    values["self_test"]["target"] = "Something else."
    return json.dumps(values).encode()


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("weights.bin", lambda data: data[:-1] + b"x", "weights.bin: sha256 is"),
        ("decoder.onnx", lambda data: data[:-1] + b"x", "decoder.onnx: sha256 is"),
        ("manifest.json", lambda data: data[1:], "manifest.json: .*not JSON|cannot be read"),
        ("manifest.json", lambda data: data.replace(b'"format": 2', b'"format": 1'), "format is 1"),
        ("manifest.json", with_another_answer, "self_test"),
    ],
)
def test_damaged_version_stays_as_it_is(
    earlier: Path, file: str, change: Any, message: str
) -> None:
    (earlier / file).write_bytes(change((earlier / file).read_bytes()))
    before = contents(earlier)
    with pytest.raises(ArtifactError, match=message):
        list(upgrade(earlier))
    assert contents(earlier) == before
    assert [each.name for each in earlier.parent.iterdir()] == ["2"]


def test_version_is_back_where_the_new_one_cannot_take_its_place(
    earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(earlier)
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if target == earlier and not self.name.endswith("-old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(conversion.Path, "rename", fail)
    with pytest.raises(conversion.NotWritten, match="Input/output error"):
        list(upgrade(earlier))
    assert contents(earlier) == before


def opened(decoder: onnx.ModelProto) -> ort.InferenceSession:
    given = SHIPPED, "decoder.onnx", Manifest.load(SHIPPED), Provider.CPU, 1
    return open_session(*given, packs=False, graph=decoder.SerializeToString())


def decoders() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Reads the graph of format 2, and the same with its mask moved."""
    before, moved = (onnx.load(BEFORE / "decoder.onnx", load_external_data=False) for _ in "12")
    mask_before_branches(moved)
    return before, moved


def inputs_of(session: ort.InferenceSession, masked: list[int], *, has_logits: bool) -> Any:
    random = np.random.default_rng(5)
    sizes = {"top_k": TOP_K, "num_logits": 20 * has_logits, "allowed_tokens": 0}
    found: dict[str, Any] = {
        "tokens": np.array([[7], [8], [9]]),
        "lengths": np.full(ROWS, LENGTH, np.int32),
        "max_length": np.array([LENGTH + 1], np.int32),
        "source_last_index": np.full(ROWS, SOURCE_LENGTH - 1, np.int32),
        "max_source_length": np.array([SOURCE_LENGTH], np.int32),
        "has_options": np.array(True),
        "only_scores": np.array(not has_logits),
        "return_logprobs": np.array(True),
        "bias_tokens": np.tile(np.array(masked, np.int64), (ROWS, 1)),
        "bias_values": np.full((ROWS, len(masked)), MASKED_LOGIT),
        "projected_rows": np.arange(ROWS),
    }
    for entry in session.get_inputs():
        if entry.name in sizes:
            found[entry.name] = np.zeros((sizes[entry.name], *entry.shape[1:]), np.int64)
        elif entry.name not in found:
            shape = [size if isinstance(size, int) else 8 for size in entry.shape[1:]]
            found[entry.name] = random.normal(size=(ROWS, *shape)).astype(np.float32)
    return found


def run(session: ort.InferenceSession, inputs: Any) -> dict[str, Any]:
    names = ["next_tokens", "log_probabilities", "top_tokens", "top_log_probabilities", "logits"]
    return dict(zip(names, session.run(names, inputs), strict=True))


def test_masks_hold_in_every_branch_to_the_bit() -> None:
    earlier, moved = map(opened, decoders())
    free = run(earlier, inputs_of(earlier, [], has_logits=False))
    best = np.unique(free["top_tokens"][:, :2]).tolist()
    expected = run(earlier, inputs_of(earlier, best, has_logits=True))
    assert not np.isin(expected["top_tokens"], best).any()
    for has_logits in (True, False):
        found = run(moved, inputs_of(moved, best, has_logits=has_logits))
        for name in expected.keys() - ({"logits"} if not has_logits else set()):
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    unmasked = run(moved, inputs_of(moved, [], has_logits=False))
    for name, array in free.items():
        np.testing.assert_array_equal(unmasked[name], array, err_msg=name)


def test_only_the_mask_has_another_place() -> None:
    before, after = (model.graph for model in decoders())
    assert [node.op_type for node in after.node[-2:]] == ["ScatterElements", "If"]
    kinds = [sorted(node.op_type for node in nodes_of(graph)) for graph in (before, after)]
    assert kinds[0] == kinds[1]


def test_masks_before_branches_stay_where_they_are() -> None:
    _, moved = decoders()
    before = moved.SerializeToString()
    mask_before_branches(moved)
    assert moved.SerializeToString() == before
