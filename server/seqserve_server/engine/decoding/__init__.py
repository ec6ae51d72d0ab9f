"""Chooses the next token of every running row: greedy, sampling or beam search."""
