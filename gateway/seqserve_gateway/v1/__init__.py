"""The messages of ``seqserve.v1`` as JSON."""
