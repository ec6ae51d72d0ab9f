"""The same engine on a GPU: weights, keys and values lie there, and steps are CUDA graphs."""
