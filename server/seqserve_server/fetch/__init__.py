"""The command ``seqserve models fetch``: brings artifacts into a model repository."""
