"""Where the data movement of a group does not fold: the value that, once stored, lets the rest fold.

Data movement folds if each operation's index map has a map of its operand (`ops/expression_builder.py`).  One walk from
the group's result finds every operation that does not, and the ways from the result to it; a value that is on all these
ways is one whose storing takes all of them out of the group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.trampoline import Steps, trampoline
from systolith.compiler.index.affine import IndexMap
from systolith.compiler.ops.expression import Graph, Load, Node
from systolith.compiler.ops.expression_builder import Expander, NotFoldableError

Visit = tuple[Instruction, IndexMap]


def folding_cut(
    root: Instruction, frontier: Collection[Instruction], place: Mapping[Instruction, int]
) -> Instruction | None:
    """The value nearest to the leaves without which all data movement of a group folds.

    Args:
        root: the group's result.
        frontier: instructions taken as leaves, as for `group.analyze`.
        place: numbers of instructions, of operands less than those of users.

    Returns:
        The value; the root where only it will do; None where all movement folds.
    """
    survey = _Survey(Graph(), frozenset(frontier))
    trampoline(survey.visit(root, IndexMap.identity(root.shape.rank).over(root.dims)))
    below = survey.ways()
    ends = {i for i, _ in survey.failing}
    found, waiting, seen = None, [-place[root]], {root}
    by_place = {place[i]: i for i in (*below, *ends)}
    while waiting and ends:
        i = by_place[-heappop(waiting)]
        if not waiting:
            found = i
        if i in ends:
            break
        for operand in below[i] - seen:
            seen.add(operand)
            heappush(waiting, -place[operand])
    return found


@dataclass
class _Survey(Expander):
    """A walk that goes on where data movement does not fold, and remembers from where each visit came."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.failing: list[Visit] = []
        self._inside: list[Visit] = []
        self._from: defaultdict[Visit, list[Visit]] = defaultdict(list)

    def visit(self, instruction: Instruction, index: IndexMap) -> Steps[Node]:
        if self._inside:
            self._from[instruction, index].append(self._inside[-1])
        node: Node = yield from super().visit(instruction, index)
        return node

    def expand(self, i: Instruction, index: IndexMap) -> Steps[Node]:
        self._inside.append((i, index))
        node: Node
        try:
            node = yield from super().expand(i, index)
        except NotFoldableError:
            self.failing.append((i, index))
            node = self.graph.node(Load(i, index))
        self._inside.pop()
        return node

    def known(self, instruction: Instruction, index: IndexMap) -> Node | None:
        node = super().known(instruction, index)
        if node is not None:
            self._from[instruction, index].append(self._inside[-1])
        return node

    def ways(self) -> defaultdict[Instruction, set[Instruction]]:
        """Of instructions on the way to a failing one: which operands are on it."""
        below: defaultdict[Instruction, set[Instruction]] = defaultdict(set)
        waiting, seen = list(self.failing), set(self.failing)
        while waiting:
            visit = waiting.pop()
            for user in self._from[visit]:
                below[user[0]].add(visit[0])
                if user not in seen:
                    seen.add(user)
                    waiting.append(user)
        return below
