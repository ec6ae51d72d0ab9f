"""The three graphs of an artifact, as modules around the one transformer they are exported from.

======= ==================================== ===================================================
graph   in                                   out
======= ==================================== ===================================================
encoder source tokens, one source after the  cross K/V of each decoder layer
        other
decoder last tokens, lengths, caches or      next tokens, their log-probabilities, the top-k
        states of the target                 tokens, logits of all or of some tokens, caches with
                                             one more entry or new states
scorer  a source and a known target          log-probability of each target token, attention
                                             weights of every layer
======= ==================================== ===================================================

Nothing of the network is defined here: layers, norms and feed-forward are the transformer's own.
Only its attentions are replaced by operators of ONNX Runtime.
"""
