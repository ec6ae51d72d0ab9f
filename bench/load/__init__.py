"""Load over gRPC and its latencies: open and closed loops, free of coordinated omission.

Stands by itself: it needs grpc and the stubs of the client, no torch and no server.
"""
