"""The heart: requests join and leave a running batch at every step. It knows nothing of gRPC."""
