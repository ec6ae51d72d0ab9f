"""The model: the transformer of "Attention Is All You Need", its data, training and evaluation.

Shapes are written in one alphabet everywhere: B batch, S source length, T target length,
Q and K lengths of queries and keys, H heads, D size of a head, W width of the model (W = H·D),
F width of the feed-forward layer, V tokens of the vocabulary, L layers.
"""
