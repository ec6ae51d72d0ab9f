"""gRPC: servicers that convert and delegate, interceptors, and one table from error to status."""
