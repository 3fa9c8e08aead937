"""The template scorer on fake `cuda` tensors: no device mix and no hidden wait. Run by test_templates.

In a process that the fixture ``simulate`` starts.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gpuparse.data.vocab import Vocabulary
from gpuparse.nn.templates import TemplateConfig, TemplateScorer, mcdonald
from tests.fake_cuda import expect, gradient
from tests.nn import templates_oracle as oracle


def main() -> None:
    made = oracle.sentences((6, 3), 10)
    vocabulary = Vocabulary.build(made, min_count=1)
    batch = oracle.batch_of(made, vocabulary)
    config = TemplateConfig(grandparents=mcdonald.GRANDPARENTS, siblings=mcdonald.SIBLINGS, bits=9, label_bits=9)
    with FakeTensorMode(), torch.device("cuda"):
        names = ("lengths", "words", "prefixes", "tags", "feats", "heads")
        fake = replace(
            batch, **{name: torch.empty(getattr(batch, name).shape, dtype=torch.int64, device="cuda") for name in names}
        )
        model = TemplateScorer(config, vocabulary)
        size = model.weights.numel()
        scored = model(fake)
        expect(gradient(expect(scored.scores.arcs, 2, 7, 7), model.weights), size)
        labels = expect(scored.label_scores(fake.heads), 2, 7, 3)
        expect(gradient(labels, model.label_weights), *model.label_weights.shape)
        expect(scored.scores.tree_score(fake.heads), 2)
        expect(model.tree_features(fake, fake.heads)[:, :, 0], 2, 7)
        for parts in (scored.scores.grandparents, scored.scores.siblings):
            for axis in range(3):
                expect(parts.bound(axis), 2, 7, 7)
            expect(gradient(expect(parts.dense(), 2, 7, 7, 7), model.weights), size)
            node = torch.ones(5, dtype=torch.int64, device="cuda")
            expect(gradient(expect(parts.score(node, node, node, node), 5), model.weights), size)


if __name__ == "__main__":
    main()
    print("ok")
