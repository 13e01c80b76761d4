"""Elementwise operations that are several micro-operations: inverse and hyperbolic functions, integer powers, products.

Floats are computed in f32 and rounded once.  The formulas keep f32's digits where terms nearly cancel (near 0 and 1)
and do not overflow before the result does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from systolith.compiler.ops.element_builder import Builder, Rule
from systolith.compiler.ops.expression import Node
from systolith.isa.dtypes import F32, Kind

LOG_2 = 0x3F317218
ONE, HALF, QUARTER = 0x3F800000, 0x3F000000, 0x3E800000
LARGE = 0x4D000000
"""2^27: beyond it x^2 + 1 is x^2."""
EXP_FITS = 0x42A00000
"""80: beyond it exp(x) / 2 is computed as exp(x - 3) times half of exp(3)."""
THREE, HALF_OF_EXP_3 = 0x40400000, 0x4120AF2E
"""x - 3 is exact there, and half of exp(3) is nearly a number of f32."""
SINH = (0x3E2AAAAB, 0x3C08888F, 0x3950047F, 0x363C53B4)
"""(sinh(x) / x - 1) / x^2 as a polynomial in x^2 up to 1: within 0.04 ulp of sinh(x)."""
ACOSH = (0xBDAAAAA9, 0x3C99975A, 0xBBB64B56, 0x3AEBC451, 0xB9EA0CDA)
"""(acosh(1 + t) / sqrt(2 t) - 1) / t as a polynomial in t up to a half: within 0.04 ulp of acosh(1 + t)."""
ATANH = (0x3EAAAAAA, 0x3E4CCE7F, 0x3E11C631, 0x3DFCD55C)
"""(atanh(x) / x - 1) / x^2 as a polynomial in x^2 for x up to a quarter: within 0.01 ulp of atanh(x)."""
HALF_PI, HALF_PI_REST = 0x3FC90FDB, 0xB33BBD2E
PI, PI_REST = 0x40490FDB, 0xB3BBBD2E
ARC = (0x3E2AAAB1, 0x3D99927D, 0x3D3875FD, 0x3CD8022E, 0x3D1D68FD)
"""(asin(x) / x - 1) / x^2 as a polynomial in x^2 up to a quarter, the constant first: within 0.14 ulp of asin(x)."""
SIGN = 0x80000000
NAN = 0x7FC00000

MOST_BITS = 6
"""Of an integer exponent, which XLA takes modulo 64."""


class _Formula:
    """Micro-operations on f32 by short names."""

    def __init__(self, b: Builder) -> None:
        self.b, self.g = b, b.graph

    def const(self, image: int) -> Node:
        return self.g.const(image)

    def __call__(self, op: str, *sources: Node | int) -> Node:
        """A micro-operation on floats; numbers are images."""
        return self.g.micro(f"{op}.f32", *(self.g.const(s) if isinstance(s, int) else s for s in sources))

    def where(self, test: Node, yes: Node, no: Node) -> Node:
        return self.g.micro("select", test, yes, no)

    def series(self, x: Node, terms: Sequence[int]) -> Node:
        """A polynomial, its constant first."""
        *rest, total = map(self.const, terms)
        for term in reversed(rest):
            total = self("add", self("mul", total, x), term)
        return total

    def with_sign(self, size: Node, x: Node) -> Node:
        """A size with the sign of x."""
        return self.g.micro("or", size, self.g.micro("and", x, self.g.const(SIGN)))


def _function(formula: Callable[[_Formula, Node], Node]) -> Rule:
    """The rule of a function of floats."""

    def rule(b: Builder, sources: Sequence[Node]) -> Node:
        if not b.dtype.is_float:
            raise b.fail(f"not supported for {b.operand_dtype} on the vector unit; convert the operand to f32")
        return b.rounded(formula(_Formula(b), sources[0]), b.dtype)

    return rule


def _arc(f: _Formula, size: Node) -> tuple[Node, Node, Node]:
    """Whether a size is at most a half, and its arcsine in two parts; beyond, that of sqrt((1 - size) / 2)."""
    small = f("le", size, HALF)
    square = f.where(small, f("mul", size, size), f("mul", f("sub", ONE, size), HALF))
    root = f.where(small, size, f("sqrt", square))
    return small, root, f("mul", root, f("mul", square, f.series(square, ARC)))


def _asin(f: _Formula, x: Node) -> Node:
    """Beyond a half pi / 2 - 2 asin(sqrt((1 - |x|) / 2))."""
    small, root, rest = _arc(f, f("abs", x))
    double = f("add", root, root)
    near = f("sub", HALF_PI, double)
    lost = f("sub", f("sub", HALF_PI, near), double)
    large = f("add", near, f("sub", f("add", lost, HALF_PI_REST), f("add", rest, rest)))
    return f.with_sign(f.where(small, f("add", root, rest), large), x)


def _acos(f: _Formula, x: Node) -> Node:
    """The arcsine from pi / 2; beyond a half 2 asin(sqrt((1 - |x|) / 2)), of negative numbers less than pi by that."""
    small, root, rest = _arc(f, f("abs", x))
    arc = f("add", root, rest)
    double = f("add", arc, arc)
    near = f("sub", HALF_PI, f("sub", f.with_sign(arc, x), HALF_PI_REST))
    beyond = f.where(f("lt", x, 0), f("sub", PI, f("sub", double, PI_REST)), double)
    return f.where(small, near, beyond)


def _atan(f: _Formula, x: Node) -> Node:
    return f("atan2", x, ONE)


def _half_of_exp(f: _Formula, size: Node) -> Node:
    """exp(x) / 2 for large x."""
    return f("mul", f("exp", f("sub", size, THREE)), HALF_OF_EXP_3)


def _sinh(f: _Formula, x: Node) -> Node:
    """(e + e / (e + 1)) / 2 with e = exp(|x|) - 1; up to 1 a series."""
    size = f("abs", x)
    square = f("mul", size, size)
    near = f("add", size, f("mul", size, f("mul", square, f.series(square, SINH))))
    e = f("expm1", size)
    small = f("mul", f("add", e, f("div", e, f("add", e, ONE))), HALF)
    far = f.where(f("gt", size, EXP_FITS), _half_of_exp(f, size), small)
    return f.with_sign(f.where(f("le", size, ONE), near, far), x)


def _cosh(f: _Formula, x: Node) -> Node:
    size = f("abs", x)
    e = f("exp", size)
    small = f("mul", f("add", e, f("div", ONE, e)), HALF)
    return f.where(f("gt", size, EXP_FITS), _half_of_exp(f, size), small)


def _asinh(f: _Formula, x: Node) -> Node:
    """log(1 + |x| + x^2 / (1 + sqrt(1 + x^2)))."""
    size = f("abs", x)
    square = f("mul", size, size)
    rest = f("div", square, f("add", ONE, f("sqrt", f("add", ONE, square))))
    small = f("log1p", f("add", size, rest))
    large = f("add", f("log", size), LOG_2)
    return f.with_sign(f.where(f("gt", size, LARGE), large, small), x)


def _acosh(f: _Formula, x: Node) -> Node:
    """With t = x - 1: log(1 + t + sqrt(2 t + t^2)), up to a half sqrt(2 t) and a series; below 1 NaN."""
    t = f("sub", x, ONE)
    double = f("add", t, t)
    root = f("sqrt", double)
    near = f("add", root, f("mul", root, f("mul", t, f.series(t, ACOSH))))
    far = f("log1p", f("add", t, f("sqrt", f("add", double, f("mul", t, t)))))
    small = f.where(f("le", t, HALF), near, far)
    value = f.where(f("gt", x, LARGE), f("add", f("log", x), LOG_2), small)
    return f.where(f("ge", x, ONE), value, f.const(NAN))


def _atanh(f: _Formula, x: Node) -> Node:
    """log(1 + 2 |x| / (1 - |x|)) / 2, up to a quarter a series."""
    size = f("abs", x)
    square = f("mul", size, size)
    near = f("add", size, f("mul", size, f("mul", square, f.series(square, ATANH))))
    far = f("mul", f("log1p", f("div", f("add", size, size), f("sub", ONE, size))), HALF)
    return f.with_sign(f.where(f("le", size, QUARTER), near, far), x)


def _power(b: Builder, s: Sequence[Node]) -> Node:
    """Of integers by squaring, a bit of the exponent each; a negative one gives 0, but for the bases 1 and -1."""
    g, (x, n), dtype = b.graph, s, b.dtype
    if dtype.is_float:
        return b.rounded(g.micro("pow.f32", x, n), dtype)
    if dtype.kind is Kind.PRED:
        raise b.fail("not supported for pred on the vector unit; convert the operands to s32")
    if dtype.kind is Kind.UNSIGNED and 8 <= dtype.bits < 32:  # exponents, too, are taken as signed bytes and words
        missing = g.const(32 - dtype.bits)
        x, n = (g.micro("sra", g.micro("shl", v, missing), missing) for v in (x, n))
    one, zero = g.const(1), g.const(0)
    result, square = one, x
    for bit in range(MOST_BITS):
        taken = g.micro("and", g.micro("shr", n, g.const(bit)), one)
        result = g.micro("select", taken, g.micro("mul.s32", result, square), result)
        if bit < MOST_BITS - 1:
            square = g.micro("mul.s32", square, square)
    alone = g.micro("eq.s32", g.micro("abs.s32", x), one)
    odd = g.micro("select", g.micro("and", n, one), x, one)
    below = g.micro("select", alone, odd, zero)
    return b.rounded(g.micro("select", g.micro("lt.s32", n, zero), below, result), dtype)


def _mulhi(b: Builder, s: Sequence[Node]) -> Node:
    """The high half of a product."""
    g, (x, y), dtype = b.graph, s, b.dtype
    if not dtype.is_integer:
        raise b.fail(f"not supported for {dtype} on the vector unit; it is of integers")
    if dtype.bits < 32:
        moved = "sra" if dtype.kind is Kind.SIGNED else "shr"
        return b.rounded(g.micro(moved, g.micro("mul.s32", x, y), g.const(dtype.bits)), dtype)
    high = g.micro("mulh.u32", x, y)
    if dtype.kind is Kind.UNSIGNED:
        return high
    for a, other in ((x, y), (y, x)):  # a negative factor counts 2^32 more
        high = g.micro("sub.s32", high, g.micro("and", g.micro("sra", a, g.const(31)), other))
    return high


def _real(b: Builder, s: Sequence[Node]) -> Node:
    return s[0]


def _imag(b: Builder, s: Sequence[Node]) -> Node:
    return b.graph.const(0)


def _of_real(rule: Rule) -> Rule:
    """A rule for real operands only: complex ones are pairs by now."""

    def checked(b: Builder, s: Sequence[Node]) -> Node:
        if b.operand_dtype.kind is Kind.COMPLEX:
            raise b.fail(f"{b.operand_dtype} is not on this chip; use pairs of {F32}")
        return rule(b, s)

    return checked


COMPOSED: dict[str, Rule] = {
    "asin": _function(_asin),
    "acos": _function(_acos),
    "atan": _function(_atan),
    "sinh": _function(_sinh),
    "cosh": _function(_cosh),
    "asinh": _function(_asinh),
    "acosh": _function(_acosh),
    "atanh": _function(_atanh),
    "power": _power,
    "mulhi": _mulhi,
    "real": _of_real(_real),
    "imag": _of_real(_imag),
}
"""Opcode to its rule."""
