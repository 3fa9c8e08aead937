"""Context-free grammars in Chomsky normal form, with heads and scores."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpuparse.structures.trees import as_integers, as_scores, short

OfRules = Int64[Tensor, " R"]


@dataclass(frozen=True)
class Grammar:
    """Rules A -> B C over symbols, the first ``tags`` of which are tags of words and have no rules.

    A tree of n words has n - 1 rules and a tag for every word; the tree of one word is its tag. Scores are added:
    log-probabilities, or any others.

    Attributes:
        symbols: names, the tags first.
        tags: T, how many are tags.
        parents, lefts, rights: A, B and C of the rules.
        heads: which child has the head word of the parent, 0 (left) or 1 (right).
        scores: of the rules; their dtype is that of everything computed with the grammar (at least float32).
        roots: of the symbols at the root of a tree, -inf where a symbol may not be there.

    Raises ValueError where these do not fit each other, naming the one that is wrong.

    Example:
        >>> import torch, gpuparse as gp
        >>> rules = torch.tensor([[2, 0, 1], [2, 0, 2]])  # S -> D N, S -> D S
        >>> heads, scores = torch.tensor([1, 1]), torch.zeros(2)
        >>> gp.Grammar(("D", "N", "S"), 2, *rules.T, heads, scores, torch.tensor([-torch.inf, -torch.inf, 0.0]))
        Grammar(symbols: 3, tags: 2, rules: 2)
    """

    symbols: tuple[str, ...]
    tags: int
    parents: OfRules
    lefts: OfRules
    rights: OfRules
    heads: OfRules
    scores: Float[Tensor, " R"]
    roots: Float[Tensor, " S"]

    def __post_init__(self) -> None:
        if not isinstance(self.symbols, tuple) or not all(isinstance(symbol, str) for symbol in self.symbols):
            raise ValueError("symbols must be a tuple of names")
        for name in ("scores", "roots"):
            x = as_scores(getattr(self, name), name)
            if x.dim() != 1:
                raise ValueError(f"{name} must have one dimension, got {list(x.shape)}")
            object.__setattr__(self, name, x)
        S, R = len(self.symbols), self.scores.shape[0]
        if type(self.tags) is not int or not 1 <= self.tags <= S:
            raise ValueError(f"tags must be from 1 to the {S} symbols, got {short(self.tags)}")
        if len(set(self.symbols)) != S:
            double = sorted({s for s in self.symbols if self.symbols.count(s) > 1})
            raise ValueError(f"symbols must differ, got {double[0]!r} twice")
        for name, most in (("parents", S), ("lefts", S), ("rights", S), ("heads", 2)):
            x = as_integers(getattr(self, name), name, f"[{R}] like scores", self.scores.device)
            if x.dtype != torch.int64 or x.shape != (R,):
                raise ValueError(f"{name} must be int64 [{R}] like scores, got {x.dtype} {list(x.shape)}")
            if R and (int(x.min()) < 0 or int(x.max()) >= most):
                raise ValueError(f"{name} must be from 0 to {most - 1}, got {int(x.min())} to {int(x.max())}")
        if R and int(self.parents.min()) < self.tags:
            raise ValueError(f"parents must not be tags, got {self.symbols[int(self.parents.min())]!r}")
        kind, place = self.scores.dtype, self.scores.device
        if self.roots.shape != (S,) or self.roots.dtype != kind or self.roots.device != place:
            found = f"{self.roots.dtype} {list(self.roots.shape)} on {self.roots.device}"
            raise ValueError(f"roots must be {kind} [{S}] on {place} like scores, got {found}")
        for name in ("scores", "roots"):
            x = getattr(self, name)
            if bool((x.isnan() | (x == torch.inf)).any()):
                raise ValueError(f"{name} must be numbers below +inf")

    def __repr__(self) -> str:
        return f"Grammar(symbols: {len(self.symbols)}, tags: {self.tags}, rules: {self.scores.shape[0]})"

    def to(self, where: torch.device | str | torch.dtype) -> Grammar:
        """On another device, or with scores of another dtype."""
        scores = {name: getattr(self, name).to(where) for name in ("scores", "roots")}
        names = ("parents", "lefts", "rights", "heads")
        same = isinstance(where, torch.dtype)
        indices = {name: getattr(self, name) if same else getattr(self, name).to(where) for name in names}
        return Grammar(self.symbols, self.tags, **indices, **scores)

    def merged(self) -> Grammar:
        """Without heads: every A -> B C once, the probabilities of both sides added (heads are 0, and mean nothing)."""
        S, R = len(self.symbols), self.scores.shape[0]
        keys, place = torch.unique((self.parents * S + self.lefts) * S + self.rights, return_inverse=True)
        if len(keys) == R:
            return self
        top = self.scores.new_full((len(keys),), -torch.inf).scatter_reduce(0, place, self.scores, "amax")
        shift = torch.where(top > -torch.inf, top, 0.0)
        total = torch.zeros_like(top).scatter_add(0, place, (self.scores - shift[place]).exp())
        rules = (keys // S // S, keys // S % S, keys % S)
        return Grammar(self.symbols, self.tags, *rules, torch.zeros_like(keys), shift + total.log(), self.roots)
