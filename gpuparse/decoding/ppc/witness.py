"""What a bound of the grandparent model followed from."""

from __future__ import annotations

import numpy as np

from gpuparse.decoding.ppc.grandparents import Doubles, Duals, GrandparentProgram, Ints
from gpuparse.decoding.ppc.units import Units, scaled, scaled_number
from gpuparse.decoding.proofs import NEVER, NO_CYCLE_GP, TRIANGLE, ProofLeaf, path_of


class Witness:
    """What a bound followed from, as a proof has it (``gpuparse.decoding.proofs``); costs, not scores."""

    def __init__(self, duals: Duals, ceiling: Doubles, program: GrandparentProgram) -> None:
        self.duals, self.ceiling = duals, ceiling
        self.arc_gp, self.cuts, self.N = program.arc_gp, program.cuts, program.N

    def leaf(self, units: Units, path: Ints) -> ProofLeaf:
        """Of the branch that the path leads to. An arc takes over what its grandparents are worth at most, or what it
        can; what it cannot, the arcs (g, p) pay by their rows GPArc. ArcGP is a sum of OneHead, OneGP and GPArc."""
        y = self.ceiling.copy()
        np.subtract.at(y, tuple(self.arc_gp[:, 1:].T), self.duals.arc_gp)
        y = np.minimum(y, 0.0)
        y[0] = 0.0
        penalties = np.where(units.possible, scaled(y, -units.power) + units.over, NEVER)
        of_arcs, of_triples = self.cuts.arcs[0], self.cuts.triples[0]
        cuts: list[tuple[int, int, int, int]] = []
        sets, prices = [], []
        for k in np.unique(of_triples).tolist():  # the others are sets of words, which are found anew
            if self.duals.cuts[k] > 0:
                arcs, triples = self.cuts.arcs[1][of_arcs == k], self.cuts.triples[1][of_triples == k]
                members = np.zeros(self.N, dtype=bool)
                if self.cuts.high[k] > 0:
                    cuts.append((NO_CYCLE_GP, *triples[0].tolist()))
                else:
                    p, q = arcs[-1].tolist()
                    members[arcs[:-1, 0]] = True
                    cuts.append((TRIANGLE, p, q, int(triples[-1, 2])))
                sets.append(members)
                prices.append(scaled_number(float(self.duals.cuts[k]), -units.power))
        of_sets = np.array(sets, dtype=bool).reshape(len(sets), self.N)
        return ProofLeaf(path, penalties, path_of(cuts), of_sets, np.array(prices))
