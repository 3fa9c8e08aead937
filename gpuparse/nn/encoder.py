"""The bidirectional LSTM that reads a sentence."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from gpuparse.nn.dropout import SentenceDropout


class BiLSTM(nn.Module):
    """Layers of bidirectional LSTMs with dropout, the same in all the words of a sentence, between them.

    Each direction is a plain LSTM over padded sentences, the second over reversed ones: padding comes last both ways
    and reaches nothing, no lengths are read back from the device, and the libraries' fused layers serve (packed
    sequences take a slow path on a CPU).
    """

    def __init__(self, in_features: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        widths = [in_features, *[2 * hidden] * layers]
        self.onward = nn.ModuleList(nn.LSTM(width, hidden, batch_first=True) for width in widths[:-1])
        self.backward_ = nn.ModuleList(nn.LSTM(width, hidden, batch_first=True) for width in widths[:-1])
        self.dropout = SentenceDropout(dropout)
        self.out_features = widths[-1]
        for name, weight in self.named_parameters():
            if "weight_hh" in name:
                for gate in weight.data.chunk(4):
                    nn.init.orthogonal_(gate)
            elif "bias" in name:
                nn.init.zeros_(weight)

    def forward(self, x: Float[Tensor, "B N D"], lengths: Int64[Tensor, " B"]) -> Float[Tensor, "B N out"]:
        # Places that turn each sentence around, its root included; what lies past its end stays.
        node, last = torch.arange(x.shape[1], device=lengths.device), lengths[:, None]
        place = torch.where(node <= last, last - node, node)[..., None]
        for number, (onward, backward) in enumerate(zip(self.onward, self.backward_, strict=True)):
            if number:
                x = self.dropout(x)
            there = onward(x)[0]
            back = backward(x.gather(1, place.expand_as(x)))[0]
            x = torch.cat((there, back.gather(1, place.expand_as(back))), -1)
        return x
