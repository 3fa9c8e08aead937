"""The scores of everything that a parse is made of, checked once: what inference takes."""

from __future__ import annotations

from typing import NoReturn

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from gpuparse.decoding.parts import DenseParts, Kind, Parts, TakenParts, as_grandsiblings, as_parts
from gpuparse.distributions import NonProjectiveTrees, ProjectiveTrees, SecondOrderTrees, TreeDistribution
from gpuparse.ops.checks import check_scores
from gpuparse.ops.shifts import is_large, sum_less_greatest
from gpuparse.structures.masks import arc_mask, previous_sibling, word_mask
from gpuparse.structures.trees import (
    Lengths,
    as_arcs,
    as_heads,
    as_integers,
    as_lengths,
    as_scores,
    can_validate,
    tree_scores,
)


class Scores:
    """Scores of arcs, labels, siblings, grandparents and grandsiblings of a batch of sentences; fixed once made.

    Args:
        arcs: scores [B, N, N] of head -> modifier; -inf forbids an arc. float32 or float64; half precision is
            taken as float32, here and below.
        lengths: words of each sentence [B], 1 to N - 1; None if all are full.
        labels: scores [B, N, N, L] of an arc's label, added to the arc's.
        siblings: [B, N, N, N], or lazily scored parts of that kind. ``siblings[b, h, s, m]``: s is the previous child
            of h on m's side, going outward; s = h for the first child.
        grandparents: [B, N, N, N], or lazily scored parts. ``grandparents[b, g, p, c]``: arcs g -> p and p -> c.
        grandsiblings: [B, N, N, N, N]. ``grandsiblings[b, g, h, s, m]``: siblings (h, s, m) where g is the head of h;
            children of the root have none.
        validate_args: raise ValueError at a NaN, +inf or bad length. Default: on a CPU yes; on a GPU no, since looking
            waits for the device.

    The arguments are attributes; ``lengths`` is an int64 tensor, ``siblings`` and ``grandparents`` are families of
    parts (``gpuparse.decoding.parts``) or None, ``grandsiblings`` a tensor or None.

    Example:
        >>> import torch, gpuparse as gp
        >>> gp.Scores(torch.randn(2, 5, 5), lengths=[4, 3], labels=torch.randn(2, 5, 5, 7))
        Scores(sentences: 2, words: 4, labels: 7)
        >>> gp.Scores(torch.randn(2, 5, 5), grandparents=torch.randn(2, 5, 5, 5)).second_order
        ('grandparents',)
    """

    arcs: Float[Tensor, "B N N"]
    lengths: Int[Tensor, " B"]
    labels: Float[Tensor, "B N N L"] | None
    siblings: Parts | None
    grandparents: Parts | None
    grandsiblings: Float[Tensor, "B N N N N"] | None
    validate_args: bool | None
    large: bool
    """Whether scores were seen to be large (``gpuparse.ops.shifts``)."""

    def __init__(
        self,
        arcs: Tensor,
        lengths: Lengths = None,
        *,
        labels: Tensor | None = None,
        siblings: Tensor | Parts | None = None,
        grandparents: Tensor | Parts | None = None,
        grandsiblings: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        arcs = as_arcs(arcs)
        counts = as_lengths(lengths, arcs, validate_args)
        labels = None if labels is None else _as_labels(labels, arcs)
        large = False
        if can_validate(arcs, validate_args):
            _, large = check_scores(arcs, counts)
            if labels is not None:
                large = _check_labels(labels, counts) or large
        beside = as_parts(siblings, "siblings", arcs, counts, validate_args)
        above = as_parts(grandparents, "grandparents", arcs, counts, validate_args)
        third, far = as_grandsiblings(grandsiblings, arcs, counts, validate_args)
        if can_validate(arcs, validate_args):
            large = large or far or any(parts is not None and parts.large for parts in (beside, above))
        self._set(arcs, counts, labels, beside, above, third, validate_args, large)

    def _set(
        self,
        arcs: Tensor,
        lengths: Tensor,
        labels: Tensor | None,
        siblings: Parts | None,
        grandparents: Parts | None,
        grandsiblings: Tensor | None,
        validate_args: bool | None,
        large: bool,
    ) -> None:
        values = (arcs, lengths, labels, siblings, grandparents, grandsiblings, validate_args, large)
        names = ("arcs", "lengths", "labels", "siblings", "grandparents", "grandsiblings", "validate_args", "large")
        self.__dict__.update(zip(names, values, strict=True))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: Scores are fixed once made; make new ones")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: Scores are fixed once made; make new ones")

    def __repr__(self) -> str:
        B, N = self.arcs.shape[:2]
        labels = "" if self.labels is None else f", labels: {self.labels.shape[-1]}"
        return f"Scores(sentences: {B}, words: {N - 1}{labels}{''.join(', ' + kind for kind in self.kinds)})"

    def _with(
        self,
        arcs: Tensor,
        labels: Tensor | None,
        siblings: Parts | None,
        grandparents: Parts | None,
        grandsiblings: Tensor | None,
    ) -> Scores:
        """Other scores of the same sentences, which need no check."""
        made = object.__new__(Scores)
        pairs = siblings, grandparents, grandsiblings
        made._set(arcs, self.lengths, labels, *pairs, self.validate_args, self.large)
        return made

    @property
    def second_order(self) -> tuple[Kind, ...]:
        """Which kinds of pairs of arcs there are."""
        both: tuple[tuple[Kind, Parts | None], ...] = (("siblings", self.siblings), ("grandparents", self.grandparents))
        return tuple(kind for kind, parts in both if parts is not None)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Which kinds of parts there are beyond arcs and labels."""
        return self.second_order if self.grandsiblings is None else (*self.second_order, "grandsiblings")

    @property
    def parts(self) -> tuple[Parts, ...]:
        """The families of ``second_order``, in its order."""
        return tuple(parts for parts in (self.siblings, self.grandparents) if parts is not None)

    @property
    def validates(self) -> bool:
        """Whether values of these scores may be read without waiting, or were asked to be."""
        return can_validate(self.arcs, self.validate_args)

    @property
    def dtype(self) -> torch.dtype:
        """Of arcs and all that are of several arcs together: float64 if any of them are."""
        third = [] if self.grandsiblings is None else [self.grandsiblings.dtype]
        wide = torch.float64 in (self.arcs.dtype, *(parts.dtype for parts in self.parts), *third)
        return torch.float64 if wide else torch.float32

    def to(self, device: torch.device | str) -> Scores:
        """The same on another device."""
        made = object.__new__(Scores)
        made._set(
            self.arcs.to(device),
            self.lengths.to(device),
            None if self.labels is None else self.labels.to(device),
            None if self.siblings is None else self.siblings.to(device),
            None if self.grandparents is None else self.grandparents.to(device),
            None if self.grandsiblings is None else self.grandsiblings.to(device),
            self.validate_args,
            self.large,
        )
        return made

    def take(self, rows: Int[Tensor, " K"]) -> Scores:
        """Those of some of the sentences, any of which may be there more than once."""
        made = object.__new__(Scores)
        made._set(
            self.arcs[rows],
            self.lengths[rows],
            None if self.labels is None else self.labels[rows],
            None if self.siblings is None else TakenParts(self.siblings, rows),
            None if self.grandparents is None else TakenParts(self.grandparents, rows),
            None if self.grandsiblings is None else self.grandsiblings[rows],
            self.validate_args,
            self.large,
        )
        return made

    def trees(self, *, projective: bool, single_root: bool) -> TreeDistribution:
        """The exact distribution over trees, labels left out; under pairs of arcs over projective ones alone.

        Its results are in ``dtype``, so that no score is rounded. Large scores are looked at once more.
        """
        if not self.kinds:
            family = ProjectiveTrees if projective else NonProjectiveTrees
            return family(self.arcs, self.lengths, single_root=single_root, validate_args=self.large)
        if not projective:
            pairs = " and ".join(self.kinds)
            raise ValueError(f"under {pairs} probabilities are known of projective trees alone; ask for these")
        return SecondOrderTrees(
            self.arcs.to(self.dtype),
            self.lengths,
            siblings=self.siblings,
            grandparents=self.grandparents,
            grandsiblings=self.grandsiblings,
            single_root=single_root,
            validate_args=self.large,
        )

    def tensors(self) -> dict[str, Tensor]:
        """The scores of each of the ``kinds``, all pairs scored; they carry a gradient."""
        found: dict[str, Tensor] = {parts.kind: parts.dense() for parts in self.parts}
        return found if self.grandsiblings is None else {**found, "grandsiblings": self.grandsiblings}

    def check_pairs(self, who: str) -> Scores:
        """The same; a ValueError if there are parts of more than two arcs, which that function does not take."""
        if self.grandsiblings is not None:
            raise ValueError(f"{who} takes siblings and grandparents, but scores have grandsiblings; leave these out")
        return self

    def dense(self) -> Scores:
        """The same without gradients, all pairs scored."""
        pairs = dict(zip(self.second_order, self.parts, strict=True))
        every = {
            kind: DenseParts(x.dense().detach(), self.lengths, kind=kind, validate_args=False)
            for kind, x in pairs.items()
        }
        labels = None if self.labels is None else self.labels.detach()
        third = None if self.grandsiblings is None else self.grandsiblings.detach()
        return self._with(self.arcs.detach(), labels, every.get("siblings"), every.get("grandparents"), third)

    def with_parts(self, siblings: Parts | None, grandparents: Parts | None) -> Scores:
        """The same with other families of pairs, which are not checked."""
        return self._with(self.arcs, self.labels, siblings, grandparents, self.grandsiblings)

    def with_arcs(self, arcs: Float[Tensor, "B N N"], validate_args: bool | None = None) -> Scores:
        """The same with other scores of arcs, which are not checked."""
        made = self._with(arcs, self.labels, self.siblings, self.grandparents, self.grandsiblings)
        made.__dict__["validate_args"] = self.validate_args if validate_args is None else validate_args
        return made

    def first_order(self) -> Scores:
        """The arcs and labels alone."""
        return self._with(self.arcs, self.labels, None, None, None)

    def of_each_arc(self) -> dict[str, Float[Tensor, "B N N"]]:
        """What a best tree's arcs are scored by: arcs and their best labels. 0 where they are not read; no gradient."""
        read = arc_mask(self.lengths, self.arcs.shape[1])
        each = {"arcs": self.arcs} if self.labels is None else {"arcs": self.arcs, "labels": self.labels.amax(-1)}
        return {name: torch.where(read, x.detach(), 0.0) for name, x in each.items()}

    def less_shared(self, single_root: bool) -> Scores:
        """``fold_labels`` of large scores, less what all trees share: with the same best trees, and no others."""
        arcs = sum_less_greatest(self.of_each_arc(), self.lengths, single_root)
        return self._with(arcs, None, self.siblings, self.grandparents, self.grandsiblings)

    def fold_labels(self) -> Scores:
        """Without labels: each arc's best label added to its score, in float64 so that no order is lost by rounding.

        A best tree of these and the best labels of its arcs are a best labelled tree. The gradient goes to the first of
        the best labels.
        """
        if self.labels is None:
            return self
        arcs = self.arcs.double() + _best(self.labels).double()
        return self._with(arcs, None, self.siblings, self.grandparents, self.grandsiblings)

    def best_labels(self, heads: Int[Tensor, "*S B N"]) -> Int[Tensor, "*S B N"]:
        """The best label of each word's arc; -1 where ``heads`` is negative, at node 0 and past the end."""
        if self.labels is None:
            raise ValueError("best_labels: these scores have no labels")
        word = word_mask(self.lengths, self.arcs.shape[1]) & (heads >= 0)
        return torch.where(word, self._of_arcs(self.labels, heads).argmax(-1), -1)

    def tree_score(
        self, heads: Int[Tensor, "*S B N"], labels: Int[Tensor, "*S B N"] | None = None
    ) -> Float64[Tensor, "*S B"]:
        """Scores of trees under all parts, in float64; they carry a gradient.

        Args:
            heads: trees of the sentences, any number of them. That they are trees is not checked.
            labels: the label of each word's arc; None: the best one of each, if there are label scores.
        """
        heads = as_heads(heads, self.arcs, self.lengths, self.validate_args)
        if labels is not None:
            labels = self._as_chosen(labels, heads)
        return self.total(heads, labels)

    def total(
        self, heads: Int[Tensor, "*S B N"], labels: Int[Tensor, "*S B N"] | None = None
    ) -> Float64[Tensor, "*S B"]:
        """``tree_score`` without checks; -inf where a word has no head (-1)."""
        N = self.arcs.shape[1]
        word = word_mask(self.lengths, N)
        total = tree_scores(self.arcs, heads, self.lengths)
        if self.labels is not None:
            rows = self._of_arcs(self.labels, heads)
            if labels is None:
                one = _best(rows)
            else:
                one = rows.gather(-1, labels.clamp(0, rows.shape[-1] - 1)[..., None]).squeeze(-1)
            total = total + torch.where(word, one, 0.0).sum(-1, dtype=torch.float64)
        head = torch.where(word, heads, 0).clamp(0, N - 1)
        node = torch.arange(N, device=heads.device).expand_as(head)
        under_word = word & (head >= 1)
        if self.siblings is not None:
            total = total + self._part(self.siblings, word, head, previous_sibling(head, word), node)
        if self.grandparents is not None:
            total = total + self._part(self.grandparents, under_word, head.gather(-1, head), head, node)
        if self.grandsiblings is not None:
            above, beside = head.gather(-1, head), previous_sibling(head, word)
            total = total + _of_four(self.grandsiblings, under_word, above, head, beside, node)
        return torch.where((word & (heads < 0)).any(-1), -torch.inf, total)

    def _part(self, parts: Parts, used: Tensor, i: Tensor, j: Tensor, k: Tensor) -> Float64[Tensor, "*S B"]:
        """Sum over the words of the scores of their triples, where ``used``."""
        i, j, k = (torch.where(used, node, 0) for node in (i, j, k))  # no gradient from nodes that are not there
        sentence = torch.arange(i.shape[-2], device=i.device)[:, None].expand_as(i)
        values = parts.score(sentence.reshape(-1), i.reshape(-1), j.reshape(-1), k.reshape(-1)).reshape(i.shape)
        return torch.where(used, values, 0.0).sum(-1, dtype=torch.float64)

    def _of_arcs(self, labels: Float[Tensor, "B N N L"], heads: Int[Tensor, "*S B N"]) -> Float[Tensor, "*S B N L"]:
        """Label scores of each word's arc; anything where it has none."""
        B, N, _, L = labels.shape
        node = torch.arange(N, device=heads.device)
        row = (torch.arange(B, device=heads.device)[:, None] * N + heads.clamp(0, N - 1)) * N + node
        return labels.reshape(B * N * N, L).index_select(0, row.reshape(-1)).reshape(*heads.shape, L)

    def _as_chosen(self, labels: Tensor, heads: Tensor) -> Int[Tensor, "*S B N"]:
        """Labels chosen for the arcs, checked."""
        if self.labels is None:
            raise ValueError("labels were given, but these scores have none")
        as_integers(labels, "labels", "of the shape of heads", heads.device)
        if labels.shape != heads.shape:
            raise ValueError(f"labels must have the shape of heads, {list(heads.shape)}, got {list(labels.shape)}")
        if can_validate(labels, self.validate_args):
            outside = (labels < 0) | (labels >= self.labels.shape[-1])
            wrong = (word_mask(self.lengths, heads.shape[-1]) & outside).nonzero()
            if len(wrong):
                *_, b, m = place = wrong[0].tolist()
                value, most = int(labels[tuple(place)]), self.labels.shape[-1] - 1
                raise ValueError(f"labels of sentence {b}: word {m} has label {value}, not in 0..{most}")
        return labels.to(torch.int64)


def _best(labels: Float[Tensor, "*arcs L"]) -> Float[Tensor, "*arcs"]:
    """The best of each row; if a gradient is wanted, it goes to the first of the best."""
    if labels.requires_grad and torch.is_grad_enabled():
        return labels.max(-1).values
    return labels.amax(-1)  # much faster on a CPU


def _of_four(
    values: Float[Tensor, "B N N N N"], used: Tensor, *nodes: Int[Tensor, "*S B N"]
) -> Float64[Tensor, "*S B"]:
    """Sum over the words of the scores of their four nodes, where ``used``."""
    at = torch.arange(len(values), device=values.device)[:, None].expand_as(used)
    for node in nodes:
        at = at * values.shape[1] + torch.where(used, node, 0)
    found = values.reshape(-1).gather(0, at.reshape(-1)).reshape(at.shape)
    return torch.where(used, found, 0.0).sum(-1, dtype=torch.float64)


def _as_labels(labels: Tensor, arcs: Float[Tensor, "B N N"]) -> Float[Tensor, "B N N L"]:
    """``labels`` if type, shape and place are right."""
    labels = as_scores(labels, "labels")
    if labels.dim() != 4 or labels.shape[:3] != arcs.shape or labels.shape[3] < 1:
        B, N = arcs.shape[:2]
        raise ValueError(f"labels must have shape [{B}, {N}, {N}, L] to fit arcs, got {list(labels.shape)}")
    if labels.device != arcs.device:
        raise ValueError(f"labels must be on {arcs.device} like arcs, got {labels.device}")
    return labels


def _check_labels(labels: Float[Tensor, "B N N L"], lengths: Int[Tensor, " B"]) -> bool:
    """Raise ValueError at a NaN or +inf among the label scores that are read; return whether an arc's best is large."""
    top = labels.detach().amax(-1)  # NaN and +inf come through it
    read = arc_mask(lengths, top.shape[1])
    wrong = (read & (top.isnan() | top.isposinf())).nonzero()
    if len(wrong):
        b, h, m = wrong[0].tolist()
        row = labels[b, h, m].detach()
        label = int((row.isnan() | row.isposinf()).nonzero()[0])
        raise ValueError(
            f"labels[{b}, {h}, {m}, {label}] is {float(row[label])} (sentence {b}, head {h}, modifier {m}); "
            "scores must be finite, or -inf for a forbidden label"
        )
    return is_large(torch.where(read, top, 0.0))
