"""A decoder step beside the limits of the machine, and its operators by time.

A step must read every weight of its products once and do two operations for each weight and row.
The limits are measured in the same run: how fast memory of the size of these weights is read, and
how fast ONNX Runtime multiplies matrices of the model's widest shape. One row is limited by bytes,
many rows by operations.

Source of the model: Williams, Waterman and Patterson 2009, "Roofline".
"""

from __future__ import annotations

import collections
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
from onnx import helper, numpy_helper

from bench.tables import Table
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.limits import Provider
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.runtime import Runtime

_PRODUCTS = {"Gemm": 1, "MatMul": 1, "MatMulIntegerToFloat": 1}
"""Operators that read a weight, and which of their inputs it is."""
_PRODUCT = """
<ir_version: 10, opset_import: ["": 21]>
product (float[rows, width] x) => (float[rows, outputs] y) { y = MatMul(x, weight) }
"""
_INTEGER_PRODUCT = """
<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
product (uint8[rows, width] x) => (float[rows, outputs] y)
<float one = {1.0}, uint8 zero = {128}>
{ y = com.microsoft.MatMulIntegerToFloat(x, weight, one, one, zero) }
"""
_SOURCE_LENGTH, _TARGET_LENGTH = 16, 32
_REPEATS = 40
_PEAK_ROWS = 384  # a multiple of every kernel's block of rows


@dataclass(frozen=True, slots=True)
class Work:
    """What the products of a step are made of."""

    weights: int
    """Numbers that are read, each multiplied once for every row."""
    bytes: int

    @classmethod
    def of(cls, folder: Path) -> Work:
        """Counts the weights that the decoder graph multiplies with."""
        graph = onnx.load(str(folder / "decoder.onnx"), load_external_data=False).graph
        tensors = {entry.name: entry for entry in graph.initializer}
        # An int8 weight comes through a Transpose, which is done when the graph is loaded.
        origin = {
            node.output[0]: node.input[0] for node in graph.node if node.op_type == "Transpose"
        }
        work = cls(0, 0)
        for node in graph.node:
            if node.op_type in _PRODUCTS:
                name = node.input[_PRODUCTS[node.op_type]]
                tensor = tensors.get(origin.get(name, name))
                if tensor is not None:
                    size = int(np.prod(tensor.dims))
                    width = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
                    work = cls(work.weights + size, work.bytes + size * width)
        return work


def times_s(run: Callable[[], object], repeats: int = _REPEATS) -> list[float]:
    """Measures several runs, after one that warms up."""
    run()
    times = []
    for _ in range(repeats):
        began_s = time.perf_counter()
        run()
        times.append(time.perf_counter() - began_s)
    return times


def read_bandwidth(size: int) -> float:
    """Measures how fast one core reads memory that is ``size`` bytes large, in bytes a second."""
    array = np.ones(max(size // 8, 1), np.int64)
    return array.nbytes / min(times_s(array.max))


def product_peak(width: int, vocabulary_size: int, *, integers: bool) -> float:
    """Measures how many operations a second one thread of ONNX Runtime does in one wide product."""
    draw = np.random.default_rng(0)
    kinds = (np.int8, np.uint8) if integers else (np.float32, np.float32)
    weight = draw.integers(-64, 64, (width, vocabulary_size)).astype(kinds[0])
    x = draw.integers(0, 255, (_PEAK_ROWS, width)).astype(kinds[1])
    model = onnx.parser.parse_model(_INTEGER_PRODUCT if integers else _PRODUCT)
    model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    # The longer runs were disturbed by something else.
    elapsed_s = min(times_s(lambda: session.run_with_iobinding(binding), _REPEATS // 2))
    return 2 * _PEAK_ROWS * width * vocabulary_size / elapsed_s


class Steps:
    """Steps of a number of rows, from the begin of their targets to their end and again."""

    def __init__(self, runtime: Runtime, rows: int) -> None:
        """Encodes a source for each row."""
        self._rows = rows
        self._cache = SlotCache(runtime, rows)
        vocabulary_size = runtime.manifest.architecture.vocabulary_size
        draw = np.random.default_rng(0)
        self._memory = runtime.encode(
            draw.integers(4, vocabulary_size, (rows, _SOURCE_LENGTH)).tolist()
        )
        self._left = 0

    def run(self) -> None:
        """Runs the next step."""
        if not self._left:
            for row in range(self._rows):
                self._cache.join(row, self._memory, row)
            self._left = _TARGET_LENGTH
        self._cache.advance(self._rows, return_logprobs=False)
        self._left -= 1


def measure(folder: Path, rows: list[int]) -> dict[str, Any]:
    """Compares the steps of an artifact with the machine's limits.

    Returns:
        Limits, and for each number of rows its time, its shares and its time by operator.
    """
    manifest, work = Manifest.load(folder), Work.of(folder)
    shape, integers = manifest.architecture, manifest.precision == "int8"
    width = shape.heads * shape.head_size
    bandwidth = read_bandwidth(work.bytes)
    peak = product_peak(width, 4 * width, integers=integers)
    runtime = Runtime(folder, manifest, Provider.CPU, threads=1)
    points = []
    for count in rows:
        step_s = statistics.median(times_s(Steps(runtime, count).run, 4 * _REPEATS)[_REPEATS:])
        bytes_s, products_s = work.bytes / bandwidth, 2 * work.weights * count / peak
        points.append(
            {
                "rows": count,
                "step_us": 1e6 * step_s,
                "bytes_us": 1e6 * bytes_s,
                "operations_us": 1e6 * products_s,
                "share": max(bytes_s, products_s) / step_s,
                "operators": _profile(folder, manifest, count),
            }
        )
    return {
        "model": manifest.label,
        "precision": manifest.precision,
        "weight_bytes": work.bytes,
        "bandwidth_gb_s": bandwidth / 1e9,
        "peak_gop_s": peak / 1e9,
        "points": points,
    }


def _profile(folder: Path, manifest: Manifest, rows: int) -> dict[str, float]:
    """Returns each kind of operator's share of the kernels' time, by ONNX Runtime's profiler."""
    with tempfile.TemporaryDirectory() as place:
        runtime = Runtime(folder, manifest, Provider.CPU, threads=1, profile=Path(place) / "step")
        steps = Steps(runtime, rows)
        for _ in range(_REPEATS):
            steps.run()
        events = json.loads(runtime.end_profile().read_text(encoding="utf-8"))
    total: collections.Counter[str] = collections.Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            total[event["args"]["op_name"]] += event["dur"]
    return {name: spent / total.total() for name, spent in total.most_common()}


def tables(report: list[dict[str, Any]]) -> list[Table]:
    """Lays out what :func:`measure` returned of several artifacts."""
    return [_table(artifact) for artifact in report]


def _table(report: dict[str, Any]) -> Table:
    rows = []
    for point in report["points"]:
        top = list(point["operators"].items())[:6]
        rows.append(
            [
                str(point["rows"]),
                *(f"{point[name]:,.0f}" for name in ("step_us", "bytes_us", "operations_us")),
                f"{point['share']:.0%}",
                ", ".join(f"{name} {share:.0%}" for name, share in top),
            ]
        )
    head = ["us a step", "bytes alone", "products alone", "of the roofline", "operators by time"]
    return Table(
        [f"{report['model']}, {report['precision']}; rows", *head],
        rows,
        f"A step reads {report['weight_bytes'] / 1e6:.1f} MB of weights; at best the machine reads"
        f" {report['bandwidth_gb_s']:.0f} GB/s and does {report['peak_gop_s']:.0f} GOP/s.",
    )
