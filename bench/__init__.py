"""Comparisons with other engines on the same weights, in one run: drivers by scenarios."""
