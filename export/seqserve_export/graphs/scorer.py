"""The scorer graph: log-probabilities and attention of a known target, in one pass."""

import torch
from torch import Tensor, nn

from seqserve_model.transformer import AttentionRecord, Transformer


class ScorerGraph(nn.Module):
    """Scores known targets by forced decoding."""

    def __init__(self, model: Transformer) -> None:
        """Takes the model as it is: its own attentions return the weights."""
        super().__init__()
        self.model = model

    def forward(
        self, source: Tensor, source_lengths: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Scores targets of sources ``[B, S]``, whose lengths are int32 ``[B]``.

        ``target``, int64 ``[B, T + 1]``, is the begin token, then the tokens to score.

        Returns:
            Log-probabilities ``[B, T]`` of the tokens, and the attention weights of encoder
            ``[L, B, H, S, S]``, decoder ``[L, B, H, T, T]`` and cross ``[L, B, H, T, S]``. Row t
            of the last two belongs to the step that chose token t. A recurrent decoder has no
            self-attention: ``[0, B, H, T, T]``.
        """
        record = AttentionRecord()
        memory = self.model.encode(source, source_lengths, record)
        state = self.model.begin(memory, source_lengths)
        logits = self.model.project(self.model.advance(target[:, :-1], state, record))
        logprobs = torch.log_softmax(logits, -1).gather(2, target[:, 1:, None]).squeeze(2)
        encoder, cross = _stacked(record.encoder), _stacked(record.cross)
        if record.decoder:
            return logprobs, encoder, _stacked(record.decoder), cross
        batch, heads, length, _ = record.cross[0].shape
        return logprobs, encoder, cross.new_zeros(0, batch, heads, length, length), cross


def _stacked(weights: list[Tensor]) -> Tensor:
    """Stacks the weights of all layers, in fp32 at any precision."""
    return torch.stack(weights).float()
