"""Templates once more in plain Python: one part, one template and one feature at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import product

import torch

from gpuparse.data.batches import Batch, collate
from gpuparse.data.sentence import Sentence
from gpuparse.data.vocab import Vocabulary
from gpuparse.nn.templates.tables import Group, WeightTable

WRAP = 1 << 64
TAGS = ("NOUN", "VERB", "ADJ", "DET")
FEATS = ("_", "Case=Nom", "Case=Acc|Number=Plur", "Number=Plur|Person=3|Tense=Past", "Number=Plur")


def sentences(lengths: Sequence[int], seed: int) -> list[Sentence]:
    """Random words, tags and features under random trees."""
    g = torch.Generator().manual_seed(seed)

    def pick(names: Sequence[str], count: int) -> list[str]:
        return [names[i] for i in torch.randint(len(names), (count,), generator=g).tolist()]

    words = [f"{stem}{end}" for stem in ("walk", "talking", "long", "a") for end in ("", "s", "ed")]
    made = []
    for n in lengths:
        order = (torch.randperm(n, generator=g) + 1).tolist()
        heads = [0] * (n + 1)
        for place, word in enumerate(order):  # each hangs on one before it in a random order
            heads[word] = 0 if place == 0 else order[int(torch.randint(place, (1,), generator=g))]
        labels = ["root" if head == 0 else "obj" if head < word else "nsubj" for word, head in enumerate(heads)]
        columns = {"words": pick(words, n), "upos": pick(TAGS, n), "feats": pick(FEATS, n)}
        made.append(Sentence.from_words(**columns, heads=heads[1:], deprels=labels[1:]))
    return made


def batch_of(made: Sequence[Sentence], vocabulary: Vocabulary) -> Batch:
    return collate([vocabulary.encode(sentence, tree=True) for sentence in made], vocabulary.chars)


def mix(value: int) -> int:
    value %= WRAP
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % WRAP
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % WRAP
    return value ^ (value >> 31)


def salt(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def bucket(key: int, bits: int) -> int:
    signed = key - WRAP if key >= WRAP // 2 else key
    key = (signed ^ (signed >> 32)) * 0x9E3779B97F4A7C15 % WRAP
    signed = key - WRAP if key >= WRAP // 2 else key
    return (signed >> (64 - bits)) + (1 << (bits - 1))


def atom_values(name: str, batch: Batch, b: int, roles: Mapping[str, int]) -> list[int]:
    """The values of an atom at a part: one, or for bags and tags between any number."""
    if name == "between.tag":
        low, high = sorted(roles.values())
        return sorted({int(batch.tags[b, k]) for k in range(low + 1, high)})
    start, _, what = name.rpartition(".")
    if what in ("direction", "distance", "direction+distance"):
        one, other = (roles[role] for role in start or "hm")
        far = abs(one - other)
        distance = 0 if far <= 1 else far - 1 if far <= 5 else 5 if far <= 10 else 6
        right = int(one < other)
        return [{"direction": right, "distance": distance, "direction+distance": 7 * right + distance}[what]]
    role, offset = start[0], int(start[1:] or 0)
    node = roles[role] + offset
    exists = 0 <= node <= int(batch.lengths[b])
    if role == "s" and roles["s"] == roles.get("h"):
        exists = False
    if what == "feat":
        return [feat for feat in batch.feats[b, node].tolist() if feat] if exists else []
    if not exists:
        return [0]
    if what == "feats":
        return [sum(mix(feat + salt("feats")) for feat in batch.feats[b, node].tolist() if feat) % WRAP]
    return [int({"word": batch.words, "prefix": batch.prefixes, "tag": batch.tags}[what][b, node])]


def group_index(group: Group, values: Sequence[int]) -> int:
    if group.bits:
        terms = zip(group.atoms, values, strict=True)
        return bucket(sum(mix(value + salt(atom.name)) for atom, value in terms) % WRAP, group.bits)
    return sum(value * stride for value, stride in zip(values, group.strides, strict=True))


def rows(table: WeightTable, batch: Batch, b: int, roles: Mapping[str, int]) -> list[int]:
    """The rows that a template looks up at one part."""
    found = [0]
    for group in table.groups:
        values = [atom_values(atom.name, batch, b, roles) for atom in group.atoms]
        indices = [group_index(group, chosen) for chosen in product(*values)]
        assert all(0 <= index < group.size for index in indices)
        found = [row * group.size + index for row in found for index in indices]
    if table.between:
        tags = atom_values("between.tag", batch, b, roles)
        found = [row * table.between + tag for row in found for tag in tags]
    return [table.offset + row for row in found]
