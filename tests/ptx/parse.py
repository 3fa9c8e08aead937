"""PTX as text, read into variables and kernels.

Only what a whole program compiled by NVRTC is made of: variables, entries, no functions. Registers are given names of
their own where a scope hides another, so that all of them can be declared at the top of a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

BYTES = {"pred": 1} | {
    f"{kind}{bits}": bits // 8 for kind in "usbf" for bits in (8, 16, 32, 64) if f"{kind}{bits}" != "f8"
}

_VARIABLE = re.compile(
    r"(?P<words>(?:\.(?:visible|weak|extern|common|const|global|shared|local|param)\s+|\.align\s+\d+\s+)*)"
    r"\.(?P<type>\w+)\s+(?P<name>[\w$]+)\s*(?P<array>\[(?P<count>\d*)\])?\s*(?:=\s*(?P<value>.+))?",
    re.DOTALL,
)
_ENTRY = re.compile(
    r"(?:\.(?:visible|weak)\s+)*\.entry\s+(?P<name>[\w$]+)\s*\((?P<params>[^)]*)\)(?P<rest>.*)", re.DOTALL
)


class PtxError(Exception):
    """PTX that the emulator does not know."""


@dataclass(frozen=True)
class Variable:
    name: str
    type: str
    space: str
    bytes: int
    align: int
    value: str | None = None
    dynamic: bool = False  # shared memory whose size the launch says


@dataclass(frozen=True)
class Instruction:
    line: int
    opcode: str  # with its modifiers, as "setp.lt.and.s32"
    operands: tuple[str, ...]
    predicate: str | None  # the register that decides whether it is run
    negated: bool


@dataclass
class Kernel:
    name: str
    params: list[tuple[Variable, int]] = field(default_factory=list)  # with their offsets
    param_bytes: int = 0
    max_threads: int | None = None
    registers: dict[str, str] = field(default_factory=dict)  # types by names
    locals: list[Variable] = field(default_factory=list)
    body: list[Instruction | str] = field(default_factory=list)  # a string is a label


@dataclass
class Program:
    variables: list[Variable] = field(default_factory=list)  # of global, constant and shared memory
    kernels: dict[str, Kernel] = field(default_factory=dict)
    cuda_lines: dict[int, int] = field(default_factory=dict)  # by the lines of the PTX


def split_operands(text: str) -> tuple[str, ...]:
    """At the commas outside brackets."""
    parts = re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,])+", text)
    return tuple(part.strip() for part in parts if part.strip())


def _variable(text: str) -> Variable | None:
    found = _VARIABLE.fullmatch(text)
    if found is None or found["type"] not in BYTES:
        return None
    each = BYTES[found["type"]]
    count = int(found["count"] or 0) if found["array"] else 1
    align = re.search(r"\.align\s+(\d+)", found["words"])
    space = re.search(r"\.(const|global|shared|local|param)\b", found["words"])
    return Variable(
        name=found["name"],
        type=found["type"],
        space=space[1] if space else "",
        bytes=count * each,
        align=int(align[1]) if align else each,
        value=found["value"],
        dynamic=bool(found["array"]) and count == 0,
    )


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Lines and texts: an opening or a closing brace, a label with its colon, or a statement without its semicolon."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"^\s*\.section.*?\n\s*\}", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(\s*\.loc\s[^,\n;]*)[^\n]*$", r"\1;", text, flags=re.MULTILINE)
    text = re.sub(r"^(\s*\.(?:version|target|address_size|file)\b[^\n]*)$", "", text, flags=re.MULTILINE)
    line, here = 1, 0
    token = re.compile(r"\s*(?:([{}])|([\w$]+):(?!:)|((?:[^;{}]+|\{[^{};]*\})+);?)")
    while found := token.match(text, here):
        start = next(found.start(group) for group in (1, 2, 3) if found[group] is not None)
        line += text.count("\n", here, start)
        if statement := found[1] or (f"{found[2]}:" if found[2] else found[3].strip()):
            yield line, statement
        line += text.count("\n", start, found.end())
        here = found.end()
    if text[here:].strip():
        raise PtxError(f"PTX line {line}: not understood: {text[here:].strip()[:80]}")


def _instruction(line: int, text: str, names: dict[str, str]) -> Instruction:
    found = re.fullmatch(r"(?:@(!?)([%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", text, re.DOTALL)
    if found is None:
        raise PtxError(f"PTX line {line}: not an instruction: {text[:80]}")
    renamed = re.sub(r"%[\w$]+", lambda m: names.get(m[0], m[0]), found[4])
    predicate = names.get(found[2], found[2]) if found[2] else None
    return Instruction(line, found[3], split_operands(renamed), predicate, bool(found[1]))


def _kernel(header: re.Match[str]) -> Kernel:
    kernel = Kernel(header["name"])
    for text in split_operands(header["params"]):
        variable = _variable(re.sub(r"\.ptr(\s+\.(global|shared|const|local))?(\s+\.align\s+\d+)?", "", text))
        if variable is None:
            raise PtxError(f"parameter not understood: {text}")
        offset = -(-kernel.param_bytes // variable.align) * variable.align
        kernel.params.append((variable, offset))
        kernel.param_bytes = offset + variable.bytes
    if most := re.search(r"\.(?:max|req)ntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", header["rest"]):
        kernel.max_threads = int(most[1]) * int(most[2] or 1) * int(most[3] or 1)
    return kernel


def _registers(text: str) -> tuple[str, list[str]]:
    """The type and the names in a declaration such as ``.reg .b32 %r<279>``."""
    type_, names = text.split(None, 2)[1:]
    listed: list[str] = []
    for name in split_operands(names):
        many = re.fullmatch(r"(.+)<(\d+)>", name)
        listed += [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]
    return type_.lstrip("."), listed


def parse(text: str) -> Program:
    program = Program()
    kernel: Kernel | None = None
    scopes: list[dict[str, str]] = []  # the names that registers are given, from the outermost scope on
    cuda_line = scopes_so_far = 0
    for line, statement in _statements(text):
        if re.match(r"\.loc\s", statement):
            cuda_line = int(statement.split()[2]) or cuda_line
        elif statement.startswith(".pragma"):
            continue
        elif header := _ENTRY.fullmatch(statement):
            kernel = _kernel(header)
        elif statement == "{":
            scopes.append(dict(scopes[-1]) if scopes else {})
            scopes_so_far += 1
        elif statement == "}":
            scopes.pop()
            if not scopes and kernel is not None:
                program.kernels[kernel.name], kernel = kernel, None
        elif kernel is None or (statement.startswith(".") and not statement.startswith(".reg")):
            variable = _variable(statement)
            if variable is None:
                raise PtxError(f"PTX line {line}: not understood: {statement[:80]}")
            if variable.space == "local" and kernel is not None:
                kernel.locals.append(variable)
            else:
                program.variables.append(variable)
        elif statement.startswith(".reg"):
            type_, names = _registers(statement)
            for name in names:
                own = f"%{name.lstrip('%')}" + (f"_{scopes_so_far}" if len(scopes) > 1 else "")
                scopes[-1][name] = own
                kernel.registers[own] = type_
        elif statement.endswith(":"):
            kernel.body.append(statement[:-1])
        else:
            program.cuda_lines[line] = cuda_line
            kernel.body.append(_instruction(line, statement, scopes[-1]))
    return program
