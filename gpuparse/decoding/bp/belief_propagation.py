"""Loopy belief propagation (4.3): which messages are sent when, and what comes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gpuparse.decoding.bp.graph import Factors, Graph, Messages, Odds
from gpuparse.decoding.bp.messages import Heard, Total, are_same, send
from gpuparse.decoding.bp.options import as_factors, as_temperatures, is_a
from gpuparse.decoding.bp.tree import Tree
from gpuparse.ops.bp import settle
from gpuparse.ops.plain.links import join
from gpuparse.ops.plain.semiring import NEG_INF
from gpuparse.structures.trees import Lengths, as_lengths_up_to, can_validate

Schedule = Literal["parallel", "serial"]
Mode = Literal["sum", "max"]
Variables = Literal["links", "heads"]

_NEAR = 2**20  # messages of a family that are in work at a time


@dataclass(frozen=True)
class Beliefs:
    """What belief propagation came to believe, in float64; everything has a gradient.

    Attributes:
        residuals: the largest change of a variable's belief, as a probability, in a sentence's last iteration [B].
        converged: whether that is at most the tolerance [B].
        iterations: how many a sentence took [B].
        impossible: sentences found without any assignment [B]: their beliefs are 0, log Z -inf. Those of a hard
            constraint that no single variable shows have log Z -inf alone.

    Example:
        >>> import torch
        >>> from gpuparse import bp
        >>> beliefs = bp.BeliefPropagation([bp.Tree(), bp.Link(torch.zeros(1, 3, 3))]).run()
        >>> beliefs.links[0, 0], beliefs.converged  # each of the words is under the root in one of two trees
        (tensor([0.0000, 0.5000, 0.5000], dtype=torch.float64), tensor([True]))
    """

    residuals: Float[Tensor, " B"]
    converged: Bool[Tensor, " B"]
    iterations: Int[Tensor, " B"]
    impossible: Bool[Tensor, " B"]
    _runs: list[_Propagation] = field(repr=False)

    def _join(self, each: list[Tensor]) -> Tensor:
        """What there is of the sentences, in their order."""
        return _in_order(self._runs, each)

    @cached_property
    def log_odds(self) -> Float[Tensor, "B N N"]:
        """Log-odds of each link (5), -inf where there is no link. For mode "max" they are those of max-marginals."""
        odds = self._join([run.total.odds.values.links for run in self._runs])
        return torch.where(self.impossible[:, None, None], NEG_INF, odds)

    @cached_property
    def links(self) -> Float[Tensor, "B N N"]:
        """Probability of each link."""
        return torch.sigmoid(self.log_odds)

    @cached_property
    def tags(self) -> Float[Tensor, "B n T"] | None:
        """Probability of each word's tags, 0 past the end; None without tags."""
        found = []
        for run in self._runs:
            scores = run.total.values.tags
            if scores is None:
                return None
            word = run.graph.words[:, 1:, None] & ~run.total.impossible[:, None, None]
            found.append(torch.where(word, torch.softmax(torch.where(word, scores, 0.0), 2), 0.0))
        return self._join(found)

    @cached_property
    def log_partition(self) -> Float[Tensor, " B"]:
        """The Bethe estimate of log Z (for "max": of the best score), exact if the graph has no cycles and beliefs have
        converged. A variable that no factor knows does not count. If the last temperature is T, it is that of the
        factors F ** (1 / T)."""
        return self._join([run.bethe() for run in self._runs])

    @cached_property
    def factors(self) -> list[Tensor]:
        """Beliefs of the families of factors (6), in their order: see ``Factors.beliefs``. A sentence without any
        assignment has whatever comes out."""
        each = [run.beliefs_of_factors() for run in self._runs]
        shared = [family.shared for family in self._runs[0].factors]
        return [
            torch.stack(found).sum(0) if s else self._join(list(found))
            for s, found in zip(shared, zip(*each, strict=True), strict=True)
        ]


class BeliefPropagation:
    """Loopy belief propagation over a batch of sentences.

    Args:
        factors: families of factors (``gpuparse.bp``), at least one.
        iterations: how many times every family sends its messages, at most.
        tolerance: a sentence has converged when no belief of a variable, as a probability, changes by more than this in
            an iteration. Where values can be looked at (on a CPU), it then takes no more time. 0: if nothing moves.
        damping: share of the old message in a new one, from 0 to below 1 (log-odds are mixed).
        schedule: "parallel": all families send at once. "serial": one after the other, in their order, each with what
            those before it have just sent.
        mode: "sum" for marginals, "max" for max-marginals (max-product, footnote 25).
        temperatures: of the iterations, the last of them for the rest: deterministic annealing (footnote 25). Every
            factor is raised to 1 / temperature; no sentence converges before the last temperature. There may not be
            more of them than iterations. With a last one other than 1, beliefs and log Z are those of F ** (1 / T).
        variables: "links": every link is one, true or false. "heads": the head of a word is one, with a value for each
            node (footnote 4), so that a word has one head whatever the factors are, and none of them has to say so.
            NOCROSS does not run away then, and GRAND is one factor for each p -> c and the head of p, which knows what
            TREE or PTREE rules out. By the other families beliefs are the same with both, once they have converged.
        recompute: a gradient through the iterations computes each of them once more, and only messages are kept: about
            a tenth of the memory, for half as much time again.

    Raises ValueError at options that are none, factors of different sizes, and a NaN or +inf among their scores.

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse import bp
        >>> generator = torch.Generator().manual_seed(0)
        >>> arcs, pairs = torch.randn(2, 5, 5, generator=generator), torch.randn(2, 5, 5, 5, generator=generator)
        >>> beliefs = gp.BeliefPropagation([bp.Tree(), bp.Link(arcs), bp.Grand(pairs)], iterations=50).run([4, 3])
        >>> beliefs.links.shape, beliefs.converged
        (torch.Size([2, 5, 5]), tensor([True, True]))
    """

    def __init__(
        self,
        factors: Sequence[Factors],
        *,
        iterations: int = 10,
        tolerance: float = 1e-6,
        damping: float = 0.0,
        schedule: Schedule = "parallel",
        mode: Mode = "sum",
        temperatures: Sequence[float] = (1.0,),
        variables: Variables = "links",
        recompute: bool = False,
    ) -> None:
        self.factors = as_factors(factors)
        if not is_a(iterations, Integral):
            raise ValueError(f"iterations must be an integer, got {iterations!r}")
        if iterations < 1:
            raise ValueError(f"iterations must be 1 or more, got {iterations}")
        if not is_a(tolerance, Real) or not tolerance >= 0:
            raise ValueError(f"tolerance must be a number that is not negative, got {tolerance!r}")
        if not is_a(damping, Real) or not 0 <= damping < 1:
            raise ValueError(f"damping must be a number in [0, 1), got {damping!r}")
        if schedule not in ("parallel", "serial"):
            raise ValueError(f'schedule must be "parallel" or "serial", got {schedule!r}')
        if mode not in ("sum", "max"):
            raise ValueError(f'mode must be "sum" or "max", got {mode!r}')
        if variables not in ("links", "heads"):
            raise ValueError(f'variables must be "links" or "heads", got {variables!r}')
        heat = as_temperatures(temperatures)
        if len(heat) > iterations:
            raise ValueError(
                f"temperatures are {len(heat)}, but iterations {iterations}: the last one would not be reached; "
                "give more iterations or fewer temperatures"
            )
        self.iterations, self.tolerance, self.damping = iterations, tolerance, damping
        self.schedule, self.mode, self.temperatures = schedule, mode, heat
        self.variables, self.recompute = variables, recompute

    def run(self, lengths: Lengths = None, *, nodes: int | None = None) -> Beliefs:
        """Send messages until all sentences have converged or the iterations are used up.

        Args:
            lengths: words of each sentence [B]; None if all are full.
            nodes: N, needed only if no family has scores that tell, which it has to agree with.
        """
        graph = self._graph(lengths, nodes)
        prepared = self._prepared(graph)
        validates = can_validate(graph.lengths, None)
        # on a CPU a few sentences at a time, so that their messages stay near
        B = len(graph.lengths)
        pieces = min(max(1, B), -(-B * graph.nodes**3 // _NEAR)) if validates else 1
        done: list[_Propagation] = []
        for index in torch.arange(B, device=graph.lengths.device).tensor_split(max(1, pieces)):
            run = _Propagation.start(graph, prepared, index, self.damping)
            for step in range(self.iterations):
                beta = 1 / self.temperatures[min(step, len(self.temperatures) - 1)]
                run.step(self, beta, may_stop=step >= len(self.temperatures) - 1)
                if step == self.iterations - 1 or not validates:
                    continue
                stay = (~run.converged).nonzero().squeeze(1)
                if len(stay) == 0:
                    break
                if len(stay) < len(run.converged):
                    done.append(run.select(run.converged.nonzero().squeeze(1)))
                    run = run.select(stay)
            done.append(run)
        if self.temperatures[-1] != 1:
            for run in done:
                run.factors = [family.temper(1 / self.temperatures[-1]) for family in run.factors]
        return Beliefs(
            _in_order(done, [run.residuals for run in done]),
            _in_order(done, [run.converged for run in done]),
            _in_order(done, [run.iterations for run in done]),
            _in_order(done, [run.total.impossible for run in done]),
            done,
        )

    def log_partition(self, lengths: Lengths = None, *, nodes: int | None = None) -> Float[Tensor, " B"]:
        """The Bethe estimate of log Z, its gradient what the factors believe of their parts (section 7).

        Messages count as constants, so that nothing is kept of the iterations. Arguments as of ``run``; of temperatures
        see ``Beliefs.log_partition``.
        """
        with torch.no_grad():
            found = self.run(lengths, nodes=nodes)
        prepared = self._prepared(self._graph(lengths, nodes))
        beta = 1 / self.temperatures[-1]
        live = prepared if beta == 1 else [family.temper(beta) for family in prepared]
        runs = [replace(run, factors=[family.select(run.index) for family in live]) for run in found._runs]
        return replace(found, _runs=runs).log_partition

    def _prepared(self, graph: Graph) -> list[Factors]:
        families = [family.of_heads() for family in self.factors] if graph.heads else self.factors
        return [family.prepare(graph) for family in families]

    def _graph(self, lengths: Lengths, nodes: int | None) -> Graph:
        sizes = [family.size for family in self.factors]
        for what, known in zip(("sentences", "nodes", "tags"), zip(*sizes, strict=True), strict=True):
            if len({size for size in known if size is not None}) > 1:
                found = ", ".join(
                    f"{type(family).__name__} {size}"
                    for family, size in zip(self.factors, known, strict=True)
                    if size is not None
                )
                raise ValueError(f"factors must be of the same {what}, got {found}")
        B, N, T = (next((size for size in known if size is not None), None) for known in zip(*sizes, strict=True))
        if nodes is not None and (not is_a(nodes, Integral) or nodes < 2):
            raise ValueError(f"nodes must be an integer, words + 1 >= 2, got {nodes!r}")
        if nodes is not None and N not in (None, nodes):
            raise ValueError(f"nodes is {nodes}, but factors are of {N}; leave it out, or give {N}")
        if lengths is not None and B is None:
            if not is_a(lengths, Sequence) and not (isinstance(lengths, Tensor) and lengths.dim() == 1):
                raise ValueError("lengths must be a tensor or list of integers, one for each sentence")
            B = len(lengths)
        N = nodes if N is None else N
        if B is None or N is None:
            raise ValueError("lengths and nodes must be given where no factors have scores that tell")
        like = next((f.scores for f in self.factors if f.scores is not None), None)
        device = like.device if like is not None else lengths.device if isinstance(lengths, Tensor) else None
        some = torch.empty(B, 0, device=device)
        counts = as_lengths_up_to(N - 1, lengths, some, "factors", None)
        trees = [family for family in self.factors if isinstance(family, Tree)]
        rules = bool(trees), any(family.projective for family in trees)
        return Graph(counts, N, T or 0, self.mode == "max", self.variables == "heads", *rules)


@dataclass
class _Propagation:
    """Some sentences (``index``), and where they stand."""

    index: Int[Tensor, " S"]
    graph: Graph
    factors: list[Factors]
    messages: list[Messages]
    parts: list[Total]
    total: Total
    residuals: Float[Tensor, " S"]
    converged: Bool[Tensor, " S"]
    iterations: Int[Tensor, " S"]
    heard: list[Heard | None]

    @staticmethod
    def start(graph: Graph, factors: list[Factors], index: Int[Tensor, " S"], damping: float) -> _Propagation:
        """All messages are uniform."""
        if len(index) < len(graph.lengths):
            graph, factors = graph.select(index), [family.select(index) for family in factors]
        lengths = graph.lengths
        messages = [family.first(graph, damping) for family in factors]
        parts = [Total.of([graph.zeros()] * 3, is_finite=True)] * len(factors)
        return _Propagation(
            index,
            graph,
            factors,
            messages,
            parts,
            Total.add(parts, graph),
            torch.zeros_like(lengths, dtype=torch.float64),
            torch.zeros_like(lengths, dtype=torch.bool),
            torch.zeros_like(lengths),
            [None] * len(factors),
        )

    def step(self, settings: BeliefPropagation, beta: float, may_stop: bool) -> None:
        """Every family sends its messages once."""
        before = self.total
        state = settings, beta, self.converged, self.messages, self.parts, before, self.heard
        if settings.recompute and torch.is_grad_enabled():
            _ = before.values  # kept there, and so saved only once
            sent = checkpoint(self._send, *state, use_reentrant=False, preserve_rng_state=False)
        else:
            sent = self._send(*state)
        if not are_same(sent[1], self.parts):
            self.total = Total.add(sent[1], self.graph)
        self.messages, self.parts, self.heard = sent
        self.residuals, self.converged, self.iterations = settle(
            before.odds.links.detach(),
            self.total.odds.links.detach(),
            _change_of_tags(before, self.total),
            self.residuals,
            self.converged,
            self.iterations,
            float(settings.tolerance),
            may_stop,
        )

    def _send(
        self,
        settings: BeliefPropagation,
        beta: float,
        converged: Bool[Tensor, " S"],
        messages: list[Messages],
        parts: list[Total],
        total: Total,
        heard: list[Heard | None],
    ) -> tuple[list[Messages], list[Total], list[Heard | None]]:
        """The messages after one iteration, what each family says in all, and what it said it upon."""
        graph, messages, parts, heard = self.graph, list(messages), list(parts), list(heard)
        summed = told = list(parts)  # what the total is made of; what families hear
        for i, family in enumerate(self.factors):
            if settings.schedule == "serial":
                told = list(parts)
            others = told if family.hears_itself else [*told[:i], *told[i + 1 :]]
            now = Heard(beta, others if family.listens else [])
            if settings.damping == 0 and now.is_like(heard[i]):
                continue  # it would say the same again
            if family.listens and not are_same(told, summed):
                total, summed = Total.add(told, graph), told
            # a new family where it is recomputed, so that nothing is kept of the first time
            warm = family if beta == 1 and not settings.recompute else family.temper(beta)
            frozen = None if can_validate(graph.lengths, None) else converged  # else those are gone
            messages[i], parts[i] = send(warm, total, messages[i], parts[i], frozen, settings.damping, graph)
            heard[i] = now
        return messages, parts, heard

    def select(self, at: Int[Tensor, " S"]) -> _Propagation:
        """Some of the sentences."""
        parts = [part.select(at) for part in self.parts]
        return _Propagation(
            self.index[at],
            self.graph.select(at),
            [family.select(at) for family in self.factors],
            [type(messages)(m[at] for m in messages) for messages in self.messages],
            parts,
            self.total.select(at),
            self.residuals[at],
            self.converged[at],
            self.iterations[at],
            [heard and heard.of(self.parts, parts) for heard in self.heard],
        )

    def bethe(self) -> Float[Tensor, " S"]:
        """Sum over factors of log Z_F - sum over edges of log Z_V + sum over variables of log Z_V, with Z_F the sum of
        (6) and Z_V that of (5) before they are normalised."""
        graph, total = self.graph, self.total
        values, seen = total.odds.values, total.odds.links
        demanded = values.links == torch.inf  # what is infinite cancels, the finite part does not
        of_links = torch.where(demanded, seen[0], graph.plus_one(torch.where(demanded, 0.0, values.links)))
        degrees, result = graph.zeros(), torch.zeros_like(self.residuals)
        for family, own in zip(self.factors, map(Odds.logs, self.messages), strict=True):
            result = result + family.log_z(total.without(family, own, graph), graph)
            if not family.knows_heads:  # (to those that do, what comes in is divided by Z_V)
                degrees = degrees + family.collect(tuple(torch.ones_like(m) for m in own), graph)
                result = result + total.demanded(family, own)
        known = degrees.links if graph.heads else degrees.links - (degrees.links > 0).double()
        result = result - (known * of_links).flatten(1).sum(1)
        if graph.heads:
            result = result + torch.where(graph.words, total.norms, 0.0).sum(1)
        if values.tags is not None and degrees.tags is not None:
            of_tags, degree = graph.sum(values.tags, 2), degrees.tags[..., 0]
            result = result - ((degree - ((degree > 0) & graph.words[:, 1:]).double()) * of_tags).sum(1)
        return torch.where(total.impossible, NEG_INF, result)

    def beliefs_of_factors(self) -> list[Tensor]:
        """One tensor for each family."""
        return [
            family.beliefs(self.total.without(family, own, self.graph), self.graph)
            for family, own in zip(self.factors, map(Odds.logs, self.messages), strict=True)
        ]


def _in_order(runs: list[_Propagation], each: list[Tensor]) -> Tensor:
    """What the runs have of their sentences, in the order of the sentences."""
    if len(runs) == 1:
        return each[0]
    return torch.cat(each)[torch.cat([run.index for run in runs]).argsort()]


def _change_of_tags(before: Total, after: Total) -> Float[Tensor, " B"] | None:
    """The largest change of a belief about a tag, as a probability."""
    if before.tags is None or after.tags is None:
        return None
    old, new = (
        torch.softmax(x.detach(), 2).nan_to_num(0.0) for x in (join(*before.tags.unbind()), join(*after.tags.unbind()))
    )
    return (new - old).abs().flatten(1).amax(1)
