"""The reference evaluator: the values of a module, in plain numpy.

Each operation runs as simply as its definition, on whole arrays, and rounds to its element type.  Values are numpy
arrays of `shape.dtype.stored`, tuples of values, and the empty tuple for a token.  With several devices each runs the
module by itself (`devices.py`); their joint operations are in `collectives.py` and `channels.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, cast

import numpy as np

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.feed_configs import feed_configs
from systolith.compiler.hlo.ir import Computation, Instruction, Literal, Module
from systolith.compiler.hlo.rules.shapes_control import branches
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.trampoline import Steps, trampoline
from systolith.compiler.hlo.values.async_ops import ASYNC, started
from systolith.compiler.hlo.values.channels import recv, recv_done, send
from systolith.compiler.hlo.values.collectives import COLLECTIVES
from systolith.compiler.hlo.values.contraction import PRECISIONS, convolution, dot
from systolith.compiler.hlo.values.convert import from_file
from systolith.compiler.hlo.values.custom_calls import custom_call, is_marker
from systolith.compiler.hlo.values.devices import Device, Host, Turns, single
from systolith.compiler.hlo.values.elementwise import ELEMENTWISE, elementwise
from systolith.compiler.hlo.values.feeds import infeed, outfeed
from systolith.compiler.hlo.values.group_modes import Groups, grid
from systolith.compiler.hlo.values.host_calls import host_call, is_host_call
from systolith.compiler.hlo.values.indexing import gather, scatter
from systolith.compiler.hlo.values.linalg import LINALG
from systolith.compiler.hlo.values.loop_limit import LoopLimit
from systolith.compiler.hlo.values.manual_sharding import MANUAL_SHARDING
from systolith.compiler.hlo.values.movement import MOVEMENT
from systolith.compiler.hlo.values.orders import any_order, changes_nothing
from systolith.compiler.hlo.values.ragged import ragged_dot, scaled_dot
from systolith.compiler.hlo.values.random_bits import rng_bit_generator
from systolith.compiler.hlo.values.reduction import reduce, reduce_window, select_and_scatter
from systolith.compiler.hlo.values.rng import rng, rng_state
from systolith.compiler.hlo.values.scanning import scan
from systolith.compiler.hlo.values.sorting import sort, top_k
from systolith.isa.checked import as_array, checked
from systolith.isa.errors import SystolithError


class EvaluationError(HloError):
    """An instruction cannot be evaluated; the message names it."""


Observer = Callable[[Instruction, Literal], None]
"""Called with each instruction of the entry computation and its value."""


@checked
def evaluate(
    module: Module,
    *arrays: np.ndarray,
    precision: str | None = None,
    observe: Observer | None = None,
    max_iterations: int | None = None,
) -> list[np.ndarray]:
    """Run a module.

    Args:
        module: a verified module.
        arrays: the entry computation's parameters, one array per leaf (tuples flattened); bf16 and fp8 arrays may come
            as their unsigned bits.
        precision: `default`, `high` or `highest` for every dot and convolution; None: that of each.
        observe: called with each instruction of the entry computation and its value.
        max_iterations: that all its while loops may take together; None: any number.

    Returns:
        The results, tuples flattened, tokens left out.

    Raises:
        HloError: arguments do not fit, an operation is not implemented, or loops take too many iterations; names the
            instruction.
    """
    run = _Run(precision, module, max_iterations)
    result = run.call(module.entry, _arguments(module, arrays), observe)
    return [np.array(x, order="C") for x in flatten(result)]


@dataclass(frozen=True)
class DeviceResult:
    """The outcome of one device.

    Attributes:
        values: the results, tuples flattened, tokens left out.
        outfeeds: the values that it put out, in order, by config; where all outfeeds have one, by the empty one.
        sent: per channel, the values that it sent to the host, in order.
        infeeds_left: values of its infeed that it did not take, by config.
    """

    values: list[np.ndarray]
    outfeeds: dict[str, list[Literal]]
    sent: dict[int, list[Literal]]
    infeeds_left: dict[str, list[Literal]]

    @property
    def outfeed(self) -> list[Literal]:
        """The values that it put out, where all outfeeds have one config."""
        return self.outfeeds.get("", [])

    @property
    def infeed_left(self) -> list[Literal]:
        """The values of its infeed that it did not take, where all infeeds have one config."""
        return self.infeeds_left.get("", [])


def evaluate_devices(
    module: Module,
    arguments: Sequence[Sequence[np.ndarray]],
    *,
    replicas: int | None = None,
    partitions: int | None = None,
    hosts: Sequence[Host] = (),
    precision: str | None = None,
    max_iterations: int | None = None,
) -> list[DeviceResult]:
    """Run a module on every device of a grid of replicas x partitions, all at once.

    Args:
        module: a verified module, which all devices run (of a partitioned module, the part that each runs).
        arguments: per device those of `evaluate`.  Device number = replica * partitions + partition.
        replicas, partitions: None: as the module says, or as few as its groups need (`group_modes.grid`).
        hosts: per device its infeed and its channels from the host; none at all: nothing for any.
        precision, max_iterations: as for `evaluate`, on each device.

    Returns:
        The results of each device.

    Raises:
        HloError: as `evaluate`; devices wait for each other forever, or one needs more than its host gives; names the
            first instruction that cannot go on.
    """
    topology = grid(module, replicas, partitions)
    for what, given in (("arguments", arguments), ("hosts", hosts or arguments)):
        if len(given) != topology.count:
            raise HloError(f"{module.name!r} runs on {topology}, got {what} for {len(given)}")
    turns = Turns(topology.count)
    configs = feed_configs(module)
    devices = [Device(n, topology, turns, host, configs) for n, host in enumerate(hosts or [Host()] * topology.count)]
    shared = _Run(precision, module, max_iterations)
    values = [_arguments(module, arrays) for arrays in arguments]

    def program(device: Device) -> Callable[[], Literal]:
        return lambda: shared.on(device).call(module.entry, values[device.number])

    results = turns.run([program(device) for device in devices])
    for channel, source, target in turns.unreceived():
        raise HloError(
            f"{module.name!r}: device {target} never receives what device {source} sends on channel {channel}"
        )
    return [_result(device, value) for device, value in zip(devices, results, strict=True)]


def _result(device: Device, value: Literal) -> DeviceResult:
    left = {config: list(values) for config, values in device.infeeds.items()}
    return DeviceResult([np.array(x, order="C") for x in flatten(value)], device.outfeeds, device.sent, left)


def _arguments(module: Module, arrays: Sequence[np.ndarray]) -> list[Literal]:
    """Values of the entry computation's parameters."""
    parameters = module.entry.parameters
    leaves = [leaf for p in parameters for leaf in p.shape.arrays]
    if len(arrays) != len(leaves):
        raise HloError(f"{module.name!r} takes {len(leaves)} arrays, got {len(arrays)}")
    taken: list[np.ndarray] = []
    for number, (array, shape) in enumerate(zip(arrays, leaves, strict=True)):
        try:
            taken.append(from_file(as_array(array), shape))
        except SystolithError as problem:
            raise HloError(f"argument {number} of {module.name!r}: {problem}") from None
    rest = iter(taken)
    return [_build(p.shape, rest) for p in parameters]


def evaluate_computation(
    computation: Computation,
    arguments: Sequence[Literal],
    precision: str | None = None,
    observe: Observer | None = None,
) -> Literal:
    """Run one computation on values of its parameters' shapes; returns its result's value.

    Raises:
        HloError: an operation is not implemented; names the instruction.
    """
    if len(arguments) != len(computation.parameters):
        raise HloError(f"{computation.name!r} takes {len(computation.parameters)} values, got {len(arguments)}")
    return _Run(precision, None).call(computation, arguments, observe)


def evaluate_instruction(i: Instruction, operands: Sequence[Literal], precision: str | None = None) -> Literal:
    """The value of one instruction on operands' values; of moves of elements, on arrays of any element type."""
    return _Run(precision, None).step(i, list(operands))


def in_any_order(computation: Computation) -> bool:
    """Whether a reduction by a computation may combine elements in any order: see `orders.any_order`."""
    return any_order(computation, _Run(None, None))


def is_neutral(computation: Computation, values: Sequence[np.ndarray]) -> bool:
    """Whether a reduction by a computation may combine initial values any number of times: `orders.changes_nothing`."""
    return changes_nothing(computation, values, _Run(None, None))


def flatten(value: Literal) -> list[np.ndarray]:
    """The arrays of a value, tuples depth first."""
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in flatten(item)]
    return [value]


def _build(shape: Shape, arrays: Iterator[np.ndarray]) -> Literal:
    """A value of a shape from an iterator over its arrays."""
    if shape.is_tuple:
        return tuple(_build(element, arrays) for element in shape.elements)
    return next(arrays) if shape.is_array else ()


class _Run:
    """One evaluation: precision, device, and facts about computations, which all devices share."""

    def __init__(self, precision: str | None, module: Module | None, max_iterations: int | None = None) -> None:
        if precision is not None and precision not in PRECISIONS:
            raise HloError(f"unknown precision {precision!r}; known: {', '.join(PRECISIONS)}")
        self.precision = precision
        self.module = module
        self.loops = LoopLimit(max_iterations)
        self.device = single()
        self.groups: dict[Instruction, Groups] = {}
        self.sources: dict[Instruction, dict[int, int]] = {}
        self._plans: dict[Computation, list[tuple[Instruction, list[Instruction]]]] = {}
        self._scalar: dict[Computation, bool] = {}

    def on(self, device: Device) -> _Run:
        """The same on a device."""
        other = copy.copy(self)
        other.device, other.loops = device, self.loops.anew()
        return other

    def call(self, computation: Computation, arguments: Sequence[Literal], observe: Observer | None = None) -> Literal:
        """The value of a computation."""
        return trampoline(self.steps(computation, arguments, observe))

    def steps(
        self, computation: Computation, arguments: Sequence[Literal], observe: Observer | None = None
    ) -> Steps[Literal]:
        """The value of a computation, its callees evaluated too."""
        values: dict[Instruction, Literal] = {}
        for instruction, last_used in self._plan(computation):
            operands = [values[o] for o in instruction.operands]
            if instruction.opcode == "parameter":
                values[instruction] = arguments[instruction.number or 0]
            elif instruction.opcode in CALLS:
                try:
                    values[instruction] = yield CALLS[instruction.opcode](self, instruction, operands)
                except EXPECTED as problem:
                    self._fail(instruction, problem)
            else:
                values[instruction] = self.step(instruction, operands)
            if observe is not None:
                observe(instruction, values[instruction])
            for operand in last_used:
                del values[operand]
        return values[computation.result]

    def _plan(self, computation: Computation) -> list[tuple[Instruction, list[Instruction]]]:
        """The instructions in order, each with those whose values nothing needs after it."""
        plan = self._plans.get(computation)
        if plan is None:
            plan = []
            seen = {computation.result}
            for instruction in reversed(computation.instructions):
                last = [o for o in dict.fromkeys(instruction.operands) if o not in seen]
                seen.update(last)
                plan.append((instruction, last))
            plan.reverse()
            self._plans[computation] = plan
        return plan

    def step(self, i: Instruction, operands: list[Literal]) -> Literal:
        """The value of one instruction."""
        handler = HANDLERS.get(i.opcode)
        try:
            if handler is None:
                raise HloError(f"the evaluator does not implement {i.opcode!r}")
            return handler(self, i, operands)
        except EXPECTED as problem:
            self._fail(i, problem)

    def _fail(self, i: Instruction, problem: Exception) -> NoReturn:
        """Raise an instruction's exception, with its name unless one is named already."""
        if isinstance(problem, EvaluationError):
            raise problem
        known = isinstance(problem, HloError)
        message = problem.message if isinstance(problem, HloError) else f"cannot be evaluated: {problem}"
        error = EvaluationError(f"{i.opcode} {i.name!r} ({i.shape}): {message}", i.place)
        raise error from None if known else problem

    def map(self, computation: Computation, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run a computation on scalars for every element of arrays that broadcast; results, tuples flattened."""
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        leaves = list(computation.result.shape.leaves())
        if trampoline(self._on_scalars(computation)):
            results = flatten(trampoline(self._lifted(computation, list(arrays))))
            return [np.broadcast_to(x, shape) for x in results]
        results = [np.empty(shape, leaf.dtype.stored) for leaf in leaves]
        spread = [np.broadcast_to(x, shape) for x in arrays]
        for index in np.ndindex(*shape):
            values = flatten(self.call(computation, [np.asarray(x[index]) for x in spread]))
            for result, value in zip(results, values, strict=True):
                result[index] = value
        return results

    def _on_scalars(self, computation: Computation) -> Steps[bool]:
        """Whether a computation has only operations on scalars, so that it runs on arrays as it is."""
        known = self._scalar.get(computation)
        if known is None:
            known = all(
                (i.opcode in ELEMENTWISE or i.opcode in _LIFTED or is_marker(i))
                and all(leaf.is_array and leaf.rank == 0 for leaf in i.shape.leaves())
                for i in computation.instructions
            )
            for called in dict.fromkeys(c for i in computation.instructions for c in i.called) if known else ():
                known = known and (yield self._on_scalars(called))
            self._scalar[computation] = known
        return known

    def _lifted(self, computation: Computation, arguments: Sequence[Literal]) -> Steps[Literal]:
        values: dict[Instruction, Literal] = {}
        for i in computation.instructions:
            operands = [values[o] for o in i.operands]
            if i.opcode == "parameter":
                values[i] = arguments[i.number or 0]
            elif i.opcode in ("reshape", "broadcast", "bitcast", "transpose"):
                values[i] = operands[0] if i.opcode != "bitcast" else _lifted_bitcast(i, operands[0])
            elif i.opcode in ("call", "fusion", "map"):
                values[i] = yield self._lifted(i.called[0], operands)
            else:
                values[i] = self.step(i, operands)
        return values[computation.result]


def _lifted_bitcast(i: Instruction, value: Literal) -> Literal:
    flat = np.asarray(value)
    return np.ascontiguousarray(flat).view(i.shape.dtype.stored).reshape(flat.shape)


_LIFTED = frozenset(
    """parameter constant tuple get-tuple-element call fusion map reshape broadcast bitcast bitcast-convert transpose
    opt-barrier add-dependency domain""".split()
)
"""Opcodes that, besides the elementwise ones, act on arrays as on each of their scalars."""

Handler = Callable[[_Run, Instruction, list[Literal]], Literal]


def _arrays(values: list[Literal]) -> list[np.ndarray]:
    return cast("list[np.ndarray]", values)


def _constant(run: _Run, i: Instruction, values: list[Literal]) -> Literal:
    if i.literal is None:
        raise HloError("its values are left out of the text ('{...}'); print the module with large constants")
    return i.literal


def _call(run: _Run, i: Instruction, values: list[Literal]) -> Steps[Literal]:
    result: Literal = yield run.steps(i.called[0], values)
    return result


def _async_start(run: _Run, i: Instruction, values: list[Literal]) -> Steps[Literal]:
    result: Literal = yield run.steps(i.computation("calls"), values)
    return started(i, tuple(values), result)


def _element(run: _Run, i: Instruction, values: list[Literal]) -> Literal:
    return cast("tuple[Literal, ...]", values[0])[i.integer("index")]


def _while(run: _Run, i: Instruction, values: list[Literal]) -> Steps[Literal]:
    (state,) = values
    while bool((yield run.steps(i.computation("condition"), [state]))):
        run.loops.turn(i)
        state = yield run.steps(i.computation("body"), [state])
    run.loops.leave(i)
    return state


def _conditional(run: _Run, i: Instruction, values: list[Literal]) -> Steps[Literal]:
    """An index out of range takes the last branch; of the pred form, operand 1 belongs to true."""
    found = branches(i)
    selector = _arrays(values)[0]
    if "branch_computations" not in i.attributes:
        index, given = int(selector), values[1 if selector else 2]
    else:
        index = int(selector) if selector.dtype != np.bool_ else 1 - int(selector)
        if not 0 <= index < len(found):
            index = len(found) - 1
        given = values[index + 1]
    result: Literal = yield run.steps(found[index], [given])
    return result


def _custom_call(run: _Run, i: Instruction, values: list[Literal]) -> Literal:
    if is_host_call(i):
        return host_call(i, values)
    sharding = MANUAL_SHARDING.get(i.word("custom_call_target"))
    return sharding(i, _arrays(values), run) if sharding is not None else custom_call(i, values)


def _of_arrays(function: Callable[..., Literal]) -> Handler:
    """A handler from a function of the instruction and its operands, one after the other."""
    return lambda run, i, values: function(i, *values)


def _of_values(function: Callable[[Instruction, list[Literal]], Literal]) -> Handler:
    """A handler from a function of the instruction and a list of operands."""
    return lambda run, i, values: function(i, values)


def _with_calls(function: Callable[..., Literal]) -> Handler:
    """A handler from a function of the instruction, a list of operands, and the evaluator to call computations."""
    return lambda run, i, values: function(i, values, run)


EXPECTED = (HloError, MemoryError, ValueError, IndexError, RecursionError)
"""Exceptions of an instruction that cannot be evaluated."""

CALLS: dict[str, Callable[[_Run, Instruction, list[Literal]], Steps[Literal]]] = {
    "call": _call,
    "fusion": _call,
    "while": _while,
    "conditional": _conditional,
    "async-start": _async_start,
}
"""Opcode to its function, for those that run other computations: nested as deep as a module has them."""


def _stepped(function: Callable[[_Run, Instruction, list[Literal]], Steps[Literal]]) -> Handler:
    """A handler that does all its steps."""
    return lambda run, i, values: trampoline(function(run, i, values))


HANDLERS: dict[str, Handler] = {
    **{opcode: _stepped(function) for opcode, function in CALLS.items()},
    **dict.fromkeys(ELEMENTWISE, lambda run, i, values: elementwise(i, _arrays(values))),
    **{opcode: _of_arrays(function) for opcode, function in (MOVEMENT | LINALG).items()},
    "constant": _constant,
    "tuple": lambda run, i, values: tuple(values),
    "get-tuple-element": _element,
    "custom-call": _custom_call,
    "after-all": lambda run, i, values: (),
    "add-dependency": lambda run, i, values: values[0],
    "opt-barrier": lambda run, i, values: values[0],
    "copy": lambda run, i, values: values[0],
    "domain": lambda run, i, values: values[0],
    "dot": lambda run, i, values: dot(i, run.precision, *_arrays(values)),
    "convolution": lambda run, i, values: convolution(i, run.precision, *_arrays(values)),
    "map": lambda run, i, values: run.map(i.computation(), _arrays(values))[0],
    "reduce": _with_calls(reduce),
    "reduce-window": _with_calls(reduce_window),
    "select-and-scatter": _with_calls(select_and_scatter),
    "scatter": _with_calls(scatter),
    "sort": _with_calls(sort),
    "gather": lambda run, i, values: gather(i, _arrays(values)),
    "topk": lambda run, i, values: top_k(i, _arrays(values)),
    "rng-bit-generator": _of_arrays(rng_bit_generator),
    "rng": lambda run, i, values: rng(i, np.asarray(values[0]), np.asarray(values[1]), run.device),
    "ragged-dot": lambda run, i, values: ragged_dot(i, run.precision, *_arrays(values)),
    "scaled-dot": lambda run, i, values: scaled_dot(i, *_arrays(values)),
    "scan": lambda run, i, values: scan(i, _arrays(values), lambda given: run.call(i.computation(), given)),
    **{opcode: _with_calls(function) for opcode, function in COLLECTIVES.items()},
    "replica-id": lambda run, i, values: np.array(run.device.replica, np.uint32),
    "partition-id": lambda run, i, values: np.array(run.device.partition, np.uint32),
    "send": _with_calls(send),
    "send-done": lambda run, i, values: (),
    "recv": _with_calls(recv),
    "recv-done": _with_calls(recv_done),
    "infeed": lambda run, i, values: infeed(i, run.device),
    "outfeed": lambda run, i, values: outfeed(i, values[0], run.device),
    "rng-get-and-update-state": lambda run, i, values: rng_state(i, run.device),
    **{opcode: _of_values(function) for opcode, function in ASYNC.items()},
}
"""Opcode to its function."""
