"""Opens the graph that reads drafts when the first one comes, and runs it."""

import logging
import threading
from collections.abc import Callable

import onnxruntime as ort

from seqserve_server.contract.errors import ArtifactError
from seqserve_server.engine.packing import Array

_log = logging.getLogger(__name__)

READ = "read_"
"""Before the name of a cache: the output of its new entries, ``[1, H, R, D]``."""


class DraftReader:
    """Reads drafts for any number of threads.

    The graph has its own packed weights, which most models never need. Opening it takes as long as
    many steps, so a thread does it; drafts that arrive earlier are not read.
    """

    def __init__(self, open_graph: Callable[[], ort.InferenceSession]) -> None:
        self._open_graph = open_graph
        self._session: ort.InferenceSession | None = None
        self._is_opened = threading.Lock()

    def read(self, inputs: dict[str, Array]) -> list[Array] | None:
        """Reads R tokens that follow each other in one target.

        It has the inputs of a step of R rows, but ``self_`` caches have the entries read before,
        ``[1, H, P, D]``, and ``cross_`` and ``last_`` caches one row.

        Returns:
            The next tokens ``[R, 1]``, their log-probabilities ``[R]``, or ``[0]`` unless asked
            for, and new keys and values in the order of their caches. None while the graph is not
            open.
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
