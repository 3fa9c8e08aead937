"""Instructions that are an expression: a table."""

from __future__ import annotations

import re

FLOAT, INT, BIT = r"(?P<T>f32|f64)", r"(?P<T>[su](?:16|32|64))", r"(?P<T>b(?:16|32|64))"


# What an instruction is called, the types of its result and operands (T: its own, W: twice as wide), its C++.
_ROWS = (
    (rf"add\.{INT}|add(?:\.rn)?\.{FLOAT}", "T T T", "{a} + {b}"),
    (rf"sub\.{INT}|sub(?:\.rn)?\.{FLOAT}", "T T T", "{a} - {b}"),
    (rf"mul(?:\.rn)?\.{FLOAT}", "T T T", "{a} * {b}"),
    (rf"div\.rn\.{FLOAT}", "T T T", "{a} / {b}"),
    (rf"fma\.rn\.{FLOAT}", "T T T T", "std::fma({a}, {b}, {c})"),
    (rf"rcp\.rn\.{FLOAT}", "T T", "1 / {a}"),
    (r"rcp\.approx\.ftz\.(?P<T>f64)", "T T", "rcp_approx({a})"),
    (rf"sqrt\.rn\.{FLOAT}", "T T", "std::sqrt({a})"),
    (rf"neg\.{INT}|neg\.{FLOAT}", "T T", "-{a}"),
    (rf"abs\.{INT}", "T T", "{a} < 0 ? -{a} : {a}"),
    (rf"abs\.{FLOAT}", "T T", "std::fabs({a})"),
    (rf"min\.{INT}", "T T T", "std::min({a}, {b})"),
    (rf"max\.{INT}", "T T T", "std::max({a}, {b})"),
    (rf"min\.{FLOAT}", "T T T", "std::fmin({a}, {b})"),
    (rf"max\.{FLOAT}", "T T T", "std::fmax({a}, {b})"),
    (rf"mul\.lo\.{INT}", "T T T", "{a} * {b}"),
    (rf"mul\.hi\.{INT}", "T T T", "mul_high({a}, {b})"),
    (rf"mul\.wide\.{INT}", "W T T", "mul_wide({a}, {b})"),
    (rf"mad\.lo\.{INT}", "T T T T", "{a} * {b} + {c}"),
    (rf"mad\.wide\.{INT}", "W T T W", "mul_wide({a}, {b}) + {c}"),
    (rf"div\.{INT}", "T T T", "quotient({a}, {b})"),
    (rf"rem\.{INT}", "T T T", "remainder_of({a}, {b})"),
    (rf"and\.{BIT}|and\.(?P<T>pred)", "T T T", "{a} & {b}"),
    (rf"or\.{BIT}|or\.(?P<T>pred)", "T T T", "{a} | {b}"),
    (rf"xor\.{BIT}|xor\.(?P<T>pred)", "T T T", "{a} ^ {b}"),
    (rf"not\.{BIT}", "T T", "~{a}"),
    (r"not\.(?P<T>pred)", "T T", "!{a}"),
    (rf"shl\.{BIT}", "T T u32", "left({a}, {b})"),
    (rf"shr\.{BIT}|shr\.{INT}", "T T u32", "right({a}, {b})"),
    (r"shf\.l\.wrap\.(?P<T>b32)", "T T T u32", "funnel_left({a}, {b}, {c})"),
    (r"shf\.r\.wrap\.(?P<T>b32)", "T T T u32", "funnel_right({a}, {b}, {c})"),
    (r"clz\.(?P<T>b32|b64)", "u32 T", "leading_zeros({a})"),
    (r"popc\.(?P<T>b32|b64)", "u32 T", "__builtin_popcountll({a})"),
    (r"bfi\.(?P<T>b32|b64)", "T T T u32 u32", "insert_bits({a}, {b}, {c}, {e})"),
    (rf"selp\.{BIT}|selp\.{INT}|selp\.{FLOAT}", "T T T pred", "{c} ? {a} : {b}"),
    (r"cvt\.(?P<R>[su]\d+)\.(?P<T>[su]\d+)", "R T", "{a}"),
    (r"cvt(?:\.rn)?\.(?P<R>f32|f64)\.(?P<T>[su]\d+|f32|f64)", "R T", "{a}"),
    *(
        row
        for mode, function in (("rzi", "trunc"), ("rni", "nearbyint"), ("rmi", "floor"), ("rpi", "ceil"))
        for row in (
            (rf"cvt\.{mode}\.(?P<R>[su](?:32|64))\.{FLOAT}", "R T", f"to_integer<{{R}}>(std::{function}({{a}}))"),
            (rf"cvt\.{mode}\.(?P<R>f32|f64)\.{FLOAT}", "R T", f"std::{function}({{a}})"),
        )
    ),
    (r"cvta\.(?:to\.)?(?:global|const|local)\.(?P<T>u64)", "T T", "{a}"),
    (r"cvta\.shared\.(?P<T>u64)", "T T", "reinterpret_cast<uint64_t>(t.block->shared) + {a}"),
    (r"cvta\.to\.shared\.(?P<T>u64)", "T T", "{a} - reinterpret_cast<uint64_t>(t.block->shared)"),
)


def _patterns(pattern: str) -> list[str]:
    """The alternatives, each by itself: a group may stand once in a pattern."""
    return re.split(r"\|(?=[a-z]+[\\(])(?![^(]*\))", pattern)


OPERATIONS = [(re.compile(one), types.split(), cpp) for row, types, cpp in _ROWS for one in _patterns(row)]


COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMPARISONS |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # of numbers without a sign

# Of the old value, the operand and, for "cas", the second one.
ATOMICS = {"add": "{o} + {v}", "exch": "{v}", "min": "std::min({o}, {v})", "max": "std::max({o}, {v})"}
ATOMICS |= {"and": "{o} & {v}", "or": "{o} | {v}", "xor": "{o} ^ {v}", "cas": "{o} == {v} ? {w} : {o}"}
