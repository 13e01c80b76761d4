"""`--check`: every execution of every fusion group against the reference evaluator, on the group's own inputs.

The simulator calls the checker around each probe of the program: inputs are copied when the group's first instruction
is reached and outputs when its last one is done (program order, the value plane's own).  Error bounds of floats
come from `systolith.compiler.hlo.values.error_bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from systolith.compiler.hlo.ir import Computation, Module
from systolith.compiler.hlo.shape import Shape
from systolith.compiler.hlo.values.error_bounds import bounded
from systolith.isa import routines
from systolith.isa.dtypes import dtype
from systolith.isa.program import Location, Probe, Program
from systolith.runtime.arrays import Array
from systolith.sim.memory import Machine

if TYPE_CHECKING:  # it takes long to import
    from systolith.compiler.driver import Compiled


@dataclass
class CheckReport:
    """The outcome of the check.

    Attributes:
        groups: fusion groups checked.
        executions: how many times they ran.
        max_abs_error, max_rel_error: largest difference from the evaluator; the latter relative to its output's scale.
        worst: largest difference over its bound (1.0 would be at the bound), and the group it is of.
        unchecked: elements that no bound is known for (bits or indices made from inexact floats, say).
        without_reference: targets of custom calls whose groups were not checked, since their routines have none.
        failures: one line for each group execution with an element beyond its bound.
    """

    groups: int = 0
    executions: int = 0
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    worst: tuple[float, str] = (0.0, "")
    unchecked: int = 0
    without_reference: tuple[str, ...] = ()
    failures: list[str] = field(default_factory=list)


class Checker:
    """Observes a run and compares each group.

    Args:
        program: the one that runs; its probes say where the groups' arrays lie.
        compiled: the compiler's result, for the groups' computations.
        precision: the override that the module was compiled with.
    """

    def __init__(self, program: Program, compiled: Compiled, precision: str | None) -> None:
        self._program = program
        self._groups = groups_of(compiled.module)
        self._precision = precision
        self._open: dict[int, list[Array]] = {}
        self._views: dict[str, Array] = {}
        self._without = {name: _without_reference(group) for name, group in self._groups.items()}
        compared = {p.group for p in program.probes if p.outputs and not self._without[p.group]}
        missing = {t for p in program.probes for t in self._without[p.group]}
        self._report = CheckReport(groups=len(compared), without_reference=tuple(sorted(missing)))
        self._first: dict[int, list[int]] = {}
        self._last: dict[int, list[int]] = {}
        for number, probe in enumerate(program.probes):
            self._first.setdefault(probe.first, []).append(number)
            self._last.setdefault(probe.last, []).append(number)

    @property
    def before(self) -> frozenset[int]:
        """Instruction indices before which it wants to be called."""
        return frozenset(self._first)

    @property
    def after(self) -> frozenset[int]:
        """Instruction indices after which it wants to be called."""
        return frozenset(self._last)

    def reached(self, index: int, machine: Machine) -> None:
        """Instruction `index` is about to run."""
        for number in self._first[index]:
            probe = self._program.probes[number]
            if self._is_readable(probe):
                self._open[number] = [self._read(machine, at) for at in probe.inputs]
            else:
                self._report.unchecked += sum(prod(at.dims) for at in probe.outputs)
                for at in probe.outputs:
                    self._views.pop(at.value, None)

    def done(self, index: int, machine: Machine) -> None:
        """Instruction `index` has run."""
        for number in self._last[index]:
            inputs = self._open.pop(number, None)
            if inputs is not None:
                probe = self._program.probes[number]
                if probe.outputs:
                    outputs = [read_location(machine, at) for at in probe.outputs]
                    self._views |= {at.value: x for at, x in zip(probe.outputs, outputs, strict=True) if at.register}
                    self._compare(probe, inputs, outputs)
                else:
                    self._views[probe.group] = self._named(probe, inputs)

    def _is_readable(self, probe: Probe) -> bool:
        """Whether it is known where all values lie."""
        found = all(at.space != "view" or at.value in self._views for at in probe.inputs)
        return found and all(at.space != "view" for at in probe.outputs)

    def _read(self, machine: Machine, at: Location) -> Array:
        if at.space != "view":
            return read_location(machine, at)
        return self._views[at.value].view(dtype(at.dtype).stored).reshape(at.dims)

    def _named(self, probe: Probe, inputs: list[Array]) -> Array:
        """The part of an array that a group without results names."""
        group = self._groups[probe.group]
        ((part, _),) = bounded(group, self._arguments(group, inputs), self._precision)
        return part

    @staticmethod
    def _arguments(group: Computation, inputs: list[Array]) -> list[Array]:
        return [_typed(x, p.shape) for x, p in zip(inputs, group.parameters, strict=True)]

    def _compare(self, probe: Probe, inputs: list[Array], outputs: list[Array]) -> None:
        report = self._report
        if self._without[probe.group]:
            report.unchecked += sum(output.size for output in outputs)
            return
        report.executions += 1
        group = self._groups[probe.group]
        outputs = [_typed(x, s) for x, s in zip(outputs, group.result.shape.leaves(), strict=True)]
        expected = bounded(group, self._arguments(group, inputs), self._precision)
        for at, got, (want, bound) in zip(probe.outputs, outputs, expected, strict=True):
            if got.size == 1:
                self._views[at.value] = got
            gap = distance(got, want)
            ratio = np.divide(gap, bound, out=np.where(gap > 0, np.inf, 0.0), where=bound > 0)
            ratio = np.where(np.isinf(bound), 0.0, ratio)
            report.unchecked += int(np.isinf(bound).sum())
            finite = gap[np.isfinite(gap)]
            scale = float(
                np.abs(
                    want.astype(np.float64), where=np.isfinite(want.astype(np.float64)), out=np.zeros(want.shape)
                ).max(initial=0)
            )
            largest = float(finite.max(initial=0.0))
            report.max_abs_error = max(report.max_abs_error, largest)
            report.max_rel_error = max(report.max_rel_error, largest / scale if scale else largest)
            worst = float(ratio.max(initial=0.0))
            if worst > report.worst[0]:
                report.worst = (worst, probe.group)
            if worst > 1:
                at_index = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
                report.failures.append(
                    f"group {probe.group}, value {at.value}: {int((ratio > 1).sum())} of {ratio.size} elements beyond "
                    f"their bound; worst at {list(at_index)}: got {got[at_index]}, expected {want[at_index]} "
                    f"within {bound[at_index]:.3g}"
                )

    def report(self) -> CheckReport:
        """The outcome so far."""
        return self._report


def _without_reference(group: Computation) -> list[str]:
    """Targets of a group's custom calls whose routines have no reference."""
    targets = (i.word("custom_call_target") for i in group.instructions if i.opcode == "custom-call")
    return [t for t in targets if routines.is_known(t) and routines.find(t).reference is None]


def groups_of(module: Module) -> dict[str, Computation]:
    """The computation of each fusion group, by the name of its `fusion` instruction."""
    return {i.name: i.computation("calls") for i in module.instructions() if i.opcode == "fusion"}


def read_location(machine: Machine, at: Location) -> Array:
    """A copy of the array that lies at a location."""
    element = dtype(at.dtype)
    memory = machine.vmem if at.space == "vmem" else machine.buffers[at.buffer]
    if at.space == "stack":
        memory = np.concatenate(machine.buffers[at.buffer : at.buffer + at.dims[0]])
    start = at.address + (machine.registers[at.register] or 0)
    view = np.ndarray(at.dims, element.stored, memory.data, start, at.strides)
    return view.copy()


def _typed(array: Array, shape: Shape) -> Array:
    """Elements that instructions move as those of another type, in their own."""
    return array if shape.dtype.in_memory is shape.dtype else array.view(shape.dtype.stored)


def distance(got: Array, want: Array) -> Array:
    """|got - want| in f64; 0 where both are the same infinity or both NaN, inf where only one is."""
    a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (got, want))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        gap = np.abs(a - b)
    return np.where(same, 0.0, np.where(np.isnan(gap), np.inf, gap))
