"""Batches of what taggers read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Int64
from torch import Tensor

from gpuparse.data.batches import Tokens, pad, tokens
from gpuparse.data.tagging.vocab import TagExample
from gpuparse.data.vocab import Index


@dataclass(frozen=True)
class TagBatch(Tokens):
    """Sentences to tag."""

    features: Int64[Tensor, "B n F"] | None  # rows of weights, 0 for none
    gold: Int64[Tensor, "B n"] | None  # the right tags: −1 past the end, and where training never saw the tag


def collate_tags(examples: Sequence[TagExample], chars: Index) -> TagBatch:
    """Pad examples to a batch on the CPU. The right tags are there if all the examples have them."""
    size = max((example.length for example in examples), default=0)
    rows = [example.features for example in examples if example.features is not None]
    gold = [example.gold for example in examples if example.gold is not None]
    return TagBatch(
        **tokens([example.words for example in examples], [example.forms for example in examples], chars),
        features=pad(rows, size) if rows else None,
        gold=pad(gold, size, -1) if len(gold) == len(examples) else None,
    )
