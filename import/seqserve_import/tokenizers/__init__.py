"""Tokenizers of checkpoints, each kind turned into a ``tokenizer.json``."""
