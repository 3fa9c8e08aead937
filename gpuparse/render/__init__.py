"""Dependency trees drawn in text, as SVG and PNG, and on a page."""

from gpuparse.render.compare import ParsedFile, parses
from gpuparse.render.drawing import sentence_svg, svg_png
from gpuparse.render.page import Tally, write_page
from gpuparse.render.svg import Token, outcomes, tree_svg
from gpuparse.render.text import ROOT, tree_text

__all__ = [
    "ROOT",
    "ParsedFile",
    "Tally",
    "Token",
    "outcomes",
    "parses",
    "sentence_svg",
    "svg_png",
    "tree_svg",
    "tree_text",
    "write_page",
]
