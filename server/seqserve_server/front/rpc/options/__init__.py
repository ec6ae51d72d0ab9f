"""Reads and checks options and texts; raises InvalidRequest that names the bad field."""
