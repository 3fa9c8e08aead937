"""A component for spaCy's pipelines: ``nlp.add_pipe("gpuparse", config={"model": "DIR"})``.

spaCy finds it by its entry point; nothing has to be imported. It sets heads, labels and sentence starts.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import spacy.util
import srsly
from spacy.language import Language
from spacy.pipeline import Pipe
from spacy.pipeline.dep_parser import parser_score
from spacy.tokens import Doc, Token
from thinc.util import get_torch_default_device

from gpuparse.data.sentence import ConlluError
from gpuparse.integrations.spacy_docs import pieces_of, set_trees
from gpuparse.models.parser import Parser
from gpuparse.system.defaults import BATCH_WORDS
from gpuparse.system.quote import quoted

Sentences = Literal["rules", "preset"]
_ATTRIBUTES = {"upos": ("POS", "Token.pos"), "feats": ("MORPH", "Token.morph")}  # of the columns that parsers read


@Language.factory(
    "gpuparse",
    assigns=["token.dep", "token.head", "token.is_sent_start", "doc.sents"],
    default_config={
        "sentences": "rules",
        "confidence": "gpuparse_confidence",
        "device": "auto",
        "batch_words": BATCH_WORDS,
        "options": {},
    },
    default_score_weights={"dep_uas": 0.5, "dep_las": 0.5, "sents_f": 0.0},
)
def make_parser(
    nlp: Language,
    name: str,
    model: str,
    sentences: Sentences,
    confidence: str,
    device: str,
    batch_words: int,
    options: dict[str, Any],
) -> SpacyParser:
    """What ``nlp.add_pipe("gpuparse", config=...)`` calls; the settings are those of ``SpacyParser``."""
    return SpacyParser(
        model,
        name=name,
        sentences=sentences,
        confidence=confidence,
        device=device,
        batch_words=batch_words,
        options=options,
    )


class SpacyParser(Pipe):
    """Parses ``Doc`` objects by a trained model: heads, labels, sentence starts and how sure they are.

    Args:
        model: the directory of a parser, or its name on the Hugging Face Hub. It is loaded when it is first needed, so
            that a pipeline that was saved, and has the model with it, loads where there is no such directory.
        name: of the component in its pipeline.
        sentences: where a token's ``is_sent_start`` is None, "rules" begins a sentence as spaCy's ``sentencizer``
            does, and "preset" never does: a ``Doc`` of which nothing is known is one sentence. A token that is preset
            begins a sentence where it is True, and none where it is False.
        confidence: the name of the extension that gets the probability of each token's arc, ``token._.<name>``;
            empty: none is computed, which is faster where a model scores pairs of arcs and trees may cross: belief
            propagation estimates it there.
        device: "auto" is where spaCy is (``spacy.prefer_gpu()``, ``spacy.require_gpu()``) when the model is loaded;
            else cpu, cuda, cuda:1.
        batch_words: the size of a batch, as of ``Parser.predict``.
        options: other options of ``Parser.predict``, such as ``{"method": "eisner"}``.

    The parser is given the words without spaCy's tokens of white space, which are attached to the word before them (the
    word after, at the start of a sentence) with the label "dep". The label ``root`` becomes "ROOT", as in spaCy's own
    models. A model that reads tags or features takes them from ``token.pos`` and ``token.morph``: a tagger or a
    morphologizer has to come before it, and a warning says where nothing did.

    Example:
        >>> import spacy
        >>> nlp = spacy.blank("en")
        >>> component = nlp.add_pipe("gpuparse", config={"model": "model"})
        >>> component.sentences, nlp.pipe_names
        ('rules', ['gpuparse'])
    """

    def __init__(
        self,
        model: Path | str = "",
        *,
        name: str = "gpuparse",
        sentences: Sentences = "rules",
        confidence: str = "gpuparse_confidence",
        device: str = "auto",
        batch_words: int = BATCH_WORDS,
        options: dict[str, Any] | None = None,
    ) -> None:
        if sentences not in ("rules", "preset"):
            raise ValueError(f"sentences: {quoted(sentences)}; wanted 'rules' or 'preset'")
        if confidence and not confidence.isidentifier():
            raise ValueError(
                f"confidence: {quoted(confidence)} is no name of an extension; wanted letters, digits and _"
            )
        self.model, self.name, self.sentences = model, name, sentences
        self.confidence, self.device, self.batch_words = confidence, device, batch_words
        self.options = {"single_root": True, **(options or {})}  # as it is with the sentences of a Doc
        self._parser: Parser | None = None
        self._warned = False
        if confidence and not Token.has_extension(confidence):
            Token.set_extension(confidence, default=None)

    @property
    def parser(self) -> Parser:
        """The model, loaded now if it has not been; ``ValueError`` where there is none."""
        if self._parser is None:
            if not self.model:
                raise ValueError(f"{self.name}: no model; give one in config, or load the pipeline that has one")
            self._parser = Parser.from_pretrained(self.model, device=self._device())
        return self._parser

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of arcs, once the model is loaded."""
        return () if self._parser is None else tuple(self._parser.labels)

    def __call__(self, doc: Doc) -> Doc:
        """Parse one ``Doc``, in place."""
        (parsed,) = self._each([doc]) or [doc]
        return parsed

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Parse a stream of them, in order, in batches."""
        for docs in spacy.util.minibatch(stream, size=batch_size):
            yield from self._each(docs)

    def score(self, examples: Iterable[Any], **options: Any) -> dict[str, Any]:
        """UAS, LAS and sentences, as spaCy's own parser is scored."""
        return dict(parser_score(examples, **options))

    def to_disk(self, path: Path | str, *, exclude: Sequence[str] = ()) -> None:
        """Save the model, whole, so that the pipeline needs no other directory."""
        self.parser.save(path)

    def from_disk(self, path: Path | str, *, exclude: Sequence[str] = ()) -> SpacyParser:
        """Load it; a directory may be anybody's, see ``Parser.load``."""
        self._parser = Parser.load(path, self._device())
        return self

    def to_bytes(self, *, exclude: Sequence[str] = ()) -> bytes:
        """The same as bytes."""
        with tempfile.TemporaryDirectory(prefix="gpuparse-") as directory:
            self.parser.save(Path(directory, "model"))
            files = (file for file in sorted(Path(directory, "model").rglob("*")) if file.is_file())
            found = {file.relative_to(Path(directory, "model")).as_posix(): file.read_bytes() for file in files}
        return bytes(srsly.msgpack_dumps(found))

    def from_bytes(self, content: bytes, *, exclude: Sequence[str] = ()) -> SpacyParser:
        """Load it from bytes, which may be anybody's."""
        found = srsly.msgpack_loads(content)
        with tempfile.TemporaryDirectory(prefix="gpuparse-", ignore_cleanup_errors=True) as directory:
            for name, data in found.items():
                parts = str(name).split("/")
                if not isinstance(data, bytes) or any(part in ("", ".", "..") or "\\" in part for part in parts):
                    raise ValueError(f"{self.name}: {quoted(name)} is no file of a model")
                file = Path(directory, *parts)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
            return self.from_disk(directory)

    def _device(self) -> str:
        if self.device != "auto":
            return self.device
        device = get_torch_default_device()
        return str(device) if device.type == "cuda" else "cpu"

    def _each(self, docs: Sequence[Doc]) -> list[Doc]:
        """Those that were parsed; one that was not goes to the error handler, which may leave it out."""
        handle: Any = self.get_error_handler()
        try:
            self._parse(docs)
            return list(docs)
        except Exception as error:
            if len(docs) == 1:
                handle(self.name, self, list(docs), error)
                return []
        return [parsed for doc in docs for parsed in self._each([doc])]

    def _parse(self, docs: Sequence[Doc]) -> None:
        parser = self.parser
        self._warn(parser.columns, docs)
        pieces = [pieces_of(doc, rules=self.sentences == "rules") for doc in docs]
        wanted = [piece for some in pieces for piece in some if piece.words]
        left: dict[int, ConlluError] = {}
        predictions = parser.predict(
            [piece.sentence(parser.columns) for piece in wanted],
            confidence=bool(self.confidence),
            batch_words=self.batch_words,
            on_unfit=left.__setitem__,
            **self.options,
        )
        for error in left.values():
            why = str(error).partition(": a sentence of ")[2].partition("; ")[0]
            raise ValueError(f"{self.name}: a sentence of {why}; preset sentence starts, so that it is split")
        found = dict(zip(wanted, predictions, strict=True))
        for doc, some in zip(docs, pieces, strict=True):
            set_trees(doc, [(piece, found.get(piece)) for piece in some])
            for piece in some:
                sure = found[piece].confidence if piece in found else None
                for word, probability in zip(piece.words, sure or (), strict=False):
                    doc[word]._.set(self.confidence, probability)

    def _warn(self, columns: Sequence[str], docs: Sequence[Doc]) -> None:
        """Once: of what the model reads and no document has."""
        if self._warned or not any(map(len, docs)):
            return
        missing = [name for name in columns if not any(doc.has_annotation(_ATTRIBUTES[name][0]) for doc in docs)]
        if missing:
            self._warned = True
            named = " and ".join(f"{name.upper()} ({_ATTRIBUTES[name][1]})" for name in missing)
            warnings.warn(
                f"{self.name}: the model reads {named}, which no Doc has; put what sets it before this component, "
                "or parses will be worse",
                stacklevel=2,
            )
