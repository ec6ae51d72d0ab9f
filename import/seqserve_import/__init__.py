"""Turns checkpoints of Hugging Face into artifacts that a server can load."""
