"""Batches: examples of about the same length, padded to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from gpuparse.data.vocab import ROOT, Example, Index, Ints, form_characters

WINDOW = 2000  # sentences of a stream that are sorted by length at a time

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Tokens:
    """Sentences in numbers, node 0 the root; 0 pads, 1 is unknown, 2 the root (see ``data.vocab``)."""

    lengths: Int64[Tensor, " B"]
    words: Int64[Tensor, "B N"]
    forms: Int64[Tensor, "B N"]  # rows of chars
    chars: Int64[Tensor, "U C"]  # the characters of the different forms in the batch
    texts: list[list[str]]  # the forms themselves, the root's first: for encoders with a tokeniser of their own

    def __len__(self) -> int:
        return len(self.texts)

    def to(self, device: torch.device | str) -> Self:
        """The same on another device. A GPU copies them, from memory that stays where it is, while Python goes on."""
        pinned = torch.device(device).type == "cuda" and torch.cuda.is_available()
        moved: dict[str, Any] = {
            field.name: (value.pin_memory() if pinned else value).to(device, non_blocking=True)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class Batch(Tokens):
    """Sentences to parse."""

    prefixes: Int64[Tensor, "B N"]
    tags: Int64[Tensor, "B N"]
    feats: Int64[Tensor, "B N F"]  # a bag of features a word
    heads: Int64[Tensor, "B N"] | None  # −1 at node 0 and past the end
    labels: Int64[Tensor, "B N"] | None  # the same, and −1 where the label is unknown


def collate(examples: Sequence[Example], chars: Index) -> Batch:
    """Pad examples to a batch on the CPU. Heads and labels are there if all the examples have them."""
    size = len(examples)
    nodes = max((len(example.forms) for example in examples), default=1)
    most = max((len(bag) for example in examples for bag in example.feats), default=1)
    feats = np.zeros((size, nodes, most), dtype=np.int64)
    for number, example in enumerate(examples):
        for node, bag in enumerate(example.feats):
            feats[number, node, : len(bag)] = bag
    heads = [example.heads for example in examples if example.heads is not None]
    labels = [example.labels for example in examples if example.labels is not None]
    return Batch(
        **tokens([example.words for example in examples], [example.forms for example in examples], chars),
        prefixes=pad([example.prefixes for example in examples], nodes),
        tags=pad([example.tags for example in examples], nodes),
        feats=torch.from_numpy(feats),
        heads=pad(heads, nodes, -1) if len(heads) == size else None,
        labels=pad(labels, nodes, -1) if len(labels) == size else None,
    )


def pad(arrays: Sequence[Any], width: int, value: int = 0) -> Int64[Tensor, "B width *rest"]:
    """Rows of different lengths as one tensor."""
    out = np.full((len(arrays), width, *(np.shape(arrays[0])[1:] if arrays else ())), value, dtype=np.int64)
    for row, array in zip(out, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(out)


def tokens(words: Sequence[Ints], texts: list[list[str]], chars: Index) -> dict[str, Any]:
    """The fields of ``Tokens``, of the numbers of the words and their forms, both with the root."""
    nodes = max(map(len, texts), default=1)
    row_of: dict[str, int] = {"": 0}  # the root's form is empty
    forms = [[row_of.setdefault(form, len(row_of)) for form in text] for text in texts]
    spelled = [chars.numbers(form_characters(form)) for form in row_of]
    characters = pad(spelled, max(1, *map(len, spelled)))
    characters[0, 0] = ROOT
    return {
        "lengths": torch.tensor([len(text) - 1 for text in texts], dtype=torch.int64),
        "words": pad(words, nodes),
        "forms": pad(forms, nodes),
        "chars": characters,
        "texts": texts,
    }


def batches_by_length(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Cut sentences into batches of at most ``budget`` nodes, padding counted; a longer one has its own.

    Returns indices into ``lengths``; sentences of like length are together, the shortest first.
    """
    return _cut(sorted(range(len(lengths)), key=lambda index: lengths[index]), lengths, budget)


def shuffled_batches(lengths: Sequence[int], budget: int, *, seed: int, epoch: int) -> list[list[int]]:
    """The batches of one epoch of training: a function of ``seed`` and ``epoch`` alone.

    Lengths are blurred by a tenth before sorting, so that a sentence meets others each time; then the batches
    are shuffled.
    """
    random = np.random.default_rng([seed, epoch])
    blurred = (np.asarray(lengths) + 1) * random.uniform(1.0, 1.1, len(lengths))
    batches = _cut(np.argsort(blurred, kind="stable").tolist(), lengths, budget)
    return [batches[index] for index in random.permutation(len(batches)).tolist()]


def _cut(order: Sequence[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    if budget < 1:
        raise ValueError(f"batch budget: {budget} words; wanted 1 or more")
    batches: list[list[int]] = []
    widest = 0
    for index in order:
        nodes = lengths[index] + 1
        widest = max(widest, nodes)
        if not batches or widest * (len(batches[-1]) + 1) > budget:
            batches.append([])
            widest = nodes
        batches[-1].append(index)
    return batches
