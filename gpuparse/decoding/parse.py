"""What inference says of a batch: trees and labels, their scores, bounds, and whether they are proven best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float64, Int, Int64
from torch import Tensor

from gpuparse.decoding.proofs import Proof, ProofLeaf
from gpuparse.decoding.scores import Scores


@dataclass(frozen=True, eq=False)
class Parse:
    """What a decoder says of each sentence of a batch.

    Attributes:
        heads: [B, N]; -1 at node 0, past the end, and everywhere in a sentence for which there is no tree.
        labels: the best label of each word's arc [B, N], -1 where there is no arc; None if the scores have no labels.
        score: of the tree and its labels under all parts [B], float64; its gradient is the tree's parts. -inf where
            there is no tree.
        bound: no tree scores more [B], float64. +inf where nothing is known.
        certified: whether the answer is proven best [B]. Then ``bound`` equals ``score``.
        iterations: how many the method took [B]; 1 for one that needs no more.
        stats: what else the method counts, by name, each [B].
        remarks: what there is to say of sentences, by their index: why constraints cannot be satisfied, or why nothing
            was proven.
        proof: why certified answers are best, for ``gpuparse.verify``; None unless it was asked for.

    Example:
        >>> import torch, gpuparse as gp
        >>> arcs = torch.tensor([[[0.0, 1.0, 4.0], [0.0, 0.0, 3.0], [0.0, 2.0, 0.0]]])
        >>> parse = gp.decode(gp.Scores(arcs))
        >>> parse.heads, parse.score, parse.certified
        (tensor([[-1,  2,  0]]), tensor([6.], dtype=torch.float64), tensor([True]))
    """

    heads: Int[Tensor, "B N"]
    labels: Int[Tensor, "B N"] | None
    score: Float64[Tensor, " B"]
    bound: Float64[Tensor, " B"]
    certified: Bool[Tensor, " B"]
    iterations: Int[Tensor, " B"]
    stats: dict[str, Tensor] = field(default_factory=dict)
    remarks: dict[int, str] = field(default_factory=dict)
    proof: Proof | None = None

    @classmethod
    def of(
        cls,
        scores: Scores,
        heads: Int[Tensor, "B N"],
        labels: Int[Tensor, "B N"] | None = None,
        *,
        bound: Float64[Tensor, " B"],
        certified: Bool[Tensor, " B"],
        iterations: Int[Tensor, " B"],
        penalty: Float64[Tensor, " B"] | float = 0.0,
        stats: dict[str, Tensor] | None = None,
        remarks: dict[int, str] | None = None,
        leaves: Mapping[int, tuple[ProofLeaf, ...]] | None = None,
    ) -> Parse:
        """Trees and what a method knows of them; it is left to this to score them and to label their arcs.

        Args:
            labels: None: the best one of each arc, if there are label scores.
            bound: of the method; it becomes the score where that is proven best, or higher. -inf where it is proven
                that there is no tree, which whoever called the method still has to say.
            penalty: what trees pay for soft constraints.
            leaves: of a proof that is to be made whole.
        """
        score = scores.total(heads, labels) - penalty
        if labels is None and scores.labels is not None:
            labels = scores.best_labels(heads)
        bound = torch.where(certified, score.detach(), torch.maximum(bound, score.detach()))
        return cls(heads, labels, score, bound, certified, iterations, stats or {}, remarks or {}, Proof(leaves or {}))

    def take(self, rows: Int64[Tensor, " K"]) -> Parse:
        """That of some of the sentences, without a proof."""
        labels = None if self.labels is None else self.labels[rows]
        each = (self.score[rows], self.bound[rows], self.certified[rows], self.iterations[rows])
        remarks = {place: self.remarks[b] for place, b in enumerate(rows.tolist()) if b in self.remarks}
        return Parse(self.heads[rows], labels, *each, {name: x[rows] for name, x in self.stats.items()}, remarks)

    def put(self, rows: Int64[Tensor, " K"], other: Parse) -> Parse:
        """The same with what ``other`` says of some of the sentences; counts that only one of them has are else 0."""

        def put(mine: Tensor, others: Tensor) -> Tensor:
            return mine.index_put((rows,), others)

        numbers = rows.tolist()
        own, new = self.stats, other.stats
        some = set(numbers)
        remarks = {b: text for b, text in self.remarks.items() if b not in some}
        mine, others = ({} if parse.proof is None else parse.proof.leaves for parse in (self, other))
        return Parse(
            put(self.heads, other.heads),
            None if self.labels is None or other.labels is None else put(self.labels, other.labels),
            put(self.score, other.score),
            put(self.bound, other.bound),
            put(self.certified, other.certified),
            put(self.iterations, other.iterations),
            {
                name: put(
                    own[name] if name in own else new[name].new_zeros(len(self.heads)),
                    new[name] if name in new else own[name].new_zeros(len(numbers)),
                )
                for name in {**own, **new}
            },
            remarks | {numbers[place]: text for place, text in other.remarks.items()},
            Proof({**mine, **{numbers[place]: leaves for place, leaves in others.items()}}),
        )
