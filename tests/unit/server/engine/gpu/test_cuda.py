"""What a server that is asked for CUDA says where it cannot have it; no test here needs a GPU.

The texts are those of ONNX Runtime for CUDA, shortened. Those of the driver and of cuDNN were seen,
with a library in the driver's place that finds no device or is old; the others are from reports.
"""

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.unit.server.engine.gpu.host_device import HostDevice

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import ArtifactError, ProviderError
from seqserve_server.contract.limits import Provider
from seqserve_server.engine.gpu import runtime
from seqserve_server.engine.gpu.cuda import take_gpu
from seqserve_server.engine.gpu.runtime import open_runtime
from seqserve_server.engine.session import check_provider, open_session


def _said(text: str) -> str:
    return (
        f"core/providers/cuda/cuda_call.cc:146 [with ERRTYPE = cudaError; bool THRW = true] {text} "
        "; GPU=-1 ; hostname=vm ; file=cuda_execution_provider.cc ; line=355 ; expr=cudaSetDevice()"
    )


_ARENA = (
    "Non-zero status code returned while running Gemm node. Name:'node_linear' Status Message:"
    " bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool)"
    " Failed to allocate memory for requested buffer of size 939524096"
)


@pytest.fixture(autouse=True)
def has_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets ONNX Runtime be built with CUDA, and lets a driver be there."""
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: providers)
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)


def open_decoder(folder: Path) -> None:
    open_session(folder, "decoder.onnx", Manifest.load(folder), Provider.CUDA, threads=1)


def fails(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(onnxruntime, "InferenceSession", fail)


def test_a_machine_without_a_driver_is_told_so_before_any_graph_is_opened(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(ctypes, "CDLL", load)
    fails(monkeypatch, "opened")
    said = r"the NVIDIA driver is missing: libcuda\.so\.1: cannot open .*--gpus all.*--provider cpu"
    with pytest.raises(ProviderError, match=said):
        open_runtime(tiny_artifact, Manifest.load(tiny_artifact), Provider.CUDA, threads=1)


def test_the_first_missing_library_is_named_and_nothing_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def preload() -> None:
        for name in ("libcublasLt.so.13", "libcurand.so.10"):
            print(f"Failed to load {name}: {name}: cannot open shared object file")
        print("Please follow https://onnxruntime.ai/docs/install/ to install CUDA.")

    monkeypatch.setattr(onnxruntime, "preload_dlls", preload)
    said = r"a library is missing: libcublasLt\.so\.13: .*; .*pip install 'seqserve\[server-gpu\]'"
    with pytest.raises(ProviderError, match=said):
        check_provider(Provider.CUDA)
    assert capsys.readouterr() == ("", "")


_FULL = "the memory of the GPU is full: load fewer models or versions, or take fewer workers"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            _said("CUDA failure 100: no CUDA-capable device is detected"),
            "no CUDA-capable device is detected; see nvidia-smi, and give a container its GPUs:"
            " --gpus all",
        ),
        (
            _said("CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version"),
            "CUDA driver version is insufficient for CUDA runtime version; install a newer driver,"
            " or an older onnxruntime-gpu",
        ),
        (_said("CUDA failure 2: out of memory"), f"out of memory; {_FULL}"),
        (
            _said("CUDNN failure 1001: CUDNN_STATUS_NOT_INITIALIZED"),
            "CUDNN_STATUS_NOT_INITIALIZED; CUDNN failure 1001",
        ),
        (
            _said("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED"),
            "CUBLAS_STATUS_ALLOC_FAILED; CUBLAS failure 3",
        ),
        (
            _ARENA,
            f"Failed to allocate memory for requested buffer of size 939524096; {_FULL}",
        ),
    ],
)
def test_a_failure_of_cuda_is_one_sentence_with_its_remedy(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    fails(monkeypatch, text)
    with pytest.raises(ProviderError) as raised:
        open_decoder(tiny_artifact)
    assert str(raised.value) == f"provider cuda: {said}"


def test_a_graph_that_is_refused_is_no_failure_of_cuda(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(monkeypatch, "[ONNXRuntimeError] : 10 : INVALID_GRAPH : This is an invalid model.")
    with pytest.raises(ArtifactError, match=r"decoder\.onnx: ONNX Runtime refuses it: .*INVALID"):
        open_decoder(tiny_artifact)


def test_a_session_that_fell_back_to_the_cpu_is_refused(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does, without an error, where a library of CUDA is missing."""
    open_real = onnxruntime.InferenceSession

    def fall_back(
        *given: Any, providers: list[str], **options: Any
    ) -> onnxruntime.InferenceSession:
        assert providers == ["CUDAExecutionProvider"]
        # Python's own way to fall back hides the reason.
        assert options["enable_fallback"] is False
        return open_real(*given, providers=["CPUExecutionProvider"], **options)

    monkeypatch.setattr(onnxruntime, "InferenceSession", fall_back)
    said = "provider cuda: ONNX Runtime fell back to CPUExecutionProvider"
    with pytest.raises(ProviderError, match=said):
        open_decoder(tiny_artifact)


def test_the_library_of_arrays_is_named_where_it_is_missing(
    tiny_fp16_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    said = r"library is missing: .*cupy.*seqserve\[server-gpu\]"
    with pytest.raises(ProviderError, match=said):
        open_runtime(tiny_fp16_artifact, Manifest.load(tiny_fp16_artifact), Provider.CUDA, 1)


@pytest.mark.parametrize(
    ("visible", "number", "taken"),
    [
        (None, 0, None),
        (None, 2, "2"),
        ("4,7", 0, "4"),
        ("4,7", 1, "7"),
        ("4,7", 2, ""),
        ("", 0, ""),
    ],
)
def test_a_process_sees_one_gpu(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, number: int, taken: str | None
) -> None:
    """Of several it takes the one of its number; where there is none, it sees none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    take_gpu(number)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == taken


def test_weights_that_do_not_fit_are_no_matter_of_slots(
    tiny_fp16_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(HostDevice):
        def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
            raise MemoryError(f"Out of memory allocating {shape}")

    monkeypatch.setattr(runtime, "Device", Full)
    said = "the weights of tiny/1 do not fit: the memory of the GPU is full: load fewer"
    with pytest.raises(ProviderError, match=said):
        open_runtime(tiny_fp16_artifact, Manifest.load(tiny_fp16_artifact), Provider.CUDA, 1)
