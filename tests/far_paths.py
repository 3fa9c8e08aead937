"""Every distribution, decoder, objective and model, and the self-test, on a simulated `cuda` device. Run by
test_far_paths.

The argument says which of them. What comes out is JSON: of each path what differs from the CPU, and what was counted.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import kl_divergence

import gpuparse as gp
from gpuparse import bp
from gpuparse.cli import selftest
from gpuparse.data.vocab import Vocabulary
from gpuparse.decoding.dual.fallback import FEW
from gpuparse.decoding.parts import KINDS, Parts
from gpuparse.decoding.ppc import work
from gpuparse.lp import Children, Constraint, violates
from gpuparse.models.tagger import Tagger
from gpuparse.nn.templates import TemplateConfig, TemplateScorer, mcdonald
from gpuparse.nn.trilinear import Trilinear
from gpuparse.ops.library import plain_torch
from gpuparse.train.distributed import Processes
from gpuparse.train.tagging import TaggingTask, tag_vocabulary
from gpuparse.train.task import Parsing
from tests.decoding.lp import some
from tests.distributions.conditions import some_condition
from tests.distributions.families import FAMILIES, Family, enumerate_all, everything
from tests.nn import templates_oracle
from tests.simulated_cuda import CUDA, Simulated, SimulatedDevice, simulated_cuda
from tests.train.small import BILSTM, NO_DROPOUT, TAGS, TEMPLATES, config, sentences

SECOND = ("scorer.grandparents=3", "scorer.siblings=3")
PROJECTIVE = ("training.projective=true",)
work.FEW = 10**9  # a device goes to the programs at once; so does what it is compared with
Run = Callable[[torch.device], Any]


def here(x: Any) -> Any:
    """The values of what was found, wherever they are, and nothing else."""
    if isinstance(x, Simulated):
        x = x.elem
    if isinstance(x, Tensor):
        return x.detach().double().nan_to_num(nan=12345.0, posinf=1e300, neginf=-1e300)
    if isinstance(x, dict):
        return {name: here(value) for name, value in x.items()}
    return [here(each) for each in x] if isinstance(x, (list, tuple)) else x


def differ(one: Any, other: Any, rounding: float) -> bool:
    """Whether two answers do."""
    if isinstance(one, Tensor):
        return one.shape != other.shape or not torch.allclose(one, other, rtol=rounding, atol=rounding)
    if isinstance(one, dict):
        return one.keys() != other.keys() or any(differ(one[name], other[name], rounding) for name in one)
    if isinstance(one, list):
        return len(one) != len(other) or any(differ(x, y, rounding) for x, y in zip(one, other, strict=True))
    return bool(one != other)


def compared(run: Run, rounding: float = 0.0) -> dict[str, Any]:
    """A path on the CPU and there. ``run`` may return a function: what it does first is not counted."""

    def done(device: torch.device, on: SimulatedDevice | None) -> Any:
        found = run(device)
        if callable(found):
            if on is not None:
                on.reset()
            found = found()
        counted = None if on is None else [on.waits, on.operations, on.bytes]
        return here(found), counted

    expected, _ = done(torch.device("cpu"), None)
    with simulated_cuda() as on:
        found, counted = done(CUDA, on)
    assert counted is not None
    waits, operations, made = counted
    lines = {"waits": str(waits), "operations": str(operations), "bytes": str(made)}
    numbers = {"waits": waits.total(), "operations": operations.total(), "bytes": made.total()}
    return {"differs": differ(expected, found, rounding), "counted": numbers, "lines": lines}


def distributions() -> Iterator[tuple[str, Run]]:
    """All that every family says, samples, and derivatives: to the second by the kernels, and in plain torch; and the
    same of what is conditional, with a condition on the device and its making counted, too."""

    def path(family: Family, plain: bool) -> Run:
        scores, lengths = family.scores(2, batch=2, words=3, forbidden=0.1, poison=False)

        def run(device: torch.device) -> Any:
            leaves = {name: x.to(device).requires_grad_() for name, x in scores.items()}
            others = {name: 0.5 * x.detach() for name, x in leaves.items()}
            p, q = (family.make(x, lengths.to(device), validate_args=False) for x in (leaves, others))

            def ask() -> Any:
                torch.default_generator.manual_seed(0)
                with plain_torch() if plain else nullcontext():
                    drawn = p.sample((2,))
                    found = {**everything(p), "kl": kl_divergence(p, q), "drawn": p.log_prob(drawn)}
                    total = sum(x.nan_to_num(neginf=0.0).square().sum() for x in found.values() if x.requires_grad)
                    first = grad(total, list(leaves.values()), create_graph=not plain)
                    again = () if plain else grad(sum(x.square().sum() for x in first), list(leaves.values()))
                samples = {name: x for name, x in found.items() if "argmax" not in name and name != "topk"}
                return [samples, drawn, list(first), list(again)]

            return ask

        return run

    def conditional(family: Family) -> Run:
        scores, lengths = family.scores(2, batch=2, words=3, forbidden=0.1, poison=False)
        condition = some_condition(family, lengths, 1, oracles=enumerate_all(family, scores, lengths))

        def run(device: torch.device) -> Any:
            leaves = {name: x.to(device).requires_grad_() for name, x in scores.items()}
            known, p = condition.on(device), family.make(leaves, lengths.to(device), validate_args=False)

            def ask() -> Any:
                torch.default_generator.manual_seed(0)
                q = p.given(**known)
                drawn = q.sample((2,))
                found = {**everything(q), "kl": kl_divergence(q, p), "drawn": q.log_prob(drawn)}
                total = sum(x.nan_to_num(neginf=0.0).square().sum() for x in found.values() if x.requires_grad)
                by = grad(total, list(leaves.values()))
                return [{name: x for name, x in found.items() if "argmax" not in name and name != "topk"}, drawn, by]

            return ask

        return run

    for name, family in FAMILIES.items():
        yield name, path(family, False)
        yield f"{name}, given", conditional(family)
        if "many roots" not in name and name != "no pairs":  # they take long
            yield f"{name}, plain torch", path(family, True)


def scores() -> Iterator[tuple[str, Run]]:
    """Scores of trees, their parts by either scorer, and which constraints are violated."""
    lengths, generator = torch.tensor([6, 3]), torch.Generator().manual_seed(0)
    states, arcs = torch.randn(2, 7, 4, generator=generator), torch.randn(2, 7, 7, generator=generator)
    labels, words = torch.randn(2, 7, 7, 3, generator=generator), templates_oracle.sentences((6, 3), 10)
    heads, chosen = torch.tensor([[-1, 0, 1, 2, 3, 4, 5], [-1, 2, 0, 2, -1, -1, -1]]), torch.ones(2, 7).long()
    vocabulary = Vocabulary.build(words, min_count=1)

    def of_parts(parts: Parts, weights: Any) -> Any:
        node = torch.tensor([1, 2]).to(weights.device)
        found = [parts.dense().nan_to_num(neginf=0.0), parts.score(node - 1, node, node + 1, node - node)]
        return [
            *(parts.bound(axis) for axis in range(3)),
            *found,
            *(grad(x.sum(), weights, retain_graph=True)[0] for x in found),
        ]

    def of_trees(device: torch.device) -> Any:
        tree, names, there = heads.to(device), chosen.to(device), arcs.to(device).requires_grad_()
        given = gp.Scores(there, lengths.to(device), labels=labels.to(device), validate_args=False)

        def ask() -> Any:
            score = given.tree_score(tree.expand(4, 2, 7), names.expand(4, 2, 7))
            return [score, grad(score.sum(), there)[0], given.best_labels(tree), given.fold_labels().arcs]

        return ask

    def trilinear(device: torch.device) -> Any:
        torch.default_generator.manual_seed(0)
        modules = [Trilinear(4, 3, 0.0, kind=kind).to(device) for kind in KINDS]
        given = states.to(device), lengths.to(device)
        return lambda: [of_parts(module(*given), next(iter(module.parameters()))) for module in modules]

    def templates(device: torch.device) -> Any:
        config = TemplateConfig(grandparents=mcdonald.GRANDPARENTS, siblings=mcdonald.SIBLINGS, bits=9, label_bits=9)
        scorer = TemplateScorer(config, vocabulary).to(device)
        batch = templates_oracle.batch_of(words, vocabulary).to(device)

        def ask() -> Any:
            scored = scorer(batch)
            by = [
                grad(x.nan_to_num(neginf=0.0).sum(), w)[0]
                for x, w in (
                    (scored.scores.arcs, scorer.weights),
                    (scored.label_scores(batch.heads), scorer.label_weights),
                )
            ]
            pairs = [of_parts(getattr(scored.scores, kind), scorer.weights) for kind in KINDS]
            return [by, pairs, scored.scores.tree_score(batch.heads), scorer.tree_features(batch, batch.heads)]

        return ask

    def constraints(device: torch.device) -> Any:
        rng, tree = random.Random(0), torch.tensor([[-1, 0, 1, 2, 3]] * 3).to(device)
        sentences = [some.sentence(rng, 4) for _ in tree]
        every = some.constraints(rng, 4)
        return lambda: [violates([each], sentences, tree, torch.zeros_like(tree)) for each in every]

    yield from {"trees": of_trees, "trilinear": trilinear, "templates": templates, "constraints": constraints}.items()


def decoders() -> Iterator[tuple[str, Run]]:
    """Methods, and what they are given: seven words at most, with and without pairs."""
    B, N, generator = 4, 8, torch.Generator().manual_seed(0)
    lengths = torch.tensor([7, 4, 7, 6])
    arcs, labels = torch.randn(B, N, N, generator=generator), torch.randn(B, N, N, 3, generator=generator)
    arcs[:, 2, 4] = -torch.inf
    pairs = {kind: 0.5 * torch.randn(B, N, N, N, generator=generator) for kind in ("grandparents", "siblings")}
    grand = {"grandparents": pairs["grandparents"]}
    few: list[Constraint] = [Children(at_most=2)]

    def decoder(method: str, *, parts: dict[str, Tensor] | None = None, **options: Any) -> Run:
        scores = gp.Scores(arcs, lengths, labels=labels, **(parts or {}), validate_args=False)

        def run(device: torch.device) -> Any:
            there = scores.to(device)

            def decode() -> Any:
                found = gp.decode(there, method, **options)
                return [found.heads, found.labels, found.score, found.bound, found.certified, found.iterations]

            return decode

        return run

    def max_product(device: torch.device) -> Any:
        factors = [bp.Tree(), bp.Grand(grand["grandparents"].to(device)), bp.Link(arcs.to(device))]
        there = lengths.to(device)

        def run() -> Any:
            with torch.no_grad():
                found = gp.BeliefPropagation(factors, iterations=5, mode="max").run(there)
            return [found.links, found.residuals]

        return run

    def tags(method: Any, **options: Any) -> Run:
        unary, pairs = torch.randn(B, 7, 14, generator=generator), torch.randn(14, 14, generator=generator)

        def run(device: torch.device) -> Any:
            given = unary.to(device), pairs.to(device), lengths.to(device)

            def best() -> Any:
                found = gp.viterbi(*given, method=method, **options)
                return [found.tags, found.score, found.bound]

            return best

        return run

    yield "mst", decoder("mst")
    yield "eisner", decoder("eisner")
    yield "eisner, pairs", decoder("eisner", parts=pairs)
    yield "eisner, pairs priced", decoder("eisner", parts=pairs, pricing=True)
    yield "bp", decoder("bp", parts=pairs, iterations=5)
    yield "bp, projective", decoder("bp", parts=pairs, iterations=5, projective=True)
    yield "bp, max-product", max_product
    yield "dd", decoder("dd", parts=pairs, nodes=0)  # what a device does without being asked
    yield "dd, exact", decoder("dd", parts=pairs, exact=True, threads=1)
    yield "ppc", decoder("ppc", parts=grand, threads=1)
    yield "ppc, exact", decoder("ppc", parts=grand, exact=True, threads=1)
    yield "ppc, pairs, exact", decoder("ppc", parts=pairs, exact=True, threads=1)
    yield "ppc, pairs, projective", decoder("ppc", parts=pairs, projective=True, threads=1)
    yield "lp", decoder("lp", parts=grand)
    yield "lp, pairs", decoder("lp", parts=pairs)
    yield "ilp", decoder("ilp")
    yield "ilp, constraints", decoder("ilp", constraints=few)
    yield "ilp, pairs", decoder("ilp", parts=pairs)
    yield "ilp, constraints, pairs", decoder("ilp", parts=pairs, constraints=few)
    yield "auto", decoder("auto")
    yield "auto, projective", decoder("auto", projective=True)
    yield "auto, grandparents", decoder("auto", parts=grand, threads=1, iterations=FEW)  # likewise
    yield "auto, pairs", decoder("auto", parts=pairs, threads=1, iterations=FEW)
    for method in ("auto", "dense", "column_generation", "beam"):
        yield f"viterbi, {method}", tags(method)
    yield "viterbi, averaged", tags("column_generation", pricing="averaged")


def objectives() -> Iterator[tuple[str, Run]]:
    """A step of training, forward and backward: its loss, and the weights after it."""

    def step(*overrides: str) -> Run:
        settings = config(*overrides, *NO_DROPOUT)
        task_of = Parsing if settings.task == "parse" else TaggingTask

        def run(device: torch.device) -> Any:
            task = task_of(settings, sentences(6), device, Processes())
            batch, words = task.batch(range(6)), sum(map(len, sentences(6)))

            def train() -> Any:
                stats = task.learner.step(batch, words=words, progress=0.1)
                return [stats["loss"], dict(task.learner.model.named_parameters())]

            return train

        return run

    first = {"nll": (), "nll, projective": PROJECTIVE, "local": (), "hinge": (), "hinge, projective": PROJECTIVE}
    for name, more in first.items():
        yield name, step(f"training.objective={name.partition(',')[0]}", *more)
    yield "nll, templates", step("training.objective=nll", *TEMPLATES)
    yield "nll, pairs", step("training.objective=nll", *SECOND, *PROJECTIVE)
    yield "hinge, pairs", step("training.objective=hinge", *SECOND, *PROJECTIVE)
    for name in ("bp", "bp_l2"):
        yield name, step(f"training.objective={name}", *SECOND)
        yield f"{name}, projective", step(f"training.objective={name}", *SECOND, *PROJECTIVE)
    yield "dd", step("training.objective=dd", *SECOND, *PROJECTIVE)
    for name in ("perceptron", "mira"):
        yield name, step(f"training.objective={name}", *TEMPLATES)
    for name in ("nll", "local", "hinge"):
        yield f"tag, {name}", step(*BILSTM, f"training.objective={name}")
    yield "tag, perceptron", step(*TAGS, *TEMPLATES, "training.objective=perceptron")


def models() -> Iterator[tuple[str, Run]]:
    """Parsers and taggers, three batches."""

    def parser(*overrides: str, uneven: bool = False, **options: Any) -> Run:
        """``uneven``: one whose trees differ, so that rounding does not choose among them."""

        def run(device: torch.device) -> Any:
            model = Parsing(config(*overrides), sentences(9), torch.device("cpu"), Processes()).model
            generator = torch.Generator().manual_seed(1)
            for weights in model.scorer.parameters() if uneven else ():
                weights.data += 0.3 * torch.randn(weights.shape, generator=generator)
            model.to(device)

            def parse() -> Any:
                return [sentence.text for sentence in model.parse(sentences(9), batch_words=40, **options)]

            return parse

        return run

    def tagger(*overrides: str, **options: Any) -> Run:
        settings = config(*overrides)

        def run(device: torch.device) -> Any:
            model = Tagger.new(settings, tag_vocabulary(settings, sentences(9))).to(device)
            return lambda: [sentence.text for sentence in model.tag(sentences(9), batch_words=40, **options)]

        return run

    yield "parse", parser()
    yield "parse, confidence", parser(confidence=True)
    yield "parse, projective, pairs", parser(*SECOND, *PROJECTIVE)
    yield "parse, pairs", parser(*SECOND, options={"threads": 1})
    yield "parse, bp", parser(*SECOND, "training.objective=bp", uneven=True)
    yield "parse, templates", parser(*TEMPLATES)
    yield "parse, constraints", parser(constraints=[Children(at_most=2)])
    yield "tag", tagger(*BILSTM)
    yield "tag, templates", tagger(*TAGS, *TEMPLATES)
    yield "tag, beam", tagger(*BILSTM, method="beam")


def check_all() -> dict[str, Any]:
    """The self-test there: kernels with float32, but for second derivatives, which take long in plain torch; and times
    of one."""
    every = selftest._comparisons

    def some(quick: bool) -> Callable[[Tensor], Iterator[selftest.KernelComparison]]:
        def chosen(like: Tensor) -> Iterator[selftest.KernelComparison]:
            for x in every(like) if like.dtype == torch.float32 else ():
                if x.kernel == "mst" if quick else "second derivative" not in x.kernel:
                    yield x

        return chosen

    with simulated_cuda():
        with mock.patch.object(selftest, "_comparisons", some(False)):
            checks = selftest.run([CUDA], times=False)
        with mock.patch.object(selftest, "_comparisons", some(True)):
            timed = selftest.run([CUDA])
    return {
        "kernels": sorted({check.kernel.split()[0] for check in checks}),
        "wrong": [[check.kernel, check.max_difference, check.note] for check in checks if not check.ok],
        "timed": [[check.kernel, check.seconds, check.plain_seconds] for check in timed],
        "devices": sorted({check.device for check in checks}),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "selftest":
        print(json.dumps(check_all()))
    else:
        paths, rounding = {
            "distributions": (distributions, 1e-9),
            "scores": (scores, 1e-6),
            "decoders": (decoders, 1e-9),
            "objectives": (objectives, 1e-6),
            "models": (models, 0.0),
        }[sys.argv[1]]
        print(
            json.dumps(
                {name: compared(run, rounding) for name, run in paths() if not sys.argv[2:] or name in sys.argv[2:]}
            )
        )
