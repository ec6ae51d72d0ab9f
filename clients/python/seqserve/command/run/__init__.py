"""One run over a document: what reads it, remembers its answers, and writes them in order."""
