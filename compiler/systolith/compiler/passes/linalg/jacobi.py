"""Rotations of Jacobi's methods: n/2 pairs at once, every pair at least once in a sweep of n steps.

Of n rows (or columns) the pairs are row i of a first half and row i of a second one.  After a step all rows but the
first go round by one place, through both halves, so that any n - 1 steps have every pair (Brent and Luk, 1985).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from systolith.compiler.hlo.attributes import PadDim
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.counted_loop import State, counted_loop
from systolith.compiler.passes.linalg.matrices import Matrices
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import DTYPES, PRED, S32, DType

SWEEPS = 30
"""After so many sweeps a matrix is given up: those of finite numbers need 5 to 12."""

Half = tuple[Instruction, Instruction]
Step = Callable[[Rewriter, State], Sequence[Instruction]]


def negligible(dtype: DType) -> float:
    """A size below which numbers lose digits, in matrices whose largest elements are near 1."""
    return float(dtype.finfo.smallest_normal) / float(dtype.finfo.eps)


@dataclass(frozen=True)
class Rotation:
    """Unitary 2 x 2 matrices J = [[c, s], [-s*, c]] (* is the conjugate) that make J^H W J diagonal.

    Products with c are written with u = s / (1 + c), so that their rounding does not add up over many rotations.

    Attributes:
        m: makes instructions.
        s: `[b, k]`, in the type of the matrices.
        u: likewise.
        t: what the diagonal elements change by, real.
    """

    m: Matrices
    s: Instruction
    u: Instruction
    t: Instruction

    @staticmethod
    def of(m: Matrices, first: Instruction, second: Instruction, off: Instruction) -> Rotation:
        """Of W = [[first, off], [off*, second]], `[b, k]` each, both on the diagonal real.

        Where `off` is negligible nothing turns.
        """
        r, real = m.r, off.shape.dtype == first.shape.dtype
        size = Real(r, off if real else m.size(off))
        none = size.of("abs").test("LE", negligible(size.i.shape.dtype))
        slope = (Real(r, second) - Real(r, first)) / (size * 2.0)
        way = slope.like(1.0).where(slope.test("GE", 0.0), -1.0)
        t = slope.like(0.0).where(none, way / (slope.of("abs") + (slope * slope + 1.0).of("sqrt")))
        c = t.like(1.0) / (t * t + 1.0).of("sqrt")
        s = t * c
        u, change = s / (c + 1.0), (t * size).i
        if real:
            return Rotation(m, s.i, u.i, change)
        whole = size.like(1.0).where(none, size)
        parts = [(Real(r, part) / whole).i for part in (m.real(off), m.imaginary(off))]
        phase = Real(r, r.emit("complex", *parts))
        turned = [(Real(r, r.converted(x.i, off.shape.dtype)) * phase).i for x in (s, u)]
        return Rotation(m, turned[0], turned[1], change)

    def rows(self, first: Instruction, second: Instruction) -> Half:
        """J^H acts on pairs of rows, `[b, k, n]` each."""
        return self._acted(first, second, 1, self.m.conjugate)

    def columns(self, first: Instruction, second: Instruction) -> Half:
        """J acts on pairs of columns, `[b, n, k]` each."""
        return self._acted(first, second, 2, lambda x: x)

    def _acted(
        self, first: Instruction, second: Instruction, d: int, turned: Callable[[Instruction], Instruction]
    ) -> Half:
        m, conjugate = self.m, self.m.conjugate
        s, u, s_, u_ = (
            m.along(x, first.shape, d)
            for x in (conjugate(turned(self.s)), turned(self.u), turned(self.s), conjugate(turned(self.u)))
        )
        a, b = Real(m.r, first), Real(m.r, second)
        return (a - s * (b + u * a)).i, (b + s_ * (a - u_ * b)).i


def halves(m: Matrices, x: Instruction, d: int) -> Half:
    """Both halves of an array along a dimension."""
    n = x.dims[d] // 2
    return m.r.narrowed(x, d, 0, n), m.r.narrowed(x, d, n, 2 * n)


def gone_round(m: Matrices, first: Instruction, second: Instruction, d: int) -> Half:
    """The halves after a step."""
    k = first.dims[d]
    if k == 1:
        return first, second
    ahead = m.joined([m.r.narrowed(first, d, 0, 1), m.r.narrowed(second, d, 0, 1), m.r.narrowed(first, d, 1, k - 1)], d)
    return ahead, m.joined([m.r.narrowed(second, d, 1, k), m.r.narrowed(first, d, k - 1, k)], d)


def swept(
    r: Rewriter,
    callees: Callees,
    n: int,
    state: State,
    step: Step,
    after: Callable[[Rewriter, State], tuple[State, Instruction]],
    name: str,
) -> State:
    """The state after sweeps of a number of rows, which is even.

    An iteration of the inner loop is two steps, since the state is copied once an iteration.

    Args:
        r: makes what stands around the loops.
        callees: has their computations placed.
        n: rows.
        state: before the first sweep.
        step: makes the state after a step.
        after: makes the state that the next sweep begins with, and a pred: whether there is to be one.
        name: begins the computations' names.
    """

    def sweep(r: Rewriter, _: Instruction, state: State) -> Sequence[Instruction]:
        stepped = counted_loop(r, callees, n // 2, state[:-1], lambda r, _, s: step(r, step(r, s)), Rewriter, name)
        following, more = after(r, stepped)
        return [*following, more]

    true = r.constant(True, PRED)
    return counted_loop(r, callees, SWEEPS, [*state, true], sweep, Rewriter, f"{name}.sweeps", lambda s: s[-1])[:-1]


def evened(m: Matrices, x: Instruction, dims: Sequence[int]) -> Instruction:
    """With one more, of zeros, along dimensions of an odd size: rotations leave those alone."""
    edges = tuple(PadDim(0, n % 2 if d in dims else 0, 0) for d, n in enumerate(x.dims))
    return m.r.emit("pad", x, m.r.constant(0, x.shape.dtype), padding=edges) if any(e.high for e in edges) else x


def order_of(m: Matrices, callees: Callees, x: Instruction, direction: str) -> Instruction:
    """Where the elements of `[b, n]` are in order: LT from the least, GT from the greatest.

    Each element's place is the number of those before it.
    """
    r = m.r
    square = array(x.shape.dtype, (*x.dims, x.dims[1]))
    own, other = m.along(x, square, 1), m.along(x, square, 2)
    before = r.emit("and", other.test("EQ", own), m.triangle(square, "GT"))
    ahead = r.emit("or", other.test(direction, own), before)
    places = m.reduced(callees, "add", r.converted(ahead, S32), (2,))
    here = m.along(places, square, 2).test("EQ", m.index(square, 1))
    return m.reduced(callees, "add", m.index(square, 2).where(here, 0).i, (2,))


def in_order(m: Matrices, callees: Callees, x: Instruction, direction: str, *rows: Instruction) -> list[Instruction]:
    """`[b, n]` in order (as `order_of`), and arrays `[b, n, m]` with their rows likewise."""
    order = order_of(m, callees, x, direction)
    column = m.ordered(m.r.reshaped(x, (*x.dims, 1)), order)
    return [m.r.reshaped(column, x.dims), *(m.ordered(y, order) for y in rows)]


@dataclass(frozen=True)
class Scaled:
    """Matrices whose largest element is near 1, so that squares of elements are in range.

    Attributes:
        x: `[b, m, n]`; zeros for matrices with an element that is not finite.
        scale: powers of two, `[b]`: what to multiply with to have the matrices given.
        fine: `[b]`, whether all elements of a matrix are finite.
    """

    x: Instruction
    scale: Instruction
    fine: Instruction

    def checked(self, m: Matrices, x: Instruction) -> Instruction:
        """The results of the matrices, `[b, ...]`: NaN for those with an element that is not finite."""
        fine = m.along(self.fine, x.shape, 0)
        return Real(m.r, x).where(fine.i, float("nan")).i


def scaled(m: Matrices, callees: Callees, x: Instruction) -> Scaled:
    """Matrices divided by powers of two."""
    r = m.r
    fine = m.reduced(callees, "and", m.finite(x), (1, 2))
    largest = m.reduced(callees, "maximum", m.size(x), (1, 2), 0.0)
    info = largest.shape.dtype.finfo
    bits = r.emit("bitcast-convert", largest, shape=array(DTYPES[f"u{info.bits}"], largest.dims))
    exponent = r.emit("and", bits, r.full(((1 << (info.bits - 1 - info.nmant)) - 1) << info.nmant, bits.shape))
    rounded = Real(r, r.emit("bitcast-convert", exponent, shape=largest.shape))
    scale = rounded.where(rounded.test("GT", 0.0), 1.0)
    even = Real(r, x) / m.along(r.converted(scale.i, x.shape.dtype), x.shape, 0)
    return Scaled(even.where(m.along(fine, x.shape, 0).i, 0.0).i, scale.i, fine)
