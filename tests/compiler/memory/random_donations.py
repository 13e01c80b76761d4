"""Random modules whose parameters are donated: values of one shape, updated, combined, carried through loops, permuted.

Everything has one shape, so that any result can be asked for in any parameter's memory; values are small integers, so
that sums are exact.
"""

from __future__ import annotations

import numpy as np

from tests.compiler.machine import Array

DIMS = (8, 48)
SHAPE = "f32[8,48]"
COUNT = 4
"""Parameters of that shape; another one is a row number."""

FOLD = "fold {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] maximum(a, b)\n}\n"


class Donations:
    """A module being written."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.computations = [FOLD]
        self.names = 0

    def fresh(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def pick(self, values: list[str]) -> str:
        return str(self.rng.choice(values))

    def step(self, lines: list[str], values: list[str], depth: int) -> None:
        """Append one operation."""
        kinds = ["point", "point", "update", "update", "update", "turn", "row", "select", "loop", "branch"]
        kind = str(self.rng.choice(kinds[: len(kinds) - 2 * (depth > 0)]))
        name, a, b = self.fresh(), self.pick(values), self.pick(values)
        if kind == "point":
            op = self.rng.choice(["add", "subtract", "maximum", "minimum"])
            lines += [f"{name}s = {SHAPE} {op}({a}, {b})", f"{name} = {SHAPE} clamp(low, {name}s, high)"]
        elif kind == "update":
            lines.append(f"{name}r = f32[2,48] slice({b}), slice={{[3:5], [0:48]}}")
            lines.append(f"{name} = {SHAPE} dynamic-update-slice({a}, {name}r, row, zero)")
        elif kind == "turn":
            lines.append(f"{name} = {SHAPE} reverse({a}), dimensions={{1}}")
        elif kind == "row":
            lines.append(f"{name}m = f32[48] reduce({a}, low), dimensions={{0}}, to_apply=fold")
            lines.append(f"{name}b = {SHAPE} broadcast({name}m), dimensions={{1}}")
            lines.append(f"{name} = {SHAPE} minimum({name}b, {b})")
        elif kind == "select":
            lines.append(f"{name}p = pred[8,48] compare({a}, {b}), direction=GT")
            lines.append(f"{name} = {SHAPE} select({name}p, {a}, {self.pick(values)})")
        else:
            self.control(kind, name, lines, values, depth)
        values.append(name)

    def control(self, kind: str, name: str, lines: list[str], values: list[str], depth: int) -> None:
        """Append a loop or a conditional over some values; its results are values, too."""
        state = [self.pick(values) for _ in range(int(self.rng.integers(1, 4)))]
        shape = f"(s32[], {', '.join([SHAPE] * len(state))})"
        lines.append(f"{name}t = {shape} tuple(row, {', '.join(state)})")
        if kind == "loop":
            text = f"{name}c {{\n p = {shape} parameter(0)\n i = s32[] get-tuple-element(p), index=0\n"
            self.computations.append(text + " n = s32[] constant(9)\n ROOT r = pred[] compare(i, n), direction=LT\n}\n")
            body = self.called(f"{name}b", shape, len(state), depth)
            lines.append(f"{name}w = {shape} while({name}t), condition={name}c, body={body}")
        else:
            one, two = (self.called(f"{name}{x}", shape, len(state), depth) for x in "xy")
            lines.append(f"{name}q = pred[] compare(row, two), direction=LT")
            called = f"true_computation={one}, false_computation={two}"
            lines.append(f"{name}w = {shape} conditional({name}q, {name}t, {name}t), {called}")
        elements = range(1, len(state) + 1)
        lines += [f"{name}e{k} = {SHAPE} get-tuple-element({name}w), index={k}" for k in elements]
        lines.append(f"{name} = {SHAPE} get-tuple-element({name}w), index=1")
        values += [f"{name}e{k}" for k in elements]

    def called(self, name: str, shape: str, count: int, depth: int) -> str:
        """A computation from the state to the state, which counts its row up; its name."""
        lines = [f"p = {shape} parameter(0)", "row = s32[] get-tuple-element(p), index=0", *CONSTANTS]
        values = [self.fresh() for _ in range(count)]
        lines += [f"{v} = {SHAPE} get-tuple-element(p), index={k + 1}" for k, v in enumerate(values)]
        for _ in range(int(self.rng.integers(0, 5))):
            self.step(lines, values, depth + 1)
        lines.append("next = s32[] add(row, two)")
        lines.append(f"ROOT r = {shape} tuple(next, {', '.join(self.pick(values[-4:]) for _ in range(count))})")
        self.computations.append(f"{name} {{\n " + "\n ".join(lines) + "\n}\n")
        return name


CONSTANTS = [
    "zero = s32[] constant(0)",
    "two = s32[] constant(2)",
    "low = f32[] constant(-99)",
    "high = f32[] constant(99)",
]


def random_donation(seed: int, donors: bool = False) -> tuple[str, list[Array]]:
    """A module's text and its arguments; with aliases, or with donated parameters that the compiler may use at will."""
    made = Donations(seed)
    rng = made.rng
    values = [f"p{k}" for k in range(COUNT)]
    lines = [f"{v} = {SHAPE} parameter({k})" for k, v in enumerate(values)]
    lines += [f"row = s32[] parameter({COUNT})", *CONSTANTS]
    for _ in range(int(rng.integers(1, 9))):
        made.step(lines, values, 0)
    results = [made.pick(values[-6:]) for _ in range(int(rng.integers(1, COUNT + 2)))]
    lines.append(f"ROOT r = ({', '.join([SHAPE] * len(results))}) tuple({', '.join(results)})")
    parameters = rng.permutation(COUNT)
    aliases = [
        f"{{{k}}}: ({parameters[k]}, {{}}, {rng.choice(['may', 'must'])}-alias)"
        for k in range(min(len(results), COUNT))
        if rng.integers(0, 5)
    ]
    given = f"input_output_alias={{ {', '.join(aliases)} }}"
    if donors:
        some = ", ".join(f"({p}, {{}})" for p in parameters if rng.integers(0, 4))
        given = f"buffer_donor={{ {some} }}"
    head = f"HloModule donations{seed}, {given}\n\n"
    text = head + "\n".join(made.computations) + "\nENTRY e {\n " + "\n ".join(lines) + "\n}\n"
    args: list[Array] = [rng.integers(-9, 10, DIMS).astype(np.float32) for _ in range(COUNT)]
    return text, [*args, np.array(rng.integers(0, 7), np.int32)]
