"""What a bound of the linear program followed from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuparse.decoding.ppc.program import Doubles, Duals, Ints, PairProgram
from gpuparse.decoding.ppc.units import Units, scaled, scaled_number
from gpuparse.decoding.proofs import NEVER, NO_CYCLE_GP, TRIANGLE, ProofLeaf, path_of


@dataclass(frozen=True)
class Taken:
    """What arcs take over from the pairs that they are the child's arc of, in costs [N, N], from which a bound
    followed."""

    y: Doubles

    def leaf(self, units: Units, path: Ints) -> ProofLeaf:
        """Of the branch that the path leads to."""
        return ProofLeaf(path, np.where(units.possible, scaled(self.y, -units.power) + units.all_over, NEVER))


class Witness:
    """What a bound followed from, as a proof has it (``gpuparse.decoding.proofs``); costs, not scores."""

    def __init__(self, duals: Duals, budget: Doubles, program: PairProgram) -> None:
        self.cuts, self.of_cuts, self.N = program.cuts, duals.cuts, program.N
        self.budget, self.paid = budget.copy(), np.zeros(budget.shape)
        self.stars = np.unique(program.cuts.siblings[0])  # cuts that stars keep to by themselves
        cut, arcs, value = program.cuts.arcs
        own_arcs = np.isin(cut, self.stars) & (value < 0)  # of children
        np.subtract.at(self.budget, tuple(arcs[own_arcs].T), (duals.cuts[cut] * value)[own_arcs])
        for pairs, own in zip(program.pairs, duals.pairs, strict=True):
            if pairs is program.grandparents:
                np.subtract.at(self.budget, tuple(program.grandparents.arc_gp[:, 1:].T), own.rows[-1])
            else:
                self.paid += pairs.paid(own)

    def leaf(self, units: Units, path: Ints) -> ProofLeaf:
        """Of the branch that the path leads to. An arc takes over what its pairs are worth at most, or what it can;
        what it cannot, the arcs (g, p) pay by their rows GPArc, and the head of siblings by FirstSib. ArcGP is a sum
        of OneHead, OneGP and GPArc. NextSib is paid by the sibling's own arc."""
        y = np.minimum(self.budget, 0.0) + self.paid
        if "siblings" not in units.over:
            y[0] = 0.0
        of_arcs, of_triples = self.cuts.arcs[0], self.cuts.triples[0]
        cuts: list[tuple[int, int, int, int]] = []
        sets, prices = [], []
        for k in np.setdiff1d(of_triples, self.stars).tolist():  # sets of words are found anew
            if self.of_cuts[k] > 0:
                arcs, triples = self.cuts.arcs[1][of_arcs == k], self.cuts.triples[1][of_triples == k]
                members = np.zeros(self.N, dtype=bool)
                if self.cuts.high[k] > 0:
                    cuts.append((NO_CYCLE_GP, *triples[0].tolist()))
                else:
                    p, q = arcs[-1].tolist()
                    members[arcs[:-1, 0]] = True
                    cuts.append((TRIANGLE, p, q, int(triples[-1, 2])))
                sets.append(members)
                prices.append(scaled_number(float(self.of_cuts[k]), -units.power))
        of_sets = np.array(sets, dtype=bool).reshape(len(sets), self.N)
        penalties = Taken(y).leaf(units, path).penalties
        return ProofLeaf(path, penalties, path_of(cuts), of_sets, np.array(prices))
