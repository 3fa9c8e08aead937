"""Belief propagation over factor graphs of links and tags (Smith and Eisner, 2008), one file a group of factors."""

from gpuparse.bp.belief_propagation import BeliefPropagation, Beliefs
from gpuparse.bp.grand import Grand
from gpuparse.bp.graph import Factors, Graph, Messages, Values, weights
from gpuparse.bp.local import AtMostOne, ExactlyOne, Link, Nand, NotTwo, NoTwoCycle, Pair
from gpuparse.bp.nocross import NoCross
from gpuparse.bp.siblings import ChildSequence, Sib
from gpuparse.bp.tags import Tag, TagLink, Trigram
from gpuparse.bp.tree import ProjectiveTree, Tree

__all__ = [
    "AtMostOne",
    "BeliefPropagation",
    "Beliefs",
    "ChildSequence",
    "ExactlyOne",
    "Factors",
    "Grand",
    "Graph",
    "Link",
    "Messages",
    "Nand",
    "NoCross",
    "NoTwoCycle",
    "NotTwo",
    "Pair",
    "ProjectiveTree",
    "Sib",
    "Tag",
    "TagLink",
    "Tree",
    "Trigram",
    "Values",
    "weights",
]
