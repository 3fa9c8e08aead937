"""The best chain of tags of each sentence, with a certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from gpuparse.ops import viterbi as ops
from gpuparse.ops.shifts import LARGE, LOST, add_up, chains_less_shared, check_sums, is_large, read_of_chains
from gpuparse.ops.viterbi import TransitionTable
from gpuparse.structures.tags import (
    Lengths,
    as_lengths,
    as_scores,
    as_transitions,
    as_unary,
    can_validate,
    chain_scores,
    check_scores,
    no_chain_error,
)
from gpuparse.structures.trees import short
from gpuparse.system.defaults import BEAM, TagMethod

Pricing = Literal["forward", "averaged"]
WORTH_PRICING = 12  # fewer tags than this are looked at faster than they are bounded


@dataclass(frozen=True, eq=False)
class Tagging:
    """What ``viterbi`` says of each sentence of a batch.

    Attributes:
        tags: [B, n]; -1 past the end, and everywhere in a sentence for which there is no chain.
        score: of the chain [B], float64; its gradient is the chain's parts. -inf where there is none.
        bound: no chain scores more [B], float64; +inf where nothing is known.
        certified: whether the chain is proven best [B]. Then ``bound`` equals ``score``.
        iterations: rounds of messages and pricing [B]; 1 for a method that needs no more.
        stats: what was looked at, each [B]: "states" (tags of words that messages were sent from), "transitions" (that
            messages went over or that were priced), "switched" (words that column generation left to the dense
            program).

    Example:
        >>> import torch, gpuparse as gp
        >>> best = gp.viterbi(torch.zeros(1, 3, 20), torch.zeros(20, 20), method="column_generation")
        >>> best.score, best.bound, best.stats["states"].shape
        (tensor([0.], dtype=torch.float64), tensor([0.], dtype=torch.float64), torch.Size([1]))
    """

    tags: Int[Tensor, "B n"]
    score: Float64[Tensor, " B"]
    bound: Float64[Tensor, " B"]
    certified: Bool[Tensor, " B"]
    iterations: Int[Tensor, " B"]
    stats: dict[str, Int[Tensor, " B"]] = field(default_factory=dict)


class Transitions:
    """Transitions [T, T] made ready for many calls of ``viterbi``: their bounds, and a copy that the kernels like.

    If the tensor is changed in place, as by an optimiser, make it anew: ``viterbi`` refuses what it can see is stale.

    Example:
        >>> import torch
        >>> from gpuparse.decoding.viterbi import Transitions, viterbi
        >>> ready = Transitions(torch.eye(3))
        >>> [viterbi(unary, ready).score.tolist() for unary in (torch.zeros(2, 4, 3), torch.zeros(1, 6, 3))]
        [[3.0, 3.0], [5.0]]
    """

    def __init__(self, transitions: Tensor) -> None:
        scores = as_scores(transitions, "transitions")
        if scores.dim() != 2 or scores.shape[0] != scores.shape[1] or scores.shape[0] < 1:
            raise ValueError(f"transitions must have shape [T, T], got {list(scores.shape)}")
        self.scores = scores
        self.table = TransitionTable(scores[None, None])
        self._given, self._version = transitions, _version(transitions)

    def check(self) -> None:
        """Raise ValueError if the tensor was changed since."""
        now = _version(self._given)
        if None not in (now, self._version) and now != self._version:
            raise ValueError("transitions were changed after Transitions(...) was made of them; make it anew")

    def __repr__(self) -> str:
        return f"Transitions(tags: {self.scores.shape[0]})"


def _version(tensor: Tensor) -> int | None:
    """How often it was changed in place, where torch counts that."""
    return None if torch.compiler.is_compiling() or tensor.is_inference() else tensor._version


def viterbi(
    unary: Tensor,
    transitions: Tensor | Transitions,
    lengths: Lengths = None,
    *,
    method: TagMethod = "auto",
    pricing: Pricing = "forward",
    initial: int = 1,
    beam: int = BEAM,
    validate_args: bool | None = None,
) -> Tagging:
    """The best chain of tags of each sentence.

    Args:
        unary: scores [B, n, T] of each word's tags, float32 or float64 (or half, as float32); -inf forbids a tag.
        transitions: scores of a tag after another, [T, T], or of each place, [B, n - 1, T, T]; -inf forbids a pair. For
            many batches with the same [T, T], give them as ``Transitions``.
        lengths: words of each sentence [B], 1 to n; None if all are full.
        method: "dense" (every transition is looked at), "column_generation" (those that could matter; as exact),
            "beam" (the ``beam`` best tags of each word go on; certified only where that is proven), or "auto": column
            generation, but "dense" for a few tags, for transitions of each place, whose bounds cost as much, and on a
            GPU, where looking at all is one even sweep and what can be left out differs from lane to lane.
        pricing: which reduced costs column generation goes by. "forward": one sweep, those of the Lagrangian rooted in
            the first word; the fastest. "averaged": rounds over all words, those averaged over both directions, as in
            Belanger et al. 2012, Algorithms 1 and 2; to compare with.
        initial: tags of each word, the best by ``unary``, that the averaged pricing begins with.
        beam: how many tags of a word a beam keeps.
        validate_args: raise ValueError at a NaN, +inf, bad length or a sentence without any chain. Default: on a CPU
            yes; on a GPU no, since looking waits for the device (such sentences get tags of -1).

    Where hardly a transition can be left out, column generation goes over to the dense program, and so it does for
    transitions of each place, all of which it would have to read for their bounds.

    Example:
        >>> import torch, gpuparse as gp
        >>> stay = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> unary = torch.tensor([[[0.5, 0.0], [0.0, 0.5], [0.0, 0.7]]])
        >>> best = gp.viterbi(unary, stay)
        >>> best.tags, best.certified
        (tensor([[1, 1, 1]]), tensor([True]))
    """
    unary = as_unary(unary)
    if isinstance(transitions, Transitions):
        transitions.check()
    given = transitions.scores if isinstance(transitions, Transitions) else transitions
    scores = as_transitions(given, unary)
    lengths = as_lengths(lengths, unary, validate_args)
    _check_options(method, pricing, initial, beam)
    table = transitions.table if isinstance(transitions, Transitions) else TransitionTable(scores)
    if method == "auto":
        few = table.own or table.T < WORTH_PRICING
        method = "dense" if few or unary.device.type == "cuda" else "column_generation"
    search = partial(_search, lengths=lengths, method=method, pricing=pricing, initial=initial, beam=beam)
    (tags, score, counts), bound = search(unary, table)
    validates = can_validate(unary, validate_args)
    shared = None
    if validates and not _sure(unary, scores, score):
        check_scores(unary, scores, lengths)
        known = read_of_chains(unary.detach(), scores.detach(), lengths)
        if any(is_large(x) for x in known):
            *near, shared = chains_less_shared(unary.detach(), scores.detach(), lengths, False)
            (tags, score, counts), bound = search(near[0], TransitionTable(near[1]))
            check_sums(score, shared, dict(zip(("unary", "transitions"), known, strict=True)), torch.float64, "chains")
    certified = found = score > -torch.inf
    if validates and not bool(found.all()):
        raise _error(unary, scores, lengths, int((~found).nonzero()[0]), beam if method == "beam" else None)
    if bound is None:
        bound = score
    else:
        certified = found & bound.isneginf()
        bound = torch.maximum(score, bound)
    if shared is not None:
        score = torch.where(found, chain_scores(unary, scores, tags, lengths).detach(), -torch.inf)
        bound = torch.where(certified, score, torch.maximum(score, bound + add_up(shared)))
    if torch.is_grad_enabled() and (unary.requires_grad or scores.requires_grad):
        score = torch.where(found, chain_scores(unary, scores, tags, lengths), -torch.inf)
        again = score.detach()  # added up in another order
        bound = torch.where(certified, again, torch.maximum(bound, again))
    stats = {"states": counts[:, 0], "transitions": counts[:, 1], "switched": counts[:, 2]}
    return Tagging(tags, score, bound, certified, counts[:, 3], stats)


def _search(
    unary: Tensor, table: TransitionTable, *, lengths: Tensor, method: str, pricing: str, initial: int, beam: int
) -> tuple[ops.Best, Tensor | None]:
    """The best chains, and bounds where these are not proven."""
    if method == "dense":
        return ops.best_chain(unary, table, lengths), None
    if method == "beam":
        return ops.beam_search(unary, table, lengths, beam)
    if pricing == "forward":
        return ops.forward_columns(unary, table, lengths), None
    return ops.averaged_columns(unary, table, lengths, initial), None


def _sure(unary: Tensor, scores: Tensor, score: Float64[Tensor, " B"]) -> bool:
    """Whether sums have their digits: no score is large but below 0, and none of those is in a best chain."""
    tops = (float(x.detach().amax()) for x in (unary, scores) if x.numel())
    return all(top < LARGE for top in tops) and (not len(score) or float(score.min()) > -LOST)


def _check_options(method: str, pricing: str, initial: int, beam: int) -> None:
    for name, value, choices in (("method", method, get_args(TagMethod)), ("pricing", pricing, get_args(Pricing))):
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{name} is {short(value)}; wanted one of {', '.join(map(repr, choices))}")
    for name, number in (("initial", initial), ("beam", beam)):
        if type(number) is not int or number < 1:
            raise ValueError(f"{name} is {short(number)}; wanted a whole number, 1 or more")


def _error(unary: Tensor, scores: Tensor, lengths: Tensor, sentence: int, beam: int | None) -> ValueError:
    """Why a sentence has no tags: what was read, or that there is no chain, or none in the beam."""
    check_scores(unary, scores, lengths)
    if beam is not None:
        rest = (unary[sentence : sentence + 1], scores[:1] if scores.shape[0] == 1 else scores[sentence : sentence + 1])
        if float(ops.best_chain(*rest, lengths[sentence : sentence + 1]).score) > -torch.inf:
            return ValueError(
                f"beam of {beam} finds no chain of tags for sentence {sentence}, though there is one; widen it, or "
                "take another method"
            )
    return no_chain_error(unary, lengths, sentence)
