"""Runs prepared requests on the engine and writes their answers."""
