"""The suites, each a module with a ``SUITE`` (``bench.registry``); what only one of them needs lies beside it."""

NAMES = (
    "first_order",
    "second_order",
    "chains",
    "bp",
    "ppc",
    "pricing",
    "certificates",
    "dual",
    "ilp",
    "parser",
    "parse_memory",
    "kill",
    "roundtrip",
    "serve",
    "annotate",
)
