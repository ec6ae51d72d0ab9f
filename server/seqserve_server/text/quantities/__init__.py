"""Quantities of a text that its translation must have too: numbers, dates, times, codes."""
