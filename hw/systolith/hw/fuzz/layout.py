"""From the tree to a list of instructions with targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import cast

from systolith.hw.fuzz.tree import Blob, Code, Label, Loop, Node, Step
from systolith.isa.instruction import Instruction
from systolith.isa.opcodes import TARGETS

Branch = Callable[[Label], Instruction]
"""Makes the branch of an alternative to its second arm."""


def _instructions(step: Step, arm: int) -> Instruction:
    instr = step.arms[min(arm, len(step.arms) - 1)]
    return replace(instr, waits=tuple(step.waits), signals=tuple(step.signals), fence=step.fence)


class Layout:
    """Lays out nodes.

    Args:
        labels: the first number for labels that the tree does not use.
        branches: for each alternative, the branch that chooses the arm.
    """

    def __init__(self, labels: int, branches: dict[int, Branch]) -> None:
        self.code: Code = []
        self._labels = labels
        self._branches = branches

    def add(self, nodes: Sequence[Node]) -> None:
        """Append the nodes."""
        for group, some in groupby(nodes, lambda n: 0 if isinstance(n, Loop) else n.group):
            members = list(some)
            if group:
                self._alternative(group, cast(list[Step | Blob], members))
                continue
            for node in members:
                if isinstance(node, Loop):
                    self._loop(node)
                else:
                    self._arm([node], 0)

    def _arm(self, nodes: Sequence[Step | Blob], arm: int) -> None:
        for node in nodes:
            if isinstance(node, Step):
                self.code.append(_instructions(node, arm))
            else:
                self.code += node.arms[min(arm, len(node.arms) - 1)]

    def _label(self) -> Label:
        self._labels += 1
        return Label(self._labels - 1)

    def _alternative(self, group: int, nodes: Sequence[Step | Blob]) -> None:
        other, end = self._label(), self._label()
        self.code.append(self._branches[group](other))
        self._arm(nodes, 0)
        self.code += [Instruction("jmp", {"target": end.number}), other]
        self._arm(nodes, 1)
        self.code.append(end)

    def _loop(self, loop: Loop) -> None:
        self.code += loop.before
        if loop.closing is not None:
            self.code.append(loop.start)
            self.add(loop.body)
            self.code += [*loop.after, loop.closing]
            return
        assert loop.count is not None
        end = self._label()
        self.code.append(Instruction("loop", {"count": loop.count, "end": end.number}))
        self.add(loop.body)
        self.code += loop.after
        if isinstance(self.code[-1], Label):  # no branch may go to the end of a loop from within
            self.code.append(Instruction("nop", {"queue": "seq"}))
        self.code.append(end)

    def instructions(self) -> list[Instruction]:
        """Everything, labels resolved."""
        places: dict[int, int] = {}
        code: list[Instruction] = []
        for item in self.code:
            if isinstance(item, Label):
                places[item.number] = len(code)
            else:
                code.append(item)
        for n, instr in enumerate(code):
            names = TARGETS.get(instr.op)
            if names:
                found = {name: places[cast(int, instr.args[name])] for name in names}
                code[n] = replace(instr, args={**instr.args, **found})
        return code
