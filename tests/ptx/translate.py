"""Kernels in PTX to C++ that runs on the processor.

A register becomes a variable of its type, an instruction a statement. Most instructions are a row in ``OPERATIONS``;
those that touch memory, other threads or the flow of control are functions named in ``OTHERS``. An instruction that is
in neither is an error that names it: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from .operations import ATOMICS, COMPARISONS, OPERATIONS
from .parse import BYTES, Instruction, Kernel, Program, PtxError, Variable, split_operands

C_TYPES = {"pred": "bool", "f32": "float", "f64": "double"}
C_TYPES |= {
    f"{kind}{bits}": f"{sign}int{bits}_t"
    for kind, sign in (("s", ""), ("u", "u"), ("b", "u"))
    for bits in (8, 16, 32, 64)
}
FLOATS = ("f32", "f64")

# What a GPU makes of them: so many instructions for its units for doubles; of those not named and without doubles, 0
AS_DOUBLES = {"div": 20, "sqrt": 20, "rcp": 8} | dict.fromkeys(("ld", "st", "mov", "selp", "neg", "abs"), 0)

SPECIAL = {f"%tid.{axis}": f"t.{axis}" for axis in "xyz"} | {f"%ctaid.{axis}": f"t.block->{axis}" for axis in "xyz"}
SPECIAL |= {f"%ntid.{axis}": f"launched->block[{i}]" for i, axis in enumerate("xyz")}
SPECIAL |= {f"%nctaid.{axis}": f"launched->grid[{i}]" for i, axis in enumerate("xyz")}
SPECIAL |= {"%laneid": "t.lane", "%warpid": "t.warp->index", "WARP_SZ": "32u"}


def c_name(name: str) -> str:
    return "v_" + re.sub(r"\W", lambda m: f"_{ord(m[0]):02x}", name.removeprefix("%"))


def _number(text: str) -> int | None:
    return int(text.rstrip("U"), 0) if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text) else None


@dataclass
class Translated:
    source: str
    shared_bytes: dict[str, int]  # by kernel
    kernels: list[str]  # in the order of their numbers
    globals: list[str]  # exported, by their C names
    global_bytes: list[int]


@dataclass
class _Function:
    """One kernel on its way to C++."""

    kernel: Kernel
    symbols: dict[str, str]  # variables of the program: their C++
    basic_blocks: list[tuple[int, int]] = field(default_factory=list)  # sizes and doubles, of all kernels so far
    labels: set[str] = field(default_factory=set)  # that were passed

    def value(self, operand: str, type_: str) -> str:
        """An operand as an expression of a type."""
        c_type = C_TYPES[type_]
        if operand.startswith("!"):
            return f"!{self.value(operand[1:], type_)}"
        if (register := self.kernel.registers.get(operand)) is not None:
            return _as(c_name(operand), register, type_)
        if operand in SPECIAL:
            return f"({c_type}){SPECIAL[operand]}"
        if found := re.fullmatch(r"0[fFdD]([0-9a-fA-F]+)", operand):
            bits = 4 * len(found[1])
            return _as(f"(uint{bits}_t)0x{found[1]}ull", f"b{bits}", type_ if type_ in FLOATS else f"b{bits}")
        if (number := _number(operand)) is not None:
            if type_ in FLOATS:
                return f"({c_type}){number}"
            return str(bool(number)).lower() if type_ == "pred" else f"({c_type}){number % 2**64}ull"
        return f"({c_type})({self.symbol(operand)})"

    def symbol(self, name: str) -> str:
        if name not in self.symbols:
            raise PtxError(f"unknown name {name}")
        return self.symbols[name]

    def assign(self, operand: str, type_: str, expression: str) -> str:
        """Into a register, which may be wider than the type: a signed number keeps its sign."""
        if operand == "_":
            return f"(void)({expression});"
        register = self.kernel.registers.get(operand)
        if register is None:
            raise PtxError(f"unknown register {operand}")
        return f"{c_name(operand)} = {_as(f'({C_TYPES[type_]})({expression})', type_, register)};"

    def address(self, operand: str, space: str) -> str:
        base, _, offset = operand.strip("[]").partition("+")
        base, number = base.strip(), _number(offset.strip() or "0")
        if number is None:
            raise PtxError(f"unknown offset {offset}")
        if space == "param":
            offsets = {variable.name: at for variable, at in self.kernel.params}
            if base not in offsets:
                raise PtxError(f"unknown parameter {base}")
            return f"params + {offsets[base] + number}"
        start = self.value(base, "u64") if base in self.kernel.registers else f"(uint64_t)({self.symbol(base)})"
        return f"{start} + {number % 2**64}ull" if number else start

    def statement(self, instruction: Instruction) -> str:
        parts = instruction.opcode.split(".")
        for pattern, types, cpp in OPERATIONS:
            if found := pattern.fullmatch(instruction.opcode):
                return self.operation(instruction, found.groupdict(), types, cpp)
        if parts[0] in OTHERS and (made := OTHERS[parts[0]](self, instruction, parts[1:])) is not None:
            return made
        raise PtxError(f"unknown instruction {instruction.opcode}")

    def operation(self, instruction: Instruction, groups: dict[str, str], types: list[str], cpp: str) -> str:
        own = groups["T"]
        known = {"T": own, "R": groups.get("R", ""), "W": f"{own[0]}{2 * int(own[1:])}" if "W" in types else ""}
        real = [known.get(type_, type_) for type_ in types]
        given = zip("abce", instruction.operands[1:], real[1:], strict=False)
        values = {letter: self.value(operand, type_) for letter, operand, type_ in given}
        expression = cpp.format(**values, R=C_TYPES.get(known["R"], ""))
        return self.assign(instruction.operands[0], real[0], expression)

    def translated(self, number: int) -> str:
        kernel = self.kernel
        lines = [f"static void kernel_{number}(Thread& t, const char* params) {{"]
        names: dict[str, list[str]] = {}
        for name, type_ in kernel.registers.items():
            names.setdefault(C_TYPES[type_], []).append(f"{c_name(name)} = 0")
        lines += [f"{c_type} {', '.join(listed)};" for c_type, listed in names.items()]
        for variable in kernel.locals[:1]:
            lines.append(f"alignas({variable.align}) char {c_name(variable.name)}[{variable.bytes}];")
            lines.append(f"t.local = {c_name(variable.name)}, t.local_bytes = {variable.bytes};")
        if len(kernel.locals) > 1:
            raise PtxError(f"{kernel.name}: more than one piece of local memory")
        self.symbols |= {variable.name: c_name(variable.name) for variable in kernel.locals}
        begins = True
        for item in kernel.body:
            if isinstance(item, str):
                lines.append(f"{c_name(item)}:;")
                self.labels.add(item)
                begins = True
                continue
            if begins:
                lines.append(f"COUNT({len(self.basic_blocks)});")
                self.basic_blocks.append((0, 0))
            size, doubles = self.basic_blocks[-1]
            self.basic_blocks[-1] = size + 1, doubles + _doubles(item)
            try:
                made = self.statement(item)
            except PtxError as error:
                raise PtxError(f"PTX line {item.line}: {error}") from None
            if item.predicate:
                made = f"if ({'!' * item.negated}{c_name(item.predicate)}) {{ {made} }}"
            lines.append(made)
            begins = item.opcode.partition(".")[0] in ("bra", "bar", "barrier", "ret", "exit")
        return "\n".join([*lines, "}"])


def _doubles(instruction: Instruction) -> int:
    name, *words = instruction.opcode.split(".")
    return AS_DOUBLES.get(name, 1) if "f64" in words else 0


def _as(expression: str, before: str, after: str) -> str:
    """An expression of one type as one of another: the bits of a float, the value of an integer."""
    if before == after:
        return expression
    if (before in FLOATS) == (after in FLOATS):
        return f"({C_TYPES[after]})({expression})" if before not in FLOATS else expression
    bits = 8 * BYTES[after if after in FLOATS else before]
    if after in FLOATS:
        return f"bits<{C_TYPES[after]}>((uint{bits}_t)({expression}))"
    return f"({C_TYPES[after]})bits<uint{bits}_t>({expression})"


def _move(f: _Function, i: Instruction, words: list[str]) -> str | None:
    target, source = i.operands
    if len(words) != 1:
        return None
    type_ = words[0]
    bits = 8 * BYTES[type_]
    if target.startswith("{"):  # the lowest bits first
        parts = split_operands(target[1:-1])
        each = bits // len(parts)
        taken = [f.assign(part, f"u{each}", f"whole >> {each * k}") for k, part in enumerate(parts)]
        return f"{{ const uint{bits}_t whole = {f.value(source, f'u{bits}')}; {' '.join(taken)} }}"
    if source.startswith("{"):
        parts = split_operands(source[1:-1])
        each = bits // len(parts)
        put = [f"(uint{bits}_t){f.value(part, f'u{each}')} << {each * k}" for k, part in enumerate(parts)]
        return f.assign(target, f"u{bits}", " | ".join(put))
    return f.assign(target, type_, f.value(source, type_))


def _compare(f: _Function, i: Instruction, words: list[str]) -> str | None:
    comparison, *combined, type_ = words
    if type_ not in C_TYPES or len(combined) > 1 or (combined and combined[0] not in ("and", "or", "xor")):
        return None
    a, b = (f.value(operand, type_) for operand in i.operands[1:3])
    either_nan = f"({a} != {a} || {b} != {b})"
    ordered = comparison in COMPARISONS
    if comparison in ("num", "nan") and type_ in FLOATS:
        test = ("!" if comparison == "num" else "") + either_nan
    elif ordered:
        test = f"({a} {COMPARISONS[comparison]} {b})"
        if comparison == "ne" and type_ in FLOATS:
            test = f"(!{either_nan} && {test})"
    elif comparison[:-1] in COMPARISONS and comparison.endswith("u") and type_ in FLOATS:
        test = f"({either_nan} || {a} {COMPARISONS[comparison[:-1]]} {b})"
    else:
        return None
    yes, no = "test", "!test"
    if combined:
        sign, third = {"and": "&", "or": "|", "xor": "^"}[combined[0]], f.value(i.operands[3], "pred")
        yes, no = f"test {sign} third", f"!test {sign} third"
        test += f", third = {third}"
    target, _, other = i.operands[0].partition("|")
    second = f.assign(other, "pred", no) if other else ""
    return f"{{ const bool test = {test}; {f.assign(target, 'pred', yes)} {second} }}"


def _space(words: list[str]) -> tuple[str, list[str]]:
    if words and words[0] in ("global", "shared", "local", "param", "const"):
        return ("global" if words[0] == "const" else words[0]), words[1:]
    return "generic", words


def _pointer(f: _Function, i: Instruction, space: str, operand: str, size: int, access: str) -> str:
    where = f.address(operand, space)
    return where if space == "param" else f"(t.line = {i.line}, {space}(t, {where}, {size}, {access}))"


def _load_or_store(f: _Function, i: Instruction, words: list[str]) -> str | None:
    space, words = _space([word for word in words if word != "nc"])
    many = {"v2": 2, "v4": 4}.get(words[0], 1)
    words = words[1:] if many > 1 else words
    if len(words) != 1 or words[0] not in BYTES:
        return None
    type_, loads = words[0], i.opcode.startswith("ld")
    size, c_type = BYTES[type_], C_TYPES[type_]
    address, other = reversed(i.operands) if loads else i.operands
    pointer = _pointer(f, i, space, address, size * many, "READ" if loads else "WRITE")
    parts = split_operands(other[1:-1]) if many > 1 else (other,)
    if loads:
        done = [f.assign(part, type_, f"load<{c_type}>(p + {k * size})") for k, part in enumerate(parts)]
    else:
        done = [f"store<{c_type}>(p + {k * size}, {f.value(part, type_)});" for k, part in enumerate(parts)]
    return f"{{ {'const ' if loads else ''}char* p = {pointer}; {' '.join(done)} }}"


def _atomic(f: _Function, i: Instruction, words: list[str]) -> str | None:
    space, words = _space([word for word in words if word not in ("relaxed", "gpu", "cta")])
    if len(words) != 2 or words[0] not in ATOMICS or words[1] not in C_TYPES:
        return None
    kind, type_ = words
    operands = ("_", *i.operands) if i.opcode.startswith("red") else i.operands
    third = f.value(operands[3], type_) if kind == "cas" else ""
    made = ATOMICS[kind].format(o="old", v=f.value(operands[2], type_), w=third)
    pointer = _pointer(f, i, space, operands[1], BYTES[type_], "ATOMIC")
    c_type = C_TYPES[type_]
    before = f"char* p = {pointer}; const {c_type} old = load<{c_type}>(p);"
    return f"{{ {before} store<{c_type}>(p, {made}); {f.assign(operands[0], type_, 'old')} }}"


def _branch(f: _Function, i: Instruction, words: list[str]) -> str | None:
    if words not in ([], ["uni"]):
        return None
    back = f"JUMP_BACK({i.line}); " if i.operands[0] in f.labels else ""
    return f"{back}goto {c_name(i.operands[0])};"


def _barrier(f: _Function, i: Instruction, words: list[str]) -> str | None:
    if words == ["warp", "sync"]:
        return f"t.line = {i.line}; warp_op(t, SYNC, {f.value(i.operands[0], 'u32')});"
    if words in (["sync"], ["sync", "aligned"]) and i.operands == ("0",):
        return f"t.line = {i.line}; block_barrier(t);"
    return None


def _shuffle(f: _Function, i: Instruction, words: list[str]) -> str | None:
    if len(words) != 3 or words[0] != "sync" or words[2] != "b32":
        return None
    target, _, inside = i.operands[0].partition("|")
    value, b, c, mask = (f.value(operand, "u32") for operand in i.operands[1:5])
    call = f"warp_op(t, SHFL_{words[1].upper()}, {mask}, {value}, {b}, {c}, &inside)"
    after = f.assign(inside, "pred", "inside") if inside else ""
    return f"{{ bool inside; t.line = {i.line}; {f.assign(target, 'u32', call)} {after} }}"


def _vote(f: _Function, i: Instruction, words: list[str]) -> str | None:
    if len(words) != 3 or words[0] != "sync":
        return None
    test, mask = f.value(i.operands[1], "pred"), f.value(i.operands[2], "u32")
    call = f"warp_op(t, VOTE_{words[1].upper()}, {mask}, {test})"
    return f"t.line = {i.line}; {f.assign(i.operands[0], 'u32' if words[2] == 'b32' else 'pred', call)}"


OTHERS: dict[str, Callable[[_Function, Instruction, list[str]], str | None]] = {
    "mov": _move,
    "setp": _compare,
    "ld": _load_or_store,
    "st": _load_or_store,
    "atom": _atomic,
    "red": _atomic,
    "bra": _branch,
    "ret": lambda f, i, words: None if words not in ([], ["uni"]) else "return;",
    "exit": lambda f, i, words: None if words else "return;",
    "trap": lambda f, i, words: f't.line = {i.line}; fail(t, "trap");',
    "bar": _barrier,
    "barrier": _barrier,
    "shfl": _shuffle,
    "vote": _vote,
    "membar": lambda f, i, words: ";",
    "fence": lambda f, i, words: ";",
}


def _initial(variable: Variable) -> str:
    """A variable's first bytes."""
    values = split_operands((variable.value or "").strip("{} "))
    size, made = BYTES[variable.type], b""
    for value in values:
        if found := re.fullmatch(r"0[fFdD]([0-9a-fA-F]+)", value):
            made += int(found[1], 16).to_bytes(len(found[1]) // 2, "little")
        elif (number := _number(value)) is not None:
            made += (number % 2 ** (8 * size)).to_bytes(size, "little")
        else:
            raise PtxError(f"{variable.name}: unknown value {value}")
    return f" = {{{', '.join(str(byte) for byte in made)}}}" if made else ""


def _shared(program: Program, kernel: Kernel) -> tuple[dict[str, str], int]:
    """Where the shared variables of a kernel lie, and how many bytes they take; what other kernels use is not there."""
    operands = " ".join(" ".join(item.operands) for item in kernel.body if isinstance(item, Instruction))
    used = set(re.findall(r"[\w$]+", operands))
    mine = [variable for variable in program.variables if variable.space == "shared" and variable.name in used]
    places, end = {}, 0
    for variable in sorted(mine, key=lambda variable: variable.dynamic):  # what has a size first
        places[variable.name] = f"{end}u"
        end = -(-(end + variable.bytes) // 16) * 16
    return places, end


def translate(program: Program) -> Translated:
    outside = [variable for variable in program.variables if variable.space != "shared"]
    lines, symbols = [], {}
    for variable in outside:
        symbols[variable.name] = f"(uint64_t){c_name(variable.name)}"
        declared = f"alignas({variable.align}) unsigned char {c_name(variable.name)}[{variable.bytes}]"
        lines += [f'extern "C" {declared};', f"{declared}{_initial(variable)};"]
    blocks: list[tuple[int, int]] = []
    functions, shared_bytes = [], {}
    for number, kernel in enumerate(program.kernels.values()):
        places, shared_bytes[kernel.name] = _shared(program, kernel)
        functions.append(_Function(kernel, symbols | places, blocks).translated(number))
    made = [f"{{{size}, {doubles}}}" for size, doubles in blocks]
    head = [
        "#include <cstdint>",
        f"#define BASIC_BLOCKS {len(blocks)}u",
        f"static const struct {{ uint32_t size, doubles; }} basic_blocks[] = {{{', '.join(made) or '{}'}}};",
        '#include "grid.h"',
    ]
    table = ", ".join(f"kernel_{number}" for number in range(len(functions)))
    run = [
        f"static void (*const kernels[])(Thread&, const char*) = {{{table}}};",
        f"static const uint32_t shared_sizes[] = {{{', '.join(map(str, shared_bytes.values()))}}};",
        'extern "C" int32_t ptx_run(uint32_t number, const Launch* launch) {',
        "  return run(kernels[number], shared_sizes[number], *launch);",
        "}",
    ]
    return Translated(
        source="\n".join([*head, *lines, *functions, *run, ""]),
        shared_bytes=shared_bytes,
        kernels=list(program.kernels),
        globals=[c_name(variable.name) for variable in outside],
        global_bytes=[variable.bytes for variable in outside],
    )
