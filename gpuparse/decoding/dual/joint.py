"""The paper's two examples: a parser and a tagger that agree on tags (4.1), constituents and dependencies that agree on
arcs (4.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from gpuparse.decoding.dual.agreement import Found, Structures
from gpuparse.decoding.dual.decomposition import DualDecomposition
from gpuparse.decoding.dual.grammars import Constituents, Lexicalized
from gpuparse.decoding.dual.oracles import SecondOrderOracle, TaggerOracle, TreeOracle
from gpuparse.decoding.dual.parsing import dense_parts, scaled
from gpuparse.decoding.dual.steps import Step
from gpuparse.decoding.scores import Scores
from gpuparse.distributions import ConstituencyTrees, LexicalizedTrees, TrigramChains
from gpuparse.structures.constituents import tags_of
from gpuparse.structures.grammars import Grammar
from gpuparse.structures.tags import trigram_scores
from gpuparse.structures.trees import Lengths

Rows = Int64[Tensor, " K"]


def parse_and_tag(
    grammar: Grammar,
    tags: Float[Tensor, "B n T"],
    unary: Float[Tensor, "B n T"],
    trigrams: Float[Tensor, "T T T"],
    lengths: Lengths = None,
    *,
    step: Step | None = None,
    iterations: int = 50,
) -> DualDecomposition:
    """Trees of a grammar and chains of trigrams with the same tags: argmax of f(y) + g(z) over both (section 4.1).

    ``structures``: "tree" [B, 2n - 1, 4] (see ``gpuparse.structures.constituents``) and "tags" [B, n].

    Args:
        tags: the parser's scores of tags; unary: the tagger's; trigrams: of three tags in a row.
        lengths: words of each sentence [B]; None if all are full.
        step, iterations: as of ``DualDecomposition``.

    Raises ValueError at a NaN or +inf, and at shapes that do not fit.

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse import dual
        >>> rule = [torch.tensor([x]) for x in (2, 0, 1, 0)]  # S -> A B
        >>> grammar = gp.Grammar(("A", "B", "S"), 2, *rule, torch.zeros(1), torch.zeros(3))
        >>> found = dual.parse_and_tag(grammar, torch.zeros(1, 2, 2), torch.zeros(1, 2, 2), torch.zeros(2, 2, 2)).run()
        >>> found.structures["tags"], found.certified
        (tensor([[0, 1]]), tensor([True]))
    """
    merged = grammar.merged().to(torch.float64)
    checked = ConstituencyTrees(merged, tags.detach().double(), lengths)  # which looks at shapes and values
    lengths = checked.lengths
    chains = TrigramChains(unary.detach().double(), trigrams.detach().double(), lengths, validate_args=False)
    word = torch.arange(unary.shape[1], device=unary.device) < lengths[:, None]
    for name, x in (("unary", chains.unary[word]), ("trigrams", chains.trigrams)):
        if bool((x.isnan() | (x == math.inf)).any()):
            raise ValueError(f"{name} must be numbers below +inf, got NaN or +inf")
    if chains.unary.shape != checked.tags.shape:
        raise ValueError(f"unary must have the shape of tags, {list(tags.shape)}, got {list(unary.shape)}")
    parser = Constituents(merged, checked.tags, lengths)
    tagger = TaggerOracle(chains.unary, chains.trigrams, lengths)

    def primal(found: Sequence[Found], rows: Rows) -> tuple[Structures, Float64[Tensor, " K"]]:
        """The parser's tree, tagged as it says (section 6.2 takes y^(k) of the last iterations)."""
        tree = found[0].structures["tree"]
        own = tags_of(tree)
        here = parser.take(rows)
        by_tagger = trigram_scores(tagger.unary[rows], tagger.trigrams, own.clamp(min=0), lengths[rows])
        score = here.score(tree) + by_tagger.double()
        return {"tree": tree, "tags": own}, torch.where(tree[:, 0, 0] < 0, -torch.inf, score)

    return DualDecomposition([parser, tagger], primal=primal, step=step, iterations=iterations)


def constituents_and_dependencies(
    grammar: Grammar,
    tags: Float[Tensor, "B n T"],
    arcs: Float[Tensor, "B N N"],
    scores: Scores,
    *,
    weight: float = 1.0,
    single_root: bool = True,
    step: Step | None = None,
    iterations: int = 50,
) -> DualDecomposition:
    """Head-lexicalised trees of a grammar, and projective dependency trees of first or second order with the same arcs
    (section 4.2, eq. 11: f_1(y) + weight f_2(y)).

    ``structures``: "tree" [B, 2n - 1, 5] (see ``LexicalizedTrees``) and "heads" [B, N].

    Args:
        tags, arcs: the grammar's scores of tags and of head words and their modifiers.
        scores: of the dependency parser, siblings and grandparents among them if there are any.
        weight: gamma.
        single_root: one word hangs on the root (default), or any number.
        step, iterations: as of ``DualDecomposition``.

    Raises ValueError at a NaN or +inf, and at shapes that do not fit.

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse import dual
        >>> rule = [torch.tensor([x]) for x in (1, 0, 0, 0)]  # S -> T T, the head on the left
        >>> grammar = gp.Grammar(("T", "S"), 1, *rule, torch.zeros(1), torch.zeros(2))
        >>> arcs = torch.zeros(1, 3, 3)
        >>> found = dual.constituents_and_dependencies(grammar, torch.zeros(1, 2, 1), arcs, gp.Scores(arcs)).run()
        >>> found.structures["heads"], found.certified
        (tensor([[-1,  0,  1]]), tensor([True]))
    """
    if not isinstance(scores, Scores):
        raise ValueError(f"scores must be gpuparse.Scores, got {type(scores).__name__}; use Scores(arcs, lengths)")
    if not isinstance(weight, (int, float)) or not 0 <= weight < math.inf:
        raise ValueError(f"weight must be a number from 0 on, got {weight!r}")
    lengths, grammar = scores.check_pairs("constituents_and_dependencies").lengths, grammar.to(torch.float64)
    checked = LexicalizedTrees(grammar, tags.detach().double(), arcs.detach().double(), lengths)
    whole = Lexicalized(grammar, checked.tags, checked.arcs, lengths)
    own = scaled(scores.fold_labels().arcs.detach().double(), weight)
    siblings, grandparents = (
        None if parts is None else scaled(dense_parts(parts, lengths), weight)
        for parts in (scores.siblings, scores.grandparents)
    )
    parser: SecondOrderOracle | TreeOracle
    if siblings is None and grandparents is None:
        parser = TreeOracle(own, lengths, projective=True, single_root=single_root)
    else:
        parser = SecondOrderOracle(own, lengths, siblings, grandparents, single_root)
    weighted = Scores(own, lengths, siblings=siblings, grandparents=grandparents, validate_args=False)

    def primal(found: Sequence[Found], rows: Rows) -> tuple[Structures, Float64[Tensor, " K"]]:
        tree, heads = found[0].structures["tree"], found[0].structures["heads"]
        return {"tree": tree, "heads": heads}, whole.take(rows).score(tree) + weighted.take(rows).total(heads)

    return DualDecomposition([whole, parser], agree=["arcs"], primal=primal, step=step, iterations=iterations)
