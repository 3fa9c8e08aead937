"""Binary trees of a grammar whose spans have head words, with scores of tags, rules and arcs, exactly: O(n^4 R)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from gpuparse.distributions.grammar_trees import GrammarTrees
from gpuparse.ops import lexical
from gpuparse.ops.plain.lexical import Rules, Scores, heads_of, masks, tags_of, tree_scores
from gpuparse.ops.shifts import arcs_less_greatest, bounded, less_greatest, repeated
from gpuparse.structures.conditions import conditioned_arcs
from gpuparse.structures.grammars import Grammar
from gpuparse.structures.trees import Lengths, as_lengths_up_to, as_scores, can_validate

if TYPE_CHECKING:
    from typing_extensions import Self


class LexicalizedTrees(GrammarTrees):
    """p(tree) = exp(score) / Z over the lexicalised trees of a grammar, for each sentence of a batch.

    Every span of a tree has a head word, a word's own being itself; a rule says which part the head comes from. The
    score of a tree: those of its tags and rules, of its root symbol, of ``arcs[0, h]`` for the head word h of the whole
    and, for every rule, of ``arcs[h, m]``, h being the head word of the span and m that of the part without it.

    Args:
        grammar: its rules, heads and roots, on the device and in the dtype of the scores (``grammar.to``).
        tags: scores [B, n, T] of the grammar's tags, float32 or float64 (or half, as float32); -inf forbids, here and
            below.
        arcs: scores [B, N, N], N = n + 1, of head -> modifier.
        lengths: words of each sentence [B], 1 to n; None if all are full.
        rules: scores [R] or [B, R] in place of those of the grammar.
        validate_args: look at the values and raise ValueError at a NaN, +inf or bad length. Default: on a CPU yes; on a
            GPU no, since looking waits for the device.

    A tree is int64 [2n - 1, 5]: a row (i, j, symbol, split, head) for each of its spans, of words i..j counted from 0,
    parts i..split and split+1..j, and a head word counted from 1; spans before their parts, these from left to right. A
    word has split = -1, and rows past those of a sentence are -1. ``heads_of`` and ``tags_of`` give its dependency tree
    and its tags. A sentence without any tree is no error: it has log Z = -inf, zero marginals and -1 for trees.

    Attributes:
        grammar, tags, arcs, lengths, rules: as given, lengths as int64 [B]; rules of the grammar if not given.
        roots: scores [S] of the grammar.
        log_partition: log Z [B].
        tag_marginals, arc_marginals, rule_marginals, root_marginals: expected numbers, [B, ...] like the scores.
        argmax, max: a best tree [B, 2n - 1, 5], and its score [B].

    ``sample((s,))`` gives trees [s, B, 2n - 1, 5], ``score(trees)`` and ``log_prob(trees)`` [..., B], their rows in any
    order; ``entropy()`` and ``torch.distributions.kl_divergence(p, q)`` [B]. All but structures is differentiable in
    all scores (``StructuredDistribution``), log Z by kernels and what comes after by plain torch, which is slow.
    ``given(required, forbidden)``: the same under a condition on the dependency tree, heads [B, N] that are known (-1
    elsewhere) and arcs [B, N, N] that may not be.
    Memory: n^2 / 2 rows of n numbers for each tag or for each other symbol, whichever are more; marginals twice.

    Example:
        >>> import torch, gpuparse as gp
        >>> one, zero, sides = torch.tensor([1, 1]), torch.tensor([0, 0]), torch.tensor([0, 1])
        >>> grammar = gp.Grammar(("t", "A"), 1, one, zero, zero, sides, torch.zeros(2), torch.zeros(2))  # A -> t t
        >>> arcs = torch.zeros(1, 3, 3)
        >>> arcs[0, 2, 1] = 1.0
        >>> trees = gp.LexicalizedTrees(grammar, torch.zeros(1, 2, 1), arcs)
        >>> trees.argmax[0]  # rows (first word, last word, symbol, end of the left part, head word)
        tensor([[ 0,  1,  1,  0,  2],
                [ 0,  0,  0, -1,  1],
                [ 1,  1,  0, -1,  2]])
        >>> trees.heads_of(trees.argmax)
        tensor([[-1,  2,  0]])
        >>> trees.arc_marginals[0, 2, 1]
        tensor(0.7311)
    """

    parts: ClassVar[dict[str, int]] = {"tags": 3, "arcs": 3, "rules": 2, "roots": 2}
    algorithms = lexical.LEXICAL
    columns = 5
    _kept = ("grammar",)
    heads_of = staticmethod(heads_of)
    tags_of = staticmethod(tags_of)
    arcs: Float[Tensor, "B N N"]
    rules: Float[Tensor, "*b R"]
    roots: Float[Tensor, " S"]

    def __init__(
        self,
        grammar: Grammar,
        tags: Tensor,
        arcs: Tensor,
        lengths: Lengths = None,
        *,
        rules: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        tags, arcs = self._as_tags(tags, grammar), as_scores(arcs, "arcs")
        B, n, _ = tags.shape
        R = len(grammar.parents)
        _as_like(arcs, "arcs", tags)
        if arcs.shape != (B, n + 1, n + 1):
            raise ValueError(
                f"arcs must have shape [B, n + 1, n + 1] = {[B, n + 1, n + 1]} to fit tags, got {list(arcs.shape)}"
            )
        name = "grammar.scores" if rules is None else "rules"
        rules = grammar.scores if rules is None else as_scores(rules, "rules")
        _as_like(rules, name, tags, "; convert it with grammar.to" if name != "rules" else "")
        if rules.shape not in ((R,), (B, R)):
            raise ValueError(f"rules must have shape [R] = [{R}] or [B, R] = [{B}, {R}], got {list(rules.shape)}")
        _rules_of(grammar)  # raises if it has a rule twice
        counts = as_lengths_up_to(n, lengths, tags, "tags", validate_args)
        self.grammar = grammar
        self._start((tags, arcs, rules, grammar.roots.to(tags.dtype)), counts, self._event(tags), validate_args)

    @property
    def scores(self) -> Scores:
        """tags, arcs, rules [1 or B, R] and roots."""
        return self.tags, self.arcs, self.rules if self.rules.dim() == 2 else self.rules[None], self.roots

    def _masks(self) -> list[Bool[Tensor, "*shape"]]:
        """Which scores are read, as they were given."""
        given, read = (self.tags, self.arcs, self.rules, self.roots), masks(self.scores, self.lengths)
        return [m if x.dim() > 1 else m[0] for x, m in zip(given, read, strict=True)]

    def _read(self, name: str) -> Bool[Tensor, "*shape"] | None:
        return dict(zip(self.parts, self._masks(), strict=True))[name]

    def _is_over_the_same(self, q: Self) -> bool:
        mine, other = _rules_of(self.grammar), _rules_of(q.grammar)
        if self.rules.shape[-1] != q.rules.shape[-1] or len(self.roots) != len(q.roots):
            return False
        if (
            mine is not other
            and can_validate(self.lengths, self._validates)
            and not torch.equal(mine.table, other.table)
        ):
            raise ValueError("grammar of p and q must have the same rules in the same order")
        return True

    def _without_shared(self) -> tuple[Self, Float64[Tensor, "B K"]]:
        """Every tree has a tag and a head a word, n - 1 rules and a root."""
        given = self.tags, self.arcs, self.rules, self.roots
        tags, arcs, rules, roots = (bounded(x, read) for x, read in zip(given, self._masks(), strict=True))
        B, n = tags.shape[:2]
        tags, of_tags = less_greatest(tags, 2)
        arcs, of_arcs = arcs_less_greatest(arcs, single_root=True)
        rules, of_rules = less_greatest(rules, -1)
        roots, of_roots = less_greatest(roots, 0)
        often = repeated(of_rules.reshape(-1, 1), self.lengths - 1, n - 1)
        return self._like([tags, arcs, rules, roots]), torch.cat(
            [of_tags[:, :, 0], of_arcs, often, of_roots.expand(B, 1)], 1
        )

    def _conditioned(self, required: Tensor | None, forbidden: Tensor | None) -> dict[str, Tensor]:
        kind = {"projective": True, "single_root": True}
        found = conditioned_arcs(required, forbidden, self.arcs, self.lengths, **kind, validate_args=self._validates)
        return {"arcs": found}

    def _inputs(self) -> tuple[Tensor, Tensor]:
        return _rules_of(self.grammar).table, self.lengths

    def _score(self, value: Int[Tensor, "*S B M 5"], found: bool = True) -> Float64[Tensor, "*S B"]:
        return tree_scores(self.scores, _rules_of(self.grammar), value, self.lengths)

    @property
    def arc_marginals(self) -> Float[Tensor, "B N N"]:
        """Probability of each arc [b, head, modifier]; head 0: of the head word of the whole."""
        return self._sums("arcs")


def _as_like(scores: Tensor, name: str, tags: Tensor, hint: str = "") -> None:
    if scores.dtype != tags.dtype or scores.device != tags.device:
        raise ValueError(
            f"{name} must have the dtype and device of tags ({tags.dtype}, {tags.device}), "
            f"got {scores.dtype} on {scores.device}{hint}"
        )


_RULES = WeakTensorKeyDictionary()  # by the parents of rules; with what else the rules are made of


def _rules_of(grammar: Grammar) -> Rules:
    """The rules as operators take them, made once for each grammar, which is looked at then (on a GPU: waited for)."""
    made_of = (len(grammar.symbols), grammar.lefts, grammar.rights, grammar.heads)
    found, known = _RULES.get(grammar.parents, (None, ()))
    if found is None or any(x is not y for x, y in zip(made_of[1:], known[1:], strict=True)) or made_of[0] != known[0]:
        with torch.inference_mode(False):
            tensors = [x.clone() for x in (grammar.parents, *made_of[1:])]
            found = Rules.of(tensors[0], tensors[1], tensors[2], tensors[3], made_of[0])
        _check_once(grammar, found)
        _RULES[grammar.parents] = (found, made_of)
    rules: Rules = found
    return rules


def _check_once(grammar: Grammar, rules: Rules) -> None:
    """Raise ValueError if a rule is there twice: trees would not say which of the two they have."""
    S = len(grammar.symbols)
    codes = (((rules.parents * S + rules.lefts) * S + rules.rights) * 2 + rules.heads).sort().values
    twice = codes[1:][codes[1:] == codes[:-1]]
    if len(twice):
        code = int(twice[0])
        names = [grammar.symbols[code // 2 // S**k % S] for k in (2, 1, 0)]
        side = ("left", "right")[code % 2]
        raise ValueError(
            f"grammar must have every rule once, got {names[0]} -> {names[1]} {names[2]} "
            f"with the head on the {side} twice"
        )
