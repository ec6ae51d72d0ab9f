"""Differences between tasks and threads: the only part of the client that is written twice."""
