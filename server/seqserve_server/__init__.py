"""The service: models from a repository, run by ONNX Runtime, called over gRPC; never torch."""
