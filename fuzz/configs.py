"""Settings: TOML files and overrides, refused in one line or kept through a second reading."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mutate import ODD, mutated, piece, refusal

from gpuparse.config import Config, DataConfig, ScorerConfig, TrainingConfig

NAME = "configs"
COUNT = 80_000

_SECTIONS: dict[str, Any] = {
    "data": asdict(DataConfig()),
    "scorer": asdict(ScorerConfig()),
    "training": asdict(TrainingConfig()),
}
_VALUES = [
    *("0", "1", "-1", "2", "0.5", "1.5", "nan", "inf", "-inf", "1e400", "true", "false", "9" * 25, "9" * 5000),
    *("1" * 400, '""', '"x"', '"nll"', '"tag"', '"parse"', '"templates"', '"bilstm"', '"mira"', '"bp"', '"\\ud800"'),
    *('"\\u0000"', "[]", "[1]", "{}", "{a = 1}", "1979-05-27", "07:32:00", "[" * 1000, "[" * 100 + "]" * 100),
    *(
        '"' + "x" * 3000 + '"',
        "0x10",
        "1_000",
        "'''a",
        '"""',
        "{a = {b = {c = 1}}}",
        "0b1",
        "+1",
        "1979-05-27T07:32:00Z",
    ),
]
_WORDS = [
    *(b"=", b"\n", b'"', b"[", b"]", b"[[", b"{", b"}", b".", b"#", b"[data]", b"[scorer]", b"[training]", b"task"),
    *(b"'''", *(value.encode() for value in _VALUES)),
]


def _name(rng: random.Random) -> str:
    section = rng.choice(list(_SECTIONS))
    return f"{section}.{rng.choice(list(_SECTIONS[section]))}"


def _value(rng: random.Random) -> str:
    return piece(rng) if rng.random() < 0.1 else rng.choice(_VALUES)


def _document(rng: random.Random) -> bytes:
    lines = [f'task = "{rng.choice(["parse", "tag"])}"'] if rng.random() < 0.5 else []
    for section, settings in _SECTIONS.items():
        if rng.random() < 0.6:
            lines.append(f"[{section}]")
            for name in rng.sample(list(settings), rng.randint(0, 4)):
                value = settings[name] if rng.random() < 0.7 else None
                shown = {True: "true", False: "false"}.get(value, repr(value)) if value is not None else _value(rng)
                lines.append(f"{name} = {shown}")
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _override(rng: random.Random) -> str:
    odd = ["", ".", "task", "data", "a.b.c", "data.train.x", piece(rng), "x" * 999]
    name = _name(rng) if rng.random() < 0.8 else rng.choice(odd)
    return f"{name}={_value(rng)}" if rng.random() < 0.95 else name + rng.choice(ODD)


def one(rng: random.Random, directory: Path) -> str:
    data = _document(rng)
    if rng.random() < 0.7:
        data = mutated(rng, data, _WORDS)
    path = directory / "config.toml"
    path.write_bytes(data)
    overrides = [_override(rng) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
    try:
        config = Config.load(path, overrides)
    except ValueError as error:
        return refusal(error)
    path.write_text(config.to_toml(), encoding="utf-8")
    again = Config.load(path)
    assert again == config, "written and read, the settings are others"
    return "ok"
