"""What JAX expects of a platform beside values; prints `good` at the end."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from systolith.pjrt.plugin import initialize


def raised(call: Callable[[], Any]) -> BaseException:
    """What a call raises."""
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def devices() -> None:
    first, second = jax.devices("systolith")
    assert (first.id, first.platform, first.device_kind, first.process_index) == (0, "systolith", "systolith tiny", 0)
    stats = first.memory_stats()
    assert stats is not None
    assert stats["bytes_limit"] == 16 << 20
    there = jax.device_put(np.arange(5), second)
    assert there.devices() == {second}
    assert jax.jit(lambda v: v * 2)(there).devices() == {second}
    back = jax.device_put(there, first)
    assert back.devices() == {first}
    assert np.array_equal(back, np.arange(5))


def donation() -> None:
    step = jax.jit(lambda a, b: a + b, donate_argnums=0)
    old, other = jnp.arange(4.0), jnp.ones(4)
    address = old.unsafe_buffer_pointer()
    new = step(old, other)
    assert old.is_deleted()
    assert not other.is_deleted()
    assert new.unsafe_buffer_pointer() == address
    assert np.array_equal(new, [1, 2, 3, 4])
    assert "was donated to " in str(raised(lambda: step(old, other)))
    new.delete()
    assert new.is_deleted()
    assert "deleted" in str(raised(lambda: np.asarray(new)))


def tokens() -> None:
    """Programs that do not call the host have them, too, as results and as arguments."""
    lax: Any = jax.lax
    made, token = jax.jit(lambda x: (x + 1, lax.create_token(x)))(jnp.ones(3))
    assert np.array_equal(made, [2, 2, 2])
    later, other = jax.jit(lambda t: (lax.after_all(t, t), jnp.arange(2)))(token)
    assert type(later) is type(token)
    assert np.array_equal(other, [0, 1])


def errors() -> None:
    full = raised(lambda: jnp.zeros((1 << 20, 1 << 10)))
    assert isinstance(full, jax.errors.JaxRuntimeError)
    assert str(full).startswith("RESOURCE_EXHAUSTED: systolith: "), full
    kept: list[Any] = []
    again = raised(lambda: kept.extend(jnp.zeros(1 << 20) for _ in range(5)))  # 16 MiB
    assert str(again).startswith("RESOURCE_EXHAUSTED: systolith: HBM is full: 4194304 bytes wanted"), again
    assert "jit_broadcast_in_dim 12582912 in 3" in str(again)
    kept.clear()
    ones: Any = jnp.ones(3)
    lent = raised(lambda: np.from_dlpack(ones))
    assert str(lent).startswith("UNIMPLEMENTED: systolith: DLPack knows no memory of systolith's chips; give a"), lent
    code = (
        "def make(a):\n    b = a + 1\n    return jax.ffi.ffi_call('nobody', jax.ShapeDtypeStruct((3,), a.dtype))(b)\n"
    )
    names: dict[str, Any] = {"jax": jax}
    exec(compile(code, "user.py", "exec"), names)
    unknown = raised(lambda: jax.jit(names["make"])(jnp.ones(3)))
    assert isinstance(unknown, jax.errors.JaxRuntimeError)
    assert str(unknown).startswith("UNIMPLEMENTED: systolith: user.py:3: custom-call "), unknown
    assert "'nobody'" in str(unknown)


def several() -> None:
    """Devices run their parts of a program; one that needs values of others is refused by what asks for them."""
    mesh = Mesh(np.array(jax.devices("systolith")), ("i",))
    halves = jax.device_put(np.arange(4.0, dtype=np.float32), NamedSharding(mesh, PartitionSpec("i")))  # type: ignore[no-untyped-call]
    assert np.array_equal(halves, [0, 1, 2, 3])
    assert len(halves.addressable_shards) == 2
    split, whole = PartitionSpec("i"), PartitionSpec()  # type: ignore[no-untyped-call]
    total = jax.shard_map(partial(jax.lax.psum, axis_name="i"), mesh=mesh, in_specs=split, out_specs=whole)
    double = jax.jit(jax.shard_map(lambda a: 2 * a, mesh=mesh, in_specs=split, out_specs=split))(halves)
    assert double.sharding == halves.sharding
    assert np.array_equal(double, [0, 2, 4, 6])
    for program, named in ((jax.jit(total), "all-reduce "), (jax.jit(lambda a: a + 1), "parameter 'a.1'")):
        error = raised(partial(program, halves))
        assert isinstance(error, jax.errors.JaxRuntimeError)
        assert str(error).startswith("UNIMPLEMENTED: systolith: "), error
        assert named in str(error)
        assert "2 devices together" in str(error)


def precisions() -> None:
    a = jnp.full((4, 4), 1 + 2**-9, jnp.float32)
    for precision, exact in (("default", False), ("highest", True)):
        product = jax.jit(lambda v: v @ v, compiler_options={"precision": precision})(a)
        assert (float(product[0, 0]) == 4 * (1 + 2**-9) ** 2) is exact
    assert "compiler option 'fast'" in str(raised(lambda: jax.jit(lambda v: v, compiler_options={"fast": 1})(a)))


def executables() -> None:
    compiled = jax.jit(lambda a: a @ a.T).lower(jnp.ones((3, 4))).compile()
    cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
    assert cost is not None
    assert cost["flops"] == 72
    assert memory is not None
    assert (memory.argument_size_in_bytes, memory.output_size_in_bytes) == (48, 36)
    text = compiled.as_text()
    assert text is not None
    assert text.startswith("HloModule")


def threads() -> None:
    both, results = jax.devices("systolith"), {}
    compute = jax.jit(lambda v: jnp.tanh(v @ v).sum())

    def work(number: int) -> None:
        x = jax.device_put(np.full((4, 4), number / 8, np.float32), both[number % 2])
        results[number] = [float(compute(x)) for _ in range(5)]

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for number in range(4):
        assert np.allclose(results[number], 16 * np.tanh(4 * (number / 8) ** 2), rtol=1e-4)


def patient(compiled: Callable[..., Any]) -> None:
    compiled(jnp.ones(8))
    time.sleep(5)


def interrupts() -> None:
    endless = jax.jit(lambda v: jax.lax.while_loop(lambda c: c.sum() > 0, lambda c: c * 1.0, v))
    compiled = endless.lower(jnp.ones(8)).compile()
    threading.Timer(0.6, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    assert isinstance(raised(lambda: patient(compiled)), KeyboardInterrupt)
    assert float((jnp.ones(2) + 1).sum()) == 4


def resident() -> int:
    """Megabytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20


def memory(rounds: int) -> None:
    from systolith.pjrt import objects

    device = jax.devices("systolith")[0]
    step = jax.jit(lambda v: v * 2)
    sizes = []
    for n in range(3 * rounds):
        jax.jit(lambda v, n=n: v + n)(jnp.ones(3)) if n % 3 == 0 else step(jnp.ones(100_000))
        if n in (rounds, 3 * rounds - 1):
            jax.clear_caches()  # type: ignore[no-untyped-call]
            gc.collect()
            jnp.ones(1)
            stats = device.memory_stats()
            sizes.append((len(objects._kept), stats and stats["bytes_in_use"], resident()))
    assert sizes[1][0] <= sizes[0][0] + 5, sizes
    assert sizes[1][1] == sizes[0][1], sizes
    assert sizes[1][2] <= sizes[0][2] + 20, sizes


def main(*thorough: str) -> None:
    """All of it; with a number, that many rounds of programs, and interrupts."""
    # An interrupt comes after a time, before which a loaded machine may not have begun to run the program.
    checks = devices, donation, tokens, errors, several, precisions, executables, threads
    for check in (*checks, *[interrupts] * len(thorough)):
        check()
    memory(int(thorough[0]) if thorough else 10)
    held = jnp.arange(3)  # jaxlib destroys it when the interpreter has ended
    jax.kept = held  # type: ignore[attr-defined]


if __name__ == "__main__":
    initialize()
    main(*sys.argv[1:])
    print("good")
