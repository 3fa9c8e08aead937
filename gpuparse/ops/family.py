"""A family of structures, declared once: its scores, its kernels and its plain functions.

From a declaration come the launching of kernels, the torch operators ``gpuparse::<name>_*`` with their fakes and
gradients, and the functions of ``Family``, which take an operator where a kernel serves the device, else plain torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpuparse.ops.backend import Argument, Backend, Kernel, Long
from gpuparse.ops.launch import NUMBERS, check_lengths, kernels_for, launch
from gpuparse.ops.library import Operator, takes_kernels
from gpuparse.ops.operators import beside, decoding_operator, sum_operators, there
from gpuparse.ops.plain import generic

Bundle = Sequence[Tensor | None]
"""The scores of a family in their order, or something like each of them; None where there is none."""


class KernelTask(NamedTuple):
    """What a kernel is to do."""

    kind: str
    """sums, argmax, topk or sample."""
    sizes: tuple[int, ...]
    """The sizes of the batch that the family names."""
    scores: Bundle
    order: int = 0
    """How many directions the sums are derived along."""
    both_ways: bool = False
    """Whether gradients are wanted, which takes an outside pass too."""
    many: int = 0
    """How many structures topk and sample are to find for each sentence."""
    lanes: int = 1
    """How many samples are drawn side by side."""
    fast: bool = False
    """Whether sums are tried in numbers without an exponent, and no others."""

    @property
    def planes(self) -> int:
        """Doubles in a number of the kernel's type: one for a best structure, an exponent more for sums."""
        return 1 if self.kind in ("argmax", "topk") else 2**self.order + (not self.fast)


class Room(NamedTuple):
    """What a task takes for one sentence; what is computed here is what the .cu files expect."""

    nodes: int
    """How many lanes find work at once."""
    work: int
    """About how many steps."""
    doubles: int
    ints: tuple[int, ...] = ()
    longs: int = 0
    strides: tuple[int, ...] | None = None
    """What the kernel is told of all that; None: the doubles and the ints."""


@dataclass(frozen=True)
class Kernels:
    """The kernels for the scores of a family, or for the first few of them if there are no others.

    A kernel's arguments are the scores, the directions (of sums), the tensors among the inputs, what it writes to (log
    Z and gradients, or structures, after the seed of samples), the workspaces, their strides, the number of structures
    (topk and sample), the sizes and the flags.
    """

    room: Callable[[KernelTask], Room]
    sums: str | None = None
    argmax: str | None = None
    topk: str | None = None
    sample: str | None = None
    takes: int | None = None
    """How many of the scores; None: all."""
    apart: bool = False
    """Whether sums take two launches on a GPU: fast numbers, then safe ones for the sentences that need them, of which
    fewer fit into memory. Such a kernel is told, before the sizes, which sentences these are and which launch it is."""


@dataclass(frozen=True)
class Plain:
    """The same in plain torch: functions of the scores and the inputs (topk and sample: and of how many)."""

    masks: Callable[[Any, Tensor], Sequence[Tensor | None]]
    """Which of the scores are read, given these and the lengths: masks that fit them."""
    log_partition: Callable[..., Tensor]
    """log Z in float64, differentiable to any order; -inf where there is no structure."""
    argmax: Callable[..., Tensor] | None = None
    topk: Callable[..., Tensor] | None = None
    sample: Callable[..., Tensor] | None = None


@dataclass(eq=False)
class Family:
    """A family of structures and its algorithms. Results follow the dtype and device of its first scores.

    Args:
        name: the first part of the operators' names.
        scores: the shape of each kind of scores, by names of sizes: N nodes with the root, or n words without. The name
            of an optional kind ends in "?". Sentences may share scores that come without B, or with 1 for it.
        inputs: what else there is, as in an operator's schema: tensors, among them the lengths, then flags.
        sizes: those that kernels are told and that ``structure`` takes, B first.
        structure: the shape of a batch of structures.
        plain: the functions in plain torch.
        kernels: the first that takes all scores that there are is taken. Without any there is only plain torch.
        orders: how many directions the kernels for sums go to.
        serves: whether a kernel serves a tensor; None: ``takes_kernels`` of the library.
    """

    name: str
    scores: Mapping[str, str]
    inputs: str
    sizes: str
    structure: Callable[..., tuple[int, ...]]
    plain: Plain
    kernels: Sequence[Kernels] = ()
    orders: int = 2
    serves: Callable[[Tensor, str], bool] | None = None
    operators: dict[str, Operator] = field(init=False, repr=False)
    """By the part of their names after that of the family."""

    def __post_init__(self) -> None:
        shapes = [shape.split() for shape in self.scores.values()]
        found = {size: (k, d - len(s)) for k, s in reversed([*enumerate(shapes)]) for d, size in enumerate(s)}
        self._at = [found[size] for size in self.sizes.split()]
        self._optional = any(name.endswith("?") for name in self.scores)
        self._ranks = [len(shape) for shape in shapes]
        self._words = found["n"] if "n" in found else found["N"]
        self._root = 0 if "n" in found else 1
        inputs = self.inputs.split(", ")
        self._lengths = inputs.index("Tensor lengths")
        self.tensors = sum(x.startswith("Tensor") for x in inputs)
        self.operators = {}
        if any(k.sums for k in self.kernels):
            self.operators |= sum_operators(self)
        for kind in ("argmax", "topk", "sample"):
            if any(getattr(k, kind) for k in self.kernels):
                self.operators[kind] = decoding_operator(self, kind)

    # ------------------------------------------------------------------------------------------- launching the kernels

    def _kernels(self, scores: Bundle) -> Kernels:
        for k in self.kernels:
            if k.takes is None or all(x is None for x in scores[k.takes :]):
                return k
        raise AssertionError(f"{self.name} has no kernels for these scores")

    def _sizes(self, scores: Bundle) -> tuple[int, ...]:
        return tuple([scores[k].size(d) for k, d in self._at])  # type: ignore[union-attr]

    def _launch(
        self,
        task: KernelTask,
        inputs: Sequence[Any],
        directions: Bundle,
        results: Bundle,
        numbers: Sequence[int],
        order: int | None,
        backend: Backend,
    ) -> None:
        first, kernels = task.scores[0], self._kernels(task.scores)
        assert first is not None
        check_lengths(inputs[self._lengths], first)
        dtype, count = first.dtype, task.sizes[0]
        kernel = Kernel(getattr(kernels, task.kind), NUMBERS[dtype], order)
        args: list[Argument] = [
            None if x is None else x.contiguous() if x.dtype == dtype else x.to(dtype).contiguous()
            for x in (*task.scores[: kernels.takes], *directions)
        ]
        args += [x.contiguous() for x in inputs[: self.tensors]]
        args += results
        told = [*task.sizes, *[int(x) for x in inputs[self.tensors :]]]

        def run(one: KernelTask, own: Sequence[Argument], rarely: bool = False) -> None:
            room = kernels.room(one)
            strides = (room.doubles, *room.ints) if room.strides is None else room.strides
            launch(
                backend,
                kernel,
                args,
                sentences=count,
                nodes=room.nodes,
                work=room.work,
                doubles=room.doubles,
                ints=room.ints,
                longs=room.longs,
                tail=[*[Long(x) for x in strides], *own, *told],
                rarely=rarely,
            )

        if not kernels.apart or task.kind != "sums":
            run(task, numbers)
        elif backend.lanes == 1:
            run(task, [None, 0])
        else:
            unproven = first.new_empty(count, dtype=torch.int32)
            run(task._replace(fast=True), [unproven, 1])
            run(task, [unproven, 2], rarely=True)

    def sums(
        self,
        scores: Bundle,
        inputs: Sequence[Any],
        directions: Sequence[Bundle],
        logz: Tensor | None,
        out: Bundle | None,
        backend: Backend | None = None,
    ) -> None:
        """Write log Z, or the derivatives of log Z by the scores, all but one of them along the directions."""
        assert scores[0] is not None
        order, takes = len(directions), self._kernels(scores).takes or len(scores)
        along = [x for bundle in directions for x in bundle[:takes]]
        self._launch(
            KernelTask("sums", self._sizes(scores), scores, order, out is not None),
            inputs,
            along + [None] * (takes * self.orders - len(along)),
            [logz, *([None] * takes if out is None else out[:takes])],
            (),
            order if self.orders else None,
            backend or kernels_for(scores[0]),
        )

    def decode(
        self,
        kind: str,
        scores: Bundle,
        inputs: Sequence[Any],
        many: int | None = None,
        seed: Tensor | None = None,
        backend: Backend | None = None,
    ) -> Tensor:
        """Run the argmax, topk or sample kernel."""
        assert scores[0] is not None
        backend, sizes = backend or kernels_for(scores[0]), self._sizes(scores)
        found = self.empty_structures(scores, many)
        task = KernelTask(kind, sizes, scores, many=many or 0, lanes=1 if kind == "argmax" else backend.lanes)
        results = [found] if seed is None else [seed, found]
        self._launch(task, inputs, (), results, () if many is None else (many,), None, backend)
        return found

    def empty_structures(self, scores: Bundle, many: int | None) -> Tensor:
        assert scores[0] is not None
        leading = () if many is None else (many,)
        return scores[0].new_empty((*leading, *self.structure(*self._sizes(scores))), dtype=torch.int64)

    def empty_scores(self, scores: Bundle) -> list[Tensor]:
        """What gradients of every sentence are written to; one that nobody has scores for is empty."""
        first = scores[0]
        assert first is not None
        B, dtype = first.size(0), first.dtype
        return [
            first.new_empty(0)
            if x is None
            else torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
            if x.dim() == rank and x.size(0) == B
            else first.new_empty((B, *x.shape[1 - rank :]))
            for x, rank in zip(scores, self._ranks, strict=True)
        ]

    # ------------------------------------------------------------------------------------ the operators, or plain torch

    def _takes(self, kind: str, scores: Bundle) -> bool:
        """Whether an operator serves these scores, or the plain torch path does."""
        kernel = getattr(self._kernels(scores), kind) if self.kernels else None
        if kernel is None:
            return False
        assert scores[0] is not None
        return (self.serves or takes_kernels)(scores[0], kernel)

    def _checked(self, scores: Bundle, inputs: Sequence[Any]) -> tuple[list[Any], Tensor]:
        """What kernels do with input that nobody checked: lengths within the tensor, and which sentences are bad."""
        inside = self.within(scores, inputs)
        bad = torch.zeros_like(inside[self._lengths], dtype=torch.bool)
        for x, read in zip(scores, self.plain.masks(scores, inside[self._lengths]), strict=True):
            if x is not None and read is not None:
                bad = bad | ((x.detach().isnan() | x.detach().isposinf()) & read).flatten(1).any(1)
        return inside, bad

    def within(self, scores: Bundle, inputs: Sequence[Any]) -> list[Any]:
        """The inputs, with lengths within the tensor."""
        (k, d), found = self._words, list(inputs)
        found[self._lengths] = found[self._lengths].clamp(0, scores[k].shape[d] - self._root)  # type: ignore[union-attr]
        return found

    def derivative(
        self, scores: Bundle, inputs: Sequence[Any], directions: Sequence[Bundle] = ()
    ) -> list[Tensor | None]:
        """Derivatives of log Z of every sentence, all but one of them along the directions, by plain torch."""
        B = len(inputs[self._lengths])
        each = [
            None if x is None else x.expand(B, *x.shape[1 - rank :])
            for x, rank in zip(scores, self._ranks, strict=True)
        ]

        def log_partition(scores: Bundle, lengths: Tensor) -> Tensor:
            given = [x.clone() if isinstance(x, Tensor) else x for x in inputs]  # what was made in inference mode
            given[self._lengths] = lengths
            return self.plain.log_partition(scores, *given)

        return generic.derivative(log_partition, self.plain.masks, each, inputs[self._lengths], directions)

    def log_partition(self, scores: Bundle, *inputs: Any) -> Tensor:
        """log Z [B] in float64, without a gradient; -inf where there is no structure, NaN where a score read is NaN or
        +inf."""
        scores = [None if x is None else x.detach() for x in scores]
        if self._takes("sums", scores):
            return self.operators["log_partition"](*scores, *inputs)
        inputs_, bad = self._checked(scores, inputs)
        return torch.where(bad, torch.nan, self.plain.log_partition(scores, *inputs_))

    def marginals(self, scores: Bundle, *inputs: Any) -> tuple[Any, ...]:
        """log Z [B] in float64, and for each of the scores how often what it scores is expected (None where there is no
        score); differentiable."""
        if self._takes("sums", scores):
            found = self.operators["marginals"](*scores, *inputs)
            return (found[0], *there(scores, found[1:])) if self._optional else found
        inputs_, bad = self._checked(scores, inputs)
        logz = torch.where(bad, torch.nan, self.plain.log_partition(scores, *inputs_))
        expected = self.derivative(scores, inputs_)
        return logz, *(None if x is None else torch.where(beside(bad, x.dim()), torch.nan, x) for x in expected)

    def argmax(self, scores: Bundle, *inputs: Any) -> Tensor:
        """A best structure; all -1 where there is none or a score read is NaN or +inf."""
        if self._takes("argmax", scores):
            return self.operators["argmax"](*scores, *inputs)
        return self._plainly(self.plain.argmax, scores, inputs)

    def topk(self, scores: Bundle, *inputs: Any) -> Tensor:
        """The k best structures, best first; -1 for ranks that do not exist. The last of the inputs is k."""
        if self._takes("topk", scores):
            return self.operators["topk"](*scores, *inputs)
        return self._plainly(self.plain.topk, scores, inputs[:-1], inputs[-1])

    def sample(self, scores: Bundle, *inputs: Any) -> Tensor:
        """Structures drawn from each sentence's distribution, by torch's random numbers. The last of the inputs says
        how many."""
        if self._takes("sample", scores):
            assert scores[0] is not None
            seed = torch.randint(2**62, (1,), device=scores[0].device)
            at = self.tensors
            return self.operators["sample"](*scores, *inputs[:at], seed, *inputs[at:])
        return self._plainly(self.plain.sample, scores, inputs[:-1], inputs[-1])

    def _plainly(
        self, run: Callable[..., Tensor] | None, scores: Bundle, inputs: Sequence[Any], *number: int
    ) -> Tensor:
        assert run is not None, f"{self.name} was declared without it"
        inputs, bad = self._checked(scores, inputs)
        found = run(scores, *inputs, *number)
        return torch.where(beside(bad, found.dim() - len(number)), -1, found)
