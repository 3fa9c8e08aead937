"""Belief propagation over factor graphs of links and tags (Smith and Eisner, 2008), one file a group of factors."""
