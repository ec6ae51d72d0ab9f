"""The proof: a checkpoint becomes an artifact only if both give the same answers."""
