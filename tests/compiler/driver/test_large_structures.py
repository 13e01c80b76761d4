"""Long chains, wide operations, deep nesting: no limit of ours is on a module's size."""

from __future__ import annotations

import cProfile
import pstats

import numpy as np
import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.isa.chip import load_chip
from tests.compiler.driver.test_every_operation import BINARY, UNARY
from tests.compiler.machine import Array, check

MOVES = (
    "f32[2,4] reshape({})",
    "f32[4,2] transpose({}), dimensions={{1,0}}",
    "f32[4,2] reverse({}), dimensions={{0}}",
    "f32[8] reshape({})",
    "f32[16] concatenate({0}, {0}), dimensions={{0}}",
    "f32[8] slice({}), slice={{[4:12]}}",
)


def chain(length: int, *codes: str) -> str:
    """HLO of f32[8] operations one after the other; `codes` come in turn, `{}` is the value before."""
    lines, last = [], "x"
    for n in range(length):
        code = codes[n % len(codes)]
        shape = "" if "[" in code.split("(")[0] else "f32[8] "
        lines.append(f"v{n} = {shape}{code.format(last)}")
        last = f"v{n}"
    lines[-1] = f"ROOT {lines[-1]}"
    head = "HloModule m\nENTRY e {\n x = f32[8] parameter(0)\n y = f32[8] parameter(1)\n zero = f32[] constant(0)\n "
    return head + "\n ".join(lines) + "\n}\n"


def given(count: int = 2) -> list[Array]:
    return list(np.random.default_rng(0).uniform(0.5, 1.5, (count, 8)).astype(np.float32))


BOUNDED = ("add({}, y)", "sine({})", "maximum({}, y)", "negate({})", "tanh({})", "subtract({}, y)", "abs({})")


def test_a_chain_of_a_thousand_operations() -> None:
    check(chain(1000, *BOUNDED), given())


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op, types in BINARY.items() if "f32" in types])
def test_a_chain_of_a_thousand_of_a_binary_operation(op: str) -> None:
    check(chain(1000, f"{op}({{}}, y)", "clamp(zero, {}, y)"), given())


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op, types in UNARY.items() if "f32" in types])
def test_a_chain_of_a_thousand_of_a_unary_operation(op: str) -> None:
    check(chain(1000, f"{op}({{}})", "clamp(zero, {}, y)"), given())


def test_a_chain_of_movements() -> None:
    check(chain(210, *MOVES, "sine({})"), given())


def test_two_values_that_need_each_other_many_times() -> None:
    lines, a, b = [], "x", "y"
    for n in range(120):
        lines.append(f"v{n} = f32[8] {('add', 'subtract', 'multiply')[n % 3]}({a}, {b})")
        lines.append(f"w{n} = f32[8] sine(v{n})")
        a, b = b, f"w{n}"
    text = "HloModule m\nENTRY e {\n x = f32[8] parameter(0)\n y = f32[8] parameter(1)\n " + "\n ".join(lines)
    check(f"{text}\n ROOT r = f32[8] add({a}, {b})\n}}\n", given(), most=1e-4)


def test_a_chain_of_scalars() -> None:
    text = chain(300, *BOUNDED).replace("f32[8]", "f32[]")
    check(text, [np.asarray(a[0]) for a in given()])


def test_a_sum_of_300_parameters() -> None:
    lines = [f"p{n} = f32[8] parameter({n})" for n in range(300)]
    lines += [f"s{n} = f32[8] add({'p0' if n == 1 else f's{n - 1}'}, p{n})" for n in range(1, 300)]
    lines[-1] = f"ROOT {lines[-1]}"
    check("HloModule m\nENTRY e {\n " + "\n ".join(lines) + "\n}\n", given(300))


def test_a_concatenation_of_400_operands() -> None:
    sizes = [1 + n % 3 for n in range(400)]
    lines = [f"p{n} = f32[{size}] slice(x), slice={{[{n % 6}:{n % 6 + size}]}}" for n, size in enumerate(sizes)]
    lines += [f"q{n} = f32[{size}] parameter({n + 1})" for n, size in enumerate(sizes[:200])]
    names = [f"q{n}" if n < 200 else f"p{n}" for n in range(400)]
    lines.append(f"ROOT c = f32[{sum(sizes)}] concatenate({', '.join(names)}), dimensions={{0}}")
    args = [*given(1), *(np.full(size, n, np.float32) for n, size in enumerate(sizes[:200]))]
    check("HloModule m\nENTRY e {\n x = f32[8] parameter(0)\n " + "\n ".join(lines) + "\n}\n", args)


def loops(depth: int, turns: str = "1") -> str:
    """HLO of loops in loops: the outermost of two turns, the others of `turns`, that double f32[8]."""
    texts, inner = [], "y = f32[8] add(x, x)"
    for n in reversed(range(depth)):
        limit = "2" if n == 0 else turns
        state = "p = (s32[], f32[8]) parameter(0)\n i = s32[] get-tuple-element(p), index=0"
        texts.append(
            f"cond{n} {{\n {state}\n n = s32[] constant({limit})\n ROOT l = pred[] compare(i, n), direction=LT\n}}"
        )
        texts.append(
            f"body{n} {{\n {state}\n x = f32[8] get-tuple-element(p), index=1\n {inner}\n one = s32[] constant(1)\n"
            " j = s32[] add(i, one)\n ROOT r = (s32[], f32[8]) tuple(j, y)\n}"
        )
        inner = (
            "z = s32[] constant(0)\n t = (s32[], f32[8]) tuple(z, x)\n"
            f" w = (s32[], f32[8]) while(t), condition=cond{n}, body=body{n}\n y = f32[8] get-tuple-element(w), index=1"
        )
    entry = f"ENTRY e {{\n x = f32[8] parameter(0)\n {inner}\n ROOT r = f32[8] copy(y)\n}}\n"
    return "HloModule m\n" + "\n".join([*texts, entry])


DEPTHS = pytest.mark.parametrize("depth", [40, pytest.param(200, marks=pytest.mark.slow)])


@DEPTHS
def test_nested_loops(depth: int) -> None:
    check(loops(depth), given(1))


@DEPTHS
def test_nested_conditionals(depth: int) -> None:
    """Both branches are a level deep, not one below the other."""
    texts = ["f0 {\n x = f32[8] parameter(0)\n ROOT y = f32[8] add(x, x)\n}"]
    texts += [
        f"f{n} {{\n x = f32[8] parameter(0)\n s = f32[1] slice(x), slice={{[{n % 8}:{n % 8 + 1}]}}\n"
        f" v = f32[] reshape(s)\n c = f32[] constant({n / 100})\n p = pred[] compare(v, c), direction=LT\n"
        f" ROOT y = f32[8] conditional(p, x, x), true_computation=f{n - 1}, false_computation=other\n}}"
        for n in range(1, depth + 1)
    ]
    other = "other {\n x = f32[8] parameter(0)\n ROOT y = f32[8] negate(x)\n}"
    entry = f"ENTRY e {{\n x = f32[8] parameter(0)\n ROOT r = f32[8] call(x), to_apply=f{depth}\n}}\n"
    check("\n".join(["HloModule m", other, *texts, entry]), given(1))


def test_200_nested_calls() -> None:
    texts = ["f0 {\n x = f32[8] parameter(0)\n ROOT y = f32[8] add(x, x)\n}"]
    texts += [
        f"f{n} {{\n x = f32[8] parameter(0)\n ROOT y = f32[8] call(x), to_apply=f{n - 1}\n}}" for n in range(1, 201)
    ]
    entry = "ENTRY e {\n x = f32[8] parameter(0)\n ROOT r = f32[8] call(x), to_apply=f200\n}\n"
    check("\n".join(["HloModule m", *texts, entry]), given(1))


def calls(text: str) -> int:
    """Function calls that compiling takes."""
    module, profile = parse_hlo(text), cProfile.Profile()
    profile.runcall(compile_module, module, load_chip("tiny"))
    total: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return total


def test_compiling_is_linear_in_the_length_of_a_chain() -> None:
    few, more, most = (calls(chain(n, *BOUNDED)) for n in (250, 500, 1000))
    assert most - more < 2.3 * (more - few)
