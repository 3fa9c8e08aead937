"""First-order trees against their peers: sentences per second, and peak memory, by sentence length, on a CPU."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import gpuparse as gp
from bench.artificial import make_scores
from bench.bars import Bar, none_of
from bench.output import LOG, OUT, figure, show
from bench.peak import peak_multiply_adds
from bench.registry import QUICK, Args, Measured, Option, Suite, Timed, at_least, effort, repeats, seconds, threads
from bench.timing import Case, Contender, Results, agreeing, in_fresh_process, measure, memory_growth, show_cases
from gpuparse.ops.plain import eisner, generic, matrix_tree
from gpuparse.ops.plain import mst as plain_mst

warnings.filterwarnings("ignore", module="torch_struct")
try:
    from torch_struct import DependencyCRF
except ImportError:
    DependencyCRF = None
try:
    from ufal.chu_liu_edmonds import chu_liu_edmonds
except ImportError:
    chu_liu_edmonds = None

DTYPES = "scores in float32 (ufal: float64 numpy arrays; linalg.inv: float64 matrices)"
TOLERANCE = {"log Z": 1e-3, "marginals": 1e-4, "score": 1e-4}
MULTI, SINGLE = "gpuparse, multi-root", "gpuparse, single-root"
OURS = {False: MULTI, True: SINGLE}
PLAIN = {False: "plain torch, multi-root", True: "plain torch, single-root"}
INV = {False: "linalg.inv, multi-root", True: "linalg.inv, single-root"}
MEMORY_TITLE = "Peak memory of log Z + backward: growth in MB (gpuparse: single-root, torch-struct: multi-root)"
STRUCT, UFAL = "torch-struct", "ufal"
STRUCT_MARGINALS = "torch-struct, marginals alone"
OURS_GRAD, STRUCT_GRAD = "gpuparse, log Z + gradient", "torch-struct, log Z + gradient"


def batch_of(n: int) -> int:
    return 32 if n < 80 else 8


def full(arcs: Tensor) -> Tensor:
    return torch.full(arcs.shape[:1], arcs.shape[1] - 1, dtype=torch.int64)


def sums(result: tuple[Tensor, Tensor]) -> Results:
    return {"log Z": result[0], "marginals": result[1]}


def score_of(arcs: Tensor) -> Callable[[Tensor], Results]:
    """What reads heads [B, N]: the score of their arcs."""
    words = arcs[:, :, 1:].double()
    return lambda heads: {"score": words.gather(1, heads[:, None, 1:]).sum((1, 2))}


def plain_sums(log_partition: generic.LogPartition, arcs: Tensor, single_root: bool) -> tuple[Tensor, Tensor]:
    lengths = full(arcs)
    return log_partition(arcs, lengths, single_root), generic.marginals(log_partition, arcs, lengths, single_root)


def our_sums(
    family: type[gp.ProjectiveTrees | gp.NonProjectiveTrees], arcs: Tensor, single_root: bool
) -> tuple[Tensor, Tensor]:
    trees = family(arcs, single_root=single_root)
    marginals = trees.marginals  # log Z comes with them
    return trees.log_partition, marginals


def with_gradient(log_z: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return log_z.detach(), torch.autograd.grad(log_z.sum(), scores)[0]


def to_struct(arcs: Tensor) -> Tensor:
    """torch-struct's layout [B, n, n], root scores on the diagonal; it wants a non-leaf with a gradient."""
    potentials = arcs[:, 1:, 1:].clone()
    potentials.diagonal(dim1=1, dim2=2).copy_(arcs[:, 0, 1:])
    return potentials.requires_grad_() * 1.0


def from_struct(parts: Tensor) -> Tensor:
    """[B, N, N] from torch-struct's layout."""
    out = torch.nn.functional.pad(parts.detach(), (1, 0, 1, 0))
    out[:, 0, 1:] = parts.detach().diagonal(dim1=1, dim2=2)
    out.diagonal(dim1=1, dim2=2).zero_()
    return out


def projective_sums(arcs: Tensor) -> Iterator[Contender]:
    def ours_with_gradient() -> tuple[Tensor, Tensor]:
        return with_gradient(gp.ProjectiveTrees(leaf, single_root=False).log_partition, leaf)

    def struct_with_gradient() -> tuple[Tensor, Tensor]:
        return with_gradient(DependencyCRF(potentials).partition, potentials)

    def struct() -> tuple[Tensor, Tensor]:
        crf = DependencyCRF(potentials)
        return crf.partition, crf.marginals

    def read_struct(result: tuple[Tensor, Tensor]) -> Results:
        return {"log Z": result[0], "marginals": from_struct(result[1])}

    def read_marginals(result: Tensor) -> Results:
        return {"marginals": from_struct(result)}

    leaf, potentials = arcs.clone().requires_grad_(), to_struct(arcs)
    for root in (False, True):
        run = partial(our_sums, gp.ProjectiveTrees, arcs, root)
        yield Contender(OURS[root], run, STRUCT, True, root, sums)
    yield Contender(OURS_GRAD, ours_with_gradient, STRUCT_GRAD, True, False, sums)
    if DependencyCRF is not None:
        yield Contender(STRUCT, struct, read=read_struct)
        yield Contender(STRUCT_MARGINALS, lambda: DependencyCRF(potentials).marginals, read=read_marginals)
        yield Contender(STRUCT_GRAD, struct_with_gradient, read=read_struct)
    run = partial(plain_sums, eisner.log_partition, arcs, False)
    yield Contender(PLAIN[False], run, STRUCT, read=sums)


def projective_best(arcs: Tensor) -> Iterator[Contender]:
    def read_struct(parts: Tensor) -> Results:
        return {"score": (from_struct(parts) * arcs).double().sum((1, 2))}

    read, potentials = score_of(arcs), to_struct(arcs)
    for root in (False, True):
        run = lambda r=root: gp.ProjectiveTrees(arcs, single_root=r).argmax  # noqa: E731
        yield Contender(OURS[root], run, STRUCT, True, root, read)
    if DependencyCRF is not None:
        yield Contender(STRUCT, lambda: DependencyCRF(potentials).argmax, read=read_struct)
    yield Contender(PLAIN[False], partial(eisner.argmax, arcs, full(arcs), False), STRUCT, read=read)


def spanning_trees(arcs: Tensor) -> Iterator[Contender]:
    read = score_of(arcs)
    for root in (True, False):
        yield Contender(OURS[root], partial(gp.mst, arcs, single_root=root), UFAL, True, root, read)
    if chu_liu_edmonds is not None:
        matrices = list(arcs.double().transpose(1, 2).contiguous().numpy())  # [modifier, head]
        loop = lambda: [chu_liu_edmonds(matrix)[0] for matrix in matrices]  # noqa: E731
        yield Contender(UFAL, loop, read=lambda heads: read(torch.tensor(heads)))
    for root in (True, False):
        run = partial(plain_mst.mst, arcs, full(arcs), root)
        yield Contender(PLAIN[root], run, UFAL, False, root, read)


def laplacian(weights: Tensor, single_root: bool) -> Tensor:
    """The matrix [B, n, n] whose determinant is Z, of weights [B, N, N] (Koo et al. 2007)."""
    among = weights[:, 1:, 1:]
    if single_root:
        matrix = torch.diag_embed(among.sum(1)) - among
        matrix[:, 0] = weights[:, 0, 1:]
        return matrix
    return torch.diag_embed(weights[:, :, 1:].sum(1)) - among


def sums_from_inverse(matrix: Tensor, weights: Tensor, single_root: bool, inverse: Tensor) -> Results:
    """log Z and marginals by the inverse of `laplacian`."""
    inside, out = inverse.transpose(1, 2).clone(), torch.zeros_like(weights)
    own = inverse.diagonal(dim1=1, dim2=2).clone()
    out[:, 0, 1:] = weights[:, 0, 1:] * (inverse[:, :, 0] if single_root else own)
    if single_root:  # the first row holds the root's weights, not the arcs'
        inside[:, 0], own[:, 0] = 0.0, 0.0
    out[:, 1:, 1:] = weights[:, 1:, 1:] * (own[:, None] - inside)
    return {"log Z": torch.linalg.slogdet(matrix).logabsdet, "marginals": out}


def all_sums(arcs: Tensor) -> Iterator[Contender]:
    for root in (False, True):
        run = partial(our_sums, gp.NonProjectiveTrees, arcs, root)
        yield Contender(OURS[root], run, INV[root], True, root, sums)
    weights = arcs.double().exp()
    weights.diagonal(dim1=1, dim2=2).zero_()
    for root in (False, True):
        matrix = laplacian(weights, root)
        read = partial(sums_from_inverse, matrix, weights, root)
        yield Contender(INV[root], partial(torch.linalg.inv, matrix), None, False, root, read)
    for root in (False, True):
        run = partial(plain_sums, matrix_tree.log_partition, arcs, root)
        yield Contender(PLAIN[root], run, INV[root], False, root, sums)


@dataclass(frozen=True)
class Task:
    name: str
    projective: bool
    ways: Callable[[Tensor], Iterator[Contender]]
    truth: Callable[[Tensor, bool], Results]
    """By the plain torch path, in float64."""


def true_sums(log_partition: generic.LogPartition) -> Callable[[Tensor, bool], Results]:
    return lambda arcs, root: sums(plain_sums(log_partition, arcs.double(), root))


def true_best(find: Callable[[Tensor, Tensor, bool], Tensor]) -> Callable[[Tensor, bool], Results]:
    return lambda arcs, root: score_of(arcs)(find(arcs, full(arcs), root))


TASKS = {
    "projective sums": Task("log Z + marginals, projective", True, projective_sums, true_sums(eisner.log_partition)),
    "projective best": Task("best projective tree", True, projective_best, true_best(eisner.argmax)),
    "mst": Task("best non-projective tree", False, spanning_trees, true_best(plain_mst.mst)),
    "sums": Task("log Z + marginals, non-projective", False, all_sums, true_sums(matrix_tree.log_partition)),
}


def speed(args: Args) -> Measured:
    """All contenders on random and on peaked scores, by length."""
    how = effort(args, 7)
    lengths = args.lengths or ([10, 20] if args.quick else [10, 20, 40, 80, 160])
    OUT.print(f"batches: {', '.join(f'n={n}: {batch_of(n)}' for n in lengths)}\n")
    cases: list[Case] = []
    problems: list[dict[str, Any]] = []
    for task in TASKS.values():
        for kind in ("random", "peaked"):
            group = []
            for n in lengths:
                LOG.print(f"{task.name}, {kind} scores, n={n}")
                case = Case(task.name, kind, n, batch_of(n))
                arcs = make_scores(kind, n, case.batch, task.projective)
                ways = list(task.ways(arcs))
                truth = {root: task.truth(arcs, root) for root in {way.single_root for way in ways}}
                ways = agreeing(case, ways, truth, TOLERANCE, problems)
                group.append(measure(case, ways, **how, budget=args.peer_budget))
            show_cases(f"{task.name}, {kind} scores", group)
            cases += group
    for problem in problems:
        OUT.print(f"DISAGREES  {problem['where']}: {problem['what']}")
    timings = [record for case in cases for record in case.as_json()]
    data = {"dtypes": DTYPES, "tolerances": TOLERANCE, "timings": timings, "disagreements": problems}
    wrong = none_of("results of gpuparse that are not those of plain torch", sum(p["ours"] for p in problems))
    return Measured(data, [wrong, *(bars_of(cases) if args.bars else [])])


def timed(args: Args) -> Iterator[Timed]:
    """What gpuparse does of all that."""
    for task in TASKS.values():
        for kind in ("random", "peaked"):
            for n in args.lengths or [10, 40, 80]:
                for way in task.ways(make_scores(kind, n, batch_of(n), task.projective)):
                    if way.ours:
                        yield Timed(f"{task.name}, {kind}, n={n}, {way.name}", way.run)


def log_z_and_backward(kind: str, n: int, batch: int) -> Callable[[], None]:
    arcs = make_scores("random", n, batch, True)
    if kind == STRUCT:
        potentials = to_struct(arcs)
        return lambda: DependencyCRF(potentials).partition.sum().backward()
    family = gp.ProjectiveTrees if kind == "projective" else gp.NonProjectiveTrees
    arcs.requires_grad_()
    return lambda: family(arcs).log_partition.sum().backward()


def memory_of(kind: str, n: int, batch: int, threads: int) -> float:
    """In a process of its own: growth by one computation, in MB."""
    torch.set_num_threads(threads)
    log_z_and_backward(kind, 4, 2)()  # compiles and loads
    return memory_growth(log_z_and_backward(kind, n, batch))


def memory(args: Args) -> Measured:
    """MB that log Z + backward take above what the process held, one fresh process each."""
    sizes = [(40, 1), (1000, 1)] if args.quick else [(40, 1), (40, 32), (160, 1), (160, 32), (1000, 1)]
    kinds = ["projective", "non-projective", *([STRUCT] if DependencyCRF is not None else [])]
    rows = []
    for n, batch in sizes:
        for kind in kinds:
            if kind == STRUCT and n > 160:
                continue
            LOG.print(f"memory: {kind}, n={n}, B={batch}")
            grown = in_fresh_process(__name__, "memory_of", kind, n, batch, args.threads)
            rows.append({"what": kind, "n": n, "batch": batch, "megabytes": grown})
    found = {(row["n"], row["batch"], row["what"]): row["megabytes"] for row in rows}
    shown = [(*size, *(figure(found.get((*size, kind))) for kind in kinds)) for size in sizes]
    show(MEMORY_TITLE, (">n", ">B", *(f">{kind}" for kind in kinds)), shown)
    grown = found.get((1000, 1, "projective"))
    bar = Bar("Eisner log Z + backward, memory, n=1000, B=1", grown, 150, most=True, unit=" MB", digits=None)
    return Measured(rows, [bar] if args.bars else [])


def multiply_adds(n: int) -> int:
    """Of Eisner's algorithm, both passes, for n words: three of the inside pass and six of the outside one a triple."""
    return 9 * ((n + 1) * n * (n - 1) // 6)


def peak(args: Args) -> Measured:
    """Eisner's log Z + marginals as a share of the doubles that a core can multiply and add, in one thread."""
    torch.set_num_threads(1)
    rows = []
    for n in args.lengths or [40, 80, 160]:
        arcs = make_scores("random", n, batch_of(n), True)
        run = partial(our_sums, gp.ProjectiveTrees, arcs, False)
        run()
        calls = 1 + 200_000_000 // (multiply_adds(n) * len(arcs))
        found = []
        for _ in range(args.repeats or (3 if args.quick else 7)):
            start = time.process_time()
            for _ in range(calls):
                run()
            rate = calls * len(arcs) * multiply_adds(n) / (time.process_time() - start)
            found.append((rate, peak_multiply_adds(2)))
        rate, most = (max(x) for x in zip(*found, strict=True))
        rows.append({"n": n, "batch": len(arcs), "multiply_adds": rate, "peak": most, "share": rate / most})
    shown = [
        (r["n"], r["batch"], *(f"{r[k] / 1e9:.1f}" for k in ("multiply_adds", "peak")), f"{r['share']:.0%}")
        for r in rows
    ]
    show(
        "Eisner log Z + marginals: billions of multiply-adds a second, one thread",
        (">n", ">B", ">done", ">peak", ">share"),
        shown,
    )
    title = "Eisner log Z + marginals, share of a core's multiply-adds in doubles"
    bars = [Bar(f"{title}, n={r['n']}", r["share"], 0.25, 0.45, digits=None) for r in rows]
    return Measured(rows, bars if args.bars else [])


def bars_of(cases: list[Case]) -> list[Bar]:
    """What the project promises; of several kinds of scores the worse counts."""

    def bar(name: str, must: float, aim: float, task: str, n: int, ours: str, peer: str, *kinds: str) -> Bar:
        chosen = [c for c in cases if (c.task, c.n) == (TASKS[task].name, n) and c.scores in kinds]
        ratios = {by: [c.ratio(ours, peer, by) or 0.0 for c in chosen] for by in ("median", "max")}
        median, fastest = (min(r, default=0.0) or None for r in ratios.values())
        title = f"{name}, {' and '.join(kinds)}, n={n}, B={batch_of(n)}"
        return Bar(title, median, must, aim, unit=" ×", digits=None, fastest=fastest)

    eisner_sums = "Eisner log Z + marginals / torch-struct"
    inverse = "matrix-tree sums / linalg.inv"
    return [
        bar(eisner_sums, 60, 100, "projective sums", 40, MULTI, STRUCT, "random"),
        bar(eisner_sums, 60, 150, "projective sums", 80, MULTI, STRUCT, "random"),
        bar(f"{eisner_sums}'s marginals alone", 80, 150, "projective sums", 40, MULTI, STRUCT_MARGINALS, "random"),
        bar(f"{eisner_sums}'s marginals alone", 70, 150, "projective sums", 80, MULTI, STRUCT_MARGINALS, "random"),
        bar("Eisner argmax / torch-struct", 60, 150, "projective best", 40, MULTI, STRUCT, "random"),
        bar("mst / ufal", 5, 15, "mst", 40, SINGLE, UFAL, "peaked"),
        bar("mst / ufal", 3, 10, "mst", 40, SINGLE, UFAL, "random"),
        bar(inverse, 0.6, 0.9, "sums", 40, MULTI, INV[False], "random", "peaked"),
    ]


SUITE = Suite(
    "first_order",
    "first-order inference on a CPU against torch-struct, ufal and plain torch, by length; memory of log Z + backward",
    {"speed": speed, "memory": memory, "peak": peak},
    [
        Option("bars", "the project's bars; exit 1 if one is missed", False, bool),
        Option("lengths", "words of a sentence (10,20,40,80,160; with --quick 10,20)", None, at_least(2), many=True),
        Option("peer-budget", "seconds for a contender in a case", 20.0, seconds),
        repeats(None, "repetitions, in turns (7; with --quick 3)"),
        threads(None),
        QUICK,
    ],
    peers=("torch-struct", "ufal.chu-liu-edmonds"),
    notes=(
        DTYPES,
        "medians of interleaved repetitions; 'log Z + marginals' asks torch-struct for both, one by one, and gpuparse",
        "for the marginals, with which log Z comes;",
        "'log Z + gradient' (multi-root) asks for the first and its backward, as training does",
    ),
    timed=timed,
)
