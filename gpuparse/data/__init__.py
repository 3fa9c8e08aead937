"""Treebank data: CoNLL-U files, sentences and what is made of them."""

from __future__ import annotations

from gpuparse.data.conllu import ConlluError, Sentence, check_tree, read_conllu, write_conllu

__all__ = ["ConlluError", "Sentence", "check_tree", "read_conllu", "write_conllu"]
