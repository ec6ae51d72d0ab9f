"""Load and its latencies: open and closed loops over gRPC and HTTP, free of coordinated omission.

A time starts when a request is due, not when it is sent. Otherwise the wait of a request that a
slow server delays would be missing.
"""
