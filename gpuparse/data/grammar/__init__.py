"""Models read off treebanks by counting: grammars, emissions, trigrams of tags, and arcs between words."""

from gpuparse.data.grammar.bilexical import Bilexical
from gpuparse.data.grammar.emissions import Emissions
from gpuparse.data.grammar.models import CountedModels, read_models
from gpuparse.data.grammar.rules import add_heads, read_grammar
from gpuparse.data.grammar.trigrams import Trigrams

__all__ = ["Bilexical", "CountedModels", "Emissions", "Trigrams", "add_heads", "read_grammar", "read_models"]
