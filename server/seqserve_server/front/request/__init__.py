"""Reads requests: options, languages, texts; raises InvalidRequest that names the bad field."""
