"""Pricing for a batch (4.3): which grandparents may improve the solutions of the sentences' linear programs."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from gpuparse.lp.grandparents import Doubles, Ints
from gpuparse.lp.ppc import PRICED, Answer, Question
from gpuparse.ops.pricing import price, price_listed
from gpuparse.parts import Parts

ROOM = 16  # triples by word that are listed at most


class Pricing:
    """The bounds and the known scores of a batch of grandparents. Threads may share it; a question waits for the other.

    Attributes:
        looked, scored: of each sentence, how many bounds were looked at, and how many triples scored [B].
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        B, N = parts.lengths.shape[0], parts.nodes
        self.lengths: Int[Tensor, " B"] = parts.lengths
        self.over_g: Float64[Tensor, "B N N"] = parts.bound(0).double()
        self.over_c: Float64[Tensor, "B N N"] = parts.bound(2).double()
        self.known = torch.full((B, N, N, N), torch.nan, dtype=torch.float64, device=parts.device)
        self.looked, self.scored = np.zeros(B, dtype=np.int64), np.zeros(B, dtype=np.int64)
        scorer = parts.scorer()
        self._counts = scorer is None  # parts count what they score themselves
        self._price = partial(price_listed, parts.score) if scorer is None else partial(price, scorer)
        self._duals = torch.zeros(3, B, N, N, dtype=torch.float64)
        self._lock = threading.Lock()

    def score(self, b: Ints, triples: Ints) -> Doubles:
        """Scores of triples [T, 3] of sentences [T], each of them scored once."""
        at = tuple(torch.from_numpy(np.ascontiguousarray(x)).to(self.parts.device) for x in (b, *triples.T))
        with self._lock, torch.no_grad():
            found = self.known[at]
            new = found.isnan()
            if bool(new.any()):
                some = tuple(x[new] for x in at)
                self.known[some] = self.parts.score(*some).double()
                np.add.at(self.scored, some[0].cpu().numpy(), 1)
                found = self.known[at]
            return found.cpu().numpy()

    def ask(self, questions: dict[int, Question]) -> dict[int, Answer]:
        """Price some of the sentences, all at once."""
        if not questions:
            return {}
        with self._lock, torch.no_grad():
            lengths = torch.zeros_like(self.lengths, device="cpu")
            for b, question in questions.items():
                N = len(question.ceiling)
                lengths[b] = N - 1
                for place, x in enumerate((question.ceiling, question.floor, question.kappa)):
                    self._duals[place, b, :N, :N] = torch.from_numpy(x)
            device = self.parts.device
            ceiling, floor, kappa = self._duals.to(device)
            found = self._price(
                lengths.to(device),
                ceiling=ceiling,
                floor=floor,
                kappa=kappa,
                over_g=self.over_g,
                over_c=self.over_c,
                known=self.known,
                tolerance=PRICED,
                room=ROOM * self.parts.nodes,
            )
            self.looked += found.looked.cpu().numpy()
            self.scored += (scored := found.scored.cpu().numpy())
            if not self._counts:
                self.parts.scored += int(scored.sum())
            triples, scores, costs, worst, counts = (
                x.cpu().numpy() for x in (found.triples, found.score, found.r, found.worst, found.count)
            )
        answers = {}
        for b, question in questions.items():
            count, N = int(counts[b]), len(question.ceiling)
            listed = min(count, triples.shape[1])
            answers[b] = Answer(
                triples[b, :listed].astype(np.int64), scores[b, :listed], costs[b, :listed], worst[b, :N], count
            )
        return answers
