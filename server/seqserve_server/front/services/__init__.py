"""The gRPC services and the server that runs them."""
