"""A linear scorer: feature templates with one weight table each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from gpuparse.data.batches import Batch
from gpuparse.data.vocab import Vocabulary
from gpuparse.decoding.parts import KINDS, Kind
from gpuparse.decoding.scores import Scores
from gpuparse.nn.scorer import Scored
from gpuparse.nn.templates import mcdonald
from gpuparse.nn.templates.atoms import ROLES, PartKind, distinct
from gpuparse.nn.templates.mcdonald import Templates
from gpuparse.nn.templates.parts import TableBounds, TemplateParts
from gpuparse.nn.templates.places import Nodes
from gpuparse.nn.templates.tables import Layout, WeightTable, factored_table, features, joint_table, score
from gpuparse.structures.masks import previous_sibling, word_mask


@dataclass(frozen=True)
class TemplateConfig:
    """The templates of a scorer and their tables. A template is a list of atoms (see ``nn.templates.atoms``)."""

    arcs: Templates = mcdonald.ARCS
    labels: Templates = mcdonald.LABELS
    grandparents: Templates = ()  # ``mcdonald.GRANDPARENTS``, for instance
    siblings: Templates = ()  # ``mcdonald.SIBLINGS``
    bits: int = 18  # a table has at most 2^bits weights
    label_bits: int = 15  # a label table has at most 2^label_bits rows, each with a weight for every label
    layout: Layout = "auto"  # indexed where all combinations of values fit, else hashed; or one of them for all

    def __post_init__(self) -> None:
        if not self.arcs or not self.labels:
            raise ValueError("templates: no template of arcs or none of labels; give at least one of each")
        for name, bits in (("bits", self.bits), ("label_bits", self.label_bits)):
            if not 1 <= bits <= 30:
                raise ValueError(f"templates: {name} is {bits}; wanted 1 to 30")
        if self.layout not in ("auto", "hashed", "indexed"):
            raise ValueError(f"templates: layout is {self.layout!r}; wanted 'auto', 'hashed' or 'indexed'")


class TemplateScorer(nn.Module):
    """Scores of arcs, labels and pairs of arcs as sums of weights of features.

    All tables of arcs, grandparents and siblings lie one after the other in ``weights`` [R], those of labels in
    ``label_weights`` [rows, L]; both begin at 0. ``table`` and ``label_table`` show one template's. A feature is the
    number of its entry (row) there.
    """

    def __init__(self, config: TemplateConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config = config
        self._counts = {
            "word": len(vocabulary.words),
            "prefix": len(vocabulary.prefixes),
            "tag": len(vocabulary.tags),
            "feat": len(vocabulary.feats),
        }
        self._tables: dict[str, list[WeightTable]] = {}
        rows = 0
        for part in ("arcs", *KINDS):
            self._tables[part] = self._lay_out(getattr(config, part), part, config.bits, rows)
            rows += sum(table.size for table in self._tables[part])
        self._label_tables = self._lay_out(config.labels, "arcs", config.label_bits, 0)
        self._bounds: dict[str, TableBounds] = {
            kind: TableBounds(kind, self._tables[kind]) for kind in KINDS if self._tables[kind]
        }
        self.weights = nn.Parameter(torch.zeros(rows))
        label_rows = sum(table.size for table in self._label_tables)
        self.label_weights = nn.Parameter(torch.zeros(label_rows, len(vocabulary.labels)))

    def forward(self, batch: Batch) -> Scored:
        nodes = self.nodes(batch)
        return Scored(self.score(nodes), _TemplateLabelScores(self, nodes))

    def nodes(self, batch: Batch) -> Nodes:
        """The attributes of a batch, made once for several of the functions below."""
        return Nodes(batch, self._counts["tag"])

    def score(self, nodes: Nodes) -> Scores:
        """Scores of the arcs, all of them, and of pairs of arcs where they are asked for."""
        arcs = score(self._tables["arcs"], self.weights, lambda: nodes.grid("h", "m"), 1)
        grandparents, siblings = (self._parts(kind, nodes) for kind in KINDS)
        return Scores(arcs, nodes.lengths, grandparents=grandparents, siblings=siblings)

    def score_labels(self, nodes: Nodes, heads: Int64[Tensor, "B N"]) -> Float[Tensor, "B N L"]:
        """Scores of each word's labels, given its head."""
        sentence, word = _everywhere(heads)
        found = self.score_labels_at(nodes, sentence, heads.clamp(min=0).flatten(), word)
        return found.view(*heads.shape, found.shape[-1])

    def score_labels_at(
        self, nodes: Nodes, sentence: Int64[Tensor, " T"], head: Int64[Tensor, " T"], word: Int64[Tensor, " T"]
    ) -> Float[Tensor, "T L"]:
        """Scores of the labels of some arcs."""
        return score(self._label_tables, self.label_weights, lambda: nodes.listed(sentence, {"h": head, "m": word}))

    def arc_features(self, batch: Batch, heads: Int64[Tensor, "B N"]) -> Int64[Tensor, "B N T"]:
        """The features of each word's arc, entries of ``weights``; −1 where there are fewer, and without a head."""
        return self._all_features(batch, heads, ("arcs",))

    def tree_features(self, batch: Batch, heads: Int64[Tensor, "B N"]) -> Int64[Tensor, "B N T"]:
        """The features of a tree: of each word's arc and of its triples with grandparent and previous sibling."""
        return self._all_features(batch, heads, ("arcs", *self._bounds))

    def label_features(self, batch: Batch, heads: Int64[Tensor, "B N"]) -> Int64[Tensor, "B N T"]:
        """The features that a word's label is chosen by, rows of ``label_weights``; −1 as above."""
        sentence, word = _everywhere(heads)
        found = self.label_features_at(self.nodes(batch), sentence, word, heads.flatten())
        return found.view(*heads.shape, found.shape[-1])

    def relatives(self, heads: Int64[Tensor, "B N"], lengths: Int64[Tensor, " B"]) -> Int64[Tensor, "B N R"]:
        """What decides on the features of a word: its head and, if the model looks at them, grandparent and sibling.

        −1 where there is none.
        """
        word = word_mask(lengths, heads.shape[1]) & (heads >= 0)
        head = torch.where(word, heads, 0)
        found = [torch.where(word, heads, -1)]
        if "grandparents" in self._bounds:
            found.append(torch.where(word & (head >= 1), head.gather(1, head), -1))
        if "siblings" in self._bounds:
            found.append(torch.where(word, previous_sibling(head, word), -1))
        return torch.stack(found, -1)

    def features_at(
        self,
        nodes: Nodes,
        sentence: Int64[Tensor, " T"],
        word: Int64[Tensor, " T"],
        relatives: Int64[Tensor, "T R"],
        parts: tuple[str, ...] | None = None,
    ) -> Int64[Tensor, "T S"]:
        """The features of some words of some trees, given the words' relatives; −1 where there are fewer."""
        head, *others = relatives.unbind(-1)
        further = dict(zip(self._bounds, others, strict=True)) if others else {}
        found = []
        for part in parts or ("arcs", *self._bounds):
            other = further.get(part, head)
            triple = {"arcs": (head, word), "grandparents": (other, head, word), "siblings": (head, other, word)}[part]
            roles = {role: node.clamp(min=0) for role, node in zip(ROLES[part], triple, strict=True)}
            rows = features(self._tables[part], nodes.listed(sentence, roles))
            found.append(rows.masked_fill((other < 0)[:, None], -1))
        return torch.cat(found, -1)

    def label_features_at(
        self, nodes: Nodes, sentence: Int64[Tensor, " T"], word: Int64[Tensor, " T"], heads: Int64[Tensor, " T"]
    ) -> Int64[Tensor, "T S"]:
        """Rows of ``label_weights`` of some words, given their heads; −1 where there are fewer."""
        roles = {"h": heads.clamp(min=0), "m": word}
        rows = features(self._label_tables, nodes.listed(sentence, roles))
        return rows.masked_fill((heads < 0)[:, None], -1)

    def table(self, name: str, part: PartKind = "arcs") -> Float[Tensor, " size"]:
        """The weights of one template, by its atoms with spaces between: a view."""
        return _view(self._tables[part], self.weights, name, part)

    def label_table(self, name: str) -> Float[Tensor, "size L"]:
        """The weights of one template of labels: a view."""
        return _view(self._label_tables, self.label_weights, name, "labels")

    def train(self, mode: bool = True) -> TemplateScorer:
        """As of any module. The tables of bounds are made once for a model in use: after ``eval()``, without grad."""
        for bounds in self._bounds.values():
            bounds.forget()
        return super().train(mode)

    def _parts(self, kind: Kind, nodes: Nodes) -> TemplateParts | None:
        if kind not in self._bounds:
            return None
        in_use = not self.training and not torch.is_grad_enabled()
        return TemplateParts(kind, self._bounds[kind], self.weights, nodes, keep=in_use)

    def _lay_out(self, templates: Templates, part: str, bits: int, offset: int) -> list[WeightTable]:
        layout, tables = self.config.layout, []
        kind: PartKind = part  # type: ignore[assignment]
        for atoms in distinct(templates, kind):
            if kind == "arcs":
                tables.append(joint_table(atoms, self._counts, bits, layout, offset))
            else:
                tables.append(factored_table(atoms, self._counts, bits, layout, offset))
            offset += tables[-1].size
        return tables

    def _all_features(self, batch: Batch, heads: Tensor, parts: tuple[str, ...]) -> Int64[Tensor, "B N T"]:
        sentence, word = _everywhere(heads)
        relatives = self.relatives(heads, batch.lengths).flatten(0, 1)
        found = self.features_at(self.nodes(batch), sentence, word, relatives, parts)
        return found.view(*heads.shape, found.shape[-1])


class _TemplateLabelScores:
    """Scores of labels, for given heads or for all of them."""

    def __init__(self, scorer: TemplateScorer, nodes: Nodes) -> None:
        self.scorer, self.nodes = scorer, nodes

    def __call__(self, heads: Int64[Tensor, "B N"]) -> Float[Tensor, "B N L"]:
        return self.scorer.score_labels(self.nodes, heads)

    def every(self, sentences: Int64[Tensor, " K"]) -> Float[Tensor, "K N N L"]:
        K, N = len(sentences), self.nodes.count
        node = torch.arange(N, device=sentences.device)
        shape = (K, N, N)
        sentence, head, word = (x.expand(shape).flatten() for x in (sentences[:, None, None], node[:, None], node))
        found = self.scorer.score_labels_at(self.nodes, sentence, head, word)
        return found.view(*shape, found.shape[-1])


def _everywhere(heads: Int64[Tensor, "B N"]) -> tuple[Int64[Tensor, " BN"], Int64[Tensor, " BN"]]:
    """Sentence and node of each entry of ``heads``, in a list."""
    sentences, nodes = (torch.arange(size, device=heads.device) for size in heads.shape)
    return sentences.repeat_interleave(heads.shape[1]), nodes.repeat(heads.shape[0])


def _view(tables: list[WeightTable], weights: Tensor, name: str, part: str) -> Tensor:
    for table in tables:
        if table.name == " ".join(name.split()):
            return weights.narrow(0, table.offset, table.size)
    raise ValueError(f"{part} have no template {name!r}; there are {'; '.join(table.name for table in tables)}")
