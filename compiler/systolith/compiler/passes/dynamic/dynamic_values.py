"""Arrays of dynamic sizes as arrays of their bounds with their actual sizes as scalars.

Elements beyond the actual sizes are arbitrary, so that an operation for which they matter masks them first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from systolith.compiler.errors import CompileError, compile_error
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.passes.callees import Callees
from systolith.compiler.passes.real_expression import Real
from systolith.compiler.passes.rewrite import Rewriter
from systolith.isa.dtypes import PRED, S32

Sizes = Mapping[int, Instruction]
"""By dimension: an s32; dimensions that are not there have their bound."""


@dataclass(frozen=True)
class Padded:
    """An array (or a token).

    Attributes:
        i: of the bounds.
        sizes: the actual ones.
    """

    i: Instruction
    sizes: Sizes = field(default_factory=dict)


Value = Padded | tuple["Value", ...]
"""The value that stands for an instruction: an array, or the elements of a tuple."""


def static(shape: Shape) -> Shape:
    """The shape of the bounds."""
    return replace(shape, dynamic=(), elements=tuple(map(static, shape.elements)))


def leaves(value: Value) -> Iterator[Padded]:
    """The arrays in it, depth first."""
    if isinstance(value, Padded):
        yield value
    else:
        for part in value:
            yield from leaves(part)


def rebuilt(shape: Shape, parts: Iterator[Padded]) -> Value:
    """A value of a shape, of its arrays in order."""
    return tuple(rebuilt(e, parts) for e in shape.elements) if shape.is_tuple else next(parts)


class Padder(Rewriter):
    """Rewrites one computation.

    Attributes:
        callees: makes computations.
        of: what stands for an instruction.
    """

    def __init__(self, computation: Computation, callees: Callees) -> None:
        super().__init__(computation)
        self.callees = callees
        self.of: dict[Instruction, Value] = {}
        self._bounded: dict[tuple[Instruction, int], Instruction] = {}

    def at(self, i: Instruction) -> None:
        """From here on instructions are made for this one."""
        self._at = i

    def keep(self, i: Instruction) -> None:
        """Have an instruction stand here as it is."""
        self._out.append(i)

    def whole(self, value: Value) -> Instruction:
        """It as one instruction, without its sizes."""
        return value.i if isinstance(value, Padded) else self.emit("tuple", *map(self.whole, value))

    def opened(self, i: Instruction, sizes: Sizes | None = None) -> Value:
        """The value of an instruction without dynamic sizes, or of which all arrays have these."""
        if not i.shape.is_tuple:
            return Padded(i, sizes or {})
        parts = (self.emit("get-tuple-element", i, index=k) for k in range(len(i.shape.elements)))
        return tuple(self.opened(part, sizes) for part in parts)

    def same(self, i: Instruction, operands: Sequence[Instruction], **attributes: Attribute) -> Instruction:
        """The same operation on arrays of the bounds."""
        made = self.like(i, operands, static(i.shape))
        made.attributes = {k: v for k, v in made.attributes.items() if k != "sharding"} | attributes
        return made

    # Sizes.

    def number(self, n: int) -> Real:
        """A size that is known."""
        return Real(self, self.constant(n, S32))

    def size(self, x: Padded, d: int) -> Real:
        """The actual size of a dimension."""
        return Real(self, x.sizes[d]) if d in x.sizes else self.number(x.i.dims[d])

    def bounded(self, n: Instruction, bound: int) -> Instruction:
        """A number as a size within 0 and a bound; made once."""
        if (n, bound) not in self._bounded:
            scalar = Real(self, self.converted(self.reshaped(n, ()), S32))
            self._bounded[n, bound] = scalar.of("maximum", 0).of("minimum", bound).i
        return self._bounded[n, bound]

    def least(self, found: Sequence[Instruction]) -> Instruction:
        """The least of some sizes."""
        least = Real(self, found[0])
        for other in found[1:]:
            least = least if other is least.i else least.of("minimum", Real(self, other))
        return least.i

    # Masks.

    def inside(self, shape: Shape, sizes: Sizes) -> Instruction:
        """Where an element lies within the sizes, which are some."""
        tests = [
            Real(self, self.emit("iota", shape=array(S32, shape.dims), iota_dimension=d)).test(
                "LT", Real(self, self.spread(n, array(S32, shape.dims)))
            )
            for d, n in sizes.items()
        ]
        found = tests[0]
        for test in tests[1:]:
            found = self.emit("and", found, test, shape=array(PRED, shape.dims))
        return found

    def masked(self, x: Padded, fill: Instruction | float, dims: Sequence[int] | None = None) -> Instruction:
        """With one value beyond the actual sizes, of some dimensions or of all."""
        sizes = {d: n for d, n in x.sizes.items() if dims is None or d in dims}
        if not sizes:
            return x.i
        scalar = fill if isinstance(fill, Instruction) else self.constant(fill, x.i.shape.dtype)
        return Real(self, x.i).where(self.inside(x.i.shape, sizes), Real(self, self.spread(scalar, x.i.shape))).i


Rule = Callable[[Padder, Instruction, Sequence[Padded]], Value]
"""Makes what stands for an instruction of what stands for its operands, all of them arrays."""


def refused(i: Instruction, why: str = "of dynamic sizes has no lowering") -> CompileError:
    """The error that says so of an instruction."""
    return compile_error(i, f"{why}; pad to the bound, and take the size as an operand")
