"""Head automata (Koo et al. 2010): for every node, by itself, the best choice of its head and children.

A node with its head and its children is a star. Stars are scored by what ``down`` says of each child, ``up`` of the
head, siblings in a row on either side, and grandparents (the head, the node, a child). The stars of the nodes of a
tree, added up, have the tree's scores of siblings and grandparents, and those of its arcs twice: by ``down`` and by
``up``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from gpuparse.ops import plain
from gpuparse.ops.backend import Backend, Kernel, Long
from gpuparse.ops.launch import NUMBERS, check_like, kernels_for, launch
from gpuparse.ops.library import define, takes_kernels

Outputs = tuple[Tensor, Tensor, Tensor]


class Stars(NamedTuple):
    """The best star of each node.

    Attributes:
        children: at [p, c], whether c is a child of p.
        heads: the head of p; -1 at node 0, past the end, and where none was to be chosen or none can be.
        values: the score of the star, -inf where there is none; 0 past the end.
    """

    children: Bool[Tensor, "B N N"]
    heads: Int64[Tensor, "B N"]
    values: Float64[Tensor, "B N"]


class Before(NamedTuple):
    """``down`` and ``up`` of a former call, with the same of all else, and what it found."""

    down: Float[Tensor, "B N N"]
    up: Float[Tensor, "B N N"] | None
    stars: Stars


def launch_automata(
    down: Tensor,
    up: Tensor | None,
    siblings: Tensor | None,
    grandparents: Tensor | None,
    lengths: Tensor,
    single_root: bool,
    old_down: Tensor | None = None,
    old_up: Tensor | None = None,
    old_children: Tensor | None = None,
    old_heads: Tensor | None = None,
    old_values: Tensor | None = None,
    backend: Backend | None = None,
) -> Outputs:
    """Run automata.cu. ``down`` and ``up`` are float64, siblings and grandparents of one type."""
    B, N = down.shape[:2]
    backend = backend or kernels_for(down)
    outputs = _like_stars(down)
    pairs = siblings if siblings is not None else grandparents
    wide = -(-N // 8) * 8 + 8
    at_once = N if backend.lanes > 1 else 1  # nodes, each with doubles_of and ints_of of automata.cuh
    doubles, ints = at_once * ((N + 4) * wide + 8), at_once * (wide + 8)
    launch(
        backend,
        Kernel("automata", NUMBERS[torch.float64 if pairs is None else pairs.dtype]),
        [
            *(x if x is None else x.contiguous() for x in (down, up, siblings, grandparents, lengths)),
            *outputs,
            *(x if x is None else x.contiguous() for x in (old_down, old_up, old_children, old_heads, old_values)),
        ],
        sentences=B,
        nodes=N * N,
        work=N**2 * (N if pairs is not None else 8),
        doubles=doubles,
        ints=(ints,),
        tail=[Long(doubles), Long(ints), int(single_root), B, N],
    )
    return outputs


def _like_stars(down: Tensor, *_: object) -> Outputs:
    B, N = down.shape[:2]
    children = down.new_empty((B, N, N), dtype=torch.bool)
    return children, down.new_empty((B, N), dtype=torch.int64), down.new_empty((B, N), dtype=torch.float64)


_automata_op = define(
    "automata(Tensor down, Tensor? up, Tensor? siblings, Tensor? grandparents, Tensor lengths, bool single_root, "
    "Tensor? old_down=None, Tensor? old_up=None, Tensor? old_children=None, Tensor? old_heads=None, "
    "Tensor? old_values=None) -> (Tensor, Tensor, Tensor)",
    launch_automata,
    _like_stars,
)


def automata(
    down: Float[Tensor, "B N N"],
    up: Float[Tensor, "B N N"] | None,
    siblings: Float[Tensor, "B N N N"] | None,
    grandparents: Float[Tensor, "B N N N"] | None,
    lengths: Int64[Tensor, " B"],
    *,
    single_root: bool = False,
    before: Before | None = None,
    backend: Backend | None = None,
) -> Stars:
    """The best star of every node, without a gradient.

    Args:
        down: scores of p taking c as its child, at [p, c]; float32 or float64, as all others. -inf forbids; none may be
            +inf or NaN. What is no arc or past the end is never looked at.
        up: scores of p taking g as its head, at [g, p]; None: zeros.
        siblings: at [p, s, m], s being the child before m on its side, going outward, or p if m is the first; or None.
        grandparents: at [g, p, c]; or None. Without them and without ``up`` no heads are chosen.
        lengths: words of each sentence; 0: there is nothing to do for it.
        single_root: node 0 takes exactly one child; else it takes any number of them, as the others do.
        before: another call: kernels take over the stars of nodes whose ``down`` and ``up`` are what they were.
        backend: None: that of the device.

    A head is not taken as a child as well. Sums are float64. Of equal heads the smallest is chosen; a child only for a
    gain; of equal chains of siblings the one that ends first, with the nearest sibling before its last child.

    Without siblings it takes O(n^3) steps per sentence, with siblings alone O(n^2) per node, with both O(n^2) for those
    heads of a node that bounds do not rule out.
    """
    _check(down, up, siblings, grandparents, lengths)
    down, up = down.detach().double(), None if up is None else up.detach().double()
    siblings, grandparents = (x if x is None else x.detach() for x in (siblings, grandparents))
    if siblings is not None and grandparents is not None and siblings.dtype != grandparents.dtype:
        siblings, grandparents = siblings.double(), grandparents.double()
    given = down, up, siblings, grandparents, lengths, single_root
    pairs = siblings if siblings is not None else grandparents
    if backend is None and not takes_kernels(down if pairs is None else pairs, "automata"):
        return Stars(*plain.automata.automata(*given))
    old: Any = (None,) * 5
    if before is not None:
        old = before.down.detach().double(), None if before.up is None else before.up.detach().double(), *before.stars
    run = _automata_op if backend is None else partial(launch_automata, backend=backend)
    return Stars(*run(*given, *old))


def third_order_automata(
    down: Float[Tensor, "B N N"],
    up: Float[Tensor, "B N N"],
    under: Float[Tensor, "B N N N N"],
    lengths: Int64[Tensor, " B"],
    *,
    single_root: bool = False,
) -> Stars:
    """The best star of every node where siblings' scores depend on the node's head: ``under`` at [g, p, s, m], in which
    grandparents are already; what stands at [0, 0, s, m] is of the root's children. As ``automata`` in all else; it is
    asked about every head g by itself, side by side: O(n^4) in all."""
    B, N = down.shape[:2]
    node = torch.arange(N, device=down.device)
    only = torch.where((node[:, None] == node)[..., None], up[:, None], -torch.inf)  # [B, g, g', p]
    every = down[:, None].expand(B, N, N, N)
    flat, each = (B * N, N, N), lengths.repeat_interleave(N)
    pairs = under.reshape(*flat, N)
    stars = automata(every.reshape(flat), only.reshape(flat), pairs, None, each, single_root=single_root)
    values = stars.values.view(B, N, N)
    best, g = values.max(1)  # of equal ones the first
    children = stars.children.view(B, N, N, N).gather(1, g[:, None, :, None].expand(B, 1, N, N))[:, 0]
    heads = stars.heads.view(B, N, N).gather(1, g[:, None])[:, 0]
    return Stars(children, heads, best)


def _check(
    down: Tensor, up: Tensor | None, siblings: Tensor | None, grandparents: Tensor | None, lengths: Tensor
) -> None:
    """Raise ValueError where shapes, dtypes or devices do not fit."""
    if down.dim() != 3 or down.shape[1] != down.shape[2] or down.shape[1] < 2:
        raise ValueError(f"down must have shape [B, N, N] with N = words + 1 >= 2, got {list(down.shape)}")
    B, N = down.shape[:2]
    cube = (B, N, N, N)
    wanted = {"down": (B, N, N), "up": (B, N, N), "siblings": cube, "grandparents": cube}
    for x, (name, shape) in zip((down, up, siblings, grandparents), wanted.items(), strict=True):
        if x is None:
            continue
        if x.shape != shape or x.device != down.device:
            found = f"{list(x.shape)} on {x.device}"
            raise ValueError(f"{name} must have shape {list(shape)} on {down.device} to fit down, got {found}")
        if x.dtype not in NUMBERS:
            found = str(x.dtype).removeprefix("torch.")
            raise ValueError(f"{name} must be float32 or float64, got {found}; convert it")
    check_like("lengths", lengths, torch.int64, (B,), down.device)
