"""Binary trees of a context-free grammar in Chomsky normal form: inside and outside (CKY), O(n^3 R) time."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Float64, Int, Int32
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.kl import register_kl

from gpuparse.constituents import Trees, as_trees, double_rule, score_of
from gpuparse.distributions.common import as_batch_shape, as_sample_shape, may_keep, not_negative
from gpuparse.grammars import Grammar
from gpuparse.ops import cky
from gpuparse.plain.cky import Scores, index_rules, masks
from gpuparse.shifts import add_up, bounded, check_sums, is_large, less_greatest, repeated
from gpuparse.trees import Lengths, as_lengths_up_to, as_scores, can_look

NAMES = ("log_partition", "tags", "rules", "roots", "spans")


class ConstituencyTrees(Distribution):
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
    -inf, its marginals are 0 and its trees -1. Trees are tensors [..., B, 2n - 1, 4] (``gpuparse.constituents``).

    ``log_partition``, all marginals, ``max``, ``entropy()``, ``log_prob()`` and the KL divergence are differentiable in
    all scores, the grammar's too, twice and more; results have the dtype and device of ``tags``. What was computed once
    is kept, with its graph: to back through the same distribution twice, pass ``retain_graph=True`` the first time or
    make it anew.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

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
        if not isinstance(grammar, Grammar):
            raise ValueError(f"grammar must be a gpuparse.Grammar, got {type(grammar).__name__}")
        tags = as_scores(tags, "tags")
        if tags.dim() != 3 or tags.shape[1] < 1 or tags.shape[2] != grammar.tags:
            raise ValueError(
                f"tags must have shape [B, n, {grammar.tags}] with a word at least, like the grammar's tags, "
                f"got {list(tags.shape)}"
            )
        if grammar.scores.device != tags.device:
            raise ValueError(
                f"grammar must be on {tags.device} like tags, got {grammar.scores.device}; move it by its to()"
            )
        self.grammar = grammar
        self.tags: Float[Tensor, "B n T"] = tags
        self.lengths: Int[Tensor, " B"] = as_lengths_up_to(tags.shape[1], lengths, tags, "tags", validate_args)
        (B, n), R, S = tags.shape[:2], len(grammar.parents), len(grammar.symbols)
        given = grammar.scores if rules is None else _fitting(rules, "rules", tags, ((R,), (B, R)))
        self.rules: Float[Tensor, "B R"] = given.to(tags.dtype).expand(B, R)
        self.roots: Float[Tensor, "B S"] = grammar.roots.to(tags.dtype).expand(B, S)
        self.spans: Float[Tensor, "B n n S"] | None = None
        if spans is not None:
            self.spans = _fitting(spans, "spans", tags, ((B, n, n, S),)).to(tags.dtype)
        self._looks = validate_args
        self._known: dict[str, Tensor] = {}
        super().__init__(tags.shape[:1], torch.Size((2 * n - 1, 4)), validate_args=False)
        self._index: Int32[Tensor, " size"] = _index_of(grammar, can_look(tags, validate_args))
        self._large = False
        if can_look(tags, validate_args):
            self._check_scores()

    def _check_scores(self) -> None:
        """Raise ValueError at a NaN or +inf among the scores that are read, or large ones that cannot be answered."""
        if not any([is_large(x) for x in self.scores]):  # NaN and +inf are
            return
        given = dict(zip(NAMES[1:], self.scores, strict=True))
        for (name, x), read in zip(given.items(), masks(self.scores, self.lengths), strict=True):
            if x is None or read is None:
                continue
            given[name] = torch.where(read, x.detach(), 0.0)
            wrong = (read & (x.isnan() | x.isposinf())).nonzero()
            if len(wrong):
                place = wrong[0].tolist()
                raise ValueError(
                    f"{name}{place} is {float(x[tuple(place)].detach())} (sentence {place[0]}); "
                    "scores must be finite, or -inf for what is forbidden"
                )
        self._large = any(is_large(x) for x in given.values())
        if self._large:
            with torch.no_grad():
                near, shared = self._without_shared()
                check_sums(near._sums("log_partition"), shared, given, self.tags.dtype, "trees")

    def _without_shared(self) -> tuple[ConstituencyTrees, Float64[Tensor, "B K"]]:
        """The same distribution in float64, scores less what all trees share, and what they share
        (``gpuparse.shifts``): every tree has a tag for each word, as many rules and spans as any other, and a root.
        What is not read is -inf."""
        n, shared = self.tags.shape[1], []
        found: list[Tensor | None] = []
        for name, x, read in zip(NAMES[1:], self.scores, masks(self.scores, self.lengths), strict=True):
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
        tags, rules, roots, spans = found
        assert tags is not None and rules is not None and roots is not None
        return self._like((tags, rules, roots, spans), self.lengths), torch.cat(shared, 1)

    def _near(self) -> ConstituencyTrees:
        """The same without what all trees share, where scores are large; else itself."""
        return self._without_shared()[0] if self._large else self

    @property
    def scores(self) -> Scores:
        """tags, rules [B, R], roots [B, S], spans."""
        return self.tags, self.rules, self.roots, self.spans

    def _like(self, scores: Scores, lengths: Tensor, looks: bool | None = False) -> ConstituencyTrees:
        """Of the same kind, with other scores."""
        tags, rules, roots, spans = scores
        made = type(self)(self.grammar, tags, lengths, rules=rules, spans=spans, validate_args=False)
        made.roots, made._looks = roots, looks
        return made

    def __getstate__(self) -> dict[str, Any]:
        """For copy and pickle: what it is made of, not what was computed from that."""
        return {key: value for key, value in self.__dict__.items() if key != "centred"} | {"_known": {}}

    def __repr__(self) -> str:
        B, n = self.tags.shape[:2]
        spans = "" if self.spans is None else ", spans"
        return f"{type(self).__name__}(sentences: {B}, words: {n}, {self.grammar}{spans})"

    @property
    def support(self) -> Any:
        """Rows of trees: words and symbols, whole numbers from -1 on. Not every such matrix is a tree."""
        most = max(self.tags.shape[1], len(self.grammar.symbols)) - 1
        return constraints.independent(constraints.integer_interval(-1, most), 2)

    def expand(self, batch_shape: Any, _instance: Any = None) -> ConstituencyTrees:
        """The same for more sentences: from [1] to any [B]."""
        shape = as_batch_shape(batch_shape, self.tags.shape[0])
        tags, rules, roots, spans = (
            None if x is None else x.expand(shape[0], *[-1] * (x.dim() - 1)) for x in self.scores
        )
        assert tags is not None and rules is not None and roots is not None
        made = self._like((tags, rules, roots, spans), self.lengths.expand(shape[0]), self._looks)
        made._large = self._large
        return made

    def _requires_grad(self) -> bool:
        return any(x is not None and x.requires_grad for x in self.scores)

    def _sums(self, name: str) -> Tensor:
        """log_partition (in float64) or the expected numbers of a kind of parts, by name. What was computed is kept,
        unless it lacks the gradient that a later caller may want. Each has a graph of its own."""
        if name in self._known:
            return self._known[name]
        differentiable = self._requires_grad()
        wanted = torch.is_grad_enabled() and differentiable
        if self._large:
            near, shared = self._without_shared()
            value = near._sums(name)
            value = value + add_up(shared) if name == "log_partition" else value.to(self.tags.dtype)
        elif name == "log_partition" and not wanted:
            value = cky.log_partition(self.scores, self._index, self.lengths)
        else:
            found = self._marginals()
            value = found[name]
            if not differentiable and may_keep():
                self._known.update(found)
        if (wanted or not differentiable) and may_keep():
            self._known[name] = value
        return value

    def _marginals(self) -> dict[str, Tensor]:
        all_of = cky.marginals(self.scores, self._index, self.lengths)
        return {name: x for name, x in zip(NAMES, all_of, strict=True) if x is not None}

    def _all_sums(self) -> dict[str, Tensor]:
        """What ``_sums`` gives, all by one call and with one graph: for results that are made of several."""
        there = NAMES if self.spans is not None else NAMES[:-1]
        if all(name in self._known for name in there):
            return self._known
        found = self._marginals()
        if (torch.is_grad_enabled() or not self._requires_grad()) and may_keep():
            self._known.update(found)
        return found

    @property
    def log_partition(self) -> Float[Tensor, " B"]:
        """log of the sum over all trees of exp(score)."""
        return self._sums("log_partition").to(self.tags.dtype)

    @property
    def tag_marginals(self) -> Float[Tensor, "B n T"]:
        """Probability of each tag of each word."""
        return self._sums("tags")

    @property
    def rule_marginals(self) -> Float[Tensor, "B R"]:
        """Expected number of times that each rule is used."""
        return self._sums("rules")

    @property
    def root_marginals(self) -> Float[Tensor, "B S"]:
        """Probability of each symbol at the root."""
        return self._sums("roots")

    @property
    def span_marginals(self) -> Float[Tensor, "B n n S"]:
        """Probability of each symbol over the words i..j, tags aside: [b, i, j, s]."""
        return self._with_spans()._sums("spans")

    def _with_spans(self) -> ConstituencyTrees:
        """The same, with scores of 0 for spans if they have none."""
        if self.spans is not None:
            return self
        B, n = self.tags.shape[:2]
        spans = self.tags.new_zeros(B, n, n, len(self.grammar.symbols))
        made = self._like((self.tags, self.rules, self.roots, spans), self.lengths)
        made._large = self._large
        return made

    def _detached(self) -> Scores:
        near = self._near()
        spans = None if near.spans is None else near.spans.detach()
        return near.tags.detach(), near.rules.detach(), near.roots.detach(), spans

    @property
    def argmax(self) -> Int[Tensor, "B rows 4"]:
        """A best tree; among equals the same one every time."""
        if "argmax" not in self._known:
            self._known["argmax"] = cky.argmax(self._detached(), self._index, self.lengths)
        return self._known["argmax"].clone()  # the caller may write to it

    @property
    def mode(self) -> Int[Tensor, "B rows 4"]:
        """``argmax``, by its name in torch.distributions."""
        return self.argmax

    @property
    def max(self) -> Float[Tensor, " B"]:
        """Score of a best tree; its gradient is that tree."""
        return self._score(self.argmax).to(self.tags.dtype)

    def _score(self, trees: Trees) -> Float[Tensor, "*S B"]:
        tags, rules, roots, spans = self.scores
        return score_of(trees, self.grammar, tags, self.lengths, rules=rules, roots=roots, spans=spans)

    def sample(self, sample_shape: Any = ()) -> Trees:
        """Independent exact draws; follows ``torch.manual_seed``."""
        shape = as_sample_shape(sample_shape)
        with torch.no_grad():
            trees = cky.sample(self._detached(), self._index, self.lengths, shape.numel())
        return trees.reshape(*shape, *trees.shape[1:])

    def log_prob(self, value: Trees) -> Float[Tensor, "*S B"]:
        """log p of each tree; -inf for what is no tree of the grammar. Rows past the end are not read."""
        near = self._near()
        score = near._score(as_trees(value, self.tags))
        value = score - near._sums("log_partition")
        value = value - value.detach().clamp(min=0)  # rounding above 0
        return torch.where(score.isneginf(), -torch.inf, value).to(self.tags.dtype)

    def _centred(self) -> ConstituencyTrees:
        """The same distribution in float64, scores shifted by their greatest: nothing large cancels."""
        if "centred" not in self.__dict__:
            wide = self._without_shared()[0]
            if (self._requires_grad() and not torch.is_grad_enabled()) or not may_keep():
                return wide
            self.centred: ConstituencyTrees = wide
        return self.centred

    def _expected_scores(self, *of: ConstituencyTrees) -> tuple[Float[Tensor, " B"], list[Float[Tensor, " B"]]]:
        """log Z, and the expected scores of a tree from here under each ``of``, whose forbidden parts count 0."""
        p = self._with_spans() if any(q.spans is not None for q in of) else self
        sums = p._all_sums()
        totals = []
        for q in of:
            each = [
                (sums[name] * torch.where(x.isfinite(), x, 0.0)).flatten(1).sum(1)
                for name, x in zip(NAMES[1:], q.scores, strict=True)
                if x is not None
            ]
            totals.append(torch.stack(each).sum(0))
        return sums["log_partition"], totals

    def entropy(self) -> Float[Tensor, " B"]:
        """-sum p log p, exactly: log Z minus the expected score. NaN where there is no tree."""
        p = self._centred()
        log_z, (expected,) = p._expected_scores(p)
        return not_negative(log_z - expected).to(self.tags.dtype)

    def _has_tree_outside(self, q: ConstituencyTrees) -> Bool[Tensor, " B"]:
        """Whether some tree that is possible here, however rare it is, is forbidden in q; both are centred."""
        p = self._with_spans() if q.spans is not None else self
        found = torch.zeros_like(p.lengths, dtype=torch.bool)
        pairs = [(x, y) for x, y in zip(p.scores, q.scores, strict=True) if x is not None and y is not None]
        if can_look(p.tags, None) and not any(bool((y.isneginf() & ~x.isneginf()).any()) for x, y in pairs):
            return found
        alike = [None if x is None else torch.where(x.detach().isneginf(), -torch.inf, 0.0).double() for x in p.scores]
        tags, rules, roots, spans = alike
        assert tags is not None and rules is not None and roots is not None
        share = p._like((tags, rules, roots, spans), p.lengths)._all_sums()  # all trees alike
        for name, x, read in zip(NAMES[1:], q.scores, masks(p.scores, p.lengths), strict=True):
            if x is not None and read is not None:
                found = found | (read & (share[name] > 0) & x.isneginf()).flatten(1).any(1)
        return found


def _fitting(scores: Tensor, name: str, tags: Tensor, shapes: tuple[tuple[int, ...], ...]) -> Tensor:
    """Scores on the device of the tags, of one of the shapes."""
    scores = as_scores(scores, name)
    if tuple(scores.shape) not in shapes:
        wanted = " or ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"{name} must have shape {wanted} to fit tags and the grammar, got {list(scores.shape)}")
    if scores.device != tags.device:
        raise ValueError(f"{name} must be on {tags.device} like tags, got {scores.device}")
    return scores


def _index_of(grammar: Grammar, looks: bool) -> Int32[Tensor, " size"]:
    """The rules as the operators want them; kept with the grammar, for it never changes."""
    kept, checked = grammar.__dict__.get("_index", (None, False))
    if looks and not checked and (twice := double_rule(grammar)) is not None:
        raise ValueError(f"grammar must have a rule once, got {twice} twice")
    if kept is None:
        symbols = torch.stack([grammar.parents, grammar.lefts, grammar.rights])
        kept = index_rules(symbols, len(grammar.symbols))
    if may_keep() and not torch.compiler.is_compiling():
        object.__setattr__(grammar, "_index", (kept, looks or checked))
    return kept


@register_kl(ConstituencyTrees, ConstituencyTrees)
def _kl(p: ConstituencyTrees, q: ConstituencyTrees) -> Float[Tensor, " B"]:
    """sum p log(p / q), exactly; inf where p has a tree that q forbids. Both are over the same rules."""
    if p.tags.shape != q.tags.shape or p.rules.shape != q.rules.shape or p.roots.shape != q.roots.shape:
        raise ValueError(f"KL needs two distributions over the same trees, got {p} and {q}")
    if can_look(p.lengths, p._looks):
        if p.grammar is not q.grammar and not torch.equal(p._index, q._index):
            raise ValueError("grammar of p and q must have the same rules in the same order")
        if not torch.equal(p.lengths, q.lengths):
            i = int((p.lengths != q.lengths).nonzero()[0])
            raise ValueError(
                f"lengths of sentence {i} must be the same in p and q, got {p.lengths[i]} and {q.lengths[i]}"
            )
    a, b = p._centred(), q._centred()
    log_z, (own, other) = a._expected_scores(a, b)
    value = b._sums("log_partition") - log_z + own - other
    return torch.where(a._has_tree_outside(b), torch.inf, not_negative(value)).to(p.tags.dtype)
