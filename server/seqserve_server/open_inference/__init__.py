"""The Open Inference Protocol v2, on the same engines as ``seqserve.v1``."""
