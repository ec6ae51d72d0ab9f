"""SSRU, the simpler simple recurrent unit: a decoder's past in one vector instead of a cache.

A gate decides, for each channel, how much of the past stays and how much of the new token enters::

    f_t = sigmoid(x_t·Wf + bf)
    c_t = f_t·c_{t-1} + (1 - f_t)·(x_t·W)
    y_t = relu(c_t)

Source: Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine
Translation"; Bogoychev et al. 2020, "Edinburgh's Submissions to the 2020 Machine Translation
Efficiency Task".
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SSRU(nn.Module):
    """Reads a target from left to right, in place of the decoder's self-attention."""

    def __init__(self, width: int, max_length: int) -> None:
        """Makes both projections.

        Args:
            width: W, of input, state and output.
            max_length: Tokens that an exported graph can read at once.
        """
        super().__init__()
        self.max_length = max_length
        self.input = nn.Linear(width, width, bias=False)
        self.forget = nn.Linear(width, width)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Reads tokens ``x [B, T, W]`` after ``state [B, W]``.

        Returns:
            Outputs ``[B, T, W]``, and the state ``[B, W]`` after the last token.
        """
        forget = self.forget(x).sigmoid()
        # A graph has as many rounds whatever the length of its input.
        length = self.max_length if torch.compiler.is_exporting() else x.size(1)
        kept, states = scan(forget, (1 - forget) * self.input(x), length)
        states = states + kept * state[:, None]
        return states.relu(), states[:, -1]


def step(candidate: Tensor, forget: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Reads one token, given both of its projections, each ``[.., W]`` like the state.

    Returns:
        The output and the new state, ``[.., W]`` each.
    """
    state = candidate + forget.sigmoid() * (state - candidate)
    return state.relu(), state


def scan(kept: Tensor, added: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Solves c_t = kept_t·c_{t-1} + added_t from c_0 = 0, for all t at once; ``[B, T, W]`` each.

    Each round joins every token with the result that ends ``reach`` tokens earlier, and doubles the
    reach. Without divisions, the result is as exact as a loop over tokens.

    Source: Hillis and Steele 1986, "Data Parallel Algorithms"; Blelloch 1990, "Prefix Sums and
    Their Applications", §1.4, for recurrences of first order.

    Args:
        length: At least T.

    Returns:
        kept_1·…·kept_t and c_t, for each t; ``[B, T, W]`` each.
    """
    reach = 1
    while reach < length:
        added = added + kept * _earlier(added, reach, 0.0)
        kept = kept * _earlier(kept, reach, 1.0)
        reach *= 2
    return kept, added


def _earlier(x: Tensor, reach: int, before: float) -> Tensor:
    """Moves ``x [B, T, W]`` by some tokens to the right; ``before`` comes in from the left."""
    return F.pad(x, (0, 0, reach, 0), value=before)[:, : x.size(1)]
