"""CUDA graphs that ONNX Runtime records of runs, and plays back."""

from __future__ import annotations

import itertools
from typing import Any

import onnxruntime as ort

from seqserve_server.engine.gpu.device import Device

NOT_RECORDED = "-1"
_GRAPH_ID = "gpu_graph_id"
"""Source: ONNX Runtime, onnxruntime_run_options_config_keys.h."""
_IDS = itertools.count(1)
"""Of CUDA graphs. Runs over other buffers are of the same sessions, so no id comes twice."""


def run_options(graph_id: str | None = None) -> ort.RunOptions:
    """Makes options of a run that returns when all its work is queued.

    Args:
        graph_id: Of the CUDA graph that it records or plays back, or :data:`NOT_RECORDED`; None
            where the session records nothing.
    """
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    if graph_id is not None:
        options.add_run_config_entry(_GRAPH_ID, graph_id)
    return options


def recorded(session: ort.InferenceSession, binding: Any, device: Device) -> ort.RunOptions:
    """Records a run, which is run several times for that; returns the options that play it back.

    Raises:
        Exception: It could not be recorded; :meth:`Device.end_recording` must follow.
    """
    options = run_options(str(next(_IDS)))
    with device.recording:
        session.run_with_iobinding(binding, options)
    return options
