"""The artifact of a model: its manifest and files."""
