"""Logits of some tokens equal those of the whole vocabulary, bit for bit, on the real kernels."""

from collections.abc import Callable

import numpy as np
import onnxruntime as ort
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxscript import ir
from torch import Tensor, nn

from seqserve_export.graphs import GROUP, project_tokens
from seqserve_export.options import Scales
from seqserve_export.program import Input, Program
from seqserve_export.quantization import QuantizedLinear, Range
from seqserve_export.tracing import trace

# Wider than what is added up at once, in no whole number of parts, and more tokens than a request
# can allow.
WIDTH, VOCABULARY_SIZE, ROWS = 600, 4500, 40
MOST_THREADS = 4

Project = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class Both(nn.Module):
    """Projects onto some tokens, and some rows onto all."""

    def __init__(self, projection: nn.Linear | QuantizedLinear, bias: Tensor | None) -> None:
        super().__init__()
        self.projection = projection
        self.register_buffer("bias", bias)
        self.bias: Tensor | None

    def forward(self, x: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        some, logits = project_tokens(self.projection, x, tokens, self.bias), self.projection(x)
        return some, logits if self.bias is None else logits + self.bias


@pytest.fixture(
    scope="module",
    params=["fp32", "biased", "static", pytest.param("row", marks=pytest.mark.parity)],
)
def model(request: pytest.FixtureRequest) -> bytes:
    """The graph of :class:`Both`."""
    torch.manual_seed(3)
    linear = nn.Linear(WIDTH, VOCABULARY_SIZE, bias=False).requires_grad_(False)
    projection: nn.Linear | QuantizedLinear = linear
    bias = torch.randn(VOCABULARY_SIZE) if request.param == "biased" else None
    if request.param in ("static", "row"):
        projection = QuantizedLinear.of(linear, Range(-3.0, 3.0), Scales(request.param))
    program = Program(
        module=Both(projection, bias),
        inputs=[
            Input("x", torch.zeros(2, WIDTH), (0,)),
            Input("tokens", torch.zeros(3, GROUP, dtype=torch.int64), (0,)),
        ],
        outputs=["some", "all"],
    )
    return ir.serde.serialize_model(trace(program)).SerializeToString()


def opened(model: bytes, threads: int) -> Project:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def project(x: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        groups = max(-(-len(tokens) // GROUP), threads) if len(tokens) else 0
        laid = np.resize(tokens, (groups, GROUP)) if groups else np.zeros((0, GROUP), np.int64)
        some, whole = session.run(None, {"x": x, "tokens": laid})
        return some.reshape(len(x), -1)[:, : len(tokens)], whole

    return project


@pytest.fixture(scope="module")
def project(model: bytes) -> Project:
    return opened(model, 1)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(5).normal(size=(ROWS, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def scores(project: Project, rows: np.ndarray) -> np.ndarray:
    """Of all tokens, all rows together."""
    return project(rows, np.zeros(0, np.int64))[1]


def drawn(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(VOCABULARY_SIZE)[:count]


@settings(max_examples=30, deadline=None)
@given(
    count=st.integers(1, 4096) | st.integers(1, 2 * GROUP),
    chosen=st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=ROWS, unique=True),
    seed=st.integers(0, 2**32),
)
def test_scores_depend_neither_on_other_tokens_nor_on_other_rows(
    project: Project, rows: np.ndarray, scores: np.ndarray, count: int, chosen: list[int], seed: int
) -> None:
    tokens = drawn(seed, count)
    some, whole = project(rows[chosen], tokens)
    np.testing.assert_array_equal(some, scores[chosen][:, tokens])
    np.testing.assert_array_equal(whole, scores[chosen])


@pytest.mark.parametrize("threads", [2, MOST_THREADS])
def test_threads_change_nothing(
    model: bytes, rows: np.ndarray, scores: np.ndarray, threads: int
) -> None:
    project = opened(model, threads)
    for count in (1, GROUP, 3 * GROUP, 1000):
        tokens = drawn(count, count)
        for chosen in (slice(1), slice(7), slice(None)):
            some, _ = project(rows[chosen], tokens)
            np.testing.assert_array_equal(some, scores[chosen][:, tokens])


def test_one_word_may_be_asked_for_often(
    project: Project, rows: np.ndarray, scores: np.ndarray
) -> None:
    tokens = np.array([7, 7, VOCABULARY_SIZE - 1, 0, 7])
    some, _ = project(rows, tokens)
    np.testing.assert_array_equal(some, scores[:, tokens])


def test_no_tokens_give_no_scores(project: Project, rows: np.ndarray) -> None:
    some, _ = project(rows, np.zeros(0, np.int64))
    assert some.shape == (ROWS, 0)
