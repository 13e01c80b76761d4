"""The base of all operations of the builder: instructions, their names and attributes, and errors that wait."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from typing import Concatenate, ParamSpec, TypeVar, cast

from systolith.compiler.hlo.attributes import Alias, Fields, Raw, Sharding, TupleSharding
from systolith.compiler.hlo.errors import HloError, Place
from systolith.compiler.hlo.ir import Attribute, Computation, Instruction, Literal, Module
from systolith.compiler.hlo.lexer import Cursor
from systolith.compiler.hlo.rules.shape_rules import agree
from systolith.compiler.hlo.rules.shapes import infer
from systolith.compiler.hlo.shape import Shape, array
from systolith.compiler.hlo.text.codecs_devices import sharding as parse_sharding
from systolith.compiler.xla_builder.arguments import ShapeLike, as_shape, ints
from systolith.compiler.xla_builder.computation import XlaComputation
from systolith.compiler.xla_builder.names import Names, cpp_names
from systolith.compiler.xla_builder.op import Operators, XlaOp
from systolith.isa.dtypes import PRED

_PACKAGE = __name__.rpartition(".")[0]
_UNKNOWN = array(PRED)
"""Stands for the shape of an instruction whose operands and attributes give all of it."""

P = ParamSpec("P")
Self = TypeVar("Self", bound="Core")


class PoisonedError(HloError):
    """An operand is invalid because of an error that the builder has already."""

    def __init__(self, first: HloError | None) -> None:
        super().__init__(f"the value is invalid: {first}")


def _recorded(method: Callable[Concatenate[Self, P], XlaOp]) -> Callable[Concatenate[Self, P], XlaOp]:
    """A method whose errors the builder keeps, and which then returns an invalid value.

    An error in a method that another one calls is the outer one's.
    """

    @wraps(method)
    def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> XlaOp:
        if self._inside:
            return method(self, *args, **kwargs)
        self._inside = True
        try:
            return method(self, *args, **kwargs)
        except PoisonedError:
            return XlaOp(self, None)
        except HloError as problem:
            operands = ", ".join(islice(_listed([*args, *kwargs.values()]), 6))
            told = f" [operands {operands}]" if operands else ""
            return self.report_error(f"{cpp_names(method.__name__)[0]}: {problem.message}{told}")
        finally:
            self._inside = False

    return call


def _listed(arguments: Sequence[object]) -> Iterator[str]:
    """Names and shapes of the values among arguments, and in lists of them."""
    for argument in arguments:
        if isinstance(argument, XlaOp) and argument.instruction is not None:
            yield f"{argument.instruction.name} {argument.instruction.shape}"
        elif isinstance(argument, list | tuple):
            yield from _listed(argument)


def frontend_fields(attributes: dict[str, str]) -> Fields:
    """Frontend attributes as HLO has them: a dictionary as MLIR writes it stands without quotes."""
    return {key: Raw(text) if text.startswith("{") else text for key, text in attributes.items()}


def _caller() -> Place:
    """The line, outside of this package, that called it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    return Place(file, line, 0, linecache.getline(file, line).rstrip())


class Core(Operators):
    """A list of instructions that grows, and the state that new ones take over.

    Every public method of a subclass that gives an `XlaOp` keeps its errors: the first is recorded with the line that
    called, the method gives an invalid value, and so does all that follows; `build()` raises the error.

    Attributes:
        name: name of the computation.
        client: the client that the first generation's constructor takes; nothing here uses it.
        parent: the builder of which this is a sub-builder, or None.
        die_immediately_on_error: errors are raised where they arise.
    """

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if not name.startswith("_") and getattr(method, "__annotations__", {}).get("return") == "XlaOp":
                setattr(cls, name, _recorded(method))

    def __init__(self, client: object, name: str | None = None) -> None:
        """A builder of the computation called `name`: `XlaBuilder(name)` or `XlaBuilder(client, name)`."""
        if name is None:
            client, name = None, cast(str, client)
        if not isinstance(name, str):
            raise HloError(f"a builder takes the name of its computation, got {name!r}")
        self.client = client
        self.name = name
        self.parent: Core | None = None
        self.die_immediately_on_error = False
        self._instructions: list[Instruction] = []
        self._names = Names()
        self._inside = False
        self._first_error: HloError | None = None
        self._root: Instruction | None = None
        self._metadata: Fields = {}
        self._next_metadata: Fields | None = None
        self._scopes: list[str] = []
        self._sharding: Sharding | TupleSharding | None = None
        self._frontend: dict[str, str] = {}
        self._traces: list[tuple[str, Instruction]] = []
        self._parameters: list[Instruction] = []
        self._aliases: list[Alias] = []
        self._donors: list[tuple[int, tuple[int, ...]]] = []
        self._infeed_token: XlaOp | None = None
        self._outfeed_token: XlaOp | None = None

    def create_sub_builder(self: Self, computation_name: str) -> Self:
        """A builder of a computation that this one uses; errors are raised at once if they are here."""
        found = type(self)(computation_name)
        found.parent = self
        found.die_immediately_on_error = self.die_immediately_on_error
        return found

    # Errors

    @property
    def first_error(self) -> HloError | None:
        """The first error; None while there is none."""
        return self._first_error

    def set_die_immediately_on_error(self, enabled: bool) -> None:
        """Raise errors where they arise, instead of in `build()`."""
        self.die_immediately_on_error = enabled

    def report_error(self, error: HloError | str) -> XlaOp:
        """Keep an error, if it is the first, with the line that called; gives an invalid value.

        Raises:
            HloError: the error, where the builder is to die immediately.
        """
        message = error.message if isinstance(error, HloError) else str(error)
        placed = HloError(message, error.place if isinstance(error, HloError) and error.place else _caller())
        if self._first_error is None:
            self._first_error = placed
        if self.die_immediately_on_error:
            raise placed
        return XlaOp(self, None)

    # Shapes

    def get_shape(self, operand: XlaOp) -> Shape:
        """The inferred shape of a value.

        Raises:
            HloError: the first error, if the value is invalid; or the value is another builder's.
        """
        if isinstance(operand, XlaOp) and operand.instruction is None and operand.builder.first_error:  # type: ignore[redundant-expr]
            raise operand.builder.first_error
        return self._instruction(operand).shape

    def check_shape(self, operand: XlaOp, expected_shape: ShapeLike) -> XlaOp:
        """The operand, if it has the expected shape, layouts aside.

        Raises:
            HloError: it has not: a check fails at once.
        """
        shape, expected = self.get_shape(operand), as_shape(expected_shape)
        if not shape.same(expected):
            raise HloError(f"CheckShape: expected {expected}, got {shape}", _caller())
        return operand

    def check_same_shape(self, lhs: XlaOp, rhs: XlaOp) -> None:
        """Two values have one shape, layouts aside.

        Raises:
            HloError: they have not.
        """
        left, right = self.get_shape(lhs), self.get_shape(rhs)
        if not left.same(right):
            raise HloError(f"CheckSameShape: {left} and {right} differ", _caller())

    # Metadata, sharding and attributes of new instructions

    def set_op_metadata(self, **metadata: str | int) -> None:
        """Metadata of the instructions to come: `op_type`, `op_name`, `source_file`, `source_line`."""
        self._metadata = dict(metadata)

    def set_one_shot_op_metadata(self, **metadata: str | int) -> None:
        """Metadata of the next instruction only."""
        self._next_metadata = dict(metadata)

    def clear_op_metadata(self) -> None:
        self._metadata = {}

    @contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """Instructions made inside have `name/` before their `op_name`; scopes nest."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def set_sharding(self, sharding: str) -> None:
        """The sharding of the instructions to come, as HLO text: `{replicated}`, `{devices=[2,1]<=[2]}`.

        Raises:
            HloError: the text is no sharding.
        """
        self._sharding = parse_sharding(Cursor(sharding, "<sharding>"))

    def clear_sharding(self) -> None:
        self._sharding = None

    @property
    def sharding(self) -> str | None:
        """The sharding that new instructions get, as text."""
        return None if self._sharding is None else str(self._sharding)

    @contextmanager
    def scoped_sharding(self, sharding: str | None) -> Iterator[None]:
        """Another sharding, or none, for the instructions made inside."""
        saved = self._sharding
        self._sharding = None if sharding is None else parse_sharding(Cursor(sharding, "<sharding>"))
        try:
            yield
        finally:
            self._sharding = saved

    def set_frontend_attributes(self, attributes: dict[str, str]) -> None:
        """Frontend attributes of the instructions to come."""
        self._frontend = dict(attributes)

    def clear_frontend_attributes(self) -> None:
        self._frontend = {}

    @property
    def frontend_attributes(self) -> dict[str, str]:
        """The frontend attributes that new instructions get."""
        return dict(self._frontend)

    def set_instruction_frontend_attribute(self, op: XlaOp, attribute: str, value: str) -> None:
        """Set one frontend attribute of an instruction that is there already."""
        self._add_frontend(self._instruction(op), {attribute: value})

    def set_instruction_sharding(self, op: XlaOp, sharding: str | None) -> None:
        """Set the sharding of an instruction that is there already; None removes it."""
        instruction = self._instruction(op)
        instruction.attributes.pop("sharding", None)
        if sharding is not None:
            instruction.attributes["sharding"] = parse_sharding(Cursor(sharding, "<sharding>"))

    # Instructions

    def _emit(
        self,
        opcode: str,
        operands: Sequence[XlaOp] = (),
        shape: Shape | None = None,
        *,
        stem: str | None = None,
        value: Literal | None = None,
        number: int | None = None,
        **attributes: Attribute | None,
    ) -> XlaOp:
        """Add an instruction; attributes of None are left out.

        Args:
            opcode: XLA's name.
            operands: values of this builder.
            shape: of the result; where operands and attributes decide it, None or the part that they leave open.
            stem: wanted name; the opcode if None.
            value: of a constant.
            number: of a parameter.
            attributes: of the instruction.

        Raises:
            HloError: a rule of the operation is broken.
            PoisonedError: the builder has an error already.
        """
        if self._first_error is not None:
            raise PoisonedError(self._first_error)
        taken = [self._instruction(operand) for operand in operands]
        given: dict[str, Attribute] = {key: held for key, held in attributes.items() if held is not None}
        made = Instruction("", opcode, shape or _UNKNOWN, taken, given, value, number)
        inferred = infer(made)
        made.shape = shape if shape is not None and agree(shape, inferred) else inferred
        self._decorate(made)
        made.name = self._names.unique(stem or opcode)
        self._instructions.append(made)
        return XlaOp(self, made)

    def _instruction(self, operand: XlaOp) -> Instruction:
        if not isinstance(operand, XlaOp):
            raise HloError(f"an operand is a value of a builder (XlaOp), got {type(operand).__name__}")
        if operand.builder is not self:
            raise HloError(f"operand {operand!r} belongs to the builder of {operand.builder.name!r}")
        if operand.instruction is None:
            raise PoisonedError(self._first_error)
        return operand.instruction

    def _decorate(self, made: Instruction) -> None:
        if self._sharding is not None:
            made.attributes["sharding"] = self._sharding
        if self._frontend:
            self._add_frontend(made, self._frontend)
        metadata = self._metadata if self._next_metadata is None else self._next_metadata
        self._next_metadata = None
        if self._scopes:
            name = "/".join([*self._scopes, str(metadata.get("op_name", made.opcode))])
            metadata = {**metadata, "op_name": name}
        if metadata:
            made.attributes["metadata"] = dict(metadata)

    def _add_frontend(self, made: Instruction, attributes: dict[str, str]) -> None:
        """Merge frontend attributes into an instruction's."""
        known = cast(Fields, made.attributes.get("frontend_attributes", {}))
        made.attributes["frontend_attributes"] = {**known, **frontend_fields(attributes)}

    def _dims(self, operand: XlaOp) -> tuple[int, ...]:
        """Sizes of an array.

        Raises:
            HloError: the value is no array.
        """
        shape = self._instruction(operand).shape
        if not shape.is_array:
            raise HloError(f"the operand is an array, got {shape}")
        return shape.dims

    def _axis(self, dimension: int, rank: int, name: str = "dimension") -> int:
        (found,) = ints([dimension], name)
        if not 0 <= found < rank:
            raise HloError(f"{name} is 0 to {rank - 1}, got {found}")
        return found

    def _embedded(self, computation: XlaComputation | Module) -> Computation:
        """The computation of another builder, to be called from an instruction."""
        found = XlaComputation.of(computation)
        if not found:
            if self._first_error is not None:
                raise PoisonedError(self._first_error)
            raise HloError(f"computation {found.name!r} could not be built")
        return found.entry
