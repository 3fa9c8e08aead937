"""One ambiguous sentence, and what the two distributions say of its trees: ``python examples/ambiguous.py``."""

from __future__ import annotations

import io
import sys
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

import gpuparse as gp
from gpuparse.ops import backend
from gpuparse.render import ROOT, tree_text

WORDS = ["We", "saw", "the", "man", "on", "the", "hill", "with", "binoculars"]

# Who is on the hill, and who has the binoculars? Scores (log weights) of the arcs worth considering, for each
# word; every other arc scores UNLIKELY. The best heads of "on" and "with", taken by themselves, cross.
UNLIKELY = -4.0
ARCS: dict[int, dict[int, float]] = {  # modifier: {head: score}
    1: {2: 4.0},
    2: {0: 4.0, 4: -1.0},
    3: {4: 4.0, 2: -1.0},
    4: {2: 4.0, 0: 0.0},
    5: {2: 2.0, 4: 1.5},
    6: {7: 4.0, 5: 0.0},
    7: {5: 4.0, 2: 0.0},
    8: {4: 2.0, 2: 1.2, 7: 0.5},
    9: {8: 4.0, 2: 0.5},
}


def scores() -> Tensor:
    """The sentence's arc scores, a batch of one: [1, N, N], head by modifier."""
    nodes = len(WORDS) + 1
    arcs = torch.full((1, nodes, nodes), UNLIKELY, dtype=torch.float64)
    for modifier, heads in ARCS.items():
        for head, score in heads.items():
            arcs[0, head, modifier] = score
    return arcs


def main() -> None:
    """Print the demonstration."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a stream that has no box characters
    console = Console(highlight=False)
    torch.manual_seed(1)
    arcs = scores()
    console.print(Text.assemble("A sentence with several readings: ", (" ".join(WORDS), "bold")))
    console.print()
    with Console(stderr=True).status("computing (kernels are compiled at their first use)"):
        projective = gp.ProjectiveTrees(arcs)
        non_projective = gp.NonProjectiveTrees(arcs)
        parts = [
            _words(projective, non_projective),
            _summary(projective, non_projective),
            _best_trees(projective, non_projective),
            _readings(projective, non_projective),
        ]
    for part in parts:
        console.print(part)
        console.print()
    console.print(Text(f"Computed on the CPU by {_path()}"), soft_wrap=True)


def _path() -> str:
    found: dict[str, Any] = backend.describe()
    if found["cpu"]["path"] == "kernels":
        return f"compiled kernels: {found['compiler']['version']}"
    return f"plain torch: {found['cpu']['reason']}"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)


def _word(node: int) -> str:
    return ROOT if node == 0 else WORDS[node - 1]


def _words(projective: gp.ProjectiveTrees, non_projective: gp.NonProjectiveTrees) -> Table:
    """A row a word: its head in the best tree, the likeliest other head, and their probabilities."""
    table = _table("Heads, in the best tree and next, and their probabilities")
    table.add_column("")
    for heading in ("projective", "next", "non-projective", "next"):
        table.add_column(heading, no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
    for modifier in range(1, len(WORDS) + 1):
        cells: list[str | Text] = [Text(_word(modifier), "bold")]
        for trees in (projective, non_projective):
            best = int(trees.argmax[0, modifier])
            probability = trees.marginals[0, :, modifier]
            others = probability.clone()
            others[[best, modifier]] = -1.0
            runner_up = int(others.argmax())
            cells += [_word(best), Text(f"{probability[best]:.3f}", "green")]
            cells += [_word(runner_up), f"{probability[runner_up]:.3f}"]
        table.add_row(*cells)
    return table


def _summary(projective: gp.ProjectiveTrees, non_projective: gp.NonProjectiveTrees) -> Table:
    table = _table("The distributions")
    for heading in ("", "log Z", "entropy (nats)", "best score", "probability"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, trees in (("projective", projective), ("non-projective", non_projective)):
        values = (trees.log_partition, trees.entropy(), trees.max, trees.log_prob(trees.argmax).exp())
        table.add_row(name, *(f"{value.item():.4f}" for value in values))
    return table


def _best_trees(projective: gp.ProjectiveTrees, non_projective: gp.NonProjectiveTrees) -> Table:
    table = _table("The best tree of each")
    table.add_column("projective", no_wrap=True, min_width=36)
    table.add_column("non-projective", no_wrap=True)
    table.add_row(*(Text(tree_text(trees.argmax[0].tolist(), WORDS)) for trees in (projective, non_projective)))
    return table


def _readings(projective: gp.ProjectiveTrees, non_projective: gp.NonProjectiveTrees) -> Table:
    """The three best trees and two samples of each, told by the heads of the two prepositions."""
    prepositions = [WORDS.index(word) + 1 for word in ("on", "with")]
    table = _table("The three best trees and two samples")
    table.add_column("")
    table.add_column("", no_wrap=True)
    table.add_column("probability", justify="right", no_wrap=True)
    for modifier in prepositions:
        table.add_column(f"{_word(modifier)} ←", no_wrap=True)
    table.add_column("unlike the best elsewhere", overflow="fold")
    for name, trees in (("projective", projective), ("non-projective", non_projective)):
        best, _ = trees.topk(3)
        kinds = [(f"best {rank}", heads) for rank, heads in enumerate(best, 1)]
        kinds += [("sample", heads) for heads in trees.sample(torch.Size((2,)))]
        for number, (kind, heads) in enumerate(kinds):
            row: list[int] = heads[0].tolist()
            unlike = [m for m, head in enumerate(row) if head != best[0, 0, m] and m not in prepositions]
            table.add_row(
                "" if number else name,
                kind,
                f"{trees.log_prob(heads).exp().item():.4f}",
                *(_word(row[modifier]) for modifier in prepositions),
                ", ".join(f"{_word(m)} ← {_word(row[m])}" for m in unlike) or "–",
            )
    return table


if __name__ == "__main__":
    main()
