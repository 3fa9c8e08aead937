"""What parsers and taggers share: a directory, a device, and sentences taken in batches that fit into memory."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from torch import nn

from gpuparse.config import Config
from gpuparse.data.batches import batches_by_length
from gpuparse.data.given import unfit
from gpuparse.data.sentence import ConlluError, Sentence
from gpuparse.models import hub
from gpuparse.models.card import model_card, public_config
from gpuparse.nn.saved import load_scorer, read_model, write_model
from gpuparse.system.devices import as_device
from gpuparse.system.room import NoRoom, in_parts

if TYPE_CHECKING:
    from typing_extensions import Self

V = TypeVar("V")
S = TypeVar("S", bound=nn.Module)
Result = TypeVar("Result")


class Model(Generic[V, S]):
    """Settings, a vocabulary and a scorer.

    Its directory holds ``model.json`` (versions and results), ``config.toml``, ``vocabulary.json`` and
    ``model.safetensors``.
    """

    task: ClassVar[str]
    read_vocabulary: ClassVar[Callable[..., Any]]
    build: ClassVar[Callable[..., Any]]  # a scorer of its settings, a vocabulary and, if it was saved, a directory

    def __init__(self, config: Config, vocabulary: V, scorer: S) -> None:
        self.config = config
        self.vocabulary = vocabulary
        self.scorer = scorer
        self.results: dict[str, Any] = {}  # what is known of it, such as its scores on the dev data

    @classmethod
    def new(cls, config: Config, vocabulary: V) -> Self:
        """An untrained one; its weights depend on ``training.seed``."""
        torch.manual_seed(config.training.seed)
        return cls(config, vocabulary, cls.build(config.scorer, vocabulary))

    @classmethod
    def load(cls, path: Path | str, device: torch.device | str = "cpu") -> Self:
        """Load it from its directory; ``ValueError``, in one line, where there is none that is whole.

        The directory may be anybody's: nothing in it is run, no link is followed out of it, and nothing is allocated
        before settings, vocabulary and weights are seen to fit one another.
        """
        path, device = Path(path), as_device(device)
        config, saved, results = read_model(path, cls.task)
        try:
            vocabulary = cls.read_vocabulary(saved)
        except ValueError as error:
            raise ValueError(f"{path / 'vocabulary.json'}: not a vocabulary of this version: {error}") from None
        model = cls(config, vocabulary, load_scorer(lambda: cls.build(config.scorer, vocabulary, path), path))
        model.results = results
        model.scorer.to(device).eval()
        return model

    @classmethod
    def from_pretrained(
        cls,
        name_or_directory: Path | str,
        *,
        device: torch.device | str = "cpu",
        revision: str | None = None,
        cache_dir: Path | str | None = None,
        local_files_only: bool = False,
        token: str | bool | None = None,
    ) -> Self:
        """Load it from its directory or, by its name, ``owner/name``, from the Hugging Face Hub (the extra ``hub``).

        Args:
            revision: a branch, a tag or a commit; the newest one by default.
            cache_dir: where what was fetched is kept; else where ``huggingface_hub`` keeps all.
            local_files_only: take it from there, and use no network; so does ``HF_HUB_OFFLINE=1``.
            token: for private models; else the one that ``hf auth login`` has left.

        ``ValueError``, in one line, where there is none that is whole: a model of the Hub is read as carefully as any
        directory (see ``load``), and no file is fetched that a model does not have.
        """
        if os.path.isdir(name_or_directory):
            return cls.load(name_or_directory, device)
        name, device = os.fspath(name_or_directory), as_device(device)
        options = {"cache_dir": cache_dir, "local_files_only": local_files_only, "token": token}
        with hub.fetched(name, revision=revision, **options) as path:
            try:
                return cls.load(path, device)
            except ValueError as error:  # by the name that people know
                raise ValueError(str(error).replace(str(path), name)) from None

    def push_to_hub(
        self,
        name: str,
        *,
        private: bool | None = None,
        token: str | bool | None = None,
        branch: str | None = None,
        create_pr: bool = False,
        message: str = "A model of gpuparse",
        card: str | None = None,
        language: str | list[str] | None = None,
        license: str | None = None,
    ) -> str:
        """Upload it to the Hugging Face Hub (the extra ``hub``), in one commit; the address of that.

        Args:
            name: ``owner/name``, or a name of one's own; the repository is made where it is not there.
            private: whether one that is made is private; else as its owner has it.
            token: with the right to write; else the one that ``hf auth login`` has left.
            branch: else ``main``; made where it is not there.
            create_pr: propose the commit, in place of making it.
            message: of the commit.
            card: the text of ``README.md``; else one that has the scores of training, the labels and the settings.
            language: of the model, for its card: ``"hu"``, say.
            license: of the model, for its card.

        Settings that name files keep the files' names alone: directories of this machine are not uploaded.
        """
        hub.library("push_to_hub")
        public = copy(self)
        public.config = public_config(self.config)
        with tempfile.TemporaryDirectory(prefix="gpuparse-") as directory:
            folder = Path(directory, "model")
            public.save(folder)
            hub.without_paths(folder)
            text = public.card(name, language=language, license=license) if card is None else card
            (folder / "README.md").write_text(text, encoding="utf-8")
            return hub.push(
                folder,
                name,
                token=token,
                private=private,
                branch=branch,
                create_pr=create_pr,
                commit_message=message,
            )

    def card(self, name: str, *, language: str | list[str] | None = None, license: str | None = None) -> str:
        """The card of the model on the Hub, as Markdown."""
        return model_card(
            name,
            public_config(self.config),
            labels=self.labels,
            reads=list(self.columns),
            weights=sum(weights.numel() for weights in self.scorer.parameters()),
            results=self.results,
            language=language,
            license=license,
        )

    @property
    def labels(self) -> list[str]:
        """What it chooses among."""
        raise NotImplementedError

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads of a sentence, besides the words."""
        return ()

    def save(self, path: Path | str) -> None:
        """Save it to a directory, each file whole or not at all."""
        vocabulary: Any = self.vocabulary
        write_model(Path(path), self.config, vocabulary.to_json(), self.scorer, self.results)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.scorer.parameters()).device

    def to(self, device: torch.device | str) -> Self:
        """Move the weights."""
        self.scorer.to(as_device(device))
        return self

    def batches(self, sentences: Sequence[Sentence], batch_words: int | None) -> Iterator[list[int]]:
        """The indices of sentences with words, in batches; None: in one, in their order."""
        wanted = [index for index, sentence in enumerate(sentences) if len(sentence)]
        if batch_words is None:
            yield from [wanted] if wanted else []
            return
        for places in batches_by_length([len(sentences[index]) for index in wanted], batch_words):
            yield [wanted[place] for place in places]

    def each(
        self,
        sentences: Sequence[Sentence],
        batch_words: int | None,
        need: Callable[[Sequence[Sentence]], int],
        run: Callable[[Sequence[Sentence]], Callable[[], Sequence[Result]]],
        on_unfit: Callable[[int, ConlluError], None] | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """The index of every sentence with words and what ``run`` says of it, in batches that fit into memory.

        Args:
            need: about how many bytes ``run`` takes.
            run: begins with some sentences; what it gives reads the results. They are read when the next batch has been
                begun, so that a GPU need not wait for what Python does with them, nor for the next batch.
            on_unfit: called for a sentence that does not fit, in place of an error.
        """

        def begin(some: Sequence[Sentence]) -> list[Callable[[], Result]]:
            read = cache(run(some))
            return [lambda row=row: read()[row] for row in range(len(some))]  # type: ignore[misc]

        def finish(indices: list[int], found: Sequence[Callable[[], Result] | NoRoom]) -> Iterator[tuple[int, Result]]:
            for index, result in zip(indices, found, strict=True):
                if not isinstance(result, NoRoom):
                    yield index, result()
                elif on_unfit is None:
                    raise unfit(sentences[index], result)
                else:
                    on_unfit(index, unfit(sentences[index], result))

        self.scorer.eval()
        begun: tuple[list[int], Sequence[Callable[[], Result] | NoRoom]] = [], []
        for indices in self.batches(sentences, batch_words):
            with torch.inference_mode():
                found = in_parts([sentences[index] for index in indices], need, begin, self.device)
            yield from finish(*begun)
            begun = indices, found
        yield from finish(*begun)


@contextmanager
def timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    """Adds the time within it to an entry. On a GPU that is the time to launch the work, not to do it."""
    begun = time.perf_counter()
    try:
        yield
    finally:
        seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - begun
