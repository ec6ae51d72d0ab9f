"""The process that takes calls: gRPC, models and versions, telemetry, security."""
