"""Belief propagation: what a family of factors sends in an iteration, one kernel a family.

``totals`` [3, B, N, N] are all messages to each link (``plain/links.py``), ``own`` those of the family itself. A
kernel takes these out, propagates, damps, leaves sentences that are ``frozen`` [B] as they are, and adds up what the
family now says of each link (``part``, like ``totals``). All is float64. ``tree``, ``children`` and ``grand`` are a
``Propagator``, whose gradients are kernels too, but those of max-product and of gradients, which are plain torch.
"""

from gpuparse.ops.bp.child_sequences import children, children_sum, launch_children_sum
from gpuparse.ops.bp.grandparents import grand, grand_odds, launch_grand_odds
from gpuparse.ops.bp.heads import grand_of_heads, head_odds, head_weights, launch_grand_of_heads, launch_head_odds
from gpuparse.ops.bp.propagators import Propagator, as_totals, takes
from gpuparse.ops.bp.settling import launch_settle, settle
from gpuparse.ops.bp.trees import takes_tree, tree

__all__ = [
    "Propagator",
    "as_totals",
    "children",
    "children_sum",
    "grand",
    "grand_odds",
    "grand_of_heads",
    "head_odds",
    "head_weights",
    "launch_children_sum",
    "launch_grand_odds",
    "launch_grand_of_heads",
    "launch_head_odds",
    "launch_settle",
    "settle",
    "takes",
    "takes_tree",
    "tree",
]
