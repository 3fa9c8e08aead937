"""Template scorers against plain Python, their gradients, features, bounds and messages."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from gpuparse.data.batches import Batch
from gpuparse.data.vocab import Vocabulary
from gpuparse.decoding.parts import KINDS, Kind, Parts, legal_pairs, legal_triples
from gpuparse.nn.templates import TemplateConfig, TemplateScorer, mcdonald, places, read_templates
from gpuparse.nn.templates.atoms import bucket, mix
from gpuparse.structures.masks import word_mask
from tests.nn import templates_oracle as oracle

LENGTHS = (9, 1, 4, 14)
ARCS = read_templates("""
    h.word; h.tag direction; m.word m.tag direction+distance; h.word h.tag m.prefix; h.tag m.tag distance
    h.tag between.tag m.tag; between.tag direction+distance; h-1.tag h.tag m.tag m+1.tag; h+2.word m-3.prefix
    h.tag m.feat; h.feat m.feat direction
""")
HASHED = (*ARCS, ("h.feats", "m.tag"), ("h.word", "m.word", "h.tag", "m.tag", "m-1.word", "between.tag"))
GRANDPARENTS = read_templates("""
    gp.direction gc.direction pc.direction; g.tag p.tag c.tag; g.word c.prefix pc.direction+distance
    g.tag c.tag gc.distance; p.word; g-1.tag p.tag c+1.word gp.direction
""")
SIBLINGS = read_templates(
    "s.tag m.tag; h.tag s.tag m.tag hm.direction; s.word m.word sm.distance; h.word s.tag hs.direction"
)
CONFIGS = {
    "indexed": TemplateConfig(ARCS, ARCS, GRANDPARENTS, SIBLINGS, layout="indexed"),
    "auto": TemplateConfig(HASHED, HASHED, (*GRANDPARENTS, ("g.feats", "c.tag")), SIBLINGS, bits=9, label_bits=8),
    "hashed": TemplateConfig(HASHED, HASHED, GRANDPARENTS, SIBLINGS, bits=8, label_bits=8, layout="hashed"),
}
layouts = pytest.mark.parametrize("layout", CONFIGS)
kinds = pytest.mark.parametrize("kind", KINDS)


def make(config: TemplateConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[TemplateScorer, Batch]:
    """A scorer with random weights, and a batch that its vocabulary knows in part."""
    vocabulary = Vocabulary.build(oracle.sentences((6, 6), 10), min_count=1)
    scorer = TemplateScorer(config, vocabulary).to(dtype)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64))
    return scorer, oracle.batch_of(oracle.sentences(LENGTHS, seed), vocabulary)


def parts_of(scorer: TemplateScorer, batch: Batch, kind: Kind) -> Parts:
    parts = getattr(scorer(batch).scores, kind)
    assert isinstance(parts, Parts)
    return parts


def plain_sum(scorer: TemplateScorer, part: str, batch: Batch, b: int, roles: dict[str, int]) -> float:
    rows = [row for table in scorer._tables[part] for row in oracle.rows(table, batch, b, roles)]
    return math.fsum(scorer.weights.detach()[rows].tolist())


@layouts
def test_arcs_equal_plain_python(layout: str) -> None:
    scorer, batch = make(CONFIGS[layout])
    hashed = [bool(group.bits) for table in scorer._tables["arcs"] for group in table.groups]
    assert {"indexed": not any(hashed), "auto": len(set(hashed)) == 2, "hashed": all(hashed)}[layout]
    arcs = scorer(batch).scores.arcs.detach()
    for b, n in enumerate(LENGTHS):
        for h, m in product(range(n + 1), range(1, n + 1)):
            if h != m:
                want = plain_sum(scorer, "arcs", batch, b, {"h": h, "m": m})
                assert math.isclose(float(arcs[b, h, m]), want, abs_tol=1e-12)


@layouts
def test_labels_equal_plain_python(layout: str) -> None:
    scorer, batch = make(CONFIGS[layout], 1)
    found = scorer(batch).label_scores(batch.heads)
    assert found.shape == (*batch.heads.shape, 3)
    assert bool(found.isfinite().all())
    for b, n in enumerate(LENGTHS):
        for m in range(1, n + 1):
            roles = {"h": int(batch.heads[b, m]), "m": m}
            rows = [row for table in scorer._label_tables for row in oracle.rows(table, batch, b, roles)]
            torch.testing.assert_close(found[b, m], scorer.label_weights[rows].sum(0), atol=1e-12, rtol=0)


@kinds
@layouts
def test_pairs_equal_plain_python(layout: str, kind: Kind) -> None:
    scorer, batch = make(CONFIGS[layout], 2)
    parts = parts_of(scorer, batch, kind)
    dense = parts.dense()
    triples = legal_triples(kind, parts.lengths, parts.nodes).nonzero()
    triples = triples[torch.randperm(len(triples), generator=torch.Generator().manual_seed(0))[:300]]
    listed = parts.score(*triples.unbind(1))
    assert torch.equal(listed, dense[triples.unbind(1)])
    roles = "gpc" if kind == "grandparents" else "hsm"
    for (b, *triple), value in zip(triples.tolist(), listed.tolist(), strict=True):
        want = plain_sum(scorer, kind, batch, b, dict(zip(roles, triple, strict=True)))
        assert math.isclose(value, want, abs_tol=1e-12)


@kinds
@layouts
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bounds_are_never_below(layout: str, kind: Kind, dtype: torch.dtype) -> None:
    for seed in range(3):
        scorer, batch = make(CONFIGS[layout], seed, dtype)
        parts = parts_of(scorer, batch, kind)
        dense = torch.where(legal_triples(kind, parts.lengths, parts.nodes), parts.dense(), -math.inf)
        scored = parts.scored
        for axis in range(3):
            bound = parts.bound(axis)
            assert bound.dtype == dtype
            assert not bound.requires_grad
            assert bool((bound >= dense.amax(axis + 1)).all())  # to the last bit
            assert torch.equal(bound > -math.inf, legal_pairs(kind, axis, parts.lengths, parts.nodes))
        assert parts.scored == scored


def test_bounds_are_the_paper_s() -> None:
    """For all g: Σ over the templates of the maximum over g's values and relations, and nothing looser."""
    config = replace(CONFIGS["indexed"], grandparents=(("g.tag", "p.tag", "c.tag"), ("g.tag", "c.tag", "gp.direction")))
    scorer, batch = make(config)
    bound = parts_of(scorer, batch, "grandparents").bound(0)
    tags = len(oracle.TAGS) + 3
    first = scorer.table("g.tag p.tag c.tag", "grandparents").view(tags, tags, tags)
    second = scorer.table("g.tag c.tag gp.direction", "grandparents").view(tags, tags, 2)
    for p, c in ((1, 2), (5, 3), (9, 8)):
        tag_p, tag_c = int(batch.tags[0, p]), int(batch.tags[0, c])
        values = [float(first[v, tag_p, tag_c].detach()) for v in range(tags)]
        others = [float(second[v, tag_c, e].detach()) for v in range(tags) for e in range(2)]
        assert math.isclose(float(bound[0, p, c]), max(values) + max(others), abs_tol=1e-12)


def test_tables_of_bounds_are_made_once_and_anew_when_weights_change() -> None:
    scorer, batch = make(CONFIGS["auto"])
    assert not scorer.eval().training
    bounds = scorer._bounds["siblings"]
    with torch.no_grad():
        parts_of(scorer, batch, "siblings").bound(1)
        made = bounds._kept[1][2]
        before = parts_of(scorer, batch, "siblings").bound(1)
        assert bounds._kept[1][2] is made
        scorer.weights += 1
        after = parts_of(scorer, batch, "siblings").bound(1)
    there = before > -math.inf
    torch.testing.assert_close(after[there], before[there] + len(SIBLINGS), atol=1e-12, rtol=0)
    # A fused optimiser changes weights without telling; training forgets, and with gradients nothing is kept.
    optimiser = torch.optim.AdamW(scorer.train().parameters(), lr=1.0, weight_decay=0.0, fused=True)
    for parameter in scorer.parameters():
        parameter.grad = -torch.ones_like(parameter)
    optimiser.step()
    final = parts_of(scorer, batch, "siblings").bound(1)
    assert not bounds._kept
    torch.testing.assert_close(final[there], after[there] + len(SIBLINGS), atol=1e-6, rtol=0)


@layouts
def test_features_are_what_scores_are_made_of(layout: str) -> None:
    scorer, batch = make(CONFIGS[layout], 3)
    scored, heads = scorer(batch), batch.heads
    word = word_mask(batch.lengths, heads.shape[1])

    def summed(features: Tensor, weights: Tensor) -> Tensor:
        found = weights[features.clamp(min=0)]
        return torch.where(features.view(*features.shape, *(1,) * (weights.dim() - 1)) >= 0, found, 0.0).sum(2)

    arcs = scored.scores.arcs.gather(1, heads.clamp(min=0)[:, None])[:, 0]
    for features, weights, want in (
        (scorer.arc_features(batch, heads), scorer.weights, arcs),
        (scorer.label_features(batch, heads), scorer.label_weights, scored.label_scores(heads)),
    ):
        assert bool((features[~word] == -1).all())
        torch.testing.assert_close(summed(features, weights)[word], want[word], atol=1e-12, rtol=0)
    tree = summed(scorer.tree_features(batch, heads), scorer.weights).sum(1)
    torch.testing.assert_close(tree, scored.scores.tree_score(heads), atol=1e-11, rtol=0)


@layouts
@pytest.mark.parametrize("what", ["arcs", "labels", *KINDS])
def test_gradients(layout: str, what: str) -> None:
    """The scores are linear in the weights, so that a step along any direction changes them by its gradient."""
    scorer, batch = make(CONFIGS[layout], 4)

    def scores() -> Tensor:
        scored = scorer(batch)
        if what == "labels":
            return scored.label_scores(batch.heads)
        return scored.scores.arcs if what == "arcs" else getattr(scored.scores, what).dense()

    parameter = scorer.label_weights if what == "labels" else scorer.weights
    g = torch.Generator().manual_seed(5)
    before = scores()
    of = torch.randn(before.shape, generator=g, dtype=torch.float64)
    step = torch.randn(parameter.shape, generator=g, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((before * of).sum(), parameter)
    with torch.no_grad():
        parameter += step
        change = ((scores() - before) * of).sum()
    torch.testing.assert_close(change, (gradient * step).sum(), atol=1e-9, rtol=1e-9)
    assert float(change.abs()) > 1e-3


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, batch = make(CONFIGS["auto"], 6)
    results = []
    for size in (1 << 14, 100, 1):
        monkeypatch.setattr(places, "GRID", size)
        scored = scorer(batch)
        dense = scored.scores.grandparents
        values = [scored.scores.arcs, dense.dense(), scored.label_scores(batch.heads)]
        total = sum(value.square().sum() for value in values)
        gradients = torch.autograd.grad(total, [scorer.weights, scorer.label_weights])
        results.append((*values, *gradients, scorer.tree_features(batch, batch.heads)))
    for other in results[1:]:
        for value, want in zip(other, results[0], strict=True):
            torch.testing.assert_close(value, want, atol=1e-9, rtol=1e-12)
    with torch.no_grad():
        assert torch.equal(results[0][0], results[1][0])  # sums of the same terms in the same order


def test_nothing_past_the_end_is_read() -> None:
    """Whatever is there. (As plain Python has it, a sentence does not depend on its company.)"""
    scorer, batch = make(CONFIGS["auto"], 7)
    beyond = torch.arange(batch.words.shape[1]) > batch.lengths[:, None]
    other = {name: getattr(batch, name).masked_fill(beyond, 4) for name in ("words", "tags", "prefixes")}
    filled = replace(batch, **other, feats=batch.feats.masked_fill(beyond[..., None], 2))
    assert torch.equal(scorer(filled).scores.arcs, scorer(batch).scores.arcs)
    found, expected = (scorer(each).label_scores(batch.heads)[batch.heads >= 0] for each in (filled, batch))
    assert torch.equal(found, expected)
    for kind in KINDS:
        read = legal_triples(kind, batch.lengths, batch.words.shape[1])
        found, expected = (parts_of(scorer, each, kind).dense()[read] for each in (filled, batch))
        assert torch.equal(found, expected)


def test_hashing_spreads_and_repeats() -> None:
    assert mix(torch.tensor([1, -1])).tolist() == [
        value - oracle.WRAP if value >= oracle.WRAP // 2 else value for value in map(oracle.mix, (1, -1))
    ]
    one, other = (mix(torch.arange(1000) + start) for start in (0, 10**6))
    buckets = bucket(one[:, None] + other, 18)
    assert int(buckets.min()) >= 0 and int(buckets.max()) < 1 << 18
    counts = buckets.flatten().bincount(minlength=1 << 18).double()
    mean = 10**6 / (1 << 18)
    assert abs(float(counts.var()) / mean - 1) < 0.05  # as many collisions as at random, no more
    # Two rows that share one bucket do not share the rest of them.
    same = (buckets[:, None, :50] == buckets[None, :, :50]).sum(-1).fill_diagonal_(0)
    assert int(same.max()) < 5


def test_default_templates() -> None:
    assert len(mcdonald.ARCS) == 54
    config = TemplateConfig(grandparents=mcdonald.GRANDPARENTS, siblings=mcdonald.SIBLINGS, bits=10, label_bits=6)
    scorer, batch = make(config, dtype=torch.float32)
    scored = scorer(batch)
    loss = scored.scores.tree_score(batch.heads).sum() + scored.label_scores(batch.heads).sum()
    loss.backward()
    assert scorer.weights.grad is not None and bool((scorer.weights.grad != 0).any())
    assert all(table.size <= 1 << 10 for tables in scorer._tables.values() for table in tables)
    assert scorer.table("h.tag  m.tag").shape == (7 * 7,)
    assert scorer.label_table("h.tag m.feat direction").shape[1] == 3
    with pytest.raises(ValueError, match="arcs have no template 'h\\.tag m\\.horse'"):
        scorer.table("h.tag m.horse")


def test_moved_parts_and_no_sentences() -> None:
    scorer, batch = make(CONFIGS["auto"])
    parts = parts_of(scorer, batch, "siblings")
    moved = parts.to("cpu")
    assert moved is not parts and moved.scored == 0
    assert torch.equal(moved.bound(0), parts.bound(0)) and torch.equal(moved.dense(), parts.dense())
    tensors = ("lengths", "words", "prefixes", "tags", "feats", "heads")
    nothing = replace(batch, **{name: getattr(batch, name)[:0] for name in tensors}, texts=[])
    scored = scorer(nothing)
    assert scored.scores.arcs.shape == (0, 15, 15) and scored.label_scores(nothing.heads).shape == (0, 15, 3)
    assert scorer.tree_features(nothing, nothing.heads).shape[:2] == (0, 15)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arcs": (("h.wrd",),)}, "no atom 'h.wrd'"),
        ({"arcs": (("g.word",),)}, "no atom 'g.word'"),
        ({"grandparents": (("g.word", "direction"),)}, "no atom 'direction'"),
        ({"siblings": (("between.tag",),)}, "no atom 'between.tag'"),
        ({"siblings": (("s.feat",),)}, "take feats"),
        ({"arcs": (("h.tag", "h.tag"),)}, "an atom stands twice"),
        ({"arcs": (("h.tag", "direction"), ("hm.direction", "h.tag"))}, "is there twice"),
        ({"arcs": (("h.feat", "between.tag"),)}, "do not go together"),
        ({"arcs": ()}, "no template of arcs"),
        ({"labels": ()}, "none of labels"),
        ({"bits": 0}, "bits is 0; wanted 1 to 30"),
        ({"label_bits": 31}, "label_bits is 31; wanted 1 to 30"),
        ({"layout": "dense"}, "layout is 'dense'"),
        ({"layout": "indexed", "arcs": (("h.feats",),)}, "does not fit an indexed table"),
        ({"layout": "indexed", "bits": 2}, "does not fit an indexed table of 2\\^2 weights"),
        ({"bits": 2, "siblings": (("hm.direction+distance",),)}, "does not fit"),
    ],
)
def test_messages(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        make(replace(TemplateConfig((("h.tag",),), (("h.tag",),)), **change))
    assert "\n" not in str(error.value)
