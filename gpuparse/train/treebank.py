"""The sentences that training and development take, checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpuparse.config import Config
from gpuparse.data.artificial import builtin_treebank
from gpuparse.data.conllu import read_conllu
from gpuparse.data.sentence import ConlluError, Sentence, check_tree
from gpuparse.data.tagging import TagSet


class Treebank(NamedTuple):
    """What is learned from, and what was left out and why."""

    train: list[Sentence]
    dev: list[Sentence]
    notes: list[str]

    def fingerprint(self) -> str:
        """Tells whether two runs have the same data."""
        digest = hashlib.sha256()
        for split in (self.train, self.dev):
            digest.update(f"{len(split)} sentences".encode())
            for sentence in split:
                digest.update(sentence.text.encode())
                digest.update(b"\0")
        return digest.hexdigest()


def load_treebank(
    config: Config, train: Iterable[Sentence] | None = None, dev: Iterable[Sentence] | None = None
) -> Treebank:
    """Read the data that the configuration names, unless sentences are given.

    A malformed sentence, or for a parser one whose heads are not a tree, is a ``ConlluError`` that names file and line,
    or is left out and noted where ``data.on_bad`` is "skip". What the objective cannot learn from is left out of
    training and noted: longer sentences than ``data.max_words``, and crossing ones where only projective trees are
    summed. Comments without a sentence do not count.
    """
    notes: list[str] = []
    data = config.data
    if train is None:
        train = read_conllu(data.train, check=False) if data.train else builtin_treebank("train")
        if dev is None and not (data.train or data.dev):
            dev = builtin_treebank("dev")
    if dev is None:
        dev = read_conllu(data.dev, check=False) if data.dev else []
    learned = _checked(train, config, data.train or "training data", notes)
    kept = [sentence for sentence in learned if not data.max_words or len(sentence) <= data.max_words]
    if len(kept) < len(learned):
        notes.append(f"{len(learned) - len(kept)} sentences of more than {data.max_words} words left out of training")
    if config.task == "parse" and config.training.projective and config.training.objective in ("nll", "hinge", "dd"):
        learned, kept = kept, [sentence for sentence in kept if is_projective(sentence.heads)]
        if len(kept) < len(learned):
            notes.append(f"{len(learned) - len(kept)} sentences with crossing arcs left out of projective training")
    if not kept:
        raise ValueError(f"{data.train or 'training data'}: no sentence to learn from")
    held_out = _checked(dev, config, data.dev or "dev data", notes)
    if data.dev and not held_out:
        raise ValueError(f"{data.dev}: no sentence to evaluate on")
    if config.task == "tag":
        tag_set = TagSet(data.tags)
        tag_set.check(kept, data.train or "training data")
        column = tag_set.columns[0]
        missing = sum(value == "_" for sentence in kept for value in getattr(sentence, column))
        if missing:
            words = sum(map(len, kept))
            notes.append(f"{missing} of {words} words have no {column.upper()}: _ is learned as a tag like the others")
        if held_out:
            tag_set.check(held_out, data.dev or "dev data")
    return Treebank(kept, held_out, notes)


def _checked(sentences: Iterable[Sentence], config: Config, name: str, notes: list[str]) -> list[Sentence]:
    good: list[Sentence] = []
    bad = 0
    for sentence in sentences:
        try:
            if not len(sentence):  # comments alone
                continue
            if config.task == "parse":
                check_tree(sentence, single_root=config.training.single_root)
        except ConlluError as error:
            if config.data.on_bad == "error":
                raise ConlluError(f'{error} (data.on_bad = "skip" leaves such sentences out)') from None
            bad += 1
            notes.append(f"left out: {error}")
        else:
            good.append(sentence)
    if bad:
        why = "malformed or whose heads are not a tree" if config.task == "parse" else "malformed"
        notes.append(f"{name}: {bad} sentences left out that are {why}")
    return good


def is_projective(heads: Sequence[int]) -> bool:
    """Whether no two arcs cross; ``heads`` are those of the words, 0 the root, and a tree."""
    # Walk along the sentence with a stack of the arcs that are open: the one opened last must close first.
    closing = [0] * (len(heads) + 2)
    opening: list[list[int]] = [[] for _ in range(len(heads) + 2)]
    for word, head in enumerate(heads, 1):
        left, right = min(word, head), max(word, head)
        opening[left].append(right)
        closing[right] += 1
    stack: list[int] = []
    for node in range(len(heads) + 1):
        for _ in range(closing[node]):
            if stack.pop() != node:
                return False
        stack.extend(sorted(opening[node], reverse=True))
    return True
