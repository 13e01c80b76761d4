"""Machine code for this processor from LLVM's IR: built when first called, and kept on disk.

A native function takes one argument, the address of a block of 64-bit integers (addresses are such): so a call is data
that can be made at once, or be put in a queue for another thread.  Calls do not hold the interpreter's lock.  Its
result is 0 unless its body gives another; only callers that are not Python see it.

Compiling takes 10 to 100 ms.  Object code is therefore kept in the folder `native` of the user's cache, by a digest of
the Python that builds it, of the processor and of LLVM's version; deleting the folder costs nothing but that time.
A file that somebody else can have written (`isa/cache.py`), or that does not define the functions, is compiled anew.
The older half of the files is deleted when there are `MAX_FILES`.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import llvmlite  # type: ignore[import-untyped]
import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir

from systolith.isa.cache import cache_home, make_private, read_own
from systolith.isa.errors import SystolithError
from systolith.isa.files import write_atomic
from systolith.isa.native.elf import is_object

MAX_ARGUMENTS = 24
I32, I64, F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
PACK = [struct.Struct(f"{n}q") for n in range(MAX_ARGUMENTS + 2)]
MAX_FILES = 8192  # of some 5 KiB
_DIGEST = 32  # bytes


class Function:
    """A native function.

    Attributes:
        address: of its code.
        at: call it with a block of arguments, or its address.
    """

    def __init__(self, engine: Any, name: str) -> None:
        self.address: int = engine.get_function_address(name)
        at = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address)
        at.engine = engine  # type: ignore[attr-defined]  # owns the code
        self.at: Callable[[int | bytes], None] = at

    def __call__(self, *arguments: int) -> None:
        self.at(PACK[len(arguments)].pack(*arguments))


class Call(Protocol):
    """Makes a native call, now or later, in the order asked for; `keep`: whose memory it uses."""

    def __call__(self, function: Function, arguments: Sequence[int], keep: object) -> None: ...


def now(function: Function, arguments: Sequence[int], keep: object) -> None:
    """A `Call` that is made at once."""
    function(*arguments)


Bodies = Mapping[str, tuple[int, Callable[..., object]]]


class Library:
    """Native functions by name.

    Args:
        bodies: for each function its number of arguments, and the function that builds its body from them.
        file: the source that defines them.
        recipe: all that they depend on beside their definitions.
    """

    def __init__(self, bodies: Bodies, file: str, recipe: str = "") -> None:
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
        engine.add_object_file(llvm.ObjectFileRef.from_data(_object_code(bodies, file, recipe)))
        engine.finalize_object()
        self._functions = {name: Function(engine, name) for name in bodies}

    def __getitem__(self, name: str) -> Function:
        return self._functions[name]


def _define(module: ir.Module, name: str, count: int, body: Callable[..., object]) -> None:
    function = ir.Function(module, ir.FunctionType(I64, [I64.as_pointer()]), name)
    function.attributes.add("nounwind")  # no tables for unwinding, which would have to be trusted, too
    b = ir.IRBuilder(function.append_basic_block())
    result = body(b, *(b.load(b.gep(function.args[0], [I64(i)])) for i in range(count)))
    b.ret(I64(0) if result is None else result)


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _target() -> Any:
    """A target machine of its own for each engine, which takes it over."""
    _initialize()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
    )


def _make_room(folder: Path) -> None:
    """Delete the older half of the files if there are `MAX_FILES`."""
    with os.scandir(folder) as entries:
        names = [e.path for e in entries]
    if len(names) < MAX_FILES:
        return
    ages = []
    for name in names:
        with suppress(OSError):  # another process deletes, too
            ages.append((os.stat(name).st_mtime_ns, name))
    for _, name in sorted(ages)[: len(ages) // 2]:
        with suppress(OSError):
            os.unlink(name)


@lru_cache(maxsize=1)
def _compiler() -> str:
    """Digest of the inputs of compilation beside the source: LLVM, the processor, the definitions of the operations."""
    found = sha256(f"{llvmlite.__version__} {llvm.llvm_version_info} {llvm.get_host_cpu_name()}".encode())
    found.update(llvm.get_host_cpu_features().flatten().encode())
    here = Path(__file__).parent
    for path in (*sorted(here.glob("*.py")), *sorted((here.parent / "numerics").glob("*.py"))):
        found.update(path.read_bytes())
    return found.hexdigest()


@lru_cache(maxsize=16)
def _contents(file: str) -> bytes:
    return Path(file).read_bytes()


def _object_code(bodies: Bodies, file: str, recipe: str) -> bytes:
    """The object code of functions, from disk if it is there, whole, and nobody else's."""
    key = sha256(f"{_compiler()} {list(bodies)} {recipe} ".encode() + _contents(file)).hexdigest()
    path = cache_home() / "native" / f"{key}.o"
    with suppress(OSError):
        kept = read_own(path)
        code = kept[_DIGEST:]
        if sha256(code).digest() == kept[:_DIGEST] and is_object(code, bodies, _known):
            return code
    module = ir.Module()
    for name, (count, body) in bodies.items():
        _define(module, name, count, body)
    code = _compile(str(module))
    with suppress(OSError, SystolithError):  # where it cannot be kept, it is compiled again
        make_private(path.parent)
        _make_room(path.parent)
        write_atomic(path, lambda handle: handle.write(sha256(code).digest() + code))
    return code


def _known(name: str) -> bool:
    """Whether loaded code can use a symbol of this process."""
    return llvm.address_of_symbol(name) is not None


def _compile(source: str) -> bytes:
    module, target = llvm.parse_assembly(source), _target()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization, options.loop_unrolling = True, False  # unrolling takes longer than it saves
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(target.emit_object(module))


@contextmanager
def loop(b: ir.IRBuilder, count: Any, step: int = 1) -> Iterator[Any]:
    """Give 0, `step`, ... below `count`."""
    before, head, body, after = b.block, *(b.append_basic_block() for _ in range(3))
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64)
    index.add_incoming(I64(0), before)
    b.cbranch(b.icmp_signed("<", index, count), body, after)
    b.position_at_end(body)
    yield index
    index.add_incoming(b.add(index, I64(step)), b.block)
    b.branch(head)
    b.position_at_end(after)


def pointer(b: ir.IRBuilder, address: Any, kind: ir.Type = F32) -> Any:
    """An address as a pointer to `kind`."""
    return b.inttoptr(address, kind.as_pointer())


def least(b: ir.IRBuilder, x: Any, y: Any) -> Any:
    """The smaller of two signed integers."""
    return b.select(b.icmp_signed("<", x, y), x, y)
