"""Runs the decoder graph: a step of rows over fixed buffers, or a pass over a draft of one row."""

import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import onnxruntime as ort

from seqserve_server.contract.errors import ArtifactError
from seqserve_server.engine.packing import Array

_log = logging.getLogger(__name__)

MASKED_LOGIT = np.float32(-1e30)
"""Logit of a suppressed token: below any other, and finite, so that sums with it are numbers."""


KEPT = "kept_"
"""Prefix of the step's input for a table."""


class StepSizes(NamedTuple):
    """Optional outputs of a step; a size of 0 switches one off."""

    biases: int = 0
    """Tokens of each row whose logits are biased, in any step; not an option of the step."""
    top_k: int = 0
    """Top tokens to list of each row."""
    logits: int = 0
    """Logits to return of each row, from token 0 on."""
    allowed_groups: int = 0
    """Groups of allowed tokens whose logits to return; see ``Runtime.allowed_shape``."""
    allowed_rows: int = 1
    """Rows of each of these groups."""
    projects: bool = True
    """Whether rows are projected onto the whole vocabulary. If not, no top tokens may be requested:
    ONNX Runtime 1.23 crashes if it ranks the tokens of zero rows."""
    logprobs: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether next tokens are all that a step computes: it has no options."""
        return self == StepSizes(biases=self.biases)

    @property
    def only_scores(self) -> bool:
        """Whether a step computes only log-probabilities and top tokens in addition."""
        return self == StepSizes(biases=self.biases, top_k=self.top_k, logprobs=True)


SHARED_INPUTS = {"max_length", "max_source_length", "has_options", "only_scores", "return_logprobs"}
"""Inputs that all rows share; the host reads them, on a GPU too."""
_SIZED = {"top_k": "top_k", "num_logits": "logits", "allowed_tokens": "allowed_groups"}
"""Inputs whose length is one of the sizes."""
_ROW_SIZED = {
    "bias_tokens": "biases",
    "bias_values": "biases",
    "top_tokens": "top_k",
    "top_log_probabilities": "top_k",
    "logits": "logits",
}
"""Arrays with one of the sizes for each row, row after row on the first axis of their buffer."""
_PROJECTED = {"projected_rows", "next_tokens", "log_probabilities", *_ROW_SIZED}
"""Arrays of the rows that are projected onto the whole vocabulary."""
_ALLOWED_ROWS, _ALLOWED_LOGITS = "allowed_rows", "allowed_logits"
"""The rows of each group ``[G, M]``, and what the step gives of them, ``[M, G, 64]``."""
_OPTIONAL = {"log_probabilities", _ALLOWED_LOGITS, *_ROW_SIZED} - {"bias_tokens", "bias_values"}
"""Arrays that have no rows if the step is plain."""
_LOGITS = {"logits", _ALLOWED_LOGITS}
"""Arrays that have no rows if the step computes log-probabilities and top tokens alone."""
INPUTS_AND_OUTPUTS = {
    *SHARED_INPUTS,
    *_SIZED,
    *_OPTIONAL,
    *_ROW_SIZED,
    *_PROJECTED,
    _ALLOWED_ROWS,
}
"""Required inputs and outputs of a decoder graph, except its caches."""

_MAX_BINDINGS = 1024


class DecoderStep(Protocol):
    """A decoder step for any number of leading rows."""

    def run(self, rows: int, sizes: StepSizes) -> None:
        """Advances rows 0 to ``rows`` - 1 by one token."""


class Step:
    """A decoder step for any number of leading rows.

    Inputs and outputs are bound to the buffers themselves, so a run copies nothing: keys and values
    are written in place, and the next tokens land where the newest tokens are read.
    """

    def __init__(
        self, session: ort.InferenceSession, inputs: dict[str, Array], outputs: dict[str, Array]
    ) -> None:
        """Keeps a buffer for each input and output; a binding is made when it is first needed."""
        self._session = session
        self._inputs = inputs
        self._outputs = outputs
        # Kept, because a run without options makes its own each time.
        self._options = ort.RunOptions()
        self._bindings: dict[tuple[int, StepSizes], Any] = {}

    def run(self, rows: int, sizes: StepSizes) -> None:
        """Advances rows 0 to ``rows`` - 1 by one token."""
        binding = self._bindings.get((rows, sizes))
        if binding is None:
            if len(self._bindings) >= _MAX_BINDINGS:
                self._bindings.clear()
            binding = self._bindings[rows, sizes] = self._bind(rows, sizes)
        # The public method checks for captured WebGPU graphs at every call before it does this.
        self._session._sess.run_with_iobinding(binding, self._options)

    def _bind(self, rows: int, sizes: StepSizes) -> Any:
        binding = self._session.io_binding()
        for name, array in self._inputs.items():
            shape = shape_of(name, array, rows, sizes)
            binding.bind_input(name, "cpu", 0, array.dtype, shape, array.ctypes.data)
        for name, array in self._outputs.items():
            shape = shape_of(name, array, rows, sizes)
            binding.bind_output(name, "cpu", 0, array.dtype, shape, array.ctypes.data)
        return binding._iobinding


def shape_of(name: str, array: Array, rows: int, sizes: StepSizes) -> list[int]:
    """Returns the shape of the part of a buffer that a step uses."""
    if name in SHARED_INPUTS:
        return list(array.shape)
    if name.startswith(KEPT):
        return [sizes.allowed_groups, *array.shape[1:]]
    if name in _SIZED:
        return [getattr(sizes, _SIZED[name]), *array.shape[1:]]
    if name == _ALLOWED_ROWS:
        return [sizes.allowed_groups, sizes.allowed_rows]
    if name == _ALLOWED_LOGITS:
        allowed_rows = 0 if _is_empty(name, sizes) else sizes.allowed_rows
        return [allowed_rows, sizes.allowed_groups, *array.shape[1:]]
    if _is_empty(name, sizes):
        rows = 0
    if name in _ROW_SIZED:
        return [rows, getattr(sizes, _ROW_SIZED[name]), *array.shape[1:]]
    return [rows, *array.shape[1:]]


def _is_empty(name: str, sizes: StepSizes) -> bool:
    if name in _PROJECTED and not sizes.projects:
        return True
    return name in _OPTIONAL if sizes.is_plain else name in _LOGITS and sizes.only_scores


READ = "read_"
"""Before the name of a cache: the output of its new entries, ``[1, H, R, D]``."""


class DraftReader:
    """Reads drafts for any number of threads.

    Opening the graph takes as long as many steps, so a thread does it; earlier drafts are not read.
    """

    def __init__(self, open_graph: Callable[[], ort.InferenceSession]) -> None:
        self._open_graph = open_graph
        self._session: ort.InferenceSession | None = None
        self._is_opened = threading.Lock()

    def read(self, inputs: dict[str, Array]) -> list[Array] | None:
        """Reads R tokens that follow each other in one target.

        It has the inputs of a step of R rows, but ``self_`` caches have the entries read before,
        ``[1, H, P, D]``, and ``cross_`` and ``last_`` caches one row. Returns the next tokens ``[R,
        1]``, their log-probabilities ``[R]`` if asked for, and new keys and values in the order of
        their caches; None while the graph is not open.
        """
        if self._session is None:
            if self._is_opened.acquire(blocking=False):
                threading.Thread(target=self.open, name="draft-reader", daemon=True).start()
            return None
        caches = [READ + name for name in inputs if name.startswith("self_")]
        names = ["next_tokens", "log_probabilities", *caches]
        return self._session.run(names, inputs)  # type: ignore[no-any-return]

    def open(self) -> None:
        """Opens the graph; if it cannot be opened, drafts are never read."""
        try:
            self._session = self._open_graph()
        except ArtifactError:
            _log.exception("drafts are ignored from now on")
