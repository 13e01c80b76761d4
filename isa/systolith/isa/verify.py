"""Checks of a whole program against a chip, beyond those of its encoding.

`verify_program` raises `ProgramError` for the first rule that is broken, naming the instruction, kernel or pattern, the
value and the limit.  Kernels are checked in `verify_kernel.py`, tokens in `verify_tokens.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, cast

from systolith.isa.access import Access, accesses, place_of, size_of
from systolith.isa.chip import chip_differences
from systolith.isa.collection import collection_paused
from systolith.isa.dtypes import ELEMENT_TYPES, DType, Kind
from systolith.isa.encode import check_tokens, encode_instruction, encode_kernel, encode_pattern
from systolith.isa.errors import EncodingError, ProgramError
from systolith.isa.forms import Forms, form_of, with_numbers
from systolith.isa.host_functions import HostFunctionError, Signature
from systolith.isa.instruction import Instruction, Reg, Space, Stream
from systolith.isa.kernel import Kernel, MicroOp
from systolith.isa.opcodes import BRANCH_OPS, MAX_LOOP_NEST, MAX_TOKENS, OPCODES, queue_of, queues
from systolith.isa.pattern import Pattern
from systolith.isa.program import ENTRIES, FEEDS, FROM_HOST, TO_HOST, Role
from systolith.isa.verify_kernel import verify_kernel
from systolith.isa.verify_tokens import verify_tokens

if TYPE_CHECKING:
    from systolith.isa.chip import Chip
    from systolith.isa.program import BufferDecl, Program

_S = Space
# (op, argument) to the spaces it may name.
SPACES: dict[tuple[str, str], tuple[Space, ...]] = {
    ("dma.load", "src"): (_S.HBM, _S.HOST, _S.SMEM, _S.VMEM),
    ("dma.load", "dst"): (_S.VMEM, _S.SMEM),
    ("dma.store", "src"): (_S.VMEM, _S.SMEM),
    ("dma.store", "dst"): (_S.HBM, _S.HOST, _S.LINK, _S.VMEM, _S.SMEM),
    ("mxu.load", "src"): (_S.VMEM,),
    ("mxu.matmul", "src"): (_S.VMEM,),
    ("vpu.run", "ld"): (_S.VMEM, _S.ACC),
    ("vpu.run", "st"): (_S.VMEM, _S.ACC),
    ("vpu.run", "coord"): (_S.NONE, _S.VMEM, _S.ACC),
    ("xlu.shuffle", "src"): (_S.VMEM,),
    ("xlu.shuffle", "dst"): (_S.VMEM,),
    ("xlu.reduce", "src"): (_S.VMEM,),
    ("xlu.reduce", "dst"): (_S.VMEM,),
}
MAX_MACS = 2**62
MAX_RANK = 64  # of an array on the host
MOST_DIFFERENCES = 6
_WORD_TYPES = ("f32", "s32", "u32")
_REDUCE_KINDS = {"f32": Kind.FLOAT, "s32": Kind.SIGNED, "u32": Kind.UNSIGNED}
_MXU_INTEGERS = ("s8", "u8", "s4", "u4", "pred")


def _fail(what: str) -> None:
    raise ProgramError(what)


def _need(good: bool, what: str) -> None:
    if not good:
        raise ProgramError(what)


def _check_stream(
    instr: Instruction, name: str, s: Stream, port: tuple[str, str], program: Program, chip: Chip
) -> Pattern:
    """The rules of one stream: space, pattern, buffer number."""
    need = _need
    need(s.space in SPACES[port], f"{name}: space {s.space.name}: must be {' or '.join(x.name for x in SPACES[port])}")
    need(0 <= s.pattern < len(program.patterns), f"{name}: pattern {s.pattern}: there are {len(program.patterns)}")
    pattern = program.patterns[s.pattern]
    limits = {
        _S.HBM: (len(program.buffers), "buffers"),
        _S.ACC: (chip.mxu.count, "MXUs"),
        _S.HOST: (chip.host.queues, "host queues"),
        _S.LINK: (chip.link.count, "links"),
    }
    limit, things = limits.get(s.space, (1, "of it"))
    need(0 <= s.buffer < limit, f"{name}: buffer {s.buffer}: {s.space.name} has {limit} {things}")
    if s.entry != 0:
        need(s.space is _S.HBM, f"{name}: an entry of {s.space.name}: only HBM has stacks")
        need(program.buffers[s.buffer].stack > 1, f"{name}: buffer {program.buffers[s.buffer].name} begins no stack")
    if s.space is _S.HOST and isinstance(s.base, int) and 0 <= s.base < len(program.buffers):
        decl, roles = program.buffers[s.base], FROM_HOST if name == "src" else TO_HOST
        if decl.role in FEEDS:
            need(decl.role in roles and decl.number == s.buffer, f"{name}: {decl.name} is {decl.role} of {decl.number}")
            size = ELEMENT_TYPES[decl.dtype].size * prod(decl.dims)
            need(pattern.elements * pattern.dtype.size <= size, f"{name}: moves more than {decl.name}: {size} bytes")
    if s.space is _S.ACC:
        need(pattern.dtype.name in _WORD_TYPES, f"{name}: {pattern.dtype} in ACC: must be f32, s32 or u32")
        steps = (*pattern.strides, *(c.stride for c in pattern.coords), 0 if isinstance(s.base, Reg) else s.base)
        need(all(n % 4 == 0 for n in steps), f"{name}: base or a stride in ACC: must be a multiple of 4")
    if pattern.indirect >= 0 and not isinstance(s.index, Reg):
        end = s.index + 4 * pattern.counts[pattern.indirect]
        need(
            0 <= s.index <= end <= chip.vmem.bytes, f"{name}: index list {s.index} to {end}: VMEM has {chip.vmem.bytes}"
        )
        need(s.index % 4 == 0, f"{name}: index list at {s.index}: must be a multiple of 4")
    return pattern


def _stream(instr: Instruction, name: str, program: Program, chip: Chip) -> Pattern:
    return _check_stream(instr, name, cast(Stream, instr.args[name]), (instr.op, name), program, chip)


def _check_copy(instr: Instruction, program: Program, chip: Chip) -> None:
    src, dst = (_stream(instr, n, program, chip) for n in ("src", "dst"))
    _need(src.dtype.size == dst.dtype.size, f"src is {src.dtype}, dst is {dst.dtype}: must be of one size")
    _need(src.elements == dst.elements, f"src has {src.elements} elements, dst has {dst.elements}: must be as many")
    for name, pattern, queue in (("src", src, "infeed"), ("dst", dst, "outfeed")):
        if cast(Stream, instr.args[name]).space is _S.HOST:
            size, room = pattern.elements * pattern.dtype.size, chip.host.room
            _need(size <= room, f"{name}: {size} bytes at once: an {queue} queue holds {room} (host.room)")


def _check_mxu(instr: Instruction, program: Program, chip: Chip) -> None:
    pattern = _stream(instr, "src", program, chip)
    a, m = instr.args, chip.mxu
    _need(pattern.indirect < 0, "src: an indirect pattern: the MXU's address generators have no index port")
    row_loops = cast(int, a["row_loops"])
    _need(0 <= row_loops <= len(pattern.counts), f"row_loops {row_loops}: the pattern has {len(pattern.counts)} loops")
    rows, row = prod(pattern.counts[:row_loops]), prod(pattern.counts[row_loops:])
    integer = bool(a["integer"])
    _need(cast(int, a["part"]) <= 2, f"part {a['part']}: must be 0, 1 or 2")
    _need(_mxu_type(pattern.dtype, integer), f"{pattern.dtype}, integer {int(integer)}: not a type of the MXU")
    if integer:
        low, high = _range_of(pattern.dtype)
        fill = (pattern.fill ^ 1 << 31) - (1 << 31)
        _need(low <= fill <= high, f"src: fill {fill}: {pattern.dtype} has {low} to {high}")
    if instr.op == "mxu.load":
        n, k = (rows, row) if a["transpose"] else (row, rows)
        _need(k <= m.rows and n <= m.cols, f"tile of {k} x {n}: the array has {m.rows} x {m.cols}")
        return
    _need(row <= m.rows, f"rows of {row} elements: the array has {m.rows}")
    if isinstance(a["acc"], int):
        end = a["acc"] + rows
        _need(a["acc"] >= 0 and end <= m.acc_rows, f"accumulator rows {a['acc']} to {end - 1}: there are {m.acc_rows}")


def _mxu_type(dtype: DType, integer: bool) -> bool:
    return dtype.name in _MXU_INTEGERS if integer else dtype.is_float and dtype.bits <= 32


def _range_of(dtype: DType) -> tuple[int, int]:
    """Least and greatest value of an integer type."""
    if dtype.kind is Kind.SIGNED:
        return -(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1
    return 0, (1 << dtype.bits) - 1


def _check_vpu(instr: Instruction, program: Program, chip: Chip) -> None:
    a = instr.args
    number, counts, inner = cast(int, a["kernel"]), cast(tuple[int, ...], a["counts"]), cast(int, a["inner"])
    streams = cast(tuple[Stream, ...], a["streams"])
    _need(number < len(program.kernels), f"kernel {number}: there are {len(program.kernels)}")
    kernel = program.kernels[number]
    _need(inner <= len(counts), f"inner {inner}: the nest has {len(counts)} loops")
    for n, s in enumerate(streams):
        _need(
            s.pattern < len(program.patterns), f"streams[{n}]: pattern {s.pattern}: there are {len(program.patterns)}"
        )
    for m in _microops(kernel):
        if m.op not in ("ld", "st", "coord", "inside"):
            continue
        n = m.imm % 16
        _need(n < len(streams), f"kernel {kernel.name}: {m.op} of stream {n}: there are {len(streams)}")
        port = ("vpu.run", "coord" if m.op in ("coord", "inside") else m.op)
        pattern = _check_stream(instr, f"streams[{n}]", streams[n], port, program, chip)
        _check_vector(pattern, counts, f"streams[{n}]", chip)
        if m.op == "coord":
            many = len(pattern.coords)
            _need(m.imm // 16 < many, f"kernel {kernel.name}: coordinate {m.imm // 16} of stream {n}: it has {many}")


def _check_vector(p: Pattern, counts: tuple[int, ...], what: str, chip: Chip) -> None:
    n, v = len(counts) + 2, chip.vpu
    _need(len(p.counts) == n, f"{what}: {len(p.counts)} loops: the nest has {n - 2}, and sublanes and lanes make {n}")
    _need(p.counts[:-2] == counts, f"{what}: counts {p.counts[:-2]}: the nest's are {counts}")
    good = p.counts[-2] <= v.sublanes and p.counts[-1] <= v.lanes
    _need(good, f"{what}: vectors of {p.counts[-2]} x {p.counts[-1]}: registers have {v.sublanes} x {v.lanes}")
    _need(p.dtype.bits <= 32 and p.dtype.kind != "complex", f"{what}: {p.dtype}: must have at most 32 bits")


def _microops(kernel: Kernel) -> Iterable[MicroOp]:
    for section in (kernel.prologue, kernel.body, kernel.epilogue):
        yield from section.ops


def _check_reduce(instr: Instruction, program: Program, chip: Chip) -> None:
    src, dst = (_stream(instr, n, program, chip) for n in ("src", "dst"))
    _need(src.counts[-1] <= chip.vpu.lanes, f"src: rows of {src.counts[-1]} elements: there are {chip.vpu.lanes} lanes")
    rows = src.elements // src.counts[-1]
    _need(dst.elements == rows, f"dst has {dst.elements} elements, src has {rows} rows: must be as many")
    # Rows widen when read, so only the contents of 32-bit registers must agree.
    _need(src.dtype.is_float == dst.dtype.is_float, f"src is {src.dtype}, dst is {dst.dtype}: one is a float")
    function = str(instr.args["function"])
    kind = _REDUCE_KINDS.get(function.rpartition(".")[2], src.dtype.kind)
    good = src.dtype.bits <= 32 and (src.dtype.kind is kind or (src.dtype.kind is Kind.PRED and kind is not Kind.FLOAT))
    _need(good, f"function {function}: not of {src.dtype}")


_OP_CHECKS: dict[str, Callable[[Instruction, Program, Chip], None]] = {
    "dma.load": _check_copy,
    "dma.store": _check_copy,
    "mxu.load": _check_mxu,
    "mxu.matmul": _check_mxu,
    "vpu.run": _check_vpu,
    "xlu.shuffle": _check_copy,
    "xlu.reduce": _check_reduce,
}


_BOUNDED = frozenset({*_OP_CHECKS, "lds", "sts"})


def _check_bounds(instr: Instruction, program: Program, chip: Chip) -> None:
    for a in accesses(instr, program, chip):
        if not a.dynamic and a.space in (_S.HBM, _S.VMEM, _S.SMEM, _S.ACC):
            size = size_of(a.space, a.buffer, program, chip)
            if a.lo < 0 or a.hi > size:
                _fail(f"{_place(a, program)}: bytes {a.lo} to {a.hi - 1}: it has {size}")


def _place(a: Access, program: Program) -> str:
    return f"HBM buffer {program.buffers[a.buffer].name}" if a.space is _S.HBM else f"{a.space.name} {a.buffer}"


def _check_control(program: Program) -> None:
    """Branch targets, loop nesting, an end."""
    size = len(program.code)
    ends: list[int] = []
    for i, instr in enumerate(program.code):
        while ends and i >= ends[-1]:
            ends.pop()
        here = f"instruction {i}: {instr.op}"
        if instr.op in (*BRANCH_OPS, "jmp"):
            target = cast(int, instr.args["target"])
            _need(0 <= target < size, f"{here}: target {target}: there are {size} instructions")
        if instr.op == "loop":
            end = cast(int, instr.args["end"])
            _need(i + 1 < end <= size, f"{here}: end {end}: must be from {i + 2} to {size}")
            _need(
                not ends or end <= ends[-1], f"{here}: end {end}: the loop around it ends at {ends[-1] if ends else 0}"
            )
            ends.append(end)
            _need(len(ends) <= MAX_LOOP_NEST, f"{here}: {len(ends)} loops nest: at most {MAX_LOOP_NEST}")
    last = program.code[-1].op if program.code else "nothing"
    _need(last in ("halt", "trap", "jmp"), f"program: ends with {last}: must be halt, trap or jmp")


def _check_jumps(program: Program) -> None:
    """No branch may enter or leave a hardware loop's body except within it."""
    spans = [(i, cast(int, c.args["end"])) for i, c in enumerate(program.code) if c.op == "loop"]
    for i, instr in enumerate(program.code):
        if instr.op not in (*BRANCH_OPS, "jmp"):
            continue
        t = cast(int, instr.args["target"])
        for start, end in spans:
            inside, into = start < i < end, start < t < end
            _need(inside == into, f"instruction {i}: {instr.op}: target {t}: crosses the loop at {start} to {end - 1}")


def _check_instruction(instr: Instruction, known_queues: tuple[str, ...], program: Program, chip: Chip) -> None:
    queue = queue_of(instr)
    _need(queue in known_queues, f"queue {queue}: the chip has {', '.join(known_queues)}")
    plain = not (instr.waits or instr.signals or instr.fence)
    _need(
        plain or queue != "seq" or instr.op == "sync", "tokens or a fence: of SEQ's instructions only sync has tokens"
    )
    check = _OP_CHECKS.get(instr.op)
    if check is not None:
        check(instr, program, chip)
    if instr.op in ("lds", "sts"):
        _need(cast(int, instr.args["imm"]) % 4 == 0, f"imm {instr.args['imm']}: must be a multiple of 4")


def require_chip(program: Program, chip: Chip) -> None:
    """A program runs only on the chip that it is for: its schedule, addresses and tiles are made for that one.

    Raises:
        ProgramError: naming both, what differs, and what to do.
    """
    if program.chip_digest in ("", chip.digest()):  # empty: by hand, for any chip
        return
    found = chip_differences(program.target, chip) if program.target else []
    more = [f"and {len(found) - MOST_DIFFERENCES} more"] if len(found) > MOST_DIFFERENCES else []
    what = f" ({', '.join(found[:MOST_DIFFERENCES] + more)})" if found else ""
    _fail(
        f"program {program.name} is for chip {program.chip} {program.chip_digest}, not for {chip.name}"
        f" {chip.digest()}{what}: run it on its own chip, or compile it again for this one"
    )


def _check_sizes(program: Program, b: BufferDecl) -> None:
    if not b.sizes:
        return
    scalars = {o.number for o in program.buffers if o.role is b.role and o.dtype == "s32" and not o.dims}
    _need(
        len(b.sizes) == len(b.dims) and {*b.sizes} <= {-1} | scalars,
        f"buffer {b.name}: sizes {list(b.sizes)}: must be for each dimension a {b.role} that is an s32, or -1",
    )


def _check_feed(b: BufferDecl, chip: Chip) -> None:
    _need(b.bytes == 0 and b.alias < 0, f"buffer {b.name}: {b.role} has no memory: bytes must be 0, and no alias")
    _need(0 <= b.number < chip.host.queues, f"buffer {b.name}: host queue {b.number}: there are {chip.host.queues}")
    if b.role is Role.CALL:
        try:
            Signature.from_bytes(b.data)
        except HostFunctionError as problem:
            _fail(f"buffer {b.name}: {problem}")
    else:
        _need(not b.data, f"buffer {b.name}: {len(b.data)} bytes of data: {b.role} has none")


def _check_configs(program: Program, role: Role) -> None:
    numbers: dict[str, int] = {}
    configs = program.configs(role)
    for b in program.buffers:
        if b.role is role:
            same = configs[b.number] == b.config and (
                not b.config or numbers.setdefault(b.config, b.number) == b.number
            )
            _need(same, f"buffer {b.name}: config {b.config!r} of {role} queue {b.number}: a queue has one, of its own")


def _check_place(program: Program, i: int) -> None:
    """The memory that a buffer shares, and the stack that it begins."""
    b = program.buffers[i]
    _need(b.offset >= 0 and (b.alias >= 0 or not b.offset), f"buffer {b.name}: offset {b.offset}: shares no memory so")
    if b.alias >= 0:
        root, before = place_of(i, program)
        room = program.buffers[root].bytes - before
        what = f"{room} from there on" if before else f"{room}"
        _need(
            b.bytes <= room,
            f"buffer {b.name}: {b.bytes} bytes: {program.buffers[root].name}, which it shares, has {what}",
        )
    _need(b.alias >= 0 or b.role is not Role.PART, f"buffer {b.name}: a part of no other buffer: say alias")
    _need(1 <= b.stack <= len(program.buffers) - i, f"buffer {b.name}: a stack of {b.stack}: there are not as many")
    _need(b.stack == 1 or i + b.stack <= ENTRIES, f"buffer {b.name}: a stack of {b.stack}: streams name {ENTRIES}")
    _need(
        all(other.bytes == b.bytes for other in program.buffers[i : i + b.stack]),
        f"buffer {b.name}: a stack of {b.stack}: must be of {b.bytes} bytes each",
    )


def _check_tables(program: Program, chip: Chip) -> None:
    require_chip(program, chip)
    for role in FEEDS:
        _check_configs(program, role)
    for i, b in enumerate(program.buffers):
        _need(b.dtype in ELEMENT_TYPES, f"buffer {b.name}: no element type {b.dtype}")
        _need(len(b.dims) <= MAX_RANK, f"buffer {b.name}: {len(b.dims)} dimensions: at most {MAX_RANK}")
        _need(all(0 <= d < MAX_MACS for d in b.dims), f"buffer {b.name}: dimensions must be from 0 to {MAX_MACS - 1}")
        size = prod(b.dims) * ELEMENT_TYPES[b.dtype].size
        if b.role in FEEDS:
            _check_feed(b, chip)
        else:
            _need(b.bytes >= size, f"buffer {b.name}: {b.dtype}{list(b.dims)} takes {size} bytes: it has {b.bytes}")
            _need(b.bytes >= len(b.data), f"buffer {b.name}: {len(b.data)} bytes of data: it has {b.bytes}")
        _need(-1 <= b.alias < i, f"buffer {b.name}: alias {b.alias}: must be an earlier buffer")
        _check_sizes(program, b)
        _check_place(program, i)
    _need(
        len(program.debug) in (0, len(program.code)), f"debug: {len(program.debug)} of {len(program.code)} instructions"
    )
    known = all(0 <= n < len(program.origins) for n in program.debug)
    _need(known, f"debug: names an origin beyond {len(program.origins)}")
    _need(all(0 <= o.macs < MAX_MACS for o in program.origins), f"origins: macs must be from 0 to {MAX_MACS - 1}")
    total = sum(b.bytes for b in program.buffers if b.alias < 0)
    _need(total <= chip.hbm.bytes, f"buffers take {total} bytes: hbm.bytes is {chip.hbm.bytes}")
    _need(len(program.tokens) <= MAX_TOKENS, f"{len(program.tokens)} tokens: at most {MAX_TOKENS}")
    names = [k.name for k in program.kernels]
    _need(len(set(names)) == len(names), "kernels: two have one name")
    wide = next((i for i, p in enumerate(program.patterns) if p.dtype.size > 4 and not chip.features.wide), None)
    if wide is not None:
        _fail(f"pattern {wide}: {program.patterns[wide].dtype}: the chip has no 64-bit types (features.wide)")


@collection_paused()
def verify_code(code: Sequence[Instruction], program: Program, chip: Chip) -> None:
    """Check a program's tables, and instructions with the operands and memories that they name; not where they lead.

    Args:
        code: the instructions; the program need not have them yet.
        program: its tables.
        chip: that it is for.

    Raises:
        ProgramError: the first broken rule, in one line.
    """
    _check_tables(program, chip)
    try:
        for i, p in enumerate(program.patterns):
            encode_pattern(p, f"pattern {i}")
        for k in program.kernels:
            encode_kernel(k)
            verify_kernel(k, chip)
    except EncodingError as e:
        raise ProgramError(str(e)) from None
    if not _are_good(code, program, chip):
        for i, instr in enumerate(code):
            try:
                _check(instr, program, chip)
            except (EncodingError, ProgramError) as e:
                raise ProgramError(f"instruction {i}: {instr.op}: {e}") from None


def _check(instr: Instruction, program: Program, chip: Chip) -> None:
    """All rules of one instruction."""
    if instr.op not in OPCODES:
        _fail("no such instruction")
    encode_instruction(instr)
    _check_instruction(instr, queues(chip), program, chip)
    if instr.op in _BOUNDED:
        _check_bounds(instr, program, chip)


def _are_good(code: Sequence[Instruction], program: Program, chip: Chip) -> bool:
    """Whether instructions keep all rules: those of each form do if they do with its least and its largest numbers."""
    streams: Forms = {}
    found: dict[Hashable, tuple[Instruction, list[int], list[int]]] = {}
    try:
        for instr in code:
            form, numbers = form_of(instr, streams)
            if instr.waits or instr.signals:
                check_tokens(instr)
            known = found.get(form)
            if known is None:
                found[form] = instr, numbers, list(numbers)
                continue
            _, least, most = known
            for n, number in enumerate(numbers):
                if number < least[n]:
                    least[n] = number
                elif number > most[n]:
                    most[n] = number
        for instr, least, most in found.values():
            _check(with_numbers(instr, least), program, chip)
            if least != most:
                _check(with_numbers(instr, most), program, chip)
    except (EncodingError, ProgramError, TypeError):  # TypeError: of what is no value of an instruction
        return False
    return True


def verify_program(program: Program, chip: Chip, ends_at_zero: bool = False) -> None:
    """Check every rule that does not need a run; `ends_at_zero`: see `verify_tokens`.

    Raises:
        ProgramError: the first broken rule, in one line.
    """
    verify_code(program.code, program, chip)
    _check_control(program)
    _check_jumps(program)
    verify_tokens(program, chip, ends_at_zero)
