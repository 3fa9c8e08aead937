"""Binary trees of a grammar whose spans have head words, with scores of tags, rules and arcs, exactly: O(n^4 R)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.utils.weak import WeakTensorKeyDictionary

from gpuparse.constituents import as_trees
from gpuparse.distributions.common import as_batch_shape, as_sample_shape, may_keep, not_negative
from gpuparse.grammars import Grammar
from gpuparse.ops import lexical
from gpuparse.plain.lexical import Rules, Scores, heads_of, masks, tags_of, tree_scores
from gpuparse.shifts import add_up, arcs_less_greatest, bounded, check_sums, is_large, less_greatest, repeated
from gpuparse.trees import Lengths, as_lengths_up_to, as_scores, can_look

NAMES = ("log_partition", "tags", "arcs", "rules", "roots")


class LexicalizedTrees(Distribution):
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
    and its tags.

    A sentence without any tree has log Z = -inf, zero marginals and -1 for trees. ``log_partition``, the marginals,
    ``max``, ``entropy()`` and ``log_prob()`` are differentiable in all scores, log Z by kernels and what comes after by
    plain torch, which is slow. Results have the dtype and device of ``tags``. What was computed once is kept, with its
    graph. Memory: n^2 / 2 rows of n numbers for each tag or for each other symbol, whichever are more; marginals twice.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    heads_of = staticmethod(heads_of)
    tags_of = staticmethod(tags_of)

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
        if not isinstance(grammar, Grammar):
            raise ValueError(f"grammar must be a gpuparse.Grammar, got {type(grammar).__name__}")
        tags, arcs = as_scores(tags, "tags"), as_scores(arcs, "arcs")
        if tags.dim() != 3 or tags.shape[1] < 1 or tags.shape[2] != grammar.tags:
            raise ValueError(
                f"tags must have shape [B, n, T] with a word at least and T = {grammar.tags} as in the grammar, "
                f"got {list(tags.shape)}"
            )
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
        self.grammar = grammar
        self.tags: Float[Tensor, "B n T"] = tags
        self.arcs: Float[Tensor, "B N N"] = arcs
        self.rules: Float[Tensor, "*b R"] = rules
        self.lengths: Int[Tensor, " B"] = as_lengths_up_to(n, lengths, tags, "tags", validate_args)
        self._looks = validate_args
        self._known: dict[str, Tensor] = {}
        super().__init__(tags.shape[:1], torch.Size((2 * n - 1, 5)), validate_args=False)
        self._large = False
        if can_look(tags, validate_args):
            self._check()

    def _check(self) -> None:
        """Raise ValueError at a NaN or +inf among the scores that are read, or large ones that cannot be answered."""
        scores = self.scores
        if not any([is_large(x) for x in scores]):  # NaN and +inf are
            return
        for name, x, read in zip(NAMES[1:3], scores[:2], masks(scores, self.lengths)[:2], strict=True):
            wrong = ((x.detach().isnan() | x.detach().isposinf()) & read).nonzero()
            if len(wrong):
                where = wrong[0].tolist()
                raise ValueError(
                    f"{name}{where} is {float(x[tuple(where)].detach())} (sentence {where[0]}); "
                    "scores must be finite, or -inf for what is forbidden"
                )
        wrong = (self.rules.detach().isnan() | self.rules.detach().isposinf()).nonzero()
        if len(wrong):
            where = wrong[0].tolist()
            raise ValueError(
                f"rules{where} is {float(self.rules[tuple(where)].detach())}; "
                "scores must be finite, or -inf for what is forbidden"
            )
        given = {
            name: torch.where(read if x.dim() > 1 else read[0], x.detach(), 0.0)
            for name, x, read in zip(NAMES[1:], scores, masks(scores, self.lengths), strict=True)
        }
        self._large = any(is_large(x) for x in given.values())
        if self._large:
            with torch.no_grad():
                near, shared = self._without_shared()
                check_sums(near._sums("log_partition"), shared, given, self.tags.dtype, "trees")

    def _without_shared(self) -> tuple[LexicalizedTrees, Float64[Tensor, "B K"]]:
        """The same distribution in float64, scores less what all trees share, and what they share
        (``gpuparse.shifts``): every tree has a tag and a head a word, n - 1 rules and a root."""
        given = self.scores
        tags, arcs, rules, roots = (
            bounded(x, read if x.dim() > 1 else read[0])
            for x, read in zip(given, masks(given, self.lengths), strict=True)
        )
        tags, top = less_greatest(tags, 2)
        shared = [top[:, :, 0]]
        arcs, top = arcs_less_greatest(arcs, single_root=True)
        shared.append(top)
        rules, top = less_greatest(rules, 1)
        shared.append(repeated(top, self.lengths - 1, self.tags.shape[1] - 1))
        roots, top = less_greatest(roots, 0)
        shared.append(top.expand(len(self.lengths), 1))
        rules = rules if self.rules.dim() == 2 else rules[0]
        grammar = _with_roots(self.grammar, roots)
        near = type(self)(grammar, tags, arcs, self.lengths, rules=rules, validate_args=False)
        return near, torch.cat(shared, 1)

    def _near(self) -> LexicalizedTrees:
        """The same without what all trees share, where scores are large; else itself."""
        return self._without_shared()[0] if self._large else self

    @property
    def scores(self) -> Scores:
        """tags, arcs, rules [1 or B, R] and roots."""
        rules = self.rules if self.rules.dim() == 2 else self.rules[None]
        return self.tags, self.arcs, rules, self.grammar.roots.to(self.tags.dtype)

    def __getstate__(self) -> dict[str, Any]:
        """For copy and pickle: what it is made of, not what was computed from that."""
        return {key: value for key, value in self.__dict__.items() if key != "centred"} | {"_known": {}}

    def __repr__(self) -> str:
        B, n, _ = self.tags.shape
        return f"{type(self).__name__}(sentences: {B}, words: {n}, {self.grammar!r})"

    @property
    def support(self) -> Any:
        """Whole numbers, -1 or more. Not all such rows are a tree."""
        return constraints.independent(constraints.integer_interval(-1, 2**62), 2)

    def expand(self, batch_shape: Any, _instance: Any = None) -> LexicalizedTrees:
        """The same for more sentences: from [1] to any [B]."""
        shape = as_batch_shape(batch_shape, self.tags.shape[0])
        B = shape[0]
        rules = self.rules if self.rules.dim() == 1 else self.rules.expand(B, -1)
        tags, arcs, lengths = self.tags.expand(B, -1, -1), self.arcs.expand(B, -1, -1), self.lengths.expand(B)
        return type(self)(self.grammar, tags, arcs, lengths, rules=rules, validate_args=self._looks)

    def _sums(self, name: str) -> Tensor:
        """log_partition (in float64) or expected numbers, by name. What was computed is kept, unless it lacks the
        gradient that a later caller may want."""
        if name in self._known:
            return self._known[name]
        scores, rules = self.scores, _rules_of(self.grammar)
        differentiable = any(x.requires_grad for x in scores)
        wanted = torch.is_grad_enabled() and differentiable
        if self._large:
            near, shared = self._without_shared()
            value = near._sums(name)
            value = value + add_up(shared) if name == "log_partition" else value.to(self.tags.dtype)
        elif name == "log_partition" and not wanted:
            value = lexical.log_partition(scores, rules, self.lengths)
        else:
            logz, expected = lexical.marginals(scores, rules, self.lengths)
            found = dict(zip(NAMES, (logz, *expected), strict=True))
            value = found[name]
            if not differentiable and may_keep():
                self._known.update(found)
        if (wanted or not differentiable) and may_keep():
            self._known[name] = value
        return value

    @property
    def log_partition(self) -> Float[Tensor, " B"]:
        """log of the sum over all trees of exp(score). Where marginals are wanted too, ask for them first."""
        return self._sums("log_partition").to(self.tags.dtype)

    @property
    def tag_marginals(self) -> Float[Tensor, "B n T"]:
        """Probability of each tag of each word."""
        return self._sums("tags")

    @property
    def arc_marginals(self) -> Float[Tensor, "B N N"]:
        """Probability of each arc [b, head, modifier]; head 0: of the head word of the whole."""
        return self._sums("arcs")

    @property
    def rule_marginals(self) -> Float[Tensor, "B R"]:
        """How often a tree has each rule, on average."""
        return self._sums("rules")

    @property
    def root_marginals(self) -> Float[Tensor, "B S"]:
        """Probability of each symbol at the root."""
        return self._sums("roots")

    def _detached(self) -> Scores:
        tags, arcs, rules, roots = (x.detach() for x in self._near().scores)
        return tags, arcs, rules, roots

    @property
    def argmax(self) -> Int64[Tensor, "B M 5"]:
        """A best tree; among equals the same one every time."""
        if "argmax" not in self._known:
            self._known["argmax"] = lexical.argmax(self._detached(), _rules_of(self.grammar), self.lengths)
        return self._known["argmax"].clone()  # the caller may write to it

    @property
    def mode(self) -> Int64[Tensor, "B M 5"]:
        """``argmax``, by its name in torch.distributions."""
        return self.argmax

    @property
    def max(self) -> Float[Tensor, " B"]:
        """Score of a best tree, -inf if there is none; its gradient is what that tree is made of."""
        return self.score(self.argmax)

    def score(self, value: Int[Tensor, "*S B M 5"]) -> Float[Tensor, "*S B"]:
        """Score of each tree; -inf for rows that are no tree of this grammar and sentence."""
        return self._score(value).to(self.tags.dtype)

    def _score(self, value: Int[Tensor, "*S B M 5"]) -> Float64[Tensor, "*S B"]:
        return tree_scores(self.scores, _rules_of(self.grammar), as_trees(value, self.tags, 5), self.lengths)

    def sample(self, sample_shape: Any = ()) -> Int64[Tensor, "*S B M 5"]:
        """Independent exact draws; follows ``torch.manual_seed``."""
        shape = as_sample_shape(sample_shape)
        with torch.no_grad():
            trees = lexical.sample(self._detached(), _rules_of(self.grammar), self.lengths, shape.numel())
        return trees.reshape(*shape, *trees.shape[1:])

    def log_prob(self, value: Int[Tensor, "*S B M 5"]) -> Float[Tensor, "*S B"]:
        """log p of each tree, its rows in any order; -inf for rows that are no tree of this grammar and sentence."""
        near = self._near()
        score = near._score(value)
        difference = score - near._sums("log_partition")
        difference = difference - difference.detach().clamp(min=0)  # rounding above 0
        return torch.where(score.detach().isneginf(), -torch.inf, difference).to(self.tags.dtype)

    def _centred(self) -> LexicalizedTrees:
        """The same distribution in float64, near 0: every tree has a tag and a head a word, n - 1 rules and a root."""
        if "centred" not in self.__dict__:
            wide = self._without_shared()[0]
            differentiable = any(x.requires_grad for x in self.scores)
            if (differentiable and not torch.is_grad_enabled()) or not may_keep():
                return wide
            self.centred = wide
        return self.centred

    def entropy(self) -> Float[Tensor, " B"]:
        """-sum p log p, exactly: log Z minus the expected score."""
        p = self._centred()
        logz, expected = lexical.marginals(p.scores, _rules_of(p.grammar), p.lengths)
        for mu, x in zip(expected, p.scores, strict=True):
            logz = logz - (mu * torch.where(x.isfinite(), x, 0.0)).flatten(1).sum(1)
        none = logz.detach().isneginf()
        return torch.where(none, 0.0, not_negative(torch.where(none, 0.0, logz))).to(self.tags.dtype)


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


def _with_roots(grammar: Grammar, roots: Tensor) -> Grammar:
    """The same rules, with other scores of roots, which nobody looks at."""
    other: Grammar = object.__new__(Grammar)
    state = {**grammar.__dict__, "roots": roots, "scores": grammar.scores.detach().double()}
    for name, value in state.items():
        object.__setattr__(other, name, value)
    return other
