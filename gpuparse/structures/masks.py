"""Which scores are read, and by which arcs: masks of words, arcs and pairs of arcs."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor


def word_mask(lengths: Int64[Tensor, " B"], nodes: int) -> Bool[Tensor, "B N"]:
    """True at the words of each sentence, 1 <= m <= length."""
    node = torch.arange(nodes, device=lengths.device)
    return (node >= 1) & (node <= lengths[:, None])


def arc_mask(lengths: Int64[Tensor, " B"], nodes: int) -> Bool[Tensor, "B N N"]:
    """True at the arcs h -> m that are ever read: 1 <= m <= length, h <= length, h != m."""
    node = torch.arange(nodes, device=lengths.device)
    heads = node <= lengths[:, None]
    return word_mask(lengths, nodes)[:, None, :] & heads[:, :, None] & (node[:, None] != node)


def sibling_mask(lengths: Int64[Tensor, " B"], nodes: int) -> Bool[Tensor, "B N N N"]:
    """True at the triples (h, s, m) that are read: s = h, or s between h and m."""
    node = torch.arange(nodes, device=lengths.device)
    h, s, m = node[:, None, None], node[:, None], node
    between = (s == h) | ((h < s) & (s < m)) | ((m < s) & (s < h))
    return between & arc_mask(lengths, nodes)[:, :, None, :] & ((s >= 1) | (s == h))


def grandparent_mask(lengths: Int64[Tensor, " B"], nodes: int) -> Bool[Tensor, "B N N N"]:
    """True at the triples (g, h, m) that a projective tree can have: h is a word, g does not lie between h and m."""
    node = torch.arange(nodes, device=lengths.device)
    g, h, m = node[:, None, None], node[:, None], node
    outside = ((g < h) & (g < m)) | ((g > h) & (g > m))
    return (outside & (h >= 1)) & (g <= lengths[:, None, None, None]) & arc_mask(lengths, nodes)[:, None]


def grandsibling_mask(lengths: Int64[Tensor, " B"], nodes: int) -> Bool[Tensor, "B N N N N"]:
    """True at (g, h, s, m) that a projective tree can have: (h, s, m) are siblings and (g, h, m) grandparents."""
    return sibling_mask(lengths, nodes)[:, None] & grandparent_mask(lengths, nodes)[:, :, :, None]


def previous_sibling(head: Int64[Tensor, "*S N"], word: Bool[Tensor, "*S N"]) -> Int64[Tensor, "*S N"]:
    """For each word m the child of its head next before it, going outward on its side; the head if m is the first."""
    nodes = head.shape[-1]
    node = torch.arange(nodes, device=head.device)
    h, s, m = head[..., None, :], node[:, None], node
    sibling = (head[..., :, None] == h) & word[..., :, None]
    right = torch.where(sibling & (h < s) & (s < m), s, -1).amax(-2)
    left = torch.where(sibling & (m < s) & (s < h), s, nodes).amin(-2)
    return torch.where(right >= 0, right, torch.where(left < nodes, left, head))


def is_position(lengths: Int[Tensor, " B"], n: int) -> Bool[Tensor, "B n"]:
    """True at words 0..lengths[b] - 1."""
    return torch.arange(n, device=lengths.device) < lengths[:, None]
