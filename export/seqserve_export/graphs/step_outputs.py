"""The three ends of a decoder step: from its features and logits to what it returns.

Most steps have rows that want their next tokens and nothing else, and most others are of beams,
which want the best tokens and their log-probabilities. Both take an end without the nodes of the
other options, which cost a tenth of a small model's step even where there is nothing to do.
"""

from typing import Any

from torch import Tensor, nn

from seqserve_export import operators
from seqserve_export.graphs import GROUP, project_tokens
from seqserve_model.transformer import Transformer
from seqserve_server.contract.limits import MAX_TOP_K

OUTPUTS = [
    "next_tokens",
    "log_probabilities",
    "top_tokens",
    "top_log_probabilities",
    "logits",
    "allowed_logits",
]
"""The outputs of each end."""


class FullOutputs(nn.Module):
    """Returns all that rows may ask for."""

    def __init__(self, model: Transformer) -> None:
        """Takes the projection to the vocabulary, for the tokens that rows are limited to."""
        super().__init__()
        self.projection, self.bias = model.output_projection, model.logits_bias

    def forward(
        self,
        features: Tensor,
        biased_logits: Tensor,
        return_logprobs: Tensor,
        top_k: Tensor,
        num_logits: Tensor,
        allowed_tokens: Tensor,
    ) -> tuple[Tensor, ...]:
        """Chooses the next tokens of P rows and scores them.

        Args:
            features: Of all rows, ``[B, W]``.
            biased_logits: Of the P projected rows, ``[P, V]``.
            return_logprobs: Whether to compute log-probabilities, bool ``[]``; zeros otherwise.
            top_k: Its length K is the number of top tokens to list, int64 ``[K]``; may be empty.
            num_logits: Its length N: logits to return, from token 0 on, int64 ``[N]``; may be
                empty.
            allowed_tokens: Tokens whose logits alone to return, in groups, int64 ``[G, 64]``; may
                be empty. See :func:`project_tokens`.

        Returns:
            Next token int64 ``[P, 1]``, its log-probability ``[P]``, the top-k tokens int64
            ``[P, K]``, best first, their log-probabilities ``[P, K]``, logits ``[P, N]``, and
            logits of the allowed tokens without biases ``[B, G, 64]``.
        """
        allowed_logits = project_tokens(self.projection, features, allowed_tokens, self.bias)
        maxima = block_maxima(biased_logits)
        tokens = argmax(biased_logits, maxima)  # [P, 1]
        top_tokens = largest(biased_logits, maxima, top_k.size(0))  # [P, K]
        log_probs, top_log_probs = operators.log_softmax_at(
            biased_logits, tokens, top_tokens, return_logprobs
        )
        logits = biased_logits[:, : num_logits.size(0)]
        return tokens, log_probs, top_tokens, top_log_probs, logits, allowed_logits


class ScoredOutputs(nn.Module):
    """Returns the next tokens, top tokens, and their log-probabilities."""

    def forward(self, biased_logits: Tensor, top_k: Tensor) -> tuple[Tensor, ...]:
        """Chooses the next tokens of P rows and scores them; the other outputs are empty.

        Args:
            biased_logits: ``[P, V]``.
            top_k: Its length K is the number of top tokens to list, int64 ``[K]``; may be empty.

        Returns:
            Next token int64 ``[P, 1]``, its log-probability ``[P]``, the top-k tokens int64
            ``[P, K]``, best first, and their log-probabilities ``[P, K]``.
        """
        maxima = block_maxima(biased_logits)
        tokens = argmax(biased_logits, maxima)  # [P, 1]
        top_tokens = largest(biased_logits, maxima, top_k.size(0))  # [P, K]
        logprobs = biased_logits.log_softmax(-1)
        chosen, top = logprobs.gather(1, tokens).squeeze(1), logprobs.gather(1, top_tokens)
        return tokens, chosen, top_tokens, top, *_no_logits(biased_logits)


class PlainOutputs(nn.Module):
    """Returns the next tokens and nothing else."""

    def forward(self, biased_logits: Tensor) -> tuple[Tensor, ...]:
        """Returns the next token of P rows, int64 ``[P, 1]``; the other outputs are empty."""
        tokens = argmax(biased_logits, block_maxima(biased_logits))  # [P, 1]
        return (
            tokens,
            operators.zeros(biased_logits, 0),
            operators.zeros(tokens, 0, 0),
            operators.zeros(biased_logits, 0, 0),
            *_no_logits(biased_logits),
        )


def _no_logits(like: Tensor) -> tuple[Tensor, Tensor]:
    return operators.zeros(like, 0, 0), operators.zeros(like, 0, 0, GROUP)


def block_size(vocabulary_size: int) -> int:
    """Chooses the entries of a block: the divisor of the vocabulary's size nearest to 64.

    At most so many that there are as many blocks as tokens may be listed.
    """
    largest = min(vocabulary_size // MAX_TOP_K, 512)
    divisors = [size for size in range(1, largest + 1) if vocabulary_size % size == 0]
    return min(divisors, key=lambda size: abs(size - 64), default=1)


def block_maxima(logits: Tensor) -> Tensor:
    """Finds the largest logit of each block, ``[B, V]`` to ``[B, N]``."""
    size = logits.size(-1)
    # Axes are counted from the first: from the last, ONNX Runtime fails on zero rows.
    return _blocks(logits, size // block_size(size)).amax(2)


def argmax(logits: Tensor, maxima: Tensor) -> Tensor:
    """Finds the first index of each row's largest logit, ``[B, 1]``.

    Args:
        logits: ``[B, V]``.
        maxima: Of the blocks, ``[B, N]``.
    """
    best = maxima.argmax(1, keepdim=True)  # [B, 1]
    blocks = _blocks(logits, maxima.size(1))
    shape = (logits.size(0), blocks.size(2))
    within = operators.gather_blocks(blocks, best, shape)  # [B, S]
    return best * blocks.size(2) + within.argmax(1, keepdim=True)


def largest(logits: Tensor, maxima: Tensor, count: Any) -> Tensor:
    """Finds the indices of each row's largest logits, the largest first, ``[B, K]``.

    Equal values keep their order, as in an operator over whole rows.

    Args:
        logits: ``[B, V]``.
        maxima: Of the blocks, ``[B, N]``.
        count: K, at most ``MAX_TOP_K`` and V; known at run time.
    """
    if maxima.size(1) < MAX_TOP_K:
        return logits.topk(count)[1]
    blocks = _blocks(logits, maxima.size(1))
    best = maxima.topk(count)[1].topk(count, largest=False)[0]  # [B, K], rising
    size = blocks.size(2)
    shape = (logits.size(0), count, size)
    within = operators.gather_blocks(blocks, best[..., None], shape)
    index = within.reshape(logits.size(0), count * size).topk(count)[1]  # [B, K]
    number = operators.quotient(index, size)  # of its block among the best
    return index + (best.gather(1, number) - number) * size


def _blocks(logits: Tensor, number: int) -> Tensor:
    """Divides each row into N blocks, ``[B, V]`` to ``[B, N, S]``."""
    return logits.view(-1, number, logits.size(-1) // number)
