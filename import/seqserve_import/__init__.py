"""Turns checkpoints of Hugging Face and of Marian into artifacts that a server can load."""
