"""Exact second-order trees: against all trees of short sentences, and sentences per second against plain torch.

    python bench/second_order.py [--instances 10000] [--words 40] [--batch 32] [--repeat 9] [--threads 1]

Instances have 1 to 5 words, scores in float64 of magnitude 1 to 100, and up to 30 % of all parts forbidden. Differences
are absolute below 1 and relative above. Speed is that of log Z and the marginals of all parts together, single root;
medians. Exits with 1 if a difference is beyond 1e-9 or siblings are less than 50 times as fast as plain torch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import cache

import torch
from enumeration import all_trees
from timing import OUT, environment, new_table, print_environment
from torch import Tensor

import gpuparse as gp
from gpuparse.ops import second_order
from gpuparse.plain import second_order as plain
from gpuparse.plain.second_order import Scores

FAMILIES = ("siblings", "grandparents", "both")
LIMIT, MUST = 1e-9, 50.0
BATCH = 250


@cache
def parts(n: int, single_root: bool) -> tuple[Tensor, Tensor, Tensor]:
    """All projective trees [T, n+1], and for each word (h, s, m) and (g, h, m) [T, n, 3], read off one by one."""
    trees = all_trees(n, single_root, True)
    beside, under = [], []
    for heads in trees.tolist():
        rows, ups = [], []
        for m in range(1, n + 1):
            h = heads[m]
            inner = range(h + 1, m) if h < m else range(h - 1, m, -1)
            children = [s for s in inner if s >= 1 and heads[s] == h]
            rows.append((h, children[-1] if children else h, m))
            ups.append((heads[h], h, m))
        beside.append(rows)
        under.append(ups)
    return trees, torch.tensor(beside), torch.tensor(under)


def random_scores(family: str, B: int, n: int, generator: torch.Generator) -> Scores:
    found: list[Tensor | None] = []
    for kind, shape in (("", (n + 1,) * 2), ("siblings", (n + 1,) * 3), ("grandparents", (n + 1,) * 3)):
        if kind and family not in (kind, "both"):
            found.append(None)
            continue
        size = (B, *[1] * len(shape))
        x = torch.randn(B, *shape, generator=generator, dtype=torch.float64)
        x *= 100 ** torch.rand(size, generator=generator, dtype=torch.float64)
        share = 0.3 * torch.rand(size, generator=generator)
        found.append(x.masked_fill(torch.rand(x.shape, generator=generator) < share, -torch.inf))
    assert found[0] is not None
    return found[0], found[1], found[2]


def difference(found: Tensor, expected: Tensor) -> float:
    apart = (found - expected).abs() / expected.abs().clamp(min=1.0)
    apart = torch.where(found == expected, 0.0, apart)
    return float(torch.where(apart.isnan(), torch.inf, apart).max())


def compare(family: str, B: int, n: int, single_root: bool, generator: torch.Generator) -> float:
    """The greatest difference from the sum over all trees."""
    scores = random_scores(family, B, n, generator)
    arcs, siblings, grandparents = scores
    p = gp.SecondOrderTrees(
        arcs, siblings=siblings, grandparents=grandparents, single_root=single_root, validate_args=False
    )
    trees, beside, under = parts(n, single_root)
    everywhere = torch.ones_like(beside[..., 0], dtype=torch.bool)
    kinds = [(arcs, beside[..., [0, 2]].unbind(-1), everywhere, p.marginals)]
    if siblings is not None:
        kinds.append((siblings, beside.unbind(-1), everywhere, p.sibling_marginals))
    if grandparents is not None:
        kinds.append((grandparents, under.unbind(-1), under[..., 1] > 0, p.grandparent_marginals))
    total = torch.stack([torch.where(used, x[(slice(None), *at)], 0.0).sum(-1) for x, at, used, _ in kinds]).sum(
        0
    )  # [B, T]
    log_z = total.logsumexp(1)
    possible = log_z > -torch.inf
    prob = torch.where(possible[:, None], (total - torch.where(possible, log_z, 0.0)[:, None]).exp(), 0.0)
    worst = [difference(p.log_partition, log_z), difference(p.max, total.amax(1))]
    for x, at, used, found in kinds:
        expected = torch.zeros_like(x)
        where = (torch.arange(B)[:, None, None].expand(B, *used.shape), *(i.expand(B, *i.shape) for i in at))
        expected.index_put_(where, torch.where(used, prob[..., None], 0.0), accumulate=True)
        worst.append(difference(found, expected))
    entropy = -torch.special.xlogy(prob, prob).sum(1)
    worst.append(difference(p.entropy()[possible], entropy[possible]))
    _, best = p.topk(3)
    ordered = torch.cat([total.sort(1, descending=True).values, torch.full((B, 3), -torch.inf)], 1)[:, :3].T
    worst.append(difference(best, ordered))
    heads = trees[:8, None].expand(-1, B, -1)
    worst.append(difference(p.log_prob(heads)[:, possible], (total - log_z[:, None])[possible, :8].T))
    return max(worst)


def median(run: Callable[[], object], repeat: int) -> float:
    run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("instances", 10_000), ("words", 40), ("batch", 32), ("repeat", 9), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print_environment(environment([]))
    ok = True

    table = new_table("against all trees", "family", "instances", "greatest difference")
    for family in FAMILIES:
        generator, done, worst = torch.Generator().manual_seed(0), 0, 0.0
        while done < given.instances:
            B, n = min(BATCH, given.instances - done), 1 + done // BATCH % 5
            worst = max(worst, compare(family, B, n, done // BATCH % 2 == 0, generator))
            done += B
        ok = ok and worst <= LIMIT
        table.add_row(family, str(done), f"{worst:.1e}")
    OUT.print(table)

    B, N, repeat = given.batch, given.words + 1, given.repeat
    lengths = torch.full((B,), given.words)
    table = new_table(
        f"log Z and marginals, {given.words} words, {B} sentences, {given.threads} thread(s), median of {repeat}",
        *("family", "dtype", "sentences/s", "plain torch (median of 3)", "ratio"),
    )
    for family in FAMILIES:
        for dtype in (torch.float32, torch.float64):
            generator = torch.Generator().manual_seed(1)
            shapes = (N, N), (N, N, N), (N, N, N)
            arcs, siblings, grandparents = (torch.randn(B, *s, generator=generator).to(dtype) for s in shapes)
            scores: Scores = (
                arcs,
                siblings if family != "grandparents" else None,
                grandparents if family != "siblings" else None,
            )
            ours = B / median(lambda scores=scores: second_order.marginals(scores, lengths, True), repeat)  # type: ignore[misc]
            theirs = B / median(lambda scores=scores: plain.derivative(scores, lengths, True), 3)  # type: ignore[misc]
            if family == "siblings":
                ok = ok and ours / theirs >= MUST
            name = str(dtype).removeprefix("torch.")
            table.add_row(family, name, f"{ours:.0f}", f"{theirs:.1f}", f"{ours / theirs:.0f}")
    OUT.print(table)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
