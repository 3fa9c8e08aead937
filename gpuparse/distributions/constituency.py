"""Binary trees of a context-free grammar in Chomsky normal form: inside and outside (CKY), O(n^3 R) time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Bool, Float, Float64, Int, Int32
from torch import Tensor

from gpuparse.distributions.common import may_keep
from gpuparse.distributions.grammar_trees import GrammarTrees
from gpuparse.ops import cky
from gpuparse.ops.plain.cky import Scores, index_rules, masks
from gpuparse.ops.shifts import bounded, less_greatest, repeated
from gpuparse.structures.conditions import allowed_spans, only
from gpuparse.structures.constituents import double_rule, score_of
from gpuparse.structures.grammars import Grammar
from gpuparse.structures.trees import Lengths, as_lengths_up_to, as_scores, can_validate

if TYPE_CHECKING:
    from typing_extensions import Self


class ConstituencyTrees(GrammarTrees):
    """p(tree) = exp(score of its root, rules, tags and spans) / Z, for each sentence of a batch.

    Args:
        grammar: on the device of ``tags``; its scores are taken in their dtype.
        tags: scores [B, n, T] of the grammar's tag t at word i (from 0); -inf forbids a tag. float32 or float64 (or
            half, as float32).
        lengths: words of each sentence [B], 1 to n; None if all are full.
        rules: scores [R], or [B, R], in place of the grammar's.
        spans: scores [B, n, n, S] of a symbol over the words i..j, both within. Those of tags are not looked at.
        validate_args: look at the values and raise ValueError at a NaN, +inf, bad length or a grammar that has a rule
            twice. Default: on a CPU yes; on a GPU no, since looking waits for the device.

    The tree of one word is its tag. A sentence that the grammar has no tree for is no error: its ``log_partition`` is
    -inf, its marginals are 0 and its trees -1. Trees are tensors [..., B, 2n - 1, 4] (``structures.constituents``).

    Attributes:
        grammar, tags, lengths: as given, lengths as int64 [B].
        rules, roots, spans: scores [B, R], [B, S] and [B, n, n, S] or None.
        log_partition: log Z [B].
        tag_marginals, rule_marginals, root_marginals, span_marginals: expected numbers, in the shapes of the scores.
        argmax, max: a best tree [B, 2n - 1, 4], and its score [B].

    ``sample((s,))`` gives trees [s, B, 2n - 1, 4], ``score(trees)`` and ``log_prob(trees)`` [..., B], ``entropy()`` and
    ``torch.distributions.kl_divergence(p, q)`` [B]. All but structures is differentiable, in the grammar's scores, too
    (``StructuredDistribution``). ``given(required, forbidden)``: the same under a condition, symbols over the words
    i..j [B, n, n] that are known (-2: of any symbol; -1 where nothing is) and those [B, n, n, S] that may not be. A
    single word has a tag; a span is there just if none is that crosses it.

    Example:
        >>> import torch, gpuparse as gp
        >>> one, zero = torch.tensor([1, 1, 1]), torch.tensor([0, 0, 0])
        >>> lefts, rights = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0])  # A -> t t, A -> t A, A -> A t
        >>> grammar = gp.Grammar(("t", "A"), 1, one, lefts, rights, zero, torch.zeros(3), torch.zeros(2))
        >>> trees = gp.ConstituencyTrees(grammar, torch.zeros(2, 3, 1), lengths=[3, 2])
        >>> trees.log_partition.exp().round().int().tolist()
        [2, 1]
        >>> trees.argmax[1]  # rows (first word, last word, symbol, end of the left part)
        tensor([[ 0,  1,  1,  0],
                [ 0,  0,  0, -1],
                [ 1,  1,  0, -1],
                [-1, -1, -1, -1],
                [-1, -1, -1, -1]])
        >>> required = torch.full((2, 3, 3), -1)
        >>> required[0, 1, 2] = -2  # words 1 and 2 of sentence 0 are a constituent
        >>> trees.given(required).span_marginals[0, :, 2, 1]
        tensor([1., 1., 0.])
    """

    parts: ClassVar[dict[str, int]] = {"tags": 3, "rules": 2, "roots": 2, "spans": 4}
    algorithms = cky.CKY
    columns = 4
    _kept = ("grammar", "_index")
    rules: Float[Tensor, "B R"]
    roots: Float[Tensor, "B S"]
    spans: Float[Tensor, "B n n S"] | None
    _index: Int32[Tensor, " size"]

    def __init__(
        self,
        grammar: Grammar,
        tags: Tensor,
        lengths: Lengths = None,
        *,
        rules: Tensor | None = None,
        spans: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        tags = self._as_tags(tags, grammar)
        if grammar.scores.device != tags.device:
            raise ValueError(
                f"grammar must be on {tags.device} like tags, got {grammar.scores.device}; move it by its to()"
            )
        counts = as_lengths_up_to(tags.shape[1], lengths, tags, "tags", validate_args)
        (B, n), R, S = tags.shape[:2], len(grammar.parents), len(grammar.symbols)
        by_rule = grammar.scores if rules is None else _fitting(rules, "rules", tags, ((R,), (B, R)))
        over = None if spans is None else _fitting(spans, "spans", tags, ((B, n, n, S),)).to(tags.dtype)
        self.grammar = grammar
        self._index = _index_of(grammar, can_validate(tags, validate_args))
        scores = tags, by_rule.to(tags.dtype).expand(B, R), grammar.roots.to(tags.dtype).expand(B, S), over
        self._start(scores, counts, self._event(tags), validate_args)

    @property
    def scores(self) -> Scores:
        """tags, rules [B, R], roots [B, S], spans."""
        return self.tags, self.rules, self.roots, self.spans

    def _sizes(self) -> str:
        return super()._sizes() + ("" if self.spans is None else ", spans")

    def _shape(self, name: str) -> tuple[int, ...]:
        B, n = self.tags.shape[:2]
        return B, n, n, len(self.grammar.symbols)

    def _read(self, name: str) -> Bool[Tensor, "*shape"] | None:
        return dict(zip(self.parts, masks(self.scores, self.lengths), strict=True))[name]

    def _is_over_the_same(self, q: Self) -> bool:
        if self.rules.shape[1] != q.rules.shape[1] or self.roots.shape[1] != q.roots.shape[1]:
            return False
        validates = can_validate(self.lengths, self._validates)
        if validates and self.grammar is not q.grammar and not torch.equal(self._index, q._index):
            raise ValueError("grammar of p and q must have the same rules in the same order")
        return True

    def _without_shared(self) -> tuple[Self, Float64[Tensor, "B K"]]:
        """Every tree has a tag for each word, as many rules and spans as any other, and a root. What is not read is
        -inf."""
        n, shared = self.tags.shape[1], []
        found: list[Tensor | None] = []
        for name, x, read in zip(self.parts, self.scores, masks(self.scores, self.lengths), strict=True):
            if x is None or read is None:
                found.append(None)
                continue
            x, top = less_greatest(bounded(x, read), *((2,) if name == "tags" else range(1, x.dim())))
            found.append(x)
            if name == "tags":
                shared.append(top[:, :, 0])
            else:
                times = torch.ones_like(self.lengths) if name == "roots" else self.lengths - 1
                shared.append(repeated(top.reshape(-1, 1), times, 1 if name == "roots" else n - 1))
        return self._like(found), torch.cat(shared, 1)

    def _conditioned(self, required: Tensor | None, forbidden: Tensor | None) -> dict[str, Tensor]:
        S = len(self.grammar.symbols)
        allowed = allowed_spans(required, forbidden, self.tags, S, self.lengths, self._validates)
        spans = self._with(["spans"]).spans
        assert spans is not None
        of_words = allowed.diagonal(dim1=1, dim2=2).transpose(1, 2)[..., : self.tags.shape[2]]
        return {"tags": only(of_words, self.tags), "spans": only(allowed, spans)}

    def _inputs(self) -> tuple[Tensor, Tensor]:
        return self._index, self.lengths

    def _score(self, value: Int[Tensor, "*S B rows 4"], found: bool = True) -> Float64[Tensor, "*S B"]:
        tags, rules, roots, spans = self.scores
        return score_of(value, self.grammar, tags, self.lengths, rules=rules, roots=roots, spans=spans)

    @property
    def span_marginals(self) -> Float[Tensor, "B n n S"]:
        """Probability of each symbol over the words i..j, tags aside: [b, i, j, s]."""
        return self._with(["spans"])._sums("spans")


def _fitting(scores: Tensor, name: str, tags: Tensor, shapes: tuple[tuple[int, ...], ...]) -> Tensor:
    """Scores on the device of the tags, of one of the shapes."""
    scores = as_scores(scores, name)
    if tuple(scores.shape) not in shapes:
        wanted = " or ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"{name} must have shape {wanted} to fit tags and the grammar, got {list(scores.shape)}")
    if scores.device != tags.device:
        raise ValueError(f"{name} must be on {tags.device} like tags, got {scores.device}")
    return scores


def _index_of(grammar: Grammar, validates: bool) -> Int32[Tensor, " size"]:
    """The rules as the operators want them; kept with the grammar, for it never changes."""
    kept, checked = grammar.__dict__.get("_index", (None, False))
    if validates and not checked and (twice := double_rule(grammar)) is not None:
        raise ValueError(f"grammar must have a rule once, got {twice} twice")
    if kept is None:
        symbols = torch.stack([grammar.parents, grammar.lefts, grammar.rights])
        kept = index_rules(symbols, len(grammar.symbols))
    if may_keep() and not torch.compiler.is_compiling():
        object.__setattr__(grammar, "_index", (kept, validates or checked))
    return kept
