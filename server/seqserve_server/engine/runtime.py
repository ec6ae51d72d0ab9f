"""A loaded model: its ONNX Runtime sessions on one execution provider.

One :class:`Runtime` holds the sessions of a model, and so its weights, once. Any number of threads
may run them at the same time: ``Run`` releases the interpreter lock and keeps no state.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from seqserve_server.artifact.files import check_file
from seqserve_server.artifact.manifest import (
    CANDIDATES,
    DECODER,
    DRAFT,
    ENCODER,
    SCORER,
    WEIGHTS,
    Manifest,
    is_small,
)
from seqserve_server.contract.errors import ArtifactError, NoScorer
from seqserve_server.contract.limits import Provider
from seqserve_server.engine import shortlist
from seqserve_server.engine.candidate_step import Table
from seqserve_server.engine.decoder_state import (
    CrossAttentionCache,
    TargetState,
    allocate_state,
)
from seqserve_server.engine.graph_messages import check_references
from seqserve_server.engine.packing import Array, CrossKV, EncodingLimits, pack, starts_of
from seqserve_server.engine.session import check_provider, check_version, open_session
from seqserve_server.engine.shortlist import Shortlist
from seqserve_server.engine.step import INPUTS_AND_OUTPUTS, KEPT, DecoderStep, DraftReader, Step

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(int32)": np.int32,
}

# Sources of so many tokens together, about sixteen, use a CPU as well as larger groups do. Fewer
# groups also drive the decoder's weights out of the CPU's cache less often.
_GROUP_TOKENS = 192

# A CPU's cache holds the weights of a smaller model, until a source is encoded: the next four steps
# take longer, together about as long as one more step.
_CACHED_BYTES = 24 << 20

# The steps of a smaller model find its weights in the CPU's cache, and a pass over a draft, whose
# graph has its own copies, takes about as long as the steps that it saves.
_MIN_DRAFTED_BYTES = 48 << 20


def doubling(largest: int) -> list[int]:
    """Lists the sizes 1, 2, 4, .. below ``largest``, and ``largest``."""
    return [*(2**power for power in range((largest - 1).bit_length())), largest]


class Runtime:
    """A loaded model."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        provider: Provider,
        threads: int,
        *,
        packs: bool = True,
    ) -> None:
        """Opens the graphs of an artifact; ``packs`` is explained in :func:`open_session`.

        Raises ProviderError if the provider is not available here, and ArtifactError if ONNX
        Runtime is too old or refuses a graph, or if a graph is too old.
        """
        self.manifest = manifest
        self.provider = provider
        self._folder = folder
        self._threads = threads
        self._packs = packs
        check_provider(provider)
        check_version(folder, manifest)
        for name in manifest.files:
            if name.endswith(".onnx"):
                check_references(folder / name, manifest.files)
        self._encoder = self._open(ENCODER)
        self._decoder = self._open(DECODER)
        self._group = self._check_steps()
        self.candidate_tables = [
            Table(entry.name, tuple(entry.shape[1:]), np.dtype(_TYPES[entry.type]))
            for entry in self._decoder.get_inputs()
            if entry.name.startswith(KEPT)
        ]
        """Inputs of steps for each candidate; empty if steps gather them themselves."""
        self._candidates = self._open(CANDIDATES) if self.candidate_tables else None
        size = manifest.architecture.vocabulary_size
        has_shortlist = shortlist.FILE in manifest.files
        self.shortlist = Shortlist.read(folder / shortlist.FILE, size) if has_shortlist else None
        """The tokens that translate each source token; None where a model has no such list."""
        # A large model opens it when it is first needed: it takes a quarter of the memory of all
        # graphs, and most models never score.
        opens_scorer = self.can_score and is_small(folder)
        self._scorer = self._open(SCORER) if opens_scorer else None
        self._scorer_lock = threading.Lock()
        self.draft_reader = self._draft_reader()
        """Reads drafts; None where steps are as fast, or where it could change an answer."""

    def encode(self, sources: Sequence[Sequence[int]]) -> CrossKV:
        """Encodes sources of any lengths together, the end token last in each."""
        # Of the key and of the value of each layer in turn: all tokens, and the last ones.
        outputs = self._encoder.run(None, pack(sources))
        return CrossKV(outputs[::2], outputs[1::2], starts_of(sources))

    @property
    def cache_type(self) -> np.dtype[Any]:
        """The type of cached keys and values."""
        types = {entry.name: entry.type for entry in self._decoder.get_inputs()}
        return np.dtype(_TYPES[types["cross_key_0"]])

    def allowed_shape(self, tokens: int) -> tuple[int, int]:
        """Returns the shape ``[G, 64]`` in which a step takes a number of allowed tokens.

        It has room for up to a ninth more, so that few shapes are bound. Threads share no group:
        that would change the order in which numbers are added up.
        """
        groups = -(-tokens // self._group)
        # Four binary digits, then zeros.
        unit = 1 << max(groups.bit_length() - 4, 0)
        groups = -(-groups // unit) * unit
        return max(groups, self._threads) if groups else 0, self._group

    def candidate_weights(self, tokens: Array) -> list[Array]:
        """Gathers each table's weights of groups of candidates, int64 ``[G, 64]``."""
        if self._candidates is None:
            return []
        return self._candidates.run(None, {"allowed_tokens": tokens})  # type: ignore[no-any-return]

    def step(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> DecoderStep:
        """Makes a step over the buffers given; see :class:`Step`."""
        return Step(self._decoder, inputs, outputs)

    def decoder_state(self, slots: int) -> tuple[TargetState, CrossAttentionCache]:
        """Allocates what the decoder's layers keep of a number of slots."""
        return allocate_state(self.manifest, slots, self.cache_type)

    def warm_up_steps(self, slots: int) -> list[tuple[int, bool]]:
        """Lists the steps to run beforehand: their rows, and whether with log-probabilities."""
        return [(rows, True) for rows in doubling(slots)]

    def step_rows(self, rows: int, slots: int) -> int:
        """Returns over how many rows a step of some of the slots runs."""
        return rows

    def warm_up(self) -> None:
        """Prepares the encoder; called in the thread that will encode, before the first request."""

    def use_idle_time(self) -> None:
        """Prepares steps that may come; called in the thread of a worker that has no row."""

    def encoding_limits(self, budget_tokens: int) -> EncodingLimits:
        """Says how many sources are encoded together, for a budget between two steps."""
        limits = EncodingLimits(budget_tokens, min(budget_tokens, _GROUP_TOKENS))
        if self.manifest.files[WEIGHTS].bytes > _CACHED_BYTES:
            return limits
        return limits._replace(group_sources=16, rows_for_a_step=4)

    def gpu_memory(self) -> tuple[int, int]:
        """Returns the bytes in use, and all bytes, of the memory of its GPU; 0 if it has none."""
        return 0, 0

    @property
    def unrecorded_steps(self) -> int:
        """Sizes of steps that a GPU could not record; their steps take longer."""
        return 0

    def is_usable(self) -> bool:
        """Tells, after a failure, whether other steps may still succeed."""
        return True

    @property
    def can_score(self) -> bool:
        """Whether the artifact has a scorer graph; it generates without one too."""
        return self.manifest.can_score

    @property
    def has_open_scorer(self) -> bool:
        """Whether the scorer graph takes memory already."""
        return self._scorer is not None

    def score(
        self, source: Array, lengths: Array, target: Array, outputs: list[str]
    ) -> list[Array]:
        """Runs given targets through the scorer graph (forced decoding).

        ``source`` is int64 ``[B, S]``, ``lengths`` int32 ``[B]``, ``target`` int64 ``[B, T + 1]``
        with the begin token first. Outputs are ``log_probabilities`` ``[B, T]``,
        ``encoder_attention`` ``[L, B, H, S, S]``, ``decoder_attention`` ``[L, B, H, T, T]`` (no
        layers where the decoder is recurrent) and ``cross_attention`` ``[L, B, H, T, S]``. Raises
        NoScorer without such a graph, and ArtifactError if files that are opened now have changed.
        """
        if not self.can_score:
            raise NoScorer(self.manifest.label)
        with self._scorer_lock:
            if self._scorer is None:
                self._check_again(SCORER)
                # All tokens of a target share one run, so packed weights gain little.
                self._scorer = self._open(SCORER, packs=False)
        inputs = {"source": source, "source_lengths": lengths, "target": target}
        return self._scorer.run(outputs, inputs)  # type: ignore[no-any-return]

    def free_scratch(self) -> None:
        """Releases the memory that ONNX Runtime keeps from runs of the scorer graph.

        It does so at the end of a run: memory.enable_memory_arena_shrinkage.
        """
        if self._scorer is None:
            return
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        end = np.full((1, 1), self.manifest.tokens.eos)
        inputs = {
            "source": end,
            "source_lengths": np.ones(1, np.int32),
            "target": end.repeat(2, axis=1),
        }
        self._scorer.run(["log_probabilities"], inputs, options)

    def _check_steps(self) -> int:
        """Refuses a decoder graph that lacks an input or output; gives its group size."""
        entries = (*self._decoder.get_inputs(), *self._decoder.get_outputs())
        shapes = {entry.name: entry.shape for entry in entries}
        past = "cell_0" if self.manifest.architecture.cell_width else "self_key_0"
        missing = {*INPUTS_AND_OUTPUTS, past} - shapes.keys()
        if missing:
            raise ArtifactError(
                f"{self._folder / DECODER}: has no {', '.join(sorted(missing))}; an older"
                " release wrote it: export the model again"
            )
        return int(shapes["allowed_tokens"][1])

    def _draft_reader(self) -> DraftReader | None:
        files = self.manifest.files
        if DRAFT not in files or files[WEIGHTS].bytes < _MIN_DRAFTED_BYTES:
            return None

        def opened() -> ort.InferenceSession:
            self._check_again(DRAFT)
            return self._open(DRAFT)

        return DraftReader(opened)

    def _check_again(self, name: str) -> None:
        """Checks a graph that is opened late: its file may have changed since the start."""
        for each in (name, WEIGHTS):
            check_file(self._folder / each, self.manifest.files[each])

    def _open(self, name: str, *, packs: bool | None = None) -> ort.InferenceSession:
        packs = self._packs if packs is None else packs
        place = (self._folder, name, self.manifest, self.provider, self._threads)
        return open_session(*place, packs=packs)
