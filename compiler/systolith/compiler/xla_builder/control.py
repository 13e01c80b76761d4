"""Branches, computations that stand for an operation, and calls of code outside of the module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from systolith.compiler.hlo.attributes import Alias, Raw, Window
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.xla_builder.arguments import Ints, ShapeLike, as_shape, expect, integer, ints, sequence
from systolith.compiler.xla_builder.contraction import ConvolutionDimensionNumbers
from systolith.compiler.xla_builder.core import frontend_fields
from systolith.compiler.xla_builder.literal import Literal
from systolith.compiler.xla_builder.numeric import Numeric
from systolith.compiler.xla_builder.op import XlaOp, several
from systolith.compiler.xla_builder.reduction import Callee
from systolith.isa.dtypes import PRED

_EITHER = ("true_operand", "true_computation", "false_operand", "false_computation")
_INDEXED = ("branch_computations", "branch_operands")
Aliasing = Sequence[tuple[Ints, tuple[int, Ints]]]


class Control(Numeric):
    """Composites, branches, fusions, custom calls."""

    def composite_call(
        self,
        computation: Callee,
        operands: Sequence[XlaOp],
        name: str,
        attributes: str | None = None,
        version: int | None = None,
    ) -> XlaOp:
        """The result of an operation that is made of others and may be replaced by one of the same name.

        Args:
            computation: the decomposition.
            operands: its arguments.
            name: of the operation.
            attributes: a dictionary as MLIR writes it: `{n = 1 : i32}`.
            version: of its meaning.
        """
        composite = {
            "composite.name": expect(name, str, "name"),
            "composite.attributes": "{}" if attributes is None else expect(attributes, str, "attributes"),
            "composite.version": "0" if version is None else str(integer(version, "version")),
        }
        return self._emit(
            "call",
            several(operands),
            to_apply=self._embedded(computation),
            is_composite=True,
            frontend_attributes=frontend_fields(composite),
        )

    @overload
    def conditional(
        self, predicate: XlaOp, /, true_operand: XlaOp, true_computation: Callee, false_operand: XlaOp,
        false_computation: Callee,
    ) -> XlaOp: ...  # fmt: skip

    @overload
    def conditional(
        self, branch_index: XlaOp, /, branch_computations: Sequence[Callee], branch_operands: Sequence[XlaOp]
    ) -> XlaOp: ...

    def conditional(self, selector: XlaOp, /, *arguments: Any, **named: Any) -> XlaOp:
        """The result of one of several computations; only that one runs.

        A pred chooses between two.  An index (s32) that is out of range takes the last; in that form a pred takes the
        first of two where it is true.
        """
        for names in (_EITHER, _INDEXED):
            if len(arguments) + len(named) == len(names) and set(named) == set(names[len(arguments) :]):
                given = [*arguments, *(named[name] for name in names[len(arguments) :])]
                break
        else:
            raise HloError(f"takes {', '.join(_EITHER)}; or {', '.join(_INDEXED)}")
        if names is _EITHER:
            return self._predicated(selector, given[1::2], given[0::2])
        branches, operands = list(sequence(given[0], _INDEXED[0])), several(given[1])
        if not branches or len(branches) != len(several(operands)):
            raise HloError(f"{len(branches)} branches take as many operands, got {len(operands)}")
        if self._array(selector).dtype == PRED and len(branches) == 2:
            return self._predicated(selector, branches, operands)
        found = tuple(self._embedded(branch) for branch in branches)
        return self._emit("conditional", [selector, *operands], branch_computations=found)

    def _predicated(self, predicate: XlaOp, branches: Sequence[Callee], operands: Sequence[XlaOp]) -> XlaOp:
        on_true, on_false = (self._embedded(c) for c in branches)
        return self._emit("conditional", [predicate, *operands], true_computation=on_true, false_computation=on_false)

    def custom_call(
        self,
        call_target_name: str,
        operands: Sequence[XlaOp],
        shape: ShapeLike,
        opaque: str = "",
        has_side_effect: bool = False,
        output_operand_aliasing: Aliasing = (),
        literal: Literal | None = None,
        schedule: str | None = None,
        api_version: str | None = None,
        *,
        computation: Callee | None = None,
        operand_shapes_with_layout: Sequence[ShapeLike] | None = None,
        window: Window | None = None,
        dnums: ConvolutionDimensionNumbers | None = None,
    ) -> XlaOp:
        """A call of code outside of the module.

        Args:
            call_target_name: the code's name.
            operands: its arguments.
            shape: of its result.
            opaque: text for the code.
            has_side_effect: it may do more than give a result.
            output_operand_aliasing: (index in the result, (number of the operand, index in it)) of shared memory.
            literal: a constant for the code.
            schedule: SCHEDULE_LATEST or SCHEDULE_EARLIEST; none by default.
            api_version: such as API_VERSION_STATUS_RETURNING; the original by default.
            computation: applied by the code.
            operand_shapes_with_layout: shapes, with layouts, that the operands are to have.
            window: of a convolution.
            dnums: dimension numbers of a convolution.
        """
        if expect(call_target_name, str, "call_target_name").startswith("$"):
            raise HloError(f"target {call_target_name!r}: names that start with '$' are XLA's own")
        layouts = operand_shapes_with_layout
        if layouts is not None and len(sequence(layouts, "operand_shapes_with_layout")) != len(several(operands)):
            raise HloError(f"{len(operands)} operands have as many shapes with layouts, got {len(layouts)}")
        aliases = tuple(map(_alias, sequence(output_operand_aliasing, "output_operand_aliasing")))
        return self._emit(
            "custom-call",
            several(operands),
            as_shape(shape),
            window=window,
            dim_labels=dnums.labels() if dnums else None,
            custom_call_target=call_target_name,
            called_computations=None if computation is None else (self._embedded(computation),),
            operand_layout_constraints=None if layouts is None else tuple(map(as_shape, layouts)),
            custom_call_has_side_effect=True if has_side_effect else None,
            output_to_operand_aliasing=aliases or None,
            literal=Raw(str(literal)) if literal is not None else None,
            schedule=schedule,
            api_version=api_version,
            backend_config=opaque or None,
        )

    def custom_call_with_computation(
        self, call_target_name: str, operands: Sequence[XlaOp], computation: Callee, shape: ShapeLike, opaque: str = "",
        has_side_effect: bool = False,
    ) -> XlaOp:  # fmt: skip
        """A call of code that applies a computation."""
        return self.custom_call(call_target_name, operands, shape, opaque, has_side_effect, computation=computation)

    def custom_call_with_layout(
        self, call_target_name: str, operands: Sequence[XlaOp], shape_with_layout: ShapeLike,
        operand_shapes_with_layout: Sequence[ShapeLike], opaque: str = "", has_side_effect: bool = False,
    ) -> XlaOp:  # fmt: skip
        """A call of code that takes and gives arrays of fixed layouts."""
        layouts = operand_shapes_with_layout
        return self.custom_call(
            call_target_name, operands, shape_with_layout, opaque, has_side_effect, operand_shapes_with_layout=layouts
        )

    def fusion(self, operands: Sequence[XlaOp], fusion_kind: str, fused_computation: Callee) -> XlaOp:
        """A computation that a compiler makes one kernel of; `kLoop`, `kInput`, `kOutput` or `kCustom`."""
        return self._emit("fusion", several(operands), kind=fusion_kind, calls=self._embedded(fused_computation))

    def bitcast(self, operand: XlaOp, shape: ShapeLike) -> XlaOp:
        """The operand's memory as another shape."""
        return self._emit("bitcast", [operand], as_shape(shape))

    def add_dependency(self, operand: XlaOp, token: XlaOp) -> XlaOp:
        """The operand, once the token is there."""
        return self._emit("add-dependency", [operand, token], self._instruction(operand).shape)


def _alias(pair: tuple[Ints, tuple[int, Ints]]) -> Alias:
    """(index in the result, (number of the operand, index in it))."""
    try:
        output, (number, inner) = pair
    except (TypeError, ValueError):
        raise HloError(f"an alias is (index, (operand, index)), got {pair!r}") from None
    return Alias(ints(output, "index"), integer(number, "operand"), ints(inner, "index"))
