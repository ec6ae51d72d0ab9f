"""This project's engine as a driver: in this process, without gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.drivers import Driver, Rows, TextDriver
from seqserve.processes import available_cores
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.local_engine import LocalEngine


class SeqserveDriver(Driver[list[int]]):
    """The engine with workers of one thread."""

    def __init__(
        self, folder: Path, rows: int, options: DecodingOptions, workers: int | None = None
    ) -> None:
        """Loads an artifact; ``rows`` sources may run at once in each worker, one on each core."""
        workers = workers or available_cores()
        # The other engines compute no scores unless they are asked to.
        self._options = replace(options, return_scores=False)
        self._engine = LocalEngine(folder, workers=workers, slots=rows * options.rows * workers)
        manifest = self._engine.manifest
        has_shortlist = manifest.shortlist is not None and options.shortlist
        self.name = f"seqserve {manifest.precision}" + " with shortlist" * has_shortlist

    def decode(self, sources: Sequence[list[int]]) -> Rows:
        """Lets all sources wait; rows join as others leave."""
        return [answer.best.token_ids for answer in self._engine.decode(sources, self._options)]

    def of_texts(self) -> TextDriver[list[int]]:
        """Returns the driver behind the tokenizer of its artifact."""
        return TextDriver(self, self._engine.encode, self._engine.tokenizer.decode)

    def close(self) -> None:
        """Stops the workers."""
        self._engine.close()
