"""How calls reach a server: transports over gRPC, and errors from its statuses."""
