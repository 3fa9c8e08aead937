"""Belief propagation over factor graphs of links and tags (Smith and Eisner, 2008), one file a group of factors."""

from gpuparse.decoding.bp.belief_propagation import BeliefPropagation, Beliefs
from gpuparse.decoding.bp.grand import Grand
from gpuparse.decoding.bp.graph import Factors, Graph, Messages, Values, weights
from gpuparse.decoding.bp.local import AtMostOne, ExactlyOne, Link, Nand, NotTwo, NoTwoCycle, Pair
from gpuparse.decoding.bp.nocross import NoCross
from gpuparse.decoding.bp.siblings import ChildSequence, Sib
from gpuparse.decoding.bp.tags import Tag, TagLink, Trigram
from gpuparse.decoding.bp.tree import ProjectiveTree, Tree

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
