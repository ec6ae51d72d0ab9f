"""Tokenizers of checkpoints, written as one ``tokenizer.json`` each."""
