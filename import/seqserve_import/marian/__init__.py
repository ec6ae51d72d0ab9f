"""Reads models of Marian and of Bergamot, its descendant in Firefox, from their own files."""
