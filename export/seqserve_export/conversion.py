"""Converts artifacts of format 2, whose graphs a server changed when it opened them.

Format 3 has the graphs that it made. They take the weights from the same file, so nothing that a
model computes changes.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, NodeProto

from seqserve.errors import NotWritten, OptionError
from seqserve_export.graph_edits import copied, graphs_of, rename
from seqserve_export.graph_files import save_graphs, step_graphs
from seqserve_server.artifact.files import FileDigest, atomic_folder, check_file, digest_of
from seqserve_server.artifact.manifest import DECODER, FILE, FORMAT, Manifest
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.limits import Provider
from seqserve_server.engine.loading import run_self_test
from seqserve_server.engine.runtime import Runtime
from seqserve_server.text.tokenizer import Tokenizer

_CONVERTED = 2
"""The format that can be converted."""


def upgrade(folder: Path, output: Path | None = None) -> Iterator[str]:
    """Converts the versions in a folder; yields a line for each when it is done.

    Args:
        folder: Folder of a version, of a model, or of a repository. output: Folder of the converted
        version; None replaces the older one.

    Raises:
        OptionError: The folder has no version, or several for one output.
        ArtifactError: A version is damaged, or of another format.
        NotWritten: The folder cannot be written.
    """
    versions = _versions(folder)
    if not versions:
        raise OptionError(f"{folder}: has no {FILE}; name the folder of a version or of models")
    if output is not None and len(versions) > 1:
        raise OptionError(f"--output: {folder} has {len(versions)} versions; name one of them")
    if output is not None and output.exists():
        raise OptionError(f"--output: {output} exists already; name another folder or remove it")
    for version in versions:
        yield _upgraded(version, output)


def _versions(folder: Path) -> list[Path]:
    found = next(
        (files for each in (FILE, f"*/{FILE}", f"*/*/{FILE}") if (files := [*folder.glob(each)])),
        [],
    )
    return sorted(file.parent for file in found if not file.parent.name.startswith("."))


def _upgraded(folder: Path, output: Path | None) -> str:
    values = _read(folder / FILE)
    before = values.get("format")
    if before == FORMAT:
        return f"{folder}: is of format {FORMAT} already"
    if before != _CONVERTED:
        raise ArtifactError(
            f"{folder / FILE}: format is {before!r:.80}; formats {_CONVERTED} and"
            f" {FORMAT} are known here"
        )
    if output is not None:
        with atomic_folder(output) as draft:
            _convert(folder, values, draft)
        return f"{output}: converted to format {FORMAT}, from {folder}"
    try:
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder.parent))
    except OSError as error:
        raise NotWritten(f"{folder.parent}: {error.strerror}") from None
    try:
        _convert(folder, values, draft)
        _exchange(draft, folder)
    except OSError as error:
        raise NotWritten(f"{folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return f"{folder}: converted to format {FORMAT}"


def _exchange(new: Path, folder: Path) -> None:
    new.chmod(folder.stat().st_mode)
    old = new.with_name(f"{new.name}-old")
    folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    shutil.rmtree(old)


def _convert(folder: Path, values: dict[str, Any], draft: Path) -> None:
    for name, digest in values["files"].items():
        check_file(folder / name, FileDigest(**digest))
        if name != DECODER:
            _link(folder / name, draft / name)
    decoder = onnx.load(folder / DECODER, load_external_data=False)
    mask_before_branches(decoder)
    graphs = step_graphs(decoder, values["precision"])
    save_graphs(graphs, draft)
    digests = {name: digest_of(draft / name) for name in graphs}
    files = values["files"] | {
        name: {"sha256": digest.sha256, "bytes": digest.bytes} for name, digest in digests.items()
    }
    text = json.dumps(values | {"files": files, "format": FORMAT}, indent=2, ensure_ascii=False)
    (draft / FILE).write_text(text + "\n", encoding="utf-8")
    manifest = Manifest.load(draft)
    run_self_test(
        Runtime(draft, manifest, Provider.CPU, threads=1), Tokenizer.of_artifact(draft, manifest)
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        # The same fields as today's, but for the format.
        Manifest.parse(json.dumps(values | {"format": FORMAT}).encode(), str(path))
        return values
    except (OSError, ValueError, TypeError) as error:
        raise ArtifactError(f"{path}: cannot be read: {error}") from None


def _link(source: Path, target: Path) -> None:
    """Links a file under a second name if the disk supports it, so that weights are not copied."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def mask_before_branches(decoder: ModelProto) -> None:
    """Masks logits in front of the branches of a step, if a branch does.

    Older releases masked them in the branch of all options alone, in a copy of all logits, so a
    step with masks took that branch whatever else its rows wanted.
    """
    _, *branches = graphs_of(decoder.graph)
    for branch in branches:
        for node in branch.node:
            if node.op_type == "ScatterElements" and node.input[1] == "bias_tokens":
                _move(node, branch, decoder.graph)
                return


def _move(mask: NodeProto, branch: GraphProto, graph: GraphProto) -> None:
    """Moves a mask out of its branch, in front of the node that chooses a branch: the last one.

    All branches then read what it gives by the name that the logits had.
    """
    logits, [masked] = mask.input[0], mask.output
    unmasked = f"unmasked_{logits}"
    for node in graph.node:
        node.output[:] = [unmasked if name == logits else name for name in node.output]
    [first] = copied([mask])
    first.input[0], first.output[0] = unmasked, logits
    first.ClearField("name")  # names of nodes differ within a graph only
    branch.node.remove(mask)
    rename(branch.node, masked, logits)
    choice = graph.node.pop()
    graph.node.extend([first, choice])
