"""Reads and checks the options and texts of a request."""
