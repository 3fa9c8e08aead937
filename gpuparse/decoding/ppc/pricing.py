"""Pricing for a batch (4.3): which grandparents may improve the solutions of the sentences' linear programs."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from gpuparse.decoding.parts import Parts
from gpuparse.decoding.ppc.grandparents import Doubles, Ints
from gpuparse.decoding.ppc.ppc import Answer, Question
from gpuparse.decoding.ppc.units import Units, scaled
from gpuparse.ops.pricing import Priced, price, price_listed

ROOM = 16  # triples by word that are listed at first


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
        self.units: dict[int, Units] = {}  # of the sentences, once they are known
        self.left_out = np.zeros(B, dtype=bool)  # sentences with triples beyond the horizon
        scorer = parts.scorer()
        self._counts = scorer is None  # parts count what they score themselves
        self._price = partial(price_listed, parts.score) if scorer is None else partial(price, scorer)
        self._duals = np.zeros((3, B, N, N))
        self._lock = threading.Lock()

    def cost(self, b: int, triples: Ints) -> Doubles:
        """Costs of triples [T, 3] of a sentence in its program."""
        return self.costs(b, triples, self.score(np.full(len(triples), b), triples))

    def score(self, b: Ints, triples: Ints) -> Doubles:
        """Scores of triples [T, 3] of sentences [T], each of them scored once."""
        sentence, g, p, c = (torch.from_numpy(np.ascontiguousarray(x)).to(self.parts.device) for x in (b, *triples.T))
        at = sentence, p, c, g
        with self._lock, torch.no_grad():
            found = self.known[at]
            new = found.isnan()
            if bool(new.any()):
                some = tuple(x[new] for x in (sentence, g, p, c))
                scores = self.parts.score(*some).double()
                self.known[tuple(x[new] for x in at)] = scores
                if not bool((scores < torch.inf).all()):
                    first = int((~(scores < torch.inf)).nonzero()[0])
                    raise ValueError(f"grandparents of sentence {int(some[0][first])} score {float(scores[first])}")
                np.add.at(self.scored, some[0].cpu().numpy(), 1)
                found = self.known[at]
            return found.cpu().numpy()

    def ask(self, questions: dict[int, Question]) -> dict[int, Answer]:
        """Price some of the sentences, all at once; costs and duals are in the units of their programs."""
        if not questions:
            return {}
        with self._lock, torch.no_grad():
            lengths = torch.zeros_like(self.lengths, device="cpu")
            with np.errstate(over="ignore"):  # of arcs that may not be
                for b, question in questions.items():
                    N, units = len(question.ceiling), self.units[b]
                    lengths[b] = N - 1
                    own = self._duals[:, b, :N, :N]
                    for duals, out in zip((question.ceiling, question.floor, question.kappa), own, strict=True):
                        np.ldexp(duals, -units.power, out=out)
                    own[:2] += units.over
            found = self._find(lengths, ROOM * self.parts.nodes)
            self.looked += found.looked.cpu().numpy()
            self.scored += (scored := found.scored.cpu().numpy())
            if not self._counts:
                self.parts.scored += int(scored.sum())
            most = int(found.count.max())
            if most > found.triples.shape[1]:  # once more, with room for all; they are known now
                found = self._find(lengths, most)
            triples, scores, costs, counts = (
                x.cpu().numpy() for x in (found.triples, found.score, found.r, found.count)
            )
        answers = {}
        for b in questions:
            units, count = self.units[b], int(counts[b])
            of_b = triples[b, :count].astype(np.int64)
            if not (scores[b, :count] < np.inf).all():
                raise ValueError(f"grandparents of sentence {b} score {scores[b, :count].max()}")
            in_program = self.costs(b, of_b, scores[b, :count])
            near = in_program > -np.inf
            answers[b] = Answer(of_b[near], in_program[near], scaled(costs[b, :count][near], units.power))
        return answers

    def costs(self, b: int, triples: Ints, scores: Doubles) -> Doubles:
        """Scores of triples [T, 3] of a sentence as costs in its program, -inf beyond its horizon."""
        found = self.units[b].triples(triples[:, 1], triples[:, 2], scores)
        self.left_out[b] |= bool(((found == -np.inf) & (scores > -np.inf)).any())
        return found

    def _find(self, lengths: Int[Tensor, " B"], room: int) -> Priced:
        ceiling, floor, kappa = torch.from_numpy(self._duals).to(self.parts.device)
        return self._price(
            lengths.to(self.parts.device),
            ceiling=ceiling,
            floor=floor,
            kappa=kappa,
            over_g=self.over_g,
            over_c=self.over_c,
            known=self.known,
            tolerance=0.0,
            room=room,
        )
