"""The configuration of a model and its training: TOML files, dotted overrides, checks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import tomli_w

from gpuparse.system.files import read_file
from gpuparse.system.quote import quoted, shown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Section = TypeVar("Section")
ONLINE = ("perceptron", "mira")  # objectives that have no gradient
KINDS = {"parse": ("biaffine", "templates"), "tag": ("templates", "bilstm", "bilstm+templates")}  # of scorers
MOST_BYTES = 1 << 16  # of a file of settings
MOST_CHARACTERS = 4096  # of a setting that is a string
# Reading TOML takes time by the square of the parts of a name, a.b.c: this much, the sum of squares, in half a second.
_MOST_WORK = 30_000_000


@dataclass(frozen=True)
class DataConfig:
    """What is learned from."""

    train: str = ""  # CoNLL-U files; the built-in treebank where empty
    dev: str = ""
    min_count: int = 2  # rarer words, and rarer features of a tagger, are unknown
    max_words: int = 0  # longer sentences are left out of training; 0: none is
    on_bad: Literal["error", "skip"] = "error"  # a sentence that is malformed, or whose heads are not a tree
    tags: Literal["upos", "xpos", "upos+feats"] = "upos"  # what a tagger learns


@dataclass(frozen=True)
class ScorerConfig:
    """What gives arcs and labels their scores."""

    # Of a parser biaffine or templates; of a tagger templates, bilstm, or both side by side.
    kind: Literal["biaffine", "templates", "bilstm", "bilstm+templates"] = "biaffine"
    # The vectors a word begins with; 0 leaves one out.
    word: int = 100
    char: int = 32  # of one character
    chars: int = 100  # of a word's characters together
    tag: int = 50
    feats: int = 50
    pretrained: str = ""  # a Hugging Face encoder, by name or directory
    pretrained_layers: int = 4  # that are mixed
    pretrained_freeze: bool = False
    # The encoder.
    hidden: int = 300  # of an LSTM, each way
    layers: int = 3  # 0: none
    # The scores.
    arc: int = 400
    label: int = 100
    grandparents: int = 0  # rank of the trilinear scores; 0: none
    siblings: int = 0
    # Dropout.
    embedding_dropout: float = 0.33
    encoder_dropout: float = 0.33
    mlp_dropout: float = 0.33
    # Feature templates (kind = "templates"); grandparents and siblings are on or off there.
    bits: int = 18  # a table has at most 2^bits weights; a tagger's 2^bits rows, one for each feature
    label_bits: int = 15  # a table of labels at most 2^label_bits rows


@dataclass(frozen=True)
class TrainingConfig:
    """How it is learned."""

    objective: Literal["nll", "local", "hinge", "perceptron", "mira", "bp", "bp_l2", "dd"] = "nll"
    projective: bool = False
    single_root: bool = True
    epochs: int = 30
    batch_words: int = 1500  # nodes of a batch, padding counted
    learning_rate: float = 2e-3
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 1e-4
    warmup: float = 0.05  # share of all steps
    decay: Literal["linear", "cosine", "none"] = "linear"
    clip: float = 5.0  # norm of the gradient; 0: not clipped
    average: float = 0.995  # weights evaluated are an exponential average of this decay; 0: the last ones
    pretrained_rate: float = 0.02  # learning rate of a pretrained encoder, as a share
    margin: float = 1.0  # hinge: cost of a wrong head
    bp_iterations: int = 5  # of belief propagation
    dd_iterations: int = 5  # of soft dual decomposition
    aggressiveness: float = 0.01  # MIRA's C
    transition_l1: float = 0.0  # shrinks the transitions of a tagger, and nothing else, towards zero
    transition_l2: float = 0.0
    patience: int = 0  # epochs without a better score on the dev data before stopping; 0: never
    bf16: bool = False
    seed: int = 1
    checkpoint_seconds: float = 60.0  # between checkpoints within an epoch


@dataclass(frozen=True)
class Config:
    """All of it."""

    data: DataConfig = field(default_factory=DataConfig)
    scorer: ScorerConfig = field(default_factory=ScorerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    task: Literal["parse", "tag"] = "parse"

    @classmethod
    def load(cls, path: Path | str | None = None, overrides: Iterable[str] = (), inside: Path | None = None) -> Config:
        """Read a TOML file (defaults where ``None``), then apply overrides such as ``training.epochs=10``.

        Args:
            inside: a model's directory, that anybody may have made: the file has to lie there.
        """
        tables: dict[str, Any] = {}
        if path is not None:
            path = Path(path)
            if inside is not None:
                content = read_file(path, MOST_BYTES, inside)
            else:  # one's own file may be a pipe
                with path.open("rb") as file:
                    content = file.read(MOST_BYTES + 1)
            tables = parse_toml(content, path)
        for override in overrides:
            _override(tables, override)
        return cls.from_dict(tables, str(path) if path is not None else "configuration")

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any], source: str = "configuration") -> Config:
        """The configuration of nested tables; an unknown or wrong entry is a ``ValueError`` that names it."""
        config = _section(cls, _with_defaults(tables), source, "")
        _check(config, source)
        return config

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_toml(self) -> str:
        return tomli_w.dumps(self.to_dict())


def parse_toml(content: bytes, where: object, most: int = MOST_BYTES) -> dict[str, Any]:
    """The tables of a TOML text; ``ValueError``, in one line that begins with ``where``, where it is none.

    Args:
        most: bytes that are read.
    """
    if len(content) > most:
        raise ValueError(f"{where}: not TOML: more than {most:,} bytes; such files are shorter")
    work = 0
    for number, line in enumerate(content.splitlines(), 1):
        work += line.count(b".") ** 2
        if work > _MOST_WORK:
            raise ValueError(f"{where}: not TOML: line {number} has too many dots; names have few parts")
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise ValueError(f"{where}: not TOML: too many lists in one another") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{where}: not TOML: {shown(str(error))}") from None
    except ValueError:  # Python reads no more
        raise ValueError(f"{where}: not TOML: a number of thousands of digits") from None


def value_of(text: str) -> Any:
    """A value as TOML has it; a bare word is a string."""
    if text.count(".") ** 2 > _MOST_WORK:
        return text.strip()
    try:
        (value,) = tomllib.loads(f"value = {text}").values()
    except (ValueError, RecursionError):
        return text.strip()
    return value


def _override(tables: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    *path, last = name.strip().split(".")
    if not equals or not all((*path, last)):
        raise ValueError(f"--set {shown(override)}: wanted section.name=value")
    value = value_of(text)
    for part in path:
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            raise ValueError(f"--set {shown(override)}: {shown(part)} is a value, not a section")
    tables[last] = value


def _with_defaults(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tables, and what a tagger has in place of a parser's defaults."""
    if tables.get("task") != "tag":
        return tables
    given = {name: tables.get(name, {}) for name in ("scorer", "training")}
    if not all(isinstance(section, Mapping) for section in given.values()):
        return tables  # which is said elsewhere
    scorer = {"kind": "templates", **given["scorer"]}
    training = {"objective": "perceptron" if scorer["kind"] == "templates" else "nll", **given["training"]}
    if training["objective"] in ONLINE:
        training = {"epochs": 10, "batch_words": 200, **training}
    elif scorer["kind"] == "templates":  # most features are rare
        training = {"learning_rate": 0.02, **training}
    return {**tables, "scorer": scorer, "training": training}


def _section(cls: type[Section], given: Mapping[str, Any], source: str, prefix: str) -> Section:
    hints = get_type_hints(cls)
    known = [each.name for each in fields(cls)]  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{source}: no setting {prefix}{shown(name)}; there are {', '.join(known)}")
        hint = hints[name]
        if is_dataclass(hint):
            if not isinstance(value, Mapping):
                raise ValueError(f"{source}: {prefix}{name} is a section, not a value")
            values[name] = _section(hint, value, source, f"{prefix}{name}.")  # type: ignore[arg-type]
        else:
            values[name] = _value(hint, value, f"{source}: {prefix}{name}")
    return cls(**values)


def _value(hint: Any, value: Any, where: str) -> Any:
    if get_origin(hint) is Literal:
        if not isinstance(value, str) or value not in get_args(hint):
            raise ValueError(f"{where} is {quoted(value)}; wanted one of {', '.join(map(repr, get_args(hint)))}")
        return value
    if hint is float and type(value) is int:
        return float(value) if abs(value) <= sys.float_info.max else value  # which is beyond all limits
    if type(value) is not hint:
        raise ValueError(f"{where} is {quoted(value)}; wanted {_KIND[hint]}")
    if hint is str:
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"{where} is not UTF-8; rename what it names")
        if len(value) > MOST_CHARACTERS or "\0" in value:
            raise ValueError(
                f"{where} is {quoted(value)}; wanted at most {MOST_CHARACTERS} characters, none of them NUL"
            )
    return value


_KIND = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}


class Limits(NamedTuple):
    """From where to where a number may go; NaN is nowhere."""

    least: int
    most: int
    without: str = ""  # the least or the most itself: "least", "most"

    def hold(self, value: float) -> bool:
        above = value > self.least if self.without == "least" else value >= self.least
        return above and (value < self.most if self.without == "most" else value <= self.most)

    def __str__(self) -> str:
        if self.without == "most":
            return f"a number in [{self.least}, {self.most})"
        most = "2^63 - 1" if self.most == (1 << 63) - 1 else str(self.most)
        return f"more than {self.least}, at most {most}" if self.without else f"{self.least} to {most}"


_SHARE = Limits(0, 1, "most")
_MANY = 10**9
# Of every number there is. No sensible setting is beyond them, and what is within them cannot overflow.
LIMITS = {
    "data.min_count": Limits(1, _MANY),
    "data.max_words": Limits(0, _MANY),
    **{f"scorer.{name}": Limits(0, 1 << 16) for name in ("word", "chars", "tag", "feats", "grandparents", "siblings")},
    **{f"scorer.{name}": Limits(1, 1 << 16) for name in ("char", "hidden", "arc", "label")},
    "scorer.layers": Limits(0, 100),
    "scorer.pretrained_layers": Limits(1, 1000),
    **{f"scorer.{name}": Limits(1, 30) for name in ("bits", "label_bits")},
    **{f"scorer.{name}": _SHARE for name in ("embedding_dropout", "encoder_dropout", "mlp_dropout")},
    "training.epochs": Limits(1, 10**6),
    "training.batch_words": Limits(1, _MANY),
    "training.learning_rate": Limits(0, 1000, "least"),
    **{f"training.{name}": _SHARE for name in ("beta1", "beta2", "average", "warmup")},
    **{f"training.{name}": Limits(0, 1000) for name in ("weight_decay", "pretrained_rate")},
    **{f"training.{name}": Limits(1, 10**4) for name in ("bp_iterations", "dd_iterations")},
    "training.aggressiveness": Limits(0, _MANY, "least"),
    **{f"training.{name}": Limits(0, _MANY) for name in ("clip", "margin", "transition_l1", "transition_l2")},
    **{f"training.{name}": Limits(0, _MANY) for name in ("patience", "checkpoint_seconds")},
    "training.seed": Limits(0, (1 << 63) - 1),
}


def _check(config: Config, source: str) -> None:
    """Settings of the right type that make no sense."""
    scorer, training = config.scorer, config.training

    def wrong(name: str, wanted: str) -> ValueError:
        section, _, setting = name.partition(".")
        return ValueError(f"{source}: {name} is {quoted(getattr(getattr(config, section), setting))}; wanted {wanted}")

    for name, limits in LIMITS.items():
        section, _, setting = name.partition(".")
        if not limits.hold(getattr(getattr(config, section), setting)):
            raise wrong(name, str(limits))
    if scorer.kind not in KINDS[config.task]:
        wanted = "one of " + ", ".join(KINDS[config.task])
        raise wrong("scorer.kind", f"{wanted} where task is {config.task!r}")
    if config.task == "tag" and scorer.kind != "templates" and not (scorer.word or scorer.chars or scorer.pretrained):
        raise ValueError(f"{source}: scorer has no vectors of words; one of word, chars, pretrained is wanted")
    if not (scorer.word or scorer.chars or scorer.tag or scorer.feats or scorer.pretrained):
        raise ValueError(
            f"{source}: scorer has no vectors of words; one of word, chars, tag, feats, pretrained is wanted"
        )
    if config.task == "tag" and training.objective in ("mira", "bp", "bp_l2", "dd"):
        raise wrong("training.objective", "nll, local, hinge or perceptron where task is 'tag'")
    if training.objective in ONLINE and scorer.kind != "templates":
        raise wrong(
            "training.objective", "nll, local, hinge, bp, bp_l2 or dd (perceptron and mira train scorer.kind templates)"
        )
