"""Opens a graph of an artifact in ONNX Runtime, with the settings of every session here."""

import re
from collections.abc import Callable
from pathlib import Path

import onnxruntime as ort

from seqserve_server.artifact.manifest import SCORER, Manifest
from seqserve_server.contract.errors import ArtifactError, ProviderError
from seqserve_server.contract.limits import Provider
from seqserve_server.engine.gpu import cuda

_PROVIDERS = {Provider.CPU: "CPUExecutionProvider", Provider.CUDA: "CUDAExecutionProvider"}

# The fused kernel is scalar code on the CPU: 66 us against 9 us for 32 rows of 512.
_DISABLED_OPTIMIZERS = ["SkipLayerNormFusion"]


def open_session(
    folder: Path,
    name: str,
    manifest: Manifest,
    provider: Provider,
    threads: int,
    *,
    packs: bool = True,
    graph: bytes | None = None,
    provider_options: tuple[str, dict[str, str]] | None = None,
    share: Callable[[ort.SessionOptions], None] | None = None,
) -> ort.InferenceSession:
    """Opens a graph of an artifact, whose references have been checked.

    With ``packs`` weights are copied into the layout of the kernels; if not, runs are slower, on
    the mapped file, which takes no extra memory. A ``graph`` derived from the file runs instead of
    it; ``share`` adds weights that the session need not load.

    Raises ProviderError if the provider fails or ONNX Runtime takes another one, and ArtifactError
    if the manifest does not name the graph or ONNX Runtime refuses it.
    """
    path = folder / name
    if name not in manifest.files:
        # Files that the manifest does not name were not checked either.
        raise ArtifactError(f"{path}: its manifest does not name it; export the model again")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # It plans memory for each shape apart, and the scorer's shapes differ from run to run.
    options.enable_mem_pattern = name != SCORER
    # A thread that spins between runs takes the core from a neighbour's worker.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if not packs:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if graph is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder)
        )
    if share is not None:
        share(options)
    try:
        session = ort.InferenceSession(
            path if graph is None else graph,
            options,
            providers=[provider_options or _PROVIDERS[provider]],
            disabled_optimizers=_DISABLED_OPTIMIZERS,
            # Else it prints the reason and opens the graph once more, on the CPU.
            enable_fallback=False,
        )
    except Exception as error:
        if provider is Provider.CUDA and (failure := cuda.failure_of(error)):
            raise failure from error
        raise ArtifactError(f"{path}: ONNX Runtime refuses it: {error}") from error
    if session.get_providers()[0] != _PROVIDERS[provider]:
        raise ProviderError(
            f"provider {provider.value}: ONNX Runtime fell back to"
            f" {session.get_providers()[0]}; the lines above say why"
        )
    return session


def check_provider(provider: Provider) -> None:
    """Raises ProviderError if this build of ONNX Runtime lacks the provider, or its libraries."""
    if _PROVIDERS[provider] not in ort.get_available_providers():
        raise ProviderError(
            f"provider {provider.value} is not in this build of ONNX Runtime; pip install"
            " 'seqserve[server-gpu]' in a new environment, or use --provider cpu"
        )
    if provider is Provider.CUDA:
        cuda.prepare()


def check_version(folder: Path, manifest: Manifest) -> None:
    """Raises ArtifactError if ONNX Runtime is older than the artifact needs."""
    required = manifest.requirements.onnxruntime
    if _numbers(ort.__version__) < _numbers(required):
        raise ArtifactError(
            f"{folder}: requirements.onnxruntime: it needs {required}, here is {ort.__version__};"
            " upgrade ONNX Runtime"
        )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version)[:3]]
