"""What became of a corpus."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from gpuparse.data.prediction import Results
from gpuparse.system.quote import shown

KEPT = 100


@dataclass(frozen=True)
class Failure:
    """A sentence that was written as it was read, and why."""

    source: str
    line: int
    sent_id: str | None
    reason: str

    def __str__(self) -> str:
        name = f"{self.source}:{self.line}"
        if self.sent_id is not None:
            name += f" ({shown(self.sent_id)})"
        return f"{name}: {self.reason}"


@dataclass
class CorpusReport:
    """Counts of the whole corpus, those of an interrupted run before included."""

    sentences: int = 0
    """Sentences written, parsed or not."""
    words: int = 0
    """Words parsed."""
    failed: int = 0
    """Sentences written unparsed."""
    failures: list[Failure] = field(default_factory=list)
    """The first hundred failures of this run."""
    bytes: int = 0
    """Input read so far, unpacked."""
    earlier_sentences: int = 0
    """Sentences that an interrupted run had written."""
    earlier_words: int = 0
    """Words that an interrupted run had parsed."""
    finished_before: bool = False
    """Whether there was nothing left to do."""
    seconds: dict[str, float] = field(default_factory=lambda: {"read": 0.0, "predict": 0.0, "write": 0.0})
    """Where the time of this run went."""
    within: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Where that of the model went, as it says."""
    counts: Counter[str] = field(default_factory=Counter)
    """Of sentences of this run, by what came of them, as the model says."""

    def take(self, results: Results[Any]) -> None:
        """Add what a model says of its own work."""
        for what, spent in results.seconds.items():
            self.within[what] += spent
        for what, number in results.counts.items():
            self.counts[what] += number

    def add(self, failure: Failure) -> None:
        """Count a failure, and keep it if there are few."""
        self.failed += 1
        if len(self.failures) < KEPT:
            self.failures.append(failure)
