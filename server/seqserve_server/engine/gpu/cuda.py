"""Finds what prevents CUDA from running here, and how to mend it.

ONNX Runtime falls back to the CPU where a library of CUDA is missing, and says the rest in the
middle of a long text. Here it becomes one sentence.
"""

import contextlib
import ctypes
import io
import os
import re

import onnxruntime as ort

from seqserve_server.contract.errors import ProviderError

_DRIVER = "libcuda.so.1"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Source: CUDA C++ Programming Guide, CUDA environment variables."""
_KERNEL_OF_LONG_CACHES = "ORT_ENABLE_XQA"
"""Source: ONNX Runtime, contrib_ops/cpu/bert/attention_common.h."""

_MISSING = re.compile(r"Failed to load (.*)")
"""ONNX Runtime's message about a library that it does not find."""

_OUT_OF_MEMORY, _OLD_DRIVER, _NO_DEVICE = 2, 35, 100
"""Errors of CUDA. Source: the type cudaError in driver_types.h."""

NO_MEMORY = "the memory of the GPU is full: load fewer models or versions, or take fewer workers"
_REMEDIES = {
    _OUT_OF_MEMORY: NO_MEMORY,
    _OLD_DRIVER: "install a newer driver, or an older onnxruntime-gpu",
    _NO_DEVICE: "see nvidia-smi, and give a container its GPUs: --gpus all",
}

_FAILURE = re.compile(r"\b(CUDA|CUBLAS|CUDNN)[A-Z_ ]{0,40} failure (\d{1,9}): (.{0,200}?) ;")
_ALLOCATION = re.compile(r"Failed to allocate memory for requested buffer of size \d+")


def take_gpu(number: int) -> None:
    """Lets this process see one visible GPU before it looks; CUDA reports a missing one later."""
    visible = os.environ.get(_VISIBLE)
    numbers = visible.split(",") if visible is not None else []
    if number < len(numbers):
        os.environ[_VISIBLE] = numbers[number]
    elif number:
        os.environ[_VISIBLE] = "" if numbers else str(number)


def prepare() -> None:
    """Loads the libraries of CUDA that pip has installed, before a session looks for them.

    It also chooses the kernel of attention over caches: of two that ONNX Runtime has, the one that
    it prefers takes up to three times as long for one query in each of many short rows. Raises
    ProviderError if a library is missing, or the driver, which pip does not install.
    """
    os.environ.setdefault(_KERNEL_OF_LONG_CACHES, "0")
    # A server writes no files, so the few kernels of cupy are compiled at each start.
    os.environ.setdefault("CUPY_CACHE_IN_MEMORY", "1")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        ort.preload_dlls()
    if match := _MISSING.search(printed.getvalue()):
        raise missing(match[1])
    try:
        ctypes.CDLL(_DRIVER)
    except OSError as error:
        raise ProviderError(
            f"provider cuda: the NVIDIA driver is missing: {error}; install it, give a container"
            " its GPUs (--gpus all), or use --provider cpu"
        ) from error


def missing(library: object) -> ProviderError:
    """Makes the error of a library that pip can install."""
    return ProviderError(
        f"provider cuda: a library is missing: {library}; pip install"
        " 'seqserve[server-gpu]' in a new environment"
    )


def failure_of(error: Exception) -> ProviderError | None:
    """Returns the failure of CUDA that an error of ONNX Runtime tells of; None if it is another."""
    text = str(error)
    if match := _FAILURE.search(text):
        library, code, reason = match.groups()
        remedy = _REMEDIES.get(int(code)) if library == "CUDA" else None
        return ProviderError(f"provider cuda: {reason}; {remedy or f'{library} failure {code}'}")
    if match := _ALLOCATION.search(text):
        return ProviderError(f"provider cuda: {match[0]}; {NO_MEMORY}")
    return None
