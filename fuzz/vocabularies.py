"""Vocabularies of parsers and taggers: JSON, refused in one line or fit to give numbers to any sentence."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from mutate import changed_json, field, mutated, refusal

from gpuparse.data.sentence import Sentence
from gpuparse.data.tagging.vocab import TagVocabulary
from gpuparse.data.vocab import Vocabulary
from gpuparse.system.files import parse_json

NAME = "vocabularies"
COUNT = 30_000

_WORDS = [b"[", b"]", b"{", b"}", b",", b":", b'"', b"null", b"true", b"1", b"-1", b"1e999", b"NaN", b'"labels"', b"[]"]


def _sentence(rng: random.Random) -> Sentence:
    words = [field(rng) for _ in range(rng.randint(1, 5))]
    plain = rng.random() < 0.9  # a tag or label with control characters is no name for a model to learn
    columns = {
        name: [rng.choice(["a", "A=b|C=d", "语", "_"]) if plain else field(rng) for _ in words]
        for name in ("upos", "xpos", "feats", "deprels")
    }
    heads = [0, *(rng.randint(1, word) for word in range(1, len(words)))]
    return Sentence.from_words(words, heads=heads, **columns)


def _case(rng: random.Random, saved: Any) -> bytes:
    data = json.dumps(saved, ensure_ascii=rng.random() < 0.3).encode("utf-8", "surrogatepass")
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        data = changed_json(rng, data)
    return mutated(rng, data, _WORDS) if rng.random() < 0.3 else data


def one(rng: random.Random, directory: Path) -> str:
    treebank = [_sentence(rng) for _ in range(rng.randint(1, 3))]
    given = _sentence(rng)
    name, features = rng.choice(["upos", "xpos", "upos+feats"]), rng.choice([0, 100])
    built: Vocabulary | TagVocabulary
    try:
        if rng.random() < 0.5:
            built = Vocabulary.build(treebank, min_count=rng.randint(1, 2))
        else:
            built = TagVocabulary.build(treebank, name, min_count=1, words=not features, features=features)
    except ValueError as error:
        return f"treebank {refusal(error)}"
    try:
        vocabulary = type(built).from_json(parse_json(_case(rng, built.to_json()), "vocabulary.json"))
    except ValueError as error:
        return refusal(error)
    if isinstance(vocabulary, Vocabulary):
        _parser(vocabulary, given)
    else:
        _tagger(vocabulary, given)
    again = type(built).from_json(json.loads(json.dumps(vocabulary.to_json())))
    assert again.to_json() == vocabulary.to_json(), "written and read, it is another"
    return "ok"


def _parser(vocabulary: Vocabulary, given: Sentence) -> None:
    example = vocabulary.encode(given, tree=True)
    for numbers, index in ((example.words, vocabulary.words), (example.prefixes, vocabulary.prefixes)):
        assert numbers.min() >= 0 and numbers.max() < len(index), "a number that no name has"
    assert example.tags.max() < len(vocabulary.tags)
    assert all(number < len(vocabulary.feats) for bag in example.feats for number in bag)
    assert example.labels is not None and example.labels.max() < len(vocabulary.labels)
    for label in vocabulary.labels.names:
        given.with_parse([0] * len(given), [label] * len(given))


def _tagger(vocabulary: TagVocabulary, given: Sentence) -> None:
    example = vocabulary.encode(given, gold=True)
    assert example.words.min() >= 0 and example.words.max() < len(vocabulary.words), "a number that no name has"
    assert example.gold is not None and example.gold.max() < len(vocabulary.tags)
    for tag in vocabulary.tags.names:
        vocabulary.tag_set.fill(given, [tag] * len(given))
