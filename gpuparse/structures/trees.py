"""The conventions on arcs, lengths and heads, and the checks of them.

Node 0 is the root; a sentence of n words has N = n + 1 nodes. ``arcs[b, h, m]`` scores head h -> modifier m; column 0,
the diagonal and what lies past a sentence's length are never read. ``heads[b, m]`` is -1 at node 0 and past the end.

Values are looked at only where that needs no waiting: on a CPU, or if ``validate_args=True`` asks for it. Where they
are not, a sentence with NaN or +inf gets NaN results and heads of -1, one without any tree log Z = -inf, heads of -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from gpuparse.structures.masks import arc_mask, word_mask
from gpuparse.system.quote import quoted, shown

Lengths = Tensor | Sequence[int] | None


def can_validate(tensor: Tensor, validate_args: bool | None) -> bool:
    """Whether values may be read: asked for, or on a CPU and not being traced."""
    if validate_args is not None:
        return validate_args
    return tensor.device.type == "cpu" and not isinstance(tensor, FakeTensor) and not torch.compiler.is_compiling()


def _has_other_derivatives(tensor: Tensor) -> bool:
    """Whether torch.func or forward mode follows this tensor, which the operators could not tell."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return True
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)  # those that torch compares and indexes by


def _plain(tensor: Any, name: str) -> Tensor:
    """``tensor`` if it is a tensor with numbers in it, side by side."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tensor.is_nested or tensor.layout is not torch.strided:
        found = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise ValueError(f"{name} must be a dense tensor, got a {found} one; convert it by to_dense or padding")
    if tensor.device.type == "meta":
        raise ValueError(f"{name} must have values, got a tensor on the device meta")
    return tensor


def as_scores(scores: Tensor, name: str) -> Float[Tensor, "*shape"]:
    """``scores`` if they are a tensor of numbers that the kernels take; float16 and bfloat16 as float32."""
    _plain(scores, name)
    if not torch.compiler.is_compiling() and _has_other_derivatives(scores):
        raise ValueError(f"{name} must not be under torch.func or forward-mode derivatives; use torch.autograd instead")
    if scores.dtype in (torch.float32, torch.float64):
        return scores
    if scores.dtype in (torch.float16, torch.bfloat16):
        return scores.float()
    found = str(scores.dtype).removeprefix("torch.")
    raise ValueError(f"{name} must be float32 or float64, got {found}; convert it")


def as_integers(values: Any, name: str, shape: str, device: torch.device) -> Int[Tensor, "*shape"]:
    """``values`` if they are a tensor of whole numbers on the device; ``shape`` says what is wanted."""
    return _of_type(values, INTEGERS, name, f"an integer tensor {shape}", device)


def as_booleans(values: Any, name: str, shape: str, device: torch.device) -> Bool[Tensor, "*shape"]:
    """``values`` if they are a tensor of booleans on the device; ``shape`` says what is wanted."""
    return _of_type(values, (torch.bool,), name, f"a bool tensor {shape}", device)


def _of_type(values: Any, types: Sequence[torch.dtype], name: str, wanted: str, device: torch.device) -> Tensor:
    if not isinstance(values, Tensor) or values.dtype not in types:
        found = str(values.dtype).removeprefix("torch.") if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"{name} must be {wanted}, got {found}")
    if _plain(values, name).device != device:
        raise ValueError(f"{name} must be on {device} like the scores, got {values.device}")
    return values


def as_flag(value: Any, name: str) -> bool:
    """``value`` if it is True or False."""
    of_numpy = type(value).__name__ in ("bool", "bool_")
    if not (of_numpy or (isinstance(value, int) and value in (0, 1))):
        raise ValueError(f"{name} must be True or False, got {short(value)}")
    return bool(value)


def short(value: Any) -> str:
    """For messages of one line."""
    plain = value is None or isinstance(value, str | bytes | int | float | list | tuple | dict)
    return quoted(value, 80) if plain else f"a {type(value).__name__}"


def as_arcs(arcs: Tensor, name: str = "arcs") -> Float[Tensor, "B N N"]:
    """``arcs`` if its type and shape are right."""
    arcs = as_scores(arcs, name)
    if arcs.dim() != 3 or arcs.shape[1] != arcs.shape[2] or arcs.shape[1] < 2:
        raise ValueError(f"{name} must have shape [B, N, N] with N = words + 1 >= 2, got {list(arcs.shape)}")
    return arcs


def as_lengths(lengths: Lengths, arcs: Tensor, validate_args: bool | None = None) -> Int[Tensor, " B"]:
    """Words of each sentence as int64 on the device of ``arcs``; None means that all are full."""
    return as_lengths_up_to(arcs.shape[1] - 1, lengths, arcs, "arcs", validate_args)


def as_lengths_up_to(
    words: int, lengths: Lengths, scores: Tensor, name: str, validate_args: bool | None
) -> Int[Tensor, " B"]:
    """The same for scores [B, ...] called ``name`` of at most ``words`` words."""
    B = scores.shape[0]
    if lengths is None:
        return torch.full((B,), words, dtype=torch.int64, device=scores.device)
    if not isinstance(lengths, Tensor):
        try:
            lengths = torch.as_tensor(lengths)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"lengths must be a tensor or list of {B} integers: {shown(str(error))}") from None
        lengths = lengths.to(torch.int64) if lengths.numel() == 0 else lengths
    if _plain(lengths, "lengths").dtype not in INTEGERS:
        raise ValueError(f"lengths must be integers, got {str(lengths.dtype).removeprefix('torch.')}")
    if lengths.shape != (B,):
        raise ValueError(f"lengths must have shape [B] = [{B}] like {name}, got {list(lengths.shape)}")
    if can_validate(lengths, validate_args) and B:
        outside = ((lengths < 1) | (lengths > words)).nonzero()
        if len(outside):
            b = int(outside[0])
            raise ValueError(f"lengths[{b}] is {int(lengths[b])}, but sentence {b} must have 1 to {words} words")
    return lengths.to(device=scores.device, dtype=torch.int64)


def no_tree_error(
    arcs: Tensor, lengths: Tensor, sentence: int, *, projective: bool, single_root: bool, name: str = "arcs"
) -> ValueError:
    """Says that no tree is possible for a sentence, and which word is to blame if one alone is."""
    read = arc_mask(lengths[sentence : sentence + 1], arcs.shape[1])[0]
    headless = ~(read & ~arcs[sentence].isneginf()).any(0)
    headless = headless[1 : int(lengths[sentence]) + 1].nonzero()
    kind = ("projective tree" if projective else "tree") + (" with a single root" if single_root else "")
    why = f": every head of word {int(headless[0]) + 1} scores -inf" if len(headless) else " under its -inf scores"
    return ValueError(f"{name} of sentence {sentence} allow no {kind}{why}")


def as_heads(heads: Tensor, arcs: Tensor, lengths: Tensor, validate_args: bool | None) -> Int[Tensor, "*S B N"]:
    """Heads with any leading sample dimensions, checked for shape, type and range."""
    B, N = arcs.shape[:2]
    as_integers(heads, "heads", "[..., B, N]", arcs.device)
    if heads.dim() < 2 or heads.shape[-2:] != (B, N):
        raise ValueError(f"heads must have shape [..., B, N] = [..., {B}, {N}] like arcs, got {list(heads.shape)}")
    heads = heads.to(torch.int64)
    if can_validate(heads, validate_args) and heads.numel():
        word = word_mask(lengths, N)
        outside = (word & ((heads < 0) | (heads > lengths[:, None]))).nonzero()
        if len(outside):
            *_, b, m = outside[0].tolist()
            value = int(heads[tuple(outside[0].tolist())])
            raise ValueError(f"heads of sentence {b}: word {m} has head {value}, not in 0..{int(lengths[b])}")
    return heads


def is_tree(
    heads: Int[Tensor, "*S B N"], lengths: Int[Tensor, " B"], *, projective: bool, single_root: bool
) -> Bool[Tensor, "*S B"]:
    """Whether heads form a tree of the kind; no waiting. Heads out of range are none of a tree's."""
    N = heads.shape[-1]
    word = word_mask(lengths, N)
    inside = (heads >= 0) & (heads <= lengths[:, None])
    good = (inside | ~word).all(-1)
    up = torch.where(word & inside, heads, 0)
    good = good & (tops(up) == 0).all(-1)
    if single_root:
        good = good & ((word & (heads == 0)).sum(-1) == 1)
    if projective:
        both = word[:, :, None] & word[:, None, :]
        good = good & ~(both & crossings(up)).flatten(-2).any(-1)
    return good


def tops(up: Int[Tensor, "*S N"]) -> Int[Tensor, "*S N"]:
    """Where the way from each node ends that goes up by heads (0 at node 0): 0, or some node of a cycle."""
    for _ in range(max(1, (up.shape[-1] - 1).bit_length())):  # pointer jumping: 2, 4, 8 ... steps up
        up = up.gather(-1, up)
    return up


def crossings(up: Int[Tensor, "*S N"]) -> Bool[Tensor, "*S N N"]:
    """Whether the arcs from their heads to two nodes cross, that to the first node having its left end further left."""
    node = torch.arange(up.shape[-1], device=up.device).expand_as(up)
    left, right = torch.minimum(up, node), torch.maximum(up, node)
    l1, r1, l2, r2 = left[..., :, None], right[..., :, None], left[..., None, :], right[..., None, :]
    return (l1 < l2) & (l2 < r1) & (r1 < r2)


def tree_scores(arcs: Float[Tensor, "B N N"], heads: Int[Tensor, "*S B N"], lengths: Tensor) -> Float64[Tensor, "*S B"]:
    """Sum of the scores of each tree's arcs, in float64; a gather, so that it has a gradient."""
    B, N = arcs.shape[:2]
    word = word_mask(lengths, N)
    index = torch.where(word & (heads >= 0), heads, 0).clamp(max=N - 1) * N + torch.arange(N, device=heads.device)
    flat = index.movedim(-2, 0).flatten(1)  # [B, S * N], so that the gradient needs no copy of arcs a sample
    picked = arcs.reshape(B, N * N).gather(1, flat).reshape(B, *heads.shape[:-2], N).movedim(0, -2)
    return torch.where(word, picked, 0.0).sum(-1, dtype=torch.float64)


def arcs_in_some_tree(
    allowed: Bool[Tensor, "B N N"], lengths: Int[Tensor, " B"], *, single_root: bool
) -> Bool[Tensor, "B N N"]:
    """Which allowed arcs some tree has, crossing arcs permitted; no waiting.

    h -> m is in one just if h can be reached without passing m from where a tree can begin: the root, or with a single
    root the words under it from which every other word can be reached.
    """
    N = allowed.shape[1]
    word = word_mask(lengths, N)
    step = (allowed & word[:, None, :]).float()
    node = torch.eye(N, device=allowed.device, dtype=torch.bool)

    def spread(start: Tensor, keep: Tensor) -> Tensor:
        """Nodes reached from the rows' start sets [B, R, N] over the allowed arcs, within ``keep``."""
        reached = start & keep
        for _ in range(N - 1):
            reached = (reached | (torch.bmm(reached.float(), step) > 0)) & keep
        return reached

    everywhere = torch.ones_like(allowed)
    starts = node[0].expand(allowed.shape[0], N)
    if single_root:
        words_only = everywhere & ~node[0]
        from_each = spread(node.expand_as(allowed), words_only)
        starts = allowed[:, 0] & word & (from_each | ~word[:, None, :]).all(-1)
    reached = spread(starts[:, None, :].expand_as(allowed), everywhere & ~node)  # row m: without passing m
    usable = allowed & word[:, None, :] & reached.transpose(1, 2)
    if single_root:
        usable = torch.where(node[0][:, None], (allowed[:, 0] & starts)[:, None, :], usable)
    return usable
