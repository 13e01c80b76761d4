"""64-bit integers as pairs of u32: the same values on the evaluator, by XLA, and on chips that have no 64-bit types."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest

from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.passes.words.wide_types import WIDE_TYPES, SplitWideTypes
from tests.compiler.hlo.oracle import run_xla
from tests.compiler.machine import check, compiled
from tests.compiler.passes.differential import Array, assert_same_bits, transformed
from tests.examples import seeds

BINARY = "add subtract multiply and or xor maximum minimum".split()
SHIFTS = "shift-left shift-right-logical shift-right-arithmetic".split()
UNARY = "not negate popcnt count-leading-zeros copy".split()
DIRECTIONS = "EQ NE LT LE GT GE".split()
NARROW = "s32 u32 s16 u8 pred".split()
SPECIAL = (0, 1, 2, 31, 32, 33, 63, 64, 65, 2**31, 2**32 - 1, 2**32, 2**63 - 1, -1, -(2**31), -(2**63))
PARAMETERS = "u32 s32 s8 u64 s64 f32 bf16".split()
N = 12


@dataclass
class Text:
    """A module that turns 32-bit parameters into 64-bit values and these into 32-bit results."""

    seed: int
    lines: list[str] = field(default_factory=list)
    wide: list[tuple[str, str, str]] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def new(self, shape: str, call: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f" {name} = {shape} {call}")
        return name

    def value(self, t: str) -> str:
        return self.random.choice([name for name, its, _ in self.wide if its == t])

    def put(self, t: str, call: str) -> str:
        name = self.new(f"{t}[{N}]", call)
        self.wide.append((name, t, ""))
        return name

    def start(self) -> None:
        for t in ("u64", "s64"):
            for source in ("p0", "p1", "p2", "p5", "p6"):
                self.put(t, f"convert({source})")
            self.wide.append(("p3" if t == "u64" else "p4", t, ""))
            values = ",".join(str(v % 2**64 if t == "u64" else v) for v in self.random.choices(SPECIAL, k=N))
            self.put(t, f"constant({{{values}}})")
            self.put(t, "iota(), iota_dimension=0")
            self.put(t, f"bitcast-convert({self.value('u64')})")
            scalar = self.new(f"{t}[]", f"constant({self.random.choice(SPECIAL[:12])})")
            self.put(t, f"broadcast({scalar}), dimensions={{}}")

    def step(self) -> None:
        t, pick = self.random.choice(("u64", "s64")), self.random.random()
        a, b = self.value(t), self.value(t)
        if pick < 0.4:
            self.put(t, f"{self.random.choice(BINARY)}({a}, {b})")
        elif pick < 0.6:
            self.put(t, f"{self.random.choice(SHIFTS)}({a}, {self.amount(t)})")
        elif pick < 0.63:
            self.put(t, f"{self.random.choice(('divide', 'remainder'))}({a}, {b})")
        elif pick < 0.66:
            self.put(t, f"clamp({a}, {b}, {self.value(t)})")
        elif pick < 0.73:
            self.put(t, f"{self.random.choice([*UNARY, *(['abs', 'sign'] if t == 's64' else [])])}({a})")
        elif pick < 0.85:
            p = self.new(f"pred[{N}]", f"compare({a}, {b}), direction={self.random.choice(DIRECTIONS)}")
            self.results.append(("pred", p))
            self.put(t, f"select({p}, {b}, {a})")
        else:
            self.move(t, a, b)

    def amount(self, t: str) -> str:
        if self.random.random() < 0.5:
            return self.value(t)
        scalar = self.new(f"{t}[]", f"constant({self.random.choice((0, 1, 5, 31, 32, 33, 47, 63, 64))})")
        return self.put(t, f"broadcast({scalar}), dimensions={{}}")

    def move(self, t: str, a: str, b: str) -> None:
        k = self.random.randint(1, N - 1)
        low = self.new(f"{t}[{k}]", f"slice({a}), slice={{[0:{k}]}}")
        high = self.new(f"{t}[{N - k}]", f"slice({b}), slice={{[{k}:{N}]}}")
        joined = self.put(t, f"concatenate({low}, {high}), dimensions={{0}}")
        shaped = self.new(f"{t}[3,4]", f"reshape({joined})")
        turned = self.new(f"{t}[4,3]", f"transpose({shaped}), dimensions={{1,0}}")
        self.put(t, f"reshape({turned})")
        at = self.new(f"{t}[]", f"constant({self.random.choice((0, 3, 9, 2**33))})")
        part = self.new(f"{t}[2]", f"dynamic-slice({joined}, {at}), dynamic_slice_sizes={{2}}")
        self.put(t, f"dynamic-update-slice({joined}, {part}, {at})")

    def finish(self) -> str:
        for name, t, _ in self.wide[-6:]:
            for to in (*self.random.sample(NARROW, 2), "f32", "bf16"):
                self.results.append((to, self.new(f"{to}[{N}]", f"convert({name})")))
            pair = self.new(f"u32[{N},2]", f"bitcast-convert({name})")
            self.results.append(("u32", self.new(f"u32[{2 * N}]", f"reshape({pair})")))
            self.put(t, f"bitcast-convert({pair})")
            self.results.append((t, name))
        shapes = [f"{t}[{2 * N if self.is_pair(name) else N}]" for t, name in self.results]
        names = ", ".join(name for _, name in self.results)
        head = [f" p{k} = {t}[{N}] parameter({k})" for k, t in enumerate(PARAMETERS)]
        body = "\n".join([*head, *self.lines, f" ROOT all = ({', '.join(shapes)}) tuple({names})"])
        return f"HloModule wide\n\nENTRY e {{\n{body}\n}}\n"

    def is_pair(self, name: str) -> bool:
        return any(line.startswith(f" {name} = u32[{2 * N}]") for line in self.lines)


def random_text(seed: int, steps: int = 20) -> str:
    text = Text(seed)
    text.start()
    for _ in range(steps):
        text.step()
    return text.finish()


def arguments(seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    found: list[Array] = []
    for t in (np.uint32, np.int32, np.int8, np.uint64, np.int64):
        info = np.iinfo(t)
        x = rng.integers(info.min, info.max, N, dtype=t, endpoint=True)
        x[:4] = (info.min, info.max, 0, 1)
        found.append(x)
    floats = rng.standard_normal(N) * 2.0 ** rng.integers(0, 70, N)
    floats[:6] = (np.nan, np.inf, -np.inf, -0.0, 2.0**63, -(2.0**63))
    return [*found, floats.astype(np.float32), floats.astype(ml_dtypes.bfloat16)]


@pytest.mark.parametrize("seed", seeds(8, 24))
def test_random_modules_keep_every_bit(seed: int) -> None:
    text, args = random_text(seed), arguments(seed)
    module = parse_hlo(text)
    want = evaluate(module, *args)
    made = transformed(module, SplitWideTypes())
    edge = ("parameter", "bitcast", "tuple")
    others = [i for i in made.instructions() if i.opcode not in edge]
    assert not any(leaf.dtype.bits == 64 for i in others for leaf in i.shape.leaves())
    assert not SplitWideTypes().run(made)
    assert_same_bits(want, evaluate(made, *args))
    if seed % 12 == 0:
        # The way into XLA here has no bitcasts to other element types; of integers these are the same.
        pairs = print_hlo(made).replace(" bitcast(", " bitcast-convert(")
        for a, b, c in zip(want, run_xla(text, *args), run_xla(pairs, *args), strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a, c)


@pytest.mark.parametrize("seed", range(100, 102))
def test_random_modules_on_the_chip(seed: int) -> None:
    check(random_text(seed, 8), arguments(seed), "tiny", most=0.0)


LOOP = """HloModule loop

body {
  s = (s64[], u64[5], u32[]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  x = u64[5] get-tuple-element(s), index=1
  n = u32[] get-tuple-element(s), index=2
  one = s64[] constant(1)
  next = s64[] add(i, one)
  y = u64[5] multiply(x, x)
  u = u64[] convert(next)
  spread = u64[5] broadcast(u), dimensions={}
  z = u64[5] add(y, spread)
  ROOT t = (s64[], u64[5], u32[]) tuple(next, z, n)
}

condition {
  s = (s64[], u64[5], u32[]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  BOUND
  ROOT p = pred[] compare(i, bound), direction=LT
}

even {
  x = u64[5] parameter(0)
  ROOT y = u64[5] negate(x)
}

odd {
  x = u64[5] parameter(0)
  ROOT y = u64[5] not(x)
}

ENTRY e {
  a = u32[5] parameter(0)
  n = u32[] parameter(1)
  x = u64[5] convert(a)
  zero = s64[] constant(0)
  t = (s64[], u64[5], u32[]) tuple(zero, x, n)
  w = (s64[], u64[5], u32[]) while(t), condition=condition, body=body
  last = u64[5] get-tuple-element(w), index=1
  k = s32[] convert(n)
  c = u64[5] conditional(k, last, last), branch_computations={even, odd}
  b = u64[5] shift-right-logical(c, sh)
  low = u32[5] convert(c)
  high = u32[5] convert(b)
  ROOT r = (u32[5], u32[5]) tuple(low, high)
}
""".replace("  b = u64[5]", "  s = u64[] constant(32)\n  sh = u64[5] broadcast(s), dimensions={}\n  b = u64[5]")


@pytest.mark.parametrize(
    "bound", ["bound = s64[] constant(7)", "n = u32[] get-tuple-element(s), index=2\n bound = s64[] convert(n)"]
)
def test_loops_and_branches_hand_pairs_on(bound: str) -> None:
    text = LOOP.replace("BOUND", bound)
    args = [np.arange(5, dtype=np.uint32) * 0x1234567 + 3, np.asarray(6, np.uint32)]
    for a, b in zip(evaluate(parse_hlo(text), *args), run_xla(text, *args), strict=True):
        np.testing.assert_array_equal(a, b)
    check(text, args, "tiny", most=0.0)


def test_what_has_no_form_on_pairs_is_refused_by_name() -> None:
    lines = (
        "s = u64[2] constant({1, 2})\nz = (u64[2], pred[3]) rng-bit-generator(s), algorithm=rng_three_fry\n"
        "b = pred[3] get-tuple-element(z), index=1\nROOT r = u32[3] convert(b)"
    )
    text = f"HloModule m\nENTRY e {{\nx = u32[3] parameter(0)\n{lines}\n}}\n"
    assert WIDE_TYPES.obstacle(parse_hlo(text)) is not None
    with pytest.raises(CompileError, match=r"rng-bit-generator 'z'.*u64 has no form on pairs of u32"):
        compiled(text)


def dividends(seed: int) -> tuple[Array, Array]:
    """Numbers and divisors of any size, and what is beside multiples of these."""
    rng = np.random.default_rng(seed)
    edges = np.array([n & (2**64 - 1) for n in (*SPECIAL, 3, 7, 2**32 + 1, 2**63 + 1, 2**64 - 2)], np.uint64)

    def some(count: int = 3000) -> Array:
        return rng.integers(0, 2**64, count, dtype=np.uint64) >> rng.integers(0, 64, count).astype(np.uint64)

    by, one = some(), np.uint64(1)
    multiple = some() * by
    first, second = np.meshgrid(edges, edges)
    numbers = np.concatenate([first.ravel(), some(), multiple, multiple - one, multiple + one])
    return numbers, np.concatenate([second.ravel(), by, by, by, by])


@pytest.mark.parametrize("opcode", ["divide", "remainder"])
@pytest.mark.parametrize("t", ["s64", "u64"])
def test_quotients_of_numbers_of_any_size(t: str, opcode: str) -> None:
    given = [x.view(np.int64) if t == "s64" else x for x in dividends(len(opcode))]
    shape = f"{t}[{len(given[0])}]"
    text = (
        f"HloModule q\nENTRY e {{\n x = {shape} parameter(0)\n y = {shape} parameter(1)\n"
        f" ROOT r = {shape} {opcode}(x, y)\n}}\n"
    )
    assert "while" not in print_hlo(transformed(parse_hlo(text), SplitWideTypes()))
    check(text, given, "small", most=0.0)
    assert_same_bits(run_xla(text, *given), evaluate(parse_hlo(text), *given))
