"""All that is counted in a treebank, and the pair of files that it is kept in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save as to_safetensors

from gpuparse.data.constituents import lexicalise_sentence, tags_of
from gpuparse.data.grammar.bilexical import NAMES, Bilexical, Counts
from gpuparse.data.grammar.emissions import Emissions
from gpuparse.data.grammar.rules import read_grammar
from gpuparse.data.grammar.trigrams import Trigrams
from gpuparse.data.sentence import Sentence
from gpuparse.data.vocab import saved_entry, saved_names
from gpuparse.structures.grammars import Grammar
from gpuparse.system.files import is_there, json_bytes, read_json, write_together
from gpuparse.system.quote import quoted
from gpuparse.system.tensors import Outline, check_outlines, read_header, read_tensors

FORMAT = 1
_TENSORS = ("parents", "lefts", "rights", "heads", "scores", "roots")


@dataclass(frozen=True)
class CountedModels:
    """Models of the same tags, in the same order: those of the grammar."""

    grammar: Grammar
    emissions: Emissions
    trigrams: Trigrams
    bilexical: Bilexical

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``<path>.safetensors`` (numbers) and ``<path>.json`` (names), each of them whole or not at all."""
        names = {
            "format": FORMAT,
            "symbols": self.grammar.symbols,
            "tags": self.grammar.tags,
            "words": self.emissions.words,
            "classes": self.emissions.classes,
            "strength": self.bilexical.strength,
        }
        tensors = {f"grammar.{name}": getattr(self.grammar, name) for name in _TENSORS}
        tensors |= {
            "emissions": self.emissions.scores,
            "trigrams": self.trigrams.scores,
            "priors": self.bilexical.priors,
        }
        for name in NAMES:
            counts = self.bilexical.counts[name]
            tensors |= {f"bilexical.{name}.keys": counts.keys, f"bilexical.{name}.values": counts.values}
        packed = to_safetensors({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})
        json_path, tensor_path = _files(path)
        # The names go first and come last: a pair that was written in part is one without names.
        write_together({tensor_path: packed, json_path: json_bytes(names)}, first_remove=json_path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CountedModels:
        """Read what ``save`` has written; ``ValueError``, in one line, where it is not whole."""
        json_path, tensor_path = _files(path)
        for file in (json_path, tensor_path):
            if not is_there(file):
                raise ValueError(f"{file}: there is no such file; CountedModels.save writes it")
        names = read_json(json_path)
        found = names.get("format") if isinstance(names, dict) else None
        if type(found) is not int or found != FORMAT:
            raise ValueError(f"{json_path}: of format {quoted(found)}, and {FORMAT} is wanted; count anew")
        try:
            _check_names(names)
        except ValueError as error:
            raise ValueError(f"{json_path}: {error}; count anew") from None
        outlines = read_header(tensor_path).tensors
        try:
            check_outlines(outlines, _wanted(names, outlines))
        except ValueError as error:
            raise ValueError(f"{tensor_path}: {error} by {json_path.name}; count anew") from None
        tensors = read_tensors(tensor_path)
        T = names["tags"]
        tags = names["symbols"][:T]
        parts = {name: tensors[f"grammar.{name}"] for name in _TENSORS}
        emissions = Emissions(tags, names["words"], names["classes"], tensors["emissions"])
        counts = {
            name: Counts(tensors[f"bilexical.{name}.keys"], tensors[f"bilexical.{name}.values"]) for name in NAMES
        }
        return cls(
            Grammar(tuple(names["symbols"]), T, **parts),
            emissions,
            Trigrams(tags, tensors["trigrams"]),
            Bilexical(emissions, tensors["priors"], counts, names["strength"]),
        )


def _check_names(names: dict[str, Any]) -> None:
    for name in ("symbols", "words", "classes"):
        saved_names(saved_entry(names, name), name)
    tags, strength = saved_entry(names, "tags"), saved_entry(names, "strength")
    if type(tags) is not int or not 1 <= tags <= len(names["symbols"]):
        raise ValueError(f"tags is {quoted(tags)}; wanted 1 to the {len(names['symbols'])} symbols")
    if type(strength) not in (int, float):
        raise ValueError(f"strength is {quoted(strength)}; wanted a number")


def _wanted(names: dict[str, Any], found: Mapping[str, Outline]) -> dict[str, Outline]:
    """What tensors there have to be; how many rules and counts is for the file to say."""
    T, S, V = names["tags"], len(names["symbols"]), len(names["words"]) + len(names["classes"])

    def length(name: str) -> tuple[int, ...]:
        return found[name].shape[:1] if name in found and found[name].shape else (0,)

    rules = length("grammar.scores")
    wanted = {f"grammar.{name}": Outline(rules, torch.int64) for name in ("parents", "lefts", "rights", "heads")}
    floats = {"grammar.scores": rules, "grammar.roots": (S,), "emissions": (V, T), "trigrams": (T + 1,) * 3}
    wanted |= {name: Outline(shape, torch.float32) for name, shape in {**floats, "priors": (T,)}.items()}
    for name in NAMES:
        own = length(f"bilexical.{name}.keys")
        wanted |= {f"bilexical.{name}.{what}": Outline(own, torch.int64) for what in ("keys", "values")}
    return wanted


def read_models(
    sentences: Iterable[Sentence],
    *,
    tags: Literal["upos", "xpos"] = "upos",
    relations: bool = False,
    sides: bool = True,
    nonprojective: Literal["lift", "skip", "error"] = "lift",
    min_count: int = 1,
    smoothing: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> CountedModels:
    """Count everything in a treebank: see ``lexicalise``, ``read_grammar`` and the classes of the models.

    Sentences that are skipped for their crossing arcs still count for tags; empty ones do not count.
    """
    trees, tagged, arcs = [], [], []
    for sentence in sentences:
        if not len(sentence):
            continue
        made = lexicalise_sentence(sentence, tags=tags, relations=relations, sides=sides, nonprojective=nonprojective)
        words, column = sentence.words, tags_of(sentence, tags)
        tagged.append((words, column))
        if made is not None:
            trees.append(made.tree)
            arcs.append((words, column, made.heads))
    every = sorted({tag for _, column in tagged for tag in column})
    grammar = read_grammar(trees, min_count=min_count, smoothing=smoothing, tags=every, dtype=dtype)
    names = grammar.symbols[: grammar.tags]
    emissions = Emissions.count(tagged, tags=names, dtype=dtype)
    return CountedModels(
        grammar,
        emissions,
        Trigrams.count([column for _, column in tagged], tags=names, dtype=dtype),
        Bilexical.count(arcs, emissions),
    )


def _files(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    text = os.fspath(path)
    return Path(f"{text}.json"), Path(f"{text}.safetensors")
