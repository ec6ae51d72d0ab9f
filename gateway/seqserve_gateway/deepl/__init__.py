"""The HTTP API of DeepL, for its clients."""
