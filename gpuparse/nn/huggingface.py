"""A pretrained encoder from Hugging Face: words in, one vector a node out."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor, nn

from gpuparse.nn.dropout import SentenceDropout
from gpuparse.nn.encoder_files import SETTINGS_FILE, read_settings
from gpuparse.system.quote import shown

POOLING = ("mean", "first")
_POSITIONS = 512  # where neither the model nor its tokeniser names a limit
_NO_LIMIT = 1_000_000  # tokenisers name numbers beyond this for none


class PretrainedEncoder(nn.Module):
    """Vectors of words by a Hugging Face encoder; node 0, the root, has that of the token the model begins with.

    Args:
        name_or_path: a model of the hub or a directory. Its weights have to be in safetensors.
        layers: how many of the last layers are mixed, with weights that are learned; at most all of them.
        max_pieces: the longest input in pieces, special tokens included, if it should be less than what the model
            takes. What is longer is read in windows that overlap by half.
        pooling: a word's vector is the ``mean`` of its pieces' or the ``first`` one's.
        freeze: do not train the model, only the mix of its layers.
        dropout: of the vectors that come out, the same in all the words of a sentence.
        weights: ``False`` makes the model at random, for a state that is loaded later.

    A word that the tokeniser makes nothing of is read as unknown. The encoder has ``out_features`` columns.
    """

    def __init__(
        self,
        name_or_path: str | os.PathLike[str],
        *,
        layers: int = 4,
        max_pieces: int | None = None,
        pooling: str = "mean",
        freeze: bool = False,
        dropout: float = 0.0,
        weights: bool = True,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers: {layers}; wanted 1 or more")
        if pooling not in POOLING:
            raise ValueError(f"pooling: {pooling!r}; wanted one of {', '.join(POOLING)}")
        self.name = os.fspath(name_or_path)
        self.config, self.tokenizer, self.model = _load(self.name, weights)
        self.pooling, self.freeze, self.max_pieces = pooling, freeze, max_pieces
        self.out_features = int(self.config.hidden_size)
        self._pieces = _Tokeniser(self.tokenizer, _longest_input(self.model, self.tokenizer, max_pieces))
        self.mix = nn.Parameter(torch.zeros(min(layers, int(self.config.num_hidden_layers))))
        self.root = None if self._pieces.before else nn.Parameter(torch.empty(self.out_features).normal_(std=0.02))
        self.dropout = SentenceDropout(dropout)
        if freeze:
            self.model.requires_grad_(False)
            self.model.eval()

    def train(self, mode: bool = True) -> PretrainedEncoder:
        """As of any module; a frozen model keeps its dropout off."""
        super().train(mode)
        if self.freeze:
            self.model.eval()
        return self

    def forward(
        self, words: Sequence[Sequence[str]], device: torch.device | str | None = None
    ) -> Float[Tensor, "B N D"]:
        """The vectors of sentences given as the forms of their words; 0 past a sentence's end.

        Args:
            device: where the model is, by default; naming it is free of waiting for it.
        """
        device = self.mix.device if device is None else torch.device(device)
        nodes = 1 + max(map(len, words), default=0)
        if not words:
            return self.mix.new_zeros(0, nodes, self.out_features)
        given = self._pieces.prepare(words, first_only=self.pooling == "first").to(device)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze):
            found = self.model(input_ids=given.ids, attention_mask=given.mask, output_hidden_states=True)
        states = found.hidden_states[-len(self.mix) :]
        mixed = sum(weight * state for weight, state in zip(self.mix.softmax(0), states, strict=True))
        chosen = mixed.flatten(0, 1)[given.places].to(self.mix.dtype) * given.shares[:, None]
        out = chosen.new_zeros(len(words) * nodes, self.out_features).index_add(0, given.nodes, chosen)
        out = out.view(len(words), nodes, self.out_features)
        if self.root is not None:
            out = torch.cat((self.root.expand(len(words), 1, -1), out[:, 1:]), 1)
        return self.dropout(out)

    def config_dict(self) -> dict[str, Any]:
        """What the encoder was made with, for JSON: the arguments by name, ``weights`` left out."""
        return {
            "name_or_path": self.name,
            "layers": len(self.mix),
            "max_pieces": self.max_pieces,
            "pooling": self.pooling,
            "freeze": self.freeze,
            "dropout": self.dropout.p,
        }

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write what ``from_directory`` needs: the configuration and the tokeniser, but not the weights.

        The weights are in ``state_dict()`` with everything else.
        """
        target = Path(directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
            self.config.save_pretrained(temporary)
            self.tokenizer.save_pretrained(temporary)
            settings = json.dumps(self.config_dict(), indent=2, ensure_ascii=False)
            Path(temporary, SETTINGS_FILE).write_text(settings + "\n", encoding="utf-8")
            target.mkdir(exist_ok=True)
            # The settings last: where they are, all is.
            for file in sorted(Path(temporary).rglob("*"), key=lambda file: file.name == SETTINGS_FILE):
                if file.is_file():
                    to = target / file.relative_to(temporary)
                    to.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(file, to)

    @classmethod
    def from_directory(cls, directory: str | os.PathLike[str]) -> PretrainedEncoder:
        """The encoder that was saved there, at random until ``load_state_dict``. Needs no network.

        The directory may be anybody's: what is wrong with it is a ``ValueError`` of one line, and nothing in it is run.
        """
        settings = read_settings(Path(directory))
        name = settings.pop("name_or_path")
        encoder = cls(directory, weights=False, **settings)
        encoder.name = name
        return encoder


def _load(name: str, weights: bool) -> tuple[Any, Any, Any]:
    """The configuration, the tokeniser and the model without what lies on top of its last layer."""
    try:
        import transformers
    except ImportError:
        raise ValueError(
            f"pretrained encoder {shown(name)}: transformers is not installed; pip install 'gpuparse[transformers]'"
        ) from None
    with _quiet(transformers):
        try:
            # Code that comes with a model is never run, nor is anybody asked whether it should be.
            given: dict[str, Any] = {"trust_remote_code": False, "local_files_only": not weights}
            config = transformers.AutoConfig.from_pretrained(name, **given)
            tokenizer = transformers.AutoTokenizer.from_pretrained(name, config=config, **given)
            if weights:
                model, info = transformers.AutoModel.from_pretrained(
                    name, config=config, use_safetensors=True, output_loading_info=True, trust_remote_code=False
                )
                absent = sorted(key for key in info["missing_keys"] if "pooler" not in key)
            else:
                model, absent = transformers.AutoModel.from_config(config, trust_remote_code=False), []
        except BaseException as error:  # anything may be in these files, and the library may fail in any way
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of its Rust part
                raise
            kind = "" if isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: "
            raise ValueError(
                f"pretrained encoder {shown(name)}: {kind}{shown(str(error))}; wanted a model of the Hugging Face hub "
                "or a directory, with weights in safetensors"
            ) from None
    if absent:
        raise ValueError(f"pretrained encoder {shown(name)}: {len(absent)} weights are absent, such as {absent[0]}")
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"pretrained encoder {shown(name)}: it has no fast tokeniser, which tells pieces' words")
    if getattr(config, "is_encoder_decoder", False):
        model = model.get_encoder()
    if isinstance(getattr(model, "pooler", None), nn.Module):
        model.pooler = None  # weights that nothing would train
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    return config, tokenizer, model.float()


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Without progress bars and reports of loading: what matters of them is checked."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _longest_input(model: nn.Module, tokenizer: Any, wanted: int | None) -> int:
    """How many pieces the model reads at once, special tokens included."""
    config: Any = model.config
    limits = [int(tokenizer.model_max_length)] if tokenizer.model_max_length < _NO_LIMIT else []
    for key in ("max_position_embeddings", "n_positions"):
        limit = getattr(config, key, None)
        if isinstance(limit, int) and limit > 0:
            # RoBERTa and its like count positions from after the padding's index.
            tables = (module for name, module in model.named_modules() if name.endswith("position_embeddings"))
            padding = next((t.padding_idx for t in tables if isinstance(t, nn.Embedding)), None)
            limits.append(limit if padding is None else limit - padding - 1)
            break
    longest = min(limits, default=_POSITIONS)
    if wanted is not None and wanted > longest:
        raise ValueError(f"max_pieces: {wanted}; the model takes {longest}")
    return longest if wanted is None else wanted


class _Input(NamedTuple):
    """What the model reads, a window a row, and where its vectors go."""

    ids: Int64[Tensor, "W T"]
    mask: Int64[Tensor, "W T"]
    places: Int64[Tensor, " P"]  # of the vectors that are used, in rows and columns flattened
    nodes: Int64[Tensor, " P"]  # where each is added, in sentences and nodes flattened
    shares: Float[Tensor, " P"]  # and with what weight

    def to(self, device: torch.device) -> _Input:
        return _Input(*(tensor.to(device, non_blocking=True) for tensor in self))


class _Tokeniser:
    """Cuts words into pieces and sentences into windows."""

    def __init__(self, tokenizer: Any, longest: int) -> None:
        self.backend = tokenizer.backend_tokenizer
        self.backend.no_truncation()
        self.backend.no_padding()
        self.backend.encode_special_tokens = True  # a word that reads "[SEP]" is a word
        unknown = (tokenizer.unk_token_id, tokenizer.mask_token_id, tokenizer.bos_token_id, tokenizer.pad_token_id, 0)
        self.unknown = next(number for number in unknown if number is not None)
        self.padding = tokenizer.pad_token_id or 0
        probe = self.backend.encode(["a"], is_pretokenized=True, add_special_tokens=True)
        special = np.array(probe.special_tokens_mask, dtype=bool)
        ids = np.array(probe.ids, dtype=np.int64)
        word = np.flatnonzero(~special)
        first, last = (word[0], word[-1] + 1) if word.size else (len(ids), len(ids))
        self.before: list[int] = ids[:first].tolist()
        self.after: list[int] = ids[last:].tolist()
        self.room = longest - len(self.before) - len(self.after)
        if self.room < 1:
            raise ValueError(f"max_pieces: {longest}; wanted more than {len(self.before) + len(self.after)}")
        self.space = self._space_before_words()

    def _space_before_words(self) -> str:
        """A space where pieces inside words differ from those that begin them and the tokeniser adds none itself."""
        bare, spaced = (self.backend.encode([w], is_pretokenized=True, add_special_tokens=False) for w in ("a", " a"))
        marked = bool(bare.tokens) and bare.tokens[0][0] in "Ġ▁"
        return "" if marked or bare.ids == spaced.ids else " "

    def prepare(self, words: Sequence[Sequence[str]], *, first_only: bool) -> _Input:
        """Sentences as input of the model."""
        # Half a surrogate pair is no text, but words given by a program may have one.
        forms = [[(self.space + word).encode("utf-8", "replace").decode() for word in sentence] for sentence in words]
        encodings = self.backend.encode_batch(forms, is_pretokenized=True, add_special_tokens=False)
        nodes = 1 + max(map(len, words))
        windows: list[NDArray[np.int64]] = []
        places: list[tuple[int, NDArray[np.int64]]] = []  # row, columns
        targets: list[NDArray[np.int64]] = []
        shares: list[NDArray[np.float32]] = []
        lead = len(self.before)
        for number, (sentence, encoding) in enumerate(zip(words, encodings, strict=True)):
            pieces, word_of = self._with_unknown(encoding, len(sentence))
            share = 1 / np.bincount(word_of)[word_of]
            if first_only:
                share = np.diff(word_of, prepend=-1).astype(bool)
            if self.before:
                places.append((len(windows), np.zeros(1, dtype=np.int64)))
                targets.append(np.array([number * nodes]))
                shares.append(np.ones(1, dtype=np.float32))
            for begin, end, own_begin, own_end in _windows(len(pieces), self.room):
                own = np.arange(own_begin, own_end)
                own = own[share[own] > 0]
                places.append((len(windows), own - begin + lead))
                targets.append(number * nodes + 1 + word_of[own])
                shares.append(share[own].astype(np.float32))
                windows.append(np.array([*self.before, *pieces[begin:end], *self.after], dtype=np.int64))
        width = max(1, *map(len, windows))
        ids = np.full((len(windows), width), self.padding, dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, window in enumerate(windows):
            ids[row, : len(window)] = window
            mask[row, : max(1, len(window))] = 1  # a row that reads nothing at all would be NaN
        flat = [row * width + columns for row, columns in places]
        arrays = (ids, mask, np.concatenate(flat), np.concatenate(targets), np.concatenate(shares))
        return _Input._make(torch.from_numpy(array) for array in arrays)

    def _with_unknown(self, encoding: Any, words: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pieces and the word of each, with the unknown piece for words that have none."""
        pairs = [(piece, word) for piece, word in zip(encoding.ids, encoding.word_ids, strict=True) if word is not None]
        pieces, word_of = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        absent = np.flatnonzero(np.bincount(word_of, minlength=words) == 0)
        at = np.searchsorted(word_of, absent)
        return np.insert(pieces, at, self.unknown), np.insert(word_of, at, absent)


def _windows(pieces: int, room: int) -> list[tuple[int, int, int, int]]:
    """Begin and end of each window, and of the pieces whose vectors are taken from it.

    Windows overlap by half; each of two neighbours gives the half of the overlap that is further inside it.
    """
    if pieces <= room:
        return [(0, pieces, 0, pieces)]
    begins = [*range(0, pieces - room, max(1, room // 2)), pieces - room]
    cuts = [0, *((after + before + room) // 2 for before, after in pairwise(begins)), pieces]
    return [(begin, begin + room, cuts[i], cuts[i + 1]) for i, begin in enumerate(begins)]
