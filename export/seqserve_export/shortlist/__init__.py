"""Lexical shortlists: learned from parallel text, proved, and attached to an artifact."""
