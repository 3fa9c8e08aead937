"""Biaffine scores of arcs and labels (Dozat & Manning 2017)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from gpuparse.nn.dropout import SentenceDropout


class MLP(nn.Module):
    """One layer, then dropout that is the same in all the words of a sentence."""

    def __init__(self, in_features: int, out_features: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.orthogonal_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.activation = nn.LeakyReLU(0.1)
        self.dropout = SentenceDropout(dropout)

    def forward(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N out"]:
        return self.dropout(self.activation(self.linear(x)))


class BiaffineArcs(nn.Module):
    """s(h, m) = head[h]ᵀ W modifier[m] + vᵀ head[h]."""

    def __init__(self, in_features: int, width: int, dropout: float) -> None:
        super().__init__()
        self.head = MLP(in_features, width, dropout)
        self.modifier = MLP(in_features, width, dropout)
        self.weight = nn.Parameter(torch.zeros(width + 1, width))

    def forward(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N N"]:
        crossed = self.modifier(x) @ self.weight[:-1].T + self.weight[-1]  # W modifier + v
        return self.head(x) @ crossed.transpose(1, 2)


class BiaffineLabels(nn.Module):
    """s(l | h, m) = [head[h], 1]ᵀ W_l [modifier[m], 1], for given heads only."""

    def __init__(self, in_features: int, width: int, labels: int, dropout: float) -> None:
        super().__init__()
        self.head = MLP(in_features, width, dropout)
        self.modifier = MLP(in_features, width, dropout)
        self.weight = nn.Parameter(torch.zeros(labels, width + 1, width + 1))

    def forward(self, x: Float[Tensor, "B N D"], heads: Int64[Tensor, "B N"]) -> Float[Tensor, "B N L"]:
        """Scores of the labels of every word given its head; of no meaning where there is no word."""
        own_head = heads.clamp(min=0)[..., None]
        head = self.head(x)
        head = _with_one(head.gather(1, own_head.expand_as(head)))
        return (self._crossed(x) @ head[..., None]).squeeze(-1)

    def every(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N N L"]:
        """The same for every head and word."""
        head = _with_one(self.head(x))
        return torch.einsum("bmlw,bhw->bhml", self._crossed(x), head)

    def _crossed(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N L width"]:
        """W_l [modifier[m], 1]."""
        labels, width, _ = self.weight.shape
        return (_with_one(self.modifier(x)) @ self.weight.flatten(0, 1).T).unflatten(-1, (labels, width))


def _with_one(x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N D+1"]:
    return torch.cat((x, x.new_ones(*x.shape[:-1], 1)), -1)
