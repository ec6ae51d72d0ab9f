"""The process that runs a model: queue, decoding, caches, ONNX Runtime."""

import os

# ONNX Runtime sends telemetry unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
