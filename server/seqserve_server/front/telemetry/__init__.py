"""Metrics, traces, and the HTTP port they are read from."""
