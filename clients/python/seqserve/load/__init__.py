"""Load and its latencies: open and closed loops over gRPC and HTTP, free of coordinated omission.

A time counts from the moment at which a request was due, not from its sending: the wait of a
request that a slow server kept from being sent would be missing otherwise.
"""
