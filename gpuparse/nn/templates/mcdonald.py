"""The templates used where none are given: McDonald, Crammer and Pereira's (2005) and a few more."""

from __future__ import annotations

Templates = tuple[tuple[str, ...], ...]

_HEAD = (("h.word", "h.tag"), ("h.word",), ("h.tag",))
_MODIFIER = (("m.word", "m.tag"), ("m.word",), ("m.tag",))
_BOTH = (
    ("h.word", "h.tag", "m.word", "m.tag"),
    ("h.tag", "m.word", "m.tag"),
    ("h.word", "m.word", "m.tag"),
    ("h.word", "h.tag", "m.tag"),
    ("h.word", "h.tag", "m.word"),
    ("h.word", "m.word"),
    ("h.tag", "m.tag"),
)
_AROUND = (
    ("h.tag", "between.tag", "m.tag"),
    ("h.tag", "h+1.tag", "m-1.tag", "m.tag"),
    ("h-1.tag", "h.tag", "m-1.tag", "m.tag"),
    ("h.tag", "h+1.tag", "m.tag", "m+1.tag"),
    ("h-1.tag", "h.tag", "m.tag", "m+1.tag"),
)


def with_prefixes(templates: Templates) -> Templates:
    """The templates, and those with words again with the words' prefixes in their place."""
    cut = (tuple(atom.replace(".word", ".prefix") for atom in template) for template in templates)
    return tuple(dict.fromkeys((*templates, *cut)))


def conjoined(templates: Templates, *atoms: str) -> Templates:
    """Each template with more atoms."""
    return tuple((*template, *atoms) for template in templates)


# Case and agreement, which that paper did not look at.
MORPHOLOGY: Templates = (
    ("h.tag", "m.tag", "m.feats", "direction+distance"),
    ("h.tag", "m.feat", "direction+distance"),
    ("h.feat", "m.tag", "direction+distance"),
)

# What looks at the modifier alone is the same for all its heads, so it comes with direction and distance only.
ARCS: Templates = (
    *with_prefixes((*_HEAD, *_BOTH, *_AROUND)),
    *conjoined(with_prefixes((*_HEAD, *_MODIFIER, *_BOTH, *_AROUND)), "direction+distance"),
    *MORPHOLOGY,
)

LABELS: Templates = (
    *with_prefixes(
        (
            ("h.word", "h.tag", "direction"),
            ("m.word", "m.tag"),
            ("m.word", "direction"),
            ("h.word", "m.tag", "direction"),
            ("h.tag", "m.word", "direction"),
            ("h.word", "m.word"),
        )
    ),
    ("h.tag", "m.tag", "direction+distance"),
    ("m-1.tag", "m.tag", "m+1.tag", "direction"),
    ("h.tag", "h+1.tag", "m-1.tag", "m.tag", "direction"),
    ("h.tag", "m-1.tag", "m.tag", "m+1.tag", "direction"),
    ("h.tag", "between.tag", "m.tag"),
    ("h.tag", "m.tag", "m.feats", "direction"),
    ("h.tag", "m.feat", "direction"),
)

_TRIPLES = (
    ("g.tag", "p.tag", "c.tag"),
    ("g.tag", "c.tag"),
    ("g.word", "p.tag", "c.tag"),
    ("g.tag", "p.word", "c.tag"),
    ("g.tag", "p.tag", "c.word"),
    ("g.word", "c.word"),
)

# Pairs of directions, and whether the grandparent lies between the other two: the arcs cross.
GRANDPARENTS: Templates = (
    ("gp.direction", "gc.direction", "pc.direction"),
    ("g.tag", "p.tag", "c.tag"),
    *conjoined(_TRIPLES, "gp.direction", "gc.direction", "pc.direction"),
    ("g.tag", "p.tag", "c.tag", "gp.direction", "pc.direction+distance"),
)

_SIBLINGS = (
    ("s.tag", "m.tag"),
    ("h.tag", "s.tag", "m.tag"),
    ("s.word", "m.tag"),
    ("s.tag", "m.word"),
    ("s.word", "m.word"),
    ("h.word", "s.tag", "m.tag"),
)

SIBLINGS: Templates = (
    *_SIBLINGS[:2],
    *conjoined(_SIBLINGS, "hm.direction"),
    *conjoined(_SIBLINGS[:2], "hm.direction+distance"),
    *conjoined(_SIBLINGS[:2], "hm.direction", "sm.distance"),
)
