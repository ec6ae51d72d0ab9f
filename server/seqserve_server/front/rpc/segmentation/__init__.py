"""Divides a text into segments, and joins their answers: :mod:`.document` first."""
