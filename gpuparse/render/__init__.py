"""Dependency trees drawn in text and on a page."""

from gpuparse.render.text import ROOT, tree_text

__all__ = ["ROOT", "tree_text"]
