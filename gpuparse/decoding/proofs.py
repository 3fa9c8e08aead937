"""Why answers are best, for everybody to check: what a method knew at its end, sentence by sentence.

A proof is a list of leaves: the branches of the search, which together are all trees, and for each of them numbers that
bound its trees (``gpuparse.verify`` says how). Proofs can be saved beside a parse.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save

from gpuparse.system.files import write_bytes
from gpuparse.system.quote import quoted
from gpuparse.system.tensors import read_tensors

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
TRIANGLE, NO_CYCLE_GP = 0, 1  # kinds of cuts
NEVER = -(2.0**1000)  # what an arc takes over that can have no pair: no tree has it


def _ints(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ProofLeaf:
    """A branch of the search, and numbers that bound its trees. N nodes, L labels.

    Attributes:
        path: decisions [D, 4]: head, word, label (-1: any), and 1 if the tree has that arc, 0 if it has not.
        penalties: what each arc takes over from the pairs that it is in as the arc of a child [N, N].
        cuts, cut_sets, cut_prices: rows of pairs: kind and three nodes [C, 4], a set of nodes [C, N], the price [C].
        rows: of constraints: low, high, weight, the number that rows share which are paid for once, price [R, 5].
        box_row, box_weight, box_heads, box_words, box_labels: the labelled arcs that rows count.
        sets, set_prices: sets of words [S, N] into which every tree has an arc, and prices of that [S].
        root: the price of an arc from the root, of which there is one.
    """

    path: Ints
    penalties: Doubles
    cuts: Ints = field(default_factory=lambda: _ints(0, 4))
    cut_sets: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    cut_prices: Doubles = field(default_factory=lambda: np.zeros(0))
    rows: Doubles = field(default_factory=lambda: np.zeros((0, 5)))
    box_row: Ints = field(default_factory=lambda: _ints(0))
    box_weight: Doubles = field(default_factory=lambda: np.zeros(0))
    box_heads: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    box_words: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    box_labels: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    sets: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    set_prices: Doubles = field(default_factory=lambda: np.zeros(0))
    root: Doubles = field(default_factory=lambda: np.zeros(()))

    def check(self, nodes: int, labels: int) -> None:
        """Whether its arrays are of one form, so that none is read as something else; a ValueError if not."""
        sizes = {"N": nodes, "L": labels, "4": 4, "5": 5}
        for name, form in FORMS.items():
            x, (kind, *axes) = getattr(self, name), form.split()
            ok = isinstance(x, np.ndarray) and x.dtype == KINDS[kind] and x.ndim == len(axes)
            for axis, size in zip(axes, x.shape if ok else (), strict=False):
                ok &= size == sizes.setdefault(axis, size) or x.size == 0 == x.shape[0]
            if not ok:
                raise ValueError(f"{name} are none of {kind} [{', '.join(axes)}]")
        for name, x in (("penalties", self.penalties), ("cut_prices", self.cut_prices), ("root", self.root)):
            if not np.isfinite(x).all():
                raise ValueError(f"{name} are not finite")
        low, high = np.array([0, 1, -1, 0]), np.array([nodes, nodes, labels, 2])
        if not ((self.path >= low) & (self.path < high)).all():
            raise ValueError("its path is of no arcs")
        if self.sets[:, :1].any() or not self.sets.any(1).all() or not (self.set_prices >= 0).all():
            raise ValueError("a set of words has no such price")
        low, high = np.array([0, 0, 0, 0]), np.array([2, nodes, nodes, nodes])
        if not ((self.cuts >= low) & (self.cuts < high)).all() or not (self.cut_prices >= 0).all():
            raise ValueError("a cut is of no known kind")
        if not np.isfinite(self.rows[:, 4]).all():
            raise ValueError("prices of rows are not finite")


NUMBER = re.compile("[0-9]{1,9}")
KINDS = {"ints": np.int64, "doubles": np.float64, "bools": np.bool_}
FORMS = {
    "path": "ints D 4",
    "penalties": "doubles N N",
    "cuts": "ints C 4",
    "cut_sets": "bools C N",
    "cut_prices": "doubles C",
    "rows": "doubles R 5",
    "box_row": "ints K",
    "box_weight": "doubles K",
    "box_heads": "bools K N",
    "box_words": "bools K N",
    "box_labels": "bools K L",
    "sets": "bools S N",
    "set_prices": "doubles S",
    "root": "doubles",
}
NAMES = tuple(each.name for each in fields(ProofLeaf))


@dataclass(frozen=True, eq=False)
class Proof:
    """The leaves of each sentence that has any, by its number. One without is proven by computing it anew.

    Attributes:
        leaves: by the sentence's number.

    Example:
        >>> import tempfile, torch, gpuparse as gp
        >>> scores = gp.Scores(torch.zeros(1, 3, 3), grandparents=torch.ones(1, 3, 3, 3))
        >>> proof = gp.decode(scores, "ppc", exact=True, proof=True).proof
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     proof.save(f"{directory}/proof.safetensors")
        ...     again = gp.Proof.load(f"{directory}/proof.safetensors")
        >>> len(again.leaves[0]) == len(proof.leaves[0])
        True
    """

    leaves: Mapping[int, tuple[ProofLeaf, ...]]

    def save(self, path: str | Path) -> None:
        """Write it as safetensors, whole or not at all."""
        tensors = {"sentences": torch.tensor(sorted(self.leaves), dtype=torch.int64)}
        for b, leaves in self.leaves.items():
            for number, leaf in enumerate(leaves):
                for name in NAMES:
                    tensors[f"{b}.{number}.{name}"] = torch.tensor(getattr(leaf, name))  # branches may share it
        if Path(path).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        write_bytes(Path(path), save(tensors))

    @classmethod
    def load(cls, path: str | Path) -> Proof:
        """Read what ``save`` wrote; a ValueError of one line where it is none."""
        tensors = read_tensors(Path(path), wrong="no proof")
        parts: dict[int, dict[int, dict[str, npt.NDArray[np.generic]]]] = {}
        for key, x in tensors.items():
            first, _, rest = key.partition(".")
            number, _, name = rest.partition(".")
            if key == "sentences":
                continue
            if not (NUMBER.fullmatch(first) and NUMBER.fullmatch(number) and name in NAMES):
                raise ValueError(f"{path}: no proof: it has {quoted(key)}")
            try:
                parts.setdefault(int(first), {}).setdefault(int(number), {})[name] = x.numpy()
            except TypeError:  # numpy has no such numbers
                raise ValueError(f"{path}: no proof: {quoted(key)} is of {x.dtype}") from None
        leaves = {}
        for b, those in parts.items():
            if sorted(those) != list(range(len(those))) or any(len(x) != len(NAMES) for x in those.values()):
                raise ValueError(f"{path}: no proof: sentence {b} is not whole")
            leaves[b] = tuple(ProofLeaf(**those[k]) for k in range(len(those)))  # type: ignore[arg-type]
        return cls(leaves)


def path_of(steps: Iterable[tuple[int, int, int, int]]) -> Ints:
    """Decisions as an array."""
    return np.array(list(steps), dtype=np.int64).reshape(-1, 4)


def spanning_sets(arcs: Doubles) -> tuple[Bools, Doubles]:
    """Prices that prove the best spanning tree, with any number of words under the root (Edmonds' algorithm): sets of
    words [S, N] into which it has one arc, and their prices [S].

    Args:
        arcs: scores [N, N], -inf where there is none.
    """
    N = len(arcs)
    best = arcs.max(0)
    slack = np.where(np.isfinite(best), best, 0.0) - arcs
    sets, prices = [], []
    group = list(range(N))  # which group each word is in
    members = dict(enumerate(np.eye(N, dtype=bool)))
    up = slack.argmin(0).tolist()  # of every group, where its best arc comes from
    done = {0}  # groups that hang from the root
    for start in range(1, N):
        path: list[int] = []
        number = group[start]
        while number not in done:
            if number not in path:
                path.append(number)
                number = group[up[number]]
                continue
            path, cycle = path[: path.index(number)], path[path.index(number) :]
            inside = members[number]
            for other in cycle[1:]:
                inside = inside | members[other]
            number, words = min(cycle), inside.nonzero()[0]
            members[number] = inside
            for word in words.tolist():
                group[word] = number
            entering = slack[:, words]
            entering[words] = np.inf
            up[number], _ = divmod(int(entering.argmin()), len(words))
            price = float(entering.min())
            sets.append(inside)
            prices.append(price)
            if not np.isfinite(price):  # nothing comes into it: there is no tree
                return np.array(sets, dtype=bool), np.array(prices)
            slack[:, words] = entering - price  # inside, nothing is looked at again
        done.update(path)
    return np.array(sets, dtype=bool).reshape(len(sets), N), np.array(prices)


def check_cover(paths: list[list[list[int]]], depth: int = 0) -> None:
    """Whether leaves are all branches."""
    if any(len(path) == depth for path in paths):
        return
    for has in (0, 1):
        some = [path for path in paths if path[depth] == [*paths[0][depth][:3], has]]
        if not some:
            raise ValueError("a branch is left out")
        check_cover(some, depth + 1)
