"""Functions of complex numbers, on their real and imaginary parts.

Quotients, and infinities in them, are as C99 (annex G) and XLA have them.  Other functions are the formulas below,
which keep the digits of both parts; where a part overflows on the way, results follow from IEEE 754.
"""

from __future__ import annotations

from functools import reduce
from math import log, pi

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.shape import array
from systolith.compiler.passes.real_expression import Real
from systolith.isa.dtypes import DTYPES, PRED

Number = tuple[Real, Real]


def multiply(x: Number, y: Number) -> Number:
    """The product."""
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def divide(x: Number, y: Number) -> Number:
    """Scaled by the larger part of the divisor; then what annex G has for infinities and zeros."""
    (a, b), (c, d) = x, y
    wide = c.of("abs").test("GE", d.of("abs"))
    ratio = (d / c).where(wide, c / d)
    under = (c + d * ratio).where(wide, c * ratio + d)
    real = ((a + b * ratio).where(wide, a * ratio + b)) / under
    imag = ((b - a * ratio).where(wide, b * ratio - a)) / under
    r = a.r

    def both(op: str, p: Instruction, q: Instruction) -> Instruction:
        return r.emit(op, p, q)

    lost = both("and", real.test("NE", real), imag.test("NE", imag))
    zero = both("and", c.test("EQ", 0.0), d.test("EQ", 0.0))
    number = both("or", a.test("EQ", a), b.test("EQ", b))
    by_zero = both("and", lost, both("and", zero, number))
    infinite_x, infinite_y = (both("or", _infinite(p), _infinite(q)) for p, q in (x, y))
    finite_x, finite_y = (both("and", _finite(p), _finite(q)) for p, q in (x, y))
    signed = with_sign(c.like(float("inf")), c)
    large, small = both("and", infinite_x, finite_y), both("and", infinite_y, finite_x)
    ends = (_boxed(a), _boxed(b)), (_boxed(c), _boxed(d))
    (p, q), (s, t) = ends
    inf = c.like(float("inf"))
    for test, value_real, value_imag in (
        (both("and", lost, small), (a * s + b * t) * 0.0, (b * s - a * t) * 0.0),
        (both("and", lost, large), inf * (p * c + q * d), inf * (q * c - p * d)),
        (by_zero, signed * a, signed * b),
    ):
        real, imag = value_real.where(test, real), value_imag.where(test, imag)
    return real, imag


def _infinite(x: Real) -> Instruction:
    return x.of("abs").test("EQ", float("inf"))


def _finite(x: Real) -> Instruction:
    return x.of("abs").test("LT", float("inf"))


def with_sign(size: Real, sign: Real) -> Real:
    """A size that is no NaN, with a sign, of zeros too."""
    return (-size).where(_is_negative(sign), size)


def _is_negative(x: Real) -> Instruction:
    """Whether the sign is set, of zeros too."""
    bits = x.r.emit("bitcast-convert", x.i, shape=array(DTYPES[f"s{x.i.shape.dtype.bits}"], x.i.dims))
    return x.r.emit("compare", bits, x.r.full(0, bits.shape), shape=array(PRED, x.i.dims), direction="LT")


def _boxed(x: Real) -> Real:
    """1 for an infinity, else 0, with its sign."""
    return with_sign(x.like(1.0).where(_infinite(x), 0.0), x)


def absolute(z: Number) -> Real:
    """The absolute value: no overflow or underflow on the way."""
    x, y = (part.of("abs") for part in z)
    most, least = x.of("maximum", y), x.of("minimum", y)
    ratio = (least / most).where(most.test("GT", 0.0), 0.0)
    return most.where(_infinite(most), most * (ratio * ratio + 1.0).of("sqrt"))


def logarithm(z: Number) -> Number:
    """The natural logarithm, with the angle from -pi to pi as its imaginary part."""
    x, y = (part.of("abs") for part in z)
    most, least = x.of("maximum", y), x.of("minimum", y)
    ratio = (least / most).where(most.test("GT", 0.0), 0.0)
    whole = most.of("log")
    return whole.where(_infinite(most), whole + (ratio * ratio).of("log-plus-one") * 0.5), z[1].of("atan2", z[0])


def log_plus_one(z: Number) -> Number:
    """Near 0 the sum with 1 would lose digits."""
    x, y = z
    near = absolute(z).test("LT", 0.5)
    real = ((x * (x + 2.0) + y * y).of("log-plus-one") * 0.5).where(near, logarithm((x + 1.0, y))[0])
    return real, y.of("atan2", x + 1.0)


def exponential(z: Number) -> Number:
    """The exponential; real on the real axis."""
    x, y = z
    factor, real_axis = x.of("exponential"), y.test("EQ", 0.0)
    return factor.where(real_axis, factor * y.of("cosine")), y.where(real_axis, factor * y.of("sine"))


def exponential_minus_one(z: Number) -> Number:
    """The exponential less 1, with the digits that that loses near 0."""
    x, y = z
    half, less = (y * 0.5).of("sine"), x.of("exponential-minus-one")
    real_axis = y.test("EQ", 0.0)
    real = less * y.of("cosine") - half * half * 2.0
    return less.where(real_axis, real), y.where(real_axis, x.of("exponential") * y.of("sine"))


def _root(z: Number) -> Number:
    """Of the square root, the real part and the size of the imaginary one: with r the root of half the sum of the size
    and |x|, these are r and |y| / 2r, or the reverse where x is negative.
    """
    x, y = z[0], z[1].of("abs")
    quarter = absolute((x * 0.25, y * 0.25))
    root = (quarter + x.of("abs") * 0.25).of("sqrt") * 2.0**0.5
    other = root.where(root.test("EQ", 0.0), y * 0.5 / root)
    right, infinite = x.test("GE", 0.0), _infinite(y)
    real, imag = root.where(right, other), other.where(right, root)
    return y.where(infinite, real), y.where(infinite, imag)


def square_root(z: Number) -> Number:
    """As in XLA the sign of a zero imaginary part does not matter, and the root of NaN and an infinity is NaN."""
    real, imag = _root(z)
    lost = z[0].test("NE", z[0])
    return z[0].where(lost, real), z[0].where(lost, (-imag).where(z[1].test("LT", 0.0), imag))


def reciprocal_root(z: Number) -> Number:
    """As in XLA the sign of a zero imaginary part matters, and that of an infinity and anything is 0."""
    root, imag = _root(z)
    one, zero = root.like(1.0), root.like(0.0)
    real, imag = divide((one, zero), (root, with_sign(imag, z[1])))
    lost = z[0].r.emit("and", _infinite(z[0]), z[1].test("NE", z[1]))
    return zero.where(lost, real), zero.where(lost, imag)


def _hyperbolic(x: Real) -> tuple[Real, Real]:
    """Hyperbolic sine and cosine; where the exponential would overflow before its half, by its root."""
    up, down, root = (
        x.of("exponential-minus-one"),
        (-x).of("exponential-minus-one"),
        (x.of("abs") * 0.5).of("exponential"),
    )
    large, whole = x.of("abs").test("GT", 80.0), root * 0.5 * root
    return with_sign(whole, x).where(large, (up - down) * 0.5), whole.where(large, (up + down) * 0.5 + 1.0)


def cosine(z: Number) -> Number:
    """The cosine."""
    x, (sinh, cosh) = z[0], _hyperbolic(z[1])
    return x.of("cosine") * cosh, -(x.of("sine") * sinh)


def sine(z: Number) -> Number:
    """The sine."""
    x, (sinh, cosh) = z[0], _hyperbolic(z[1])
    return x.of("sine") * cosh, x.of("cosine") * sinh


def tangent_hyperbolic(z: Number) -> Number:
    """With e = exp(-2 |x|): sign(x) (1 - e^2) and 2 e sin(2 y), over (1 - e)^2 + 4 e cos(y)^2."""
    x, y = z
    across = x.of("abs") * -2.0
    small, less, cos = across.of("exponential"), across.of("exponential-minus-one"), y.of("cosine")
    under = less * less + small * cos * cos * 4.0
    real = with_sign(-(across * 2.0).of("exponential-minus-one") / under, x)
    imag = small * y.of("sine") * cos * 4.0 / under
    end = _infinite(x)
    return with_sign(x.like(1.0), x).where(end, real), x.like(0.0).where(end, y.where(y.test("EQ", 0.0), imag))


def tangent(z: Number) -> Number:
    """-i tanh(i z)."""
    real, imag = tangent_hyperbolic((-z[1], z[0]))
    return imag, -real


def logistic(z: Number) -> Number:
    """1 / (1 + exp(-z))."""
    real, imag = exponential((-z[0], -z[1]))
    return divide((real.like(1.0), real.like(0.0)), (real + 1.0, imag))


def power(a: Number, b: Number) -> Number:
    """exp(b log(a)), and as XLA's CPU backend has it at the ends.

    1 to any power and anything to that of 0 are 1; infinity to a real power is infinity or 0; 0 is 0 to a real power
    above 0, and NaN to others.
    """
    real, imag = exponential(multiply(b, logarithm(a)))
    r, on_axis, above = a[0].r, b[1].test("EQ", 0.0), b[0].test("GT", 0.0)

    def every(*tests: Instruction) -> Instruction:
        return reduce(lambda p, q: r.emit("and", p, q), tests)

    zero = every(a[0].test("EQ", 0.0), a[1].test("EQ", 0.0))
    infinite = every(a[0].test("EQ", float("inf")), a[1].test("EQ", 0.0), on_axis, b[0].test("NE", 0.0))
    infinite = every(infinite, b[0].test("EQ", b[0]))
    none = a[0].like(0.0).where(every(above, on_axis), float("nan"))
    whole = a[0].like(1.0), a[0].like(0.0)
    one = every(a[0].test("EQ", 1.0), a[1].test("EQ", 0.0))
    one = r.emit("or", one, every(b[0].test("EQ", 0.0), on_axis))
    real, imag = none.where(zero, real), none.where(zero, imag)
    real, imag = a[0].where(every(infinite, above), whole[1].where(infinite, real)), whole[1].where(infinite, imag)
    return whole[0].where(one, real), whole[1].where(one, imag)


def sign(z: Number) -> Number:
    """Z over its size; zeros as they are."""
    r, whole = z[0].r, absolute(z)
    zero = r.emit("and", *(p.test("EQ", 0.0) for p in z))
    return z[0].where(zero, z[0] / whole), z[1].where(zero, z[1] / whole)


def _large(x: Real) -> Instruction:
    """Whether squares would overflow, or 1 makes no difference to them."""
    return x.test("GT", 1e6)


def _quarter_plane(z: Number) -> tuple[Real, Real]:
    """Of |x| + i |y|: the root d by which the real parts are atan2(x, d) of the arc sine and atan2(d, x) of the arc
    cosine, and the size of the imaginary part of both.  Hull, Fairgrieve and Tang: "Implementing the complex arcsine
    and arccosine functions using exception handling" (1997).
    """
    x, y = (part.of("abs") for part in z)
    right, left = absolute((x + 1.0, y)), absolute((x - 1.0, y))
    middle = (right + left) * 0.5
    inside = x.test("LE", 1.0)
    far, near = right + (x + 1.0), left + (x - 1.0).of("abs")
    inverse = x.like(1.0).where(near.test("EQ", 0.0), near)
    both = (x.like(1.0) / far + x.like(1.0) / inverse) * 0.5
    across = y * (both * (middle + x)).of("sqrt")
    root = ((middle + x) * (y * (y / far) + near) * 0.5).of("sqrt").where(inside, across)
    less = (y * (y / far) + near) * 0.5
    beyond = less + (less * (middle + 1.0)).of("sqrt")
    before = y * y * both + y * (both * (middle + 1.0)).of("sqrt")
    size = before.where(x.test("LT", 1.0), beyond).of("log-plus-one")
    large = x.r.emit("or", _large(x), _large(y))
    return y.where(large, root), (logarithm(z)[0] + log(2)).where(large, size)


def arc_sine(z: Number) -> Number:
    """The arc sine."""
    root, imag = _quarter_plane(z)
    return z[0].of("atan2", root), with_sign(imag, z[1])


def arc_cosine(z: Number) -> Number:
    """The arc cosine."""
    root, imag = _quarter_plane(z)
    return root.of("atan2", z[0]), -with_sign(imag, z[1])


def arc_cosine_hyperbolic(z: Number) -> Number:
    """As far from the real axis as the arc cosine, turned."""
    root, real = _quarter_plane(z)
    return real, with_sign(root.of("atan2", z[0]), z[1])


def arc_sine_hyperbolic(z: Number) -> Number:
    """Of x + iy the arc sine of y + ix, its parts exchanged."""
    imag, real = arc_sine((z[1], z[0]))
    return real, imag


def arc_tangent_hyperbolic(z: Number) -> Number:
    """log1p(4x / ((1-x)^2 + y^2)) / 4 and atan2(2y, (1-x) (1+x) - y^2) / 2; far out 1 / z and a quarter turn."""
    x, y = z[0].of("abs"), z[1].of("abs")
    less, whole = x.like(1.0) - x, absolute(z)
    real = (x * 4.0 / (less * less + y * y)).of("log-plus-one") * 0.25
    close = x.r.emit("and", x.test("EQ", 1.0), y.test("LT", 1e-6))
    real = ((y.of("log") - log(2)) * -0.5).where(close, real)
    imag = (y * 2.0).of("atan2", less * (x + 1.0) - y * y) * 0.5
    large = _large(whole)
    far = x.like(0.0).where(_infinite(whole), x / whole / whole)
    return with_sign(far.where(large, real), z[0]), with_sign(x.like(pi / 2).where(large, imag), z[1])


def arc_tangent(z: Number) -> Number:
    """Of x + iy the hyperbolic one of y + ix, its parts exchanged."""
    imag, real = arc_tangent_hyperbolic((z[1], z[0]))
    return real, imag


def arc_tangent_of(y: Number, x: Number) -> Number:
    """-i log((x + iy) / sqrt(x^2 + y^2))."""
    turned = x[0] - y[1], x[1] + y[0]
    (a, b), (c, d) = multiply(x, x), multiply(y, y)
    real, imag = logarithm(divide(turned, square_root((a + c, b + d))))
    return imag, -real


def sine_hyperbolic(z: Number) -> Number:
    """The hyperbolic sine; real on the real axis."""
    (sinh, cosh), y = _hyperbolic(z[0]), z[1]
    return _turned(z[0], sinh, y.of("cosine")), y.where(y.test("EQ", 0.0), cosh * y.of("sine"))


def cosine_hyperbolic(z: Number) -> Number:
    """The hyperbolic cosine; real on both axes."""
    (sinh, cosh), (x, y) = _hyperbolic(z[0]), z
    zero, imag = with_sign(x.like(0.0), y), sinh * y.of("sine")
    lost = x.r.emit("and", x.test("EQ", 0.0), imag.test("NE", imag))
    on_axis = x.r.emit("or", lost, y.test("EQ", 0.0))
    imag = (-zero).where(_is_negative(x), zero).where(on_axis, imag)
    return _turned(x, cosh, y.of("cosine")), imag


def _turned(x: Real, size: Real, turn: Real) -> Real:
    """A function of x times a sine or cosine; where that is NaN, the function alone if it is 0, or x infinite."""
    end = x.r.emit("or", size.test("EQ", 0.0), _infinite(x))
    return size.where(x.r.emit("and", end, turn.test("NE", turn)), size * turn)
