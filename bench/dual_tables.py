"""The tables of bench/dual.py beside those of the paper, what is to be reached, and figure 5."""

from __future__ import annotations

from typing import Any

import torch
from commands import RESULTS, Goal
from timing import LOG, OUT, new_table

from gpuparse.dual import Agreement

BINS = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 10), (11, 20), (21, 50))
"""Iterations of table 1."""

PAPER_1 = {  # percent of sentences by iterations, and of those that are not proven
    "tagger": (58.7, 15.4, 6.3, 3.6, 10.3, 3.8, 0.8, 1.1),
    "dependencies": (43.5, 20.1, 10.2, 4.9, 14.0, 5.7, 1.4, 0.4),
}
PAPER_2 = {"model 1": (88.4, 87.8, 88.1, 91.4), "hard constraint": (89.9, 89.6, 89.7, 93.3)}
PAPER_2["joint"] = (91.0, 90.4, 90.7, 93.8)
PAPER_3 = {"fixed tags": (88.1, 87.6, 87.9, 96.7), "joint": (88.7, 88.0, 88.3, 97.1)}
WITHIN = {"tagger": (90.0, 94.0), "dependencies": (90.0, 92.7)}
"""Percent that must be, and are aimed to be, proven within 10 iterations; the aims are the paper's."""

Results = dict[str, Any]


class Convergence:
    """How many iterations sentences took until a proof."""

    def __init__(self) -> None:
        self.iterations: list[int] = []  # 0: not proven

    def add(self, found: Agreement) -> None:
        self.iterations += torch.where(found.certified, found.iterations, 0).tolist()

    def row(self) -> list[float]:
        """Percent of sentences by ``BINS``, and of those that are not proven."""
        bins = [sum(low <= k <= high for k in self.iterations) for low, high in (*BINS, (0, 0))]
        return [100 * count / len(self.iterations) for count in bins]

    def within(self, limit: int) -> float:
        return 100 * sum(0 < k <= limit for k in self.iterations) / len(self.iterations)


def report_iterations(name: str, found: Results) -> list[Goal]:
    """A row of table 1."""
    heads = [str(low) if low == high else f"{low}-{high}" for low, high in BINS]
    table = new_table("Table 1: percent of sentences exact, by iterations", "", *(f">{h}" for h in heads), ">not")
    table.add_row(f"{name} ({found['sentences']})", *(f"{x:.1f}" for x in found["iterations"]))
    table.add_row("paper", *map(str, PAPER_1[name]))
    OUT.print(table)
    must, aim = WITHIN[name]
    return [Goal(f"{name}: exact within 10 iterations", found["within_10"], must, aim, unit=" %")]


def report_tagger(found: Results) -> list[Goal]:
    goals = report_iterations("tagger", found)
    title = f"Table 3: {found['sentences']} sentences, {found['rules']} rules, weight of the tagger {found['weight']:g}"
    table = new_table(title, "", ">P", ">R", ">F1", ">tags", ">no tree", "paper P, R, F1, tags")
    for name in ("fixed tags", "parser alone", "joint"):
        row = found[name]
        figures = (f"{row[key]:.2f}" for key in ("precision", "recall", "f1", "tags"))
        table.add_row(name, *figures, str(row["without a tree"]), " / ".join(map(str, PAPER_3.get(name, ()))))
    table.add_row("tagger alone", "", "", "", f"{found['tagger alone']:.2f}", "", "")
    OUT.print(table)
    better = found["joint"]["f1"] - found["fixed tags"]["f1"]
    goals.append(Goal("tagger: F1 of joint less that of fixed tags", better, 0.0, 0.4, unit=" points", digits=2))
    right = found["joint"]["tags"] - found["parser alone"]["tags"]
    goals.append(Goal("tagger: tags of joint less those of the parser alone", right, 0.0, unit=" points", digits=2))
    return goals


def report_dependencies(found: Results) -> list[Goal]:
    goals = report_iterations("dependencies", found)
    title = f"Table 2: {found['sentences']} sentences, {found['rules']} rules, gamma {found['gamma']:g}"
    table = new_table(title, "", ">P", ">R", ">F1", ">UAS", ">tags", "paper P, R, F1, UAS")
    for name, paper in PAPER_2.items():
        row = found[name]
        figures = (f"{row[key]:.2f}" for key in ("precision", "recall", "f1", "uas", "tags"))
        table.add_row(name, *figures, " / ".join(map(str, paper)))
    table.add_row("dependency parser", "", "", "", f"{found['dependency parser']['uas']:.2f}", "", "")
    OUT.print(table)
    by_limit = new_table("Figure 5: by the limit of iterations", ">K", ">F1", ">% certificates", ">% match")
    for row in found["by_limit"]:
        figures = (f"{row[key]:.1f}" for key in ("f1", "certificates", "match"))
        by_limit.add_row(str(row["iterations"]), *figures)
    OUT.print(by_limit)
    draw(found["by_limit"])
    for name in ("model 1", "hard constraint"):
        better = found["joint"]["f1"] - found[name]["f1"]
        goals.append(Goal(f"dependencies: F1 of joint less {name}", better, 0.0, 1.0, unit=" points", digits=2))
    better = found["joint"]["uas"] - found["dependency parser"]["uas"]
    goals.append(Goal("dependencies: UAS of joint less the parser's", better, 0.0, 0.5, unit=" points", digits=2))
    return goals


def report_koo(tables: dict[str, Results], languages: int) -> list[Goal]:
    """Print certificates; what was measured of fewer languages than that is no answer."""
    shown = {">% certified": "certified", ">iterations": "iterations", ">/s": "per_second", ">UAS": "uas"}
    table = new_table("Non-projective trees, all lengths", "", "method", ">sentences", *shown)
    goals = []
    for title, r in tables.items():
        table.add_row(title, r["method"], str(r["sentences"]), *(f"{r[key]:.2f}" for key in shown.values()))
    if tables:
        OUT.print(table)
    for kind in ("both", "trilinear"):
        for exact, must, aim in ((False, 96.0, 99.0), (True, 100.0, None)):
            some = [r["certified"] for title, r in tables.items() if r["exact"] is exact and kind in title]
            least = min(some) if len(some) == languages else None  # a language without parsers: not measured
            title = f"koo, {kind}: certified{', exact=True' if exact else ''}, the least"
            goals.append(Goal(title, least, must, aim, unit=" %", digits=2))
    return goals


def report_small(name: str, found: dict[str, Results]) -> list[Goal]:
    """Random instances of each kind."""
    columns = [key for key in next(iter(found.values())) if key != "reasons"]
    table = new_table(f"{name}: against all structures, 1 to 5 words", "", *(f">{key}" for key in columns))
    for title, r in found.items():
        table.add_row(title, *(f"{r[key]:,}" for key in columns))
    OUT.print(table)
    instances, wrong = (sum(r[key] for r in found.values()) for key in ("instances", "wrong"))
    return [Goal(f"{name}: wrong of {instances:,} instances", wrong, 0, most=True, digits=0)]


def report_batched(found: dict[str, Results]) -> list[Goal]:
    table = new_table(
        "64 sentences of 20 words, 50 iterations", "scores", ">at once, /s", ">one by one, /s", ">×", ">iterations"
    )
    for title, r in found.items():
        table.add_row(title, *(f"{r[key]:.1f}" for key in ("together", "alone", "ratio", "iterations")))
    OUT.print(table)
    least = min(r["ratio"] for r in found.values())
    return [Goal("batched: at once over one by one, the least", least, 5, 15, unit=" ×")]


def report_soft(found: Results) -> list[Goal]:
    columns = [f">{seed}" for seed in found["seeds"]]
    title = f"UAS on {found['sentences']} held-out sentences, {found['learned']} to learn from, by seed"
    table = new_table(title, "", *columns, ">mean", ">s")
    for name in ("nll", "dd"):
        figures = (f"{x:.2f}" for x in found[name])
        table.add_row(name, *figures, f"{sum(found[name]) / len(found[name]):.2f}", f"{found['seconds'][name]:.0f}")
    OUT.print(table)
    better = (sum(found["dd"]) - sum(found["nll"])) / len(found["dd"])
    return [Goal("soft: UAS with grandparents less first order, mean", better, 0.0, unit=" points", digits=2)]


def draw(rows: list[dict[str, float]]) -> None:
    """Figure 5 as PNG."""
    from matplotlib.figure import Figure

    page = Figure(figsize=(6, 4), layout="constrained")
    axes = page.add_subplot()
    limits = [row["iterations"] for row in rows]
    for key, label in (("f1", "f-score"), ("certificates", "% certificates"), ("match", "% match")):
        axes.plot(limits, [row[key] for row in rows], marker=".", label=label)
    axes.set(xlabel="maximum number of dual decomposition iterations", ylabel="percent")
    axes.legend()
    RESULTS.mkdir(parents=True, exist_ok=True)
    page.savefig(RESULTS / "dual_figure5.png", dpi=150)
    LOG.print("written: bench/results/dual_figure5.png")
