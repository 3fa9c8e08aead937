"""Made-up files, a predictor that is quick, and what it makes of them."""

from __future__ import annotations

import io
import os
import random
import zlib

from gpuparse.data import read_conllu
from gpuparse.data.prediction import Prediction


def words(number, seed=0):
    """Sentences of varied lengths, ranges and empty nodes among them; a few blocks of comments only."""
    rng = random.Random(seed)
    parts = []
    for index in range(number):
        parts.append(f"# sent_id = s{index}\n")
        if rng.random() < 0.03:
            parts.append("\n")
            continue
        length = min(1 + int(rng.expovariate(1 / 12)), 80)
        for word in range(1, length + 1):
            if word + 1 <= length and rng.random() < 0.05 and "-" not in parts[-1][:6]:
                parts.append(f"{word}-{word}\tzus\t_\t_\t_\t_\t_\t_\t_\t_\n")
            form = rng.choice(["haus", "größe", "ü", "a\u2028b", "日本"])
            parts.append(f"{word}\t{form}\t_\tX\t_\t_\t_\t_\t_\t{rng.choice(['_', 'A=1'])}\n")
            if rng.random() < 0.03:
                parts.append(f"{word}.1\te\t_\t_\t_\t_\t_\t_\t_\t_\n")
        parts.append("\n" * rng.choice([1, 1, 1, 2]))
    return "".join(parts)


def predict(sentences):
    """Heads by a hash of the words; the confidence depends on the batch too, as rounding does."""
    widest = max(map(len, sentences))
    results = []
    for one in sentences:
        rng = random.Random(zlib.crc32("".join(one.words).encode()))
        heads = [rng.randint(0, len(one)) for _ in range(len(one))]
        sure = [(len(one) / widest + len(sentences)) / 1000] * len(one)
        results.append(Prediction(heads, [f"l{head}" for head in heads], sure))
    return results


def expected(text):
    return "".join(
        one.with_parse((found := predict([one])[0]).heads, found.deprels).text if len(one) else one.text
        for one in read_conllu(io.BytesIO(text.encode()))
    )


def left(out):
    return sorted(os.listdir(out.parent))
