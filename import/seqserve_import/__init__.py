"""Imports Hugging Face checkpoints: weights, tokenizers and what generation needs."""
