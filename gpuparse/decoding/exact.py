"""Best trees by algorithms that need no proof: spanning trees, and Eisner's algorithm of both orders."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from gpuparse.decoding.parse import Parse
from gpuparse.decoding.priced import families_to_price, price_trees
from gpuparse.decoding.scores import Scores
from gpuparse.distributions import SecondOrderTrees
from gpuparse.ops import EISNER, MATRIX_TREE
from gpuparse.ops.shifts import best_tree
from gpuparse.structures.trees import no_tree_error


def first_order(scores: Scores, *, projective: bool, single_root: bool, with_parts: Sequence[str] = ()) -> Parse:
    """A best tree under arcs and labels: the best label of an arc depends on nothing else.

    ``with_parts``: whose best is added to the arcs, for the message where there is no tree.
    """
    family = EISNER if projective else MATRIX_TREE
    folded = scores.fold_labels()
    arcs, lengths = folded.arcs.detach(), folded.lengths
    if scores.large:
        heads = best_tree(scores.of_each_arc(), lengths, family, single_root)
    else:
        heads = family.argmax((arcs,), lengths, single_root)
    found = heads[:, 1] >= 0  # word 1 is in every sentence
    if scores.validates and not bool(found.all()):
        best = [*with_parts] if scores.labels is None else ["labels", *with_parts]
        name = f"arcs with their best {' and '.join(best)}" if best else "arcs"
        sentence = int((~found).nonzero()[0])
        raise no_tree_error(arcs, lengths, sentence, projective=projective, single_root=single_root, name=name)
    return _proven(scores, heads)


def second_order(scores: Scores, *, single_root: bool, pricing: bool | str = "auto") -> Parse:
    """A best projective tree under arcs, labels, siblings, grandparents and grandsiblings.

    Args:
        pricing: score pairs only where they could matter (``gpuparse.decoding.priced``). That waits for the device;
            "auto" does so on a CPU alone. ``stats``: ``scored`` pairs, the share of ``arcs`` that were looked at, and
            whether the ``exact`` program was run on these; ``iterations``: its rounds.
    """
    with torch.no_grad():
        folded = scores.less_shared(single_root) if scores.large else scores.fold_labels()
        pairs = families_to_price(folded, pricing)
        found = None if pairs is None else price_trees(folded, pairs, single_root=single_root)
        if found is None or (scores.validates and bool((found[0][:, 1] < 0).any())):  # word 1 is in every sentence
            found = _dense_trees(scores, folded, single_root), torch.ones_like(scores.lengths), {}
    return _proven(scores, *found)


def _dense_trees(scores: Scores, folded: Scores, single_root: bool) -> Int[Tensor, "B N"]:
    """Heads by the program that scores all pairs; where values may be looked at, ValueError if there is no tree."""
    trees = SecondOrderTrees(
        folded.arcs.to(folded.dtype),
        folded.lengths,
        siblings=folded.siblings,
        grandparents=folded.grandparents,
        grandsiblings=folded.grandsiblings,
        single_root=single_root,
        validate_args=False,
    )
    heads = trees.argmax
    lost = heads[:, 1] < 0
    if scores.validates and bool(lost.any()):
        raise trees.no_tree_error(int(lost.nonzero()[0]), () if scores.labels is None else ("labels",))
    return heads


def _proven(
    scores: Scores,
    heads: Int[Tensor, "B N"],
    iterations: Int[Tensor, " B"] | None = None,
    stats: dict[str, Tensor] | None = None,
) -> Parse:
    """Best trees; -1 where there is none."""
    nothing = torch.full(heads.shape[:1], torch.inf, dtype=torch.float64, device=heads.device)
    rounds = torch.ones_like(scores.lengths) if iterations is None else iterations
    return Parse.of(scores, heads, bound=nothing, certified=heads[:, 1] >= 0, iterations=rounds, stats=stats)
