"""Lexical shortlists: made from parallel text, proved, and added to an artifact."""
