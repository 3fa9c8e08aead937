"""Vocabularies of parsers and taggers: JSON, refused in one line or fit to give numbers to any sentence."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from mutate import ODD, field, mutated, piece, refusal

from gpuparse.data.sentence import Sentence
from gpuparse.data.tagging.vocab import TagVocabulary
from gpuparse.data.vocab import Vocabulary
from gpuparse.files import parse_json

NAME = "vocabularies"
COUNT = 30_000

_WORDS = [b"[", b"]", b"{", b"}", b",", b":", b'"', b"null", b"true", b"1", b"-1", b"1e999", b"NaN", b'"labels"', b"[]"]
_VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    "x",
    "",
    [],
    {},
    [[]],
    ["a", "a"],
    [1],
    [None],
    ["\t"],
    ["\n"],
    "\ud800",
    10**40,
]


def _sentence(rng: random.Random) -> Sentence:
    words = [field(rng) for _ in range(rng.randint(1, 5))]
    plain = rng.random() < 0.9  # a tag or label with control characters is no name for a model to learn
    columns = {
        name: [rng.choice(["a", "A=b|C=d", "语", "_"]) if plain else field(rng) for _ in words]
        for name in ("upos", "xpos", "feats", "deprels")
    }
    heads = [0, *(rng.randint(1, word) for word in range(1, len(words)))]
    return Sentence.from_words(words, heads=heads, **columns)


def _changed(rng: random.Random, saved: Any) -> Any:
    """The JSON with a value in it replaced, removed or added."""
    at = rng.random()
    if isinstance(saved, dict) and saved and at < 0.85:
        name = rng.choice(list(saved))
        kind = rng.random()
        if kind < 0.1:
            return {key: value for key, value in saved.items() if key != name}
        if kind < 0.2:
            return {**saved, piece(rng): rng.choice(_VALUES)}
        return {**saved, name: _changed(rng, saved[name])}
    if isinstance(saved, list) and saved and at < 0.7:
        place = rng.randrange(len(saved))
        new = rng.choice([_changed(rng, saved[place]), rng.choice(ODD), saved[-1]])
        return rng.choice([[*saved[:place], new, *saved[place + 1 :]], [*saved, new], saved[:place], saved * 2])
    return rng.choice(_VALUES)


def _case(rng: random.Random, saved: Any) -> bytes:
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        saved = _changed(rng, saved)
    data = json.dumps(saved, ensure_ascii=rng.random() < 0.3).encode("utf-8", "surrogatepass")
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
    return _parser(rng, built, given) if isinstance(built, Vocabulary) else _tagger(rng, built, given)


def _parser(rng: random.Random, built: Vocabulary, given: Sentence) -> str:
    try:
        vocabulary = Vocabulary.from_json(parse_json(_case(rng, built.to_json()), "vocabulary.json"))
    except ValueError as error:
        return refusal(error)
    example = vocabulary.encode(given, tree=True)
    for numbers, index in ((example.words, vocabulary.words), (example.prefixes, vocabulary.prefixes)):
        assert numbers.min() >= 0 and numbers.max() < len(index), "a number that no name has"
    assert example.tags.max() < len(vocabulary.tags)
    assert all(number < len(vocabulary.feats) for bag in example.feats for number in bag)
    assert example.labels is not None and example.labels.max() < len(vocabulary.labels)
    for label in vocabulary.labels.names:
        given.with_parse([0] * len(given), [label] * len(given))
    again = Vocabulary.from_json(json.loads(json.dumps(vocabulary.to_json())))
    assert again.to_json() == vocabulary.to_json(), "written and read, it is another"
    return "ok"


def _tagger(rng: random.Random, built: TagVocabulary, given: Sentence) -> str:
    try:
        vocabulary = TagVocabulary.from_json(parse_json(_case(rng, built.to_json()), "vocabulary.json"))
    except ValueError as error:
        return refusal(error)
    example = vocabulary.encode(given, gold=True)
    assert example.words.min() >= 0 and example.words.max() < len(vocabulary.words), "a number that no name has"
    assert example.gold is not None and example.gold.max() < len(vocabulary.tags)
    for tag in vocabulary.tags.names:
        vocabulary.tag_set.fill(given, [tag] * len(given))
    again = TagVocabulary.from_json(json.loads(json.dumps(vocabulary.to_json())))
    assert again.to_json() == vocabulary.to_json(), "written and read, it is another"
    return "ok"
