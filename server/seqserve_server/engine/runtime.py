"""The only file that knows ONNX Runtime: sessions, execution providers and I/O binding.

One :class:`Runtime` holds a model's sessions, and so its weights, once; any number of threads may
run them at the same time, because ``Run`` releases the interpreter lock and keeps no state.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqserve_server.contract.errors import ArtifactError, NoScorer, ProviderError
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.provider import Provider
from seqserve_server.engine.external_data import check_references
from seqserve_server.engine.packing import Array, CrossKV, laid_out, starts_of

# It reports to its maker over the network unless it is told not to before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime as ort

_TEACHER = "scorer.onnx"

_PROVIDERS = {Provider.CPU: "CPUExecutionProvider", Provider.CUDA: "CUDAExecutionProvider"}

# The fused kernel is scalar code on the CPU: 66 us against 9 us for 32 rows of 512.
_DISABLED_OPTIMIZERS = ["SkipLayerNormFusion"]


_CACHE_TYPES = {"tensor(float)": np.float32, "tensor(int8)": np.int8}


class Sizes(NamedTuple):
    """What a step computes beside the next tokens. What has a size of 0 is switched off, and the
    step does not pay for it."""

    biases: int = 1
    """Words of each row whose scores are changed."""
    top_k: int = 0
    """Best words of each row to be listed."""
    logits: int = 0
    """Words of the vocabulary, from the first on, whose scores are to be given out."""
    allowed_groups: int = 0
    """Groups of words whose scores alone are to be given out; see :meth:`Runtime.allowed_shape`."""
    projects: bool = True
    """Whether rows are projected onto the whole vocabulary. Where not, no next words are found, and
    none are to be listed: ONNX Runtime 1.23 crashes where it ranks the words of no rows."""


_COMMON = ("max_length", "max_source_length", "return_logprobs")
"""Inputs of a step that are one for all rows."""
_ALONE = {"top_k": "top_k", "num_logits": "logits", "allowed_tokens": "allowed_groups"}
"""Inputs whose length is one of the sizes."""
_SIZED = {
    "bias_tokens": "biases",
    "bias_values": "biases",
    "top_tokens": "top_k",
    "top_log_probabilities": "top_k",
    "logits": "logits",
    "allowed_logits": "allowed_groups",
}
"""What has one of the sizes for each row, one row after the other on the first axis of a buffer."""
_PROJECTED = {"projected_rows", "next_tokens", "log_probabilities"} | _SIZED.keys() - {
    "allowed_logits"
}
"""What has only the rows that are projected onto the whole vocabulary."""
_MOST_BINDINGS = 1024


class Step:
    """One decoder step over fixed buffers, for any number of leading rows.

    Inputs and outputs are bound to the buffers themselves, so a run copies nothing: the caches are
    written in place, and the next words land where the last words are read.
    """

    def __init__(
        self, session: ort.InferenceSession, inputs: dict[str, Array], outputs: dict[str, Array]
    ) -> None:
        """Keeps the buffers; bindings are made when they are first needed.

        Args:
            session: Of the decoder graph.
            inputs: A buffer for each input; its first axis is the row, but for those in
                :data:`_COMMON`, :data:`_ALONE` and :data:`_SIZED`.
            outputs: A buffer for each output.
        """
        self._session = session
        self._inputs = inputs
        self._outputs = outputs
        # Kept, because a run that is given none takes its time to make some.
        self._options = ort.RunOptions()
        self._bindings: dict[tuple[int, Sizes], Any] = {}

    def run(self, rows: int, sizes: Sizes) -> None:
        """Advances rows 0 to ``rows`` - 1 by one word."""
        binding = self._bindings.get((rows, sizes))
        if binding is None:
            if len(self._bindings) >= _MOST_BINDINGS:
                self._bindings.clear()
            binding = self._bindings[rows, sizes] = self._bind(rows, sizes)
        self._session._sess.run_with_iobinding(binding, self._options)

    def _bind(self, rows: int, sizes: Sizes) -> Any:
        binding = self._session.io_binding()
        for name, array in self._inputs.items():
            shape = _bound(name, array, rows, sizes)
            binding.bind_input(name, "cpu", 0, array.dtype, shape, array.ctypes.data)
        for name, array in self._outputs.items():
            shape = _bound(name, array, rows, sizes)
            binding.bind_output(name, "cpu", 0, array.dtype, shape, array.ctypes.data)
        return binding._iobinding


def _bound(name: str, array: Array, rows: int, sizes: Sizes) -> list[int]:
    """Gives the part of a buffer that a step uses."""
    if name in _COMMON:
        return list(array.shape)
    if name in _ALONE:
        return [getattr(sizes, _ALONE[name]), *array.shape[1:]]
    if name in _PROJECTED and not sizes.projects:
        rows = 0
    if name in _SIZED:
        return [rows, getattr(sizes, _SIZED[name]), *array.shape[1:]]
    return [rows, *array.shape[1:]]


class Runtime:
    """A loaded model."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        provider: Provider,
        threads: int,
        *,
        profile: Path | None = None,
    ) -> None:
        """Opens the graphs of the artifact in ``folder``.

        Args:
            folder: Of the artifact, already checked against its manifest.
            manifest: Of the artifact.
            provider: Who runs it.
            threads: Threads within one run.
            profile: Begin of the names of files to which every run writes the time of its
                operators; see :meth:`end_profile`.

        Raises:
            ProviderError: The provider is not available here.
            ArtifactError: ONNX Runtime is too old, or refuses a graph; or a graph is too old.
        """
        self.manifest = manifest
        self.provider = provider
        self._folder = folder
        self._threads = threads
        self._profile = profile
        check_provider(provider)
        check_version(folder, manifest)
        self._encoder = self._open("encoder.onnx")
        self._decoder = self._open("decoder.onnx")
        self._group = self._check_steps()
        # Now, for its hash is checked now.
        self._scorer = self._open(_TEACHER) if _TEACHER in manifest.files else None

    def encode(self, sources: Sequence[Sequence[int]]) -> CrossKV:
        """Encodes sources of any lengths together.

        Args:
            sources: Token ids, the end token last.
        """
        found = self._encoder.run(None, laid_out(sources))
        return CrossKV(found[::2], found[1::2], starts_of(sources))

    @property
    def cache_type(self) -> np.dtype[Any]:
        """The type in which keys and values are kept."""
        [kept] = [entry.type for entry in self._decoder.get_inputs() if entry.name == "self_key_0"]
        return np.dtype(_CACHE_TYPES[kept])

    def allowed_shape(self, words: int) -> tuple[int, int]:
        """Gives the groups in which a step takes words that are allowed, ``[G, 64]``.

        They may have room for more words. None of them is shared by threads, which would change
        the order in which numbers are added up.
        """
        groups = -(-words // self._group)
        return max(groups, self._threads) if groups else 0, self._group

    def step(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Step:
        """Makes a step over the buffers given; see :class:`Step`."""
        return Step(self._decoder, inputs, outputs)

    @property
    def can_score(self) -> bool:
        """Whether there is a scorer-forced graph; versions without one generate all the same."""
        return self._scorer is not None

    def teach(
        self, source: Array, lengths: Array, target: Array, outputs: list[str]
    ) -> list[Array]:
        """Runs known targets through the scorer-forced graph.

        Args:
            source: int64 ``[B, S]``.
            lengths: int32 ``[B]``.
            target: int64 ``[B, T + 1]``, the begin token first.
            outputs: Names of the outputs wanted: ``log_probabilities`` ``[B, T]``,
                ``encoder_attention`` ``[L, B, H, S, S]``, ``decoder_attention``
                ``[L, B, H, T, T]``, ``cross_attention`` ``[L, B, H, T, S]``.

        Raises:
            NoScorer: There is no such graph.
        """
        if self._scorer is None:
            raise NoScorer(self.manifest.label)
        inputs = {"source": source, "source_lengths": lengths, "target": target}
        return self._scorer.run(outputs, inputs)  # type: ignore[no-any-return]

    def end_profile(self) -> Path:
        """Ends the profile that was asked for and gives the file of the decoder steps, JSON."""
        return Path(self._decoder.end_profiling())

    def _check_steps(self) -> int:
        """Refuses a graph of steps that lacks something; gives the size of its groups of words."""
        entries = (*self._decoder.get_inputs(), *self._decoder.get_outputs())
        shapes = {entry.name: entry.shape for entry in entries}
        missing = {*_COMMON, *_ALONE, *_SIZED, *_PROJECTED} - shapes.keys()
        if missing:
            raise ArtifactError(
                f"{self._folder / 'decoder.onnx'}: has no {', '.join(sorted(missing))}; an older"
                " release wrote it: export the model again"
            )
        return int(shapes["allowed_tokens"][1])

    def _open(self, name: str) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # A thread that spins between runs takes the core from a neighbour's worker.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        if self._profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = f"{self._profile}-{name}"
        path = self._folder / name
        if name not in self.manifest.files:
            # What the manifest does not name was not checked either.
            raise ArtifactError(f"{path}: its manifest does not name it; export the model again")
        check_references(path, self.manifest.files)
        try:
            session = ort.InferenceSession(
                path,
                options,
                providers=[_PROVIDERS[self.provider]],
                disabled_optimizers=_DISABLED_OPTIMIZERS,
            )
        except Exception as error:
            raise ArtifactError(f"{path}: ONNX Runtime refuses it: {error}") from error
        if session.get_providers()[0] != _PROVIDERS[self.provider]:
            raise ProviderError(
                f"provider {self.provider.value}: ONNX Runtime fell back to"
                f" {session.get_providers()[0]}; a library of the provider is missing"
            )
        return session


def check_provider(provider: Provider) -> None:
    """Makes sure that the execution provider is in this build of ONNX Runtime.

    Raises:
        ProviderError: It is not.
    """
    if provider is Provider.CUDA:
        ort.preload_dlls()
    if _PROVIDERS[provider] not in ort.get_available_providers():
        raise ProviderError(
            f"provider {provider.value} is not in this build of ONNX Runtime; in a clone of"
            " seqserve, pip install '.[server-gpu]' in a new environment, or use --provider cpu"
        )


def check_version(folder: Path, manifest: Manifest) -> None:
    """Makes sure that ONNX Runtime is not older than the artifact needs.

    Raises:
        ArtifactError: It is.
    """
    least = manifest.requirements.onnxruntime
    if _numbers(ort.__version__) < _numbers(least):
        raise ArtifactError(
            f"{folder}: requirements.onnxruntime: it needs {least}, here is {ort.__version__};"
            " upgrade ONNX Runtime"
        )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version)[:3]]
