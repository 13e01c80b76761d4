"""Emission of contractions on the matrix units: implicit GEMM, weight-stationary.

Jobs (batch, m tile, n tile) sum their k tiles in accumulators; blocks of jobs are interleaved over the matrix units.
The accumulators are used as a ring, so that the epilogue of one block overlaps the next one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from math import prod
from typing import Any, Protocol, TypeVar

from systolith.compiler.errors import DoesNotFitError
from systolith.compiler.explain import Alternative, Decision
from systolith.compiler.index.affine import Box, Expr, IndexMap
from systolith.compiler.index.contraction import Contraction
from systolith.compiler.mxu.fused_operand import Computed
from systolith.compiler.mxu.gemm_plan import GemmPlan, Problem
from systolith.compiler.mxu.gemm_search import Ranked, ranked
from systolith.compiler.mxu.gemm_tiles import box_tiles, packed_tiles
from systolith.compiler.mxu.streams import operand_ref, row_cost
from systolith.compiler.mxu.turned_operand import minor_dims, run, turned
from systolith.compiler.tile.arrays import dense, dense_like
from systolith.compiler.tile.builder import TileBuilder
from systolith.compiler.tile.ir import Array, Ref, TileOp
from systolith.compiler.vpu.shuffles import shuffle
from systolith.isa.dtypes import F32, S32
from systolith.isa.instruction import Space

INTEGER_OPERANDS = frozenset({"s8", "u8", "s4", "u4", "pred"})

R = TypeVar("R")

RING = 2
"""Blocks whose accumulators take turns, at least: one is summed while the results of the one before it are taken."""

RING_CYCLES = 1024
"""Time that the blocks of a ring are to take, at least: longer than the way from a sum to its result."""

RING_OPERATIONS = 512
"""Operations of the blocks of a ring, at least: with more of them products run further ahead of their results."""

EPILOGUE = 8
"""Epilogues may take such a part of the time of products in a ring: longer ones are to wait for each other less."""

MORE_ROOM = 1.5
"""Times the room of other groups' tiles that a product may have, which leaves two fifths of VMEM to what runs ahead."""

WORTH_ROOM = 0.05
"""Part of its cycles that a product has to save for that."""

REJECTED = 3
"""Plans that lost, the best ones with different cycles, that are told."""


class Finish(Protocol):
    """Makes results of sums.

    Attributes:
        stored: bytes of results that go to HBM.
        read: bytes that it reads from HBM.
        kept: bytes of VMEM that it takes all the while.
        vector_cycles: that the vector unit takes for each vector of sums.
    """

    stored: int
    read: int
    kept: int
    vector_cycles: int

    def begin(self) -> None:
        """Append what comes before the first job."""

    def __call__(self, acc: Array, box: Box) -> None:
        """The accumulators of a finished job, and the box of the output that they hold."""

    def end(self) -> None:
        """Append what follows the last job."""


@dataclass
class Stager:
    """Boxes of one operand in VMEM; those staged are kept for reuse up to `capacity` bytes.

    Attributes:
        ctx: where loads are appended.
        array: the operand.
        capacity: bytes.
        minor: dimensions that are laid out innermost by a transposing copy; empty: as they are.
        what: for origins.
        hlo: the product that it is an operand of, for origins.
        made: what computes the operand, if it is not in memory.
    """

    ctx: TileBuilder
    array: Array
    capacity: int
    what: str
    hlo: str
    minor: tuple[int, ...] = ()
    made: Computed | None = None
    _kept: OrderedDict[Box, Array] = field(default_factory=OrderedDict)

    def get(self, box: Box) -> Array:
        """The box in VMEM (a view of the array where it lies there)."""
        if self.array.buf.space == Space.VMEM and not self.minor:
            return self.ctx.stage_in(self.array, box)
        if box in self._kept:
            if self.made is None:  # computed ones are there before their turn, and go in the order in which they came
                self._kept.move_to_end(box)
            return self._kept[box]
        if self.made is not None:
            staged = self.made.tile(self.ctx, box)
        else:
            staged = self.ctx.stage_in(self.array, box, f"load {self.what}", self.hlo)
        if self.minor:
            staged = self._transposed(staged)
        self._kept[box] = staged
        while len(self._kept) > 1 and sum(prod(b.dims) for b in self._kept) * self.array.dtype.size > self.capacity:
            self._kept.popitem(last=False)
        return staged

    def _transposed(self, staged: Array) -> Array:
        copy = self.ctx.array(f"{staged.buf.name}.t", staged.dtype, staged.dims, staged.origin)
        other = turned(copy, self.minor)
        shuffle(self.ctx, staged, other, self.ctx.origin(f"transpose {self.what}", 0, self.hlo), across=False)
        return other


Block = tuple[Box, list[Box], list[Box]]
"""Jobs that are made together: the batch, tiles of m, tiles of n."""


@dataclass
class Job:
    """A product in the making: its batch, m and n, its matrix unit, its first accumulator row."""

    box: Box
    unit: int
    row: int


class Gemm:
    """One contraction being emitted.

    Args:
        ctx: where to.
        contraction: what.
        operands: where the left and the right one lie, or what computes them.
        passes: of `precision.passes_of`; integer contractions have one.
        integer: s32 sums of 8-bit products.
        finish: makes the output of accumulators.
        hlo: name of the instruction, for origins.
    """

    def __init__(
        self,
        ctx: TileBuilder,
        contraction: Contraction,
        operands: tuple[Array | Computed, Array | Computed],
        passes: tuple[tuple[int, int], ...],
        integer: bool,
        finish: Finish,
        hlo: str,
    ) -> None:
        self.ctx, self.passes, self.integer, self.finish, self.hlo = ctx, passes, integer, finish, hlo
        self.computed = tuple(o if isinstance(o, Computed) else None for o in operands)
        self.lhs, self.rhs = (o.like if isinstance(o, Computed) else o for o in operands)
        self.c = contraction.summed_in_order(_by_stride(contraction, contraction.k, self.lhs))
        self.minor = minor_dims(self.c, self.lhs)
        if self.minor and self.lhs.buf.space == Space.VMEM and run(self.lhs) < ctx.chip.vpu.lanes:
            # It is copied from where it lies: tiles of rows are to leave its innermost dimension, a short one, whole.
            self.c = self.c.with_rows(_by_stride(self.c, self.c.m, self.lhs))
        self._refs: dict[Hashable, Any] = {}  # streams of a block's tiles

    def emit(self) -> None:
        """Append everything.

        Raises:
            DoesNotFitError: no choice of tiles fits.
            LimitError: an operand needs more loops or bounds than an address generator has.
        """
        plans = self.plans()
        if not plans:
            left = f"no tiles fit in the {self.ctx.budget} bytes of VMEM left"
            raise self.ctx.error(f"{self.hlo}: {left}; use a chip with more VMEM", DoesNotFitError)
        self.ctx.plans = plans
        picked = self.ctx.picked and self._text(self.ctx.picked)
        number, why = self.ctx.choose("tiles", lambda: [self._text(p.signature) for p in plans], picked)
        plan = plans[number]
        self.ctx.explain.append(self._decision(plan, plans, why))
        if self.ctx.emission is None:
            self._emit(plan)
        else:
            budget = self.ctx.budget if any(self.computed) else None
            self.ctx.emission((plan.emitted, budget), lambda: self._emit(plan))

    def _emit(self, plan: GemmPlan) -> None:
        """Append the operations of a plan."""
        self.left = Stager(self.ctx, self.lhs, plan.lhs_cache, "lhs", self.hlo, self.minor, self.computed[0])
        self.right = Stager(self.ctx, self.rhs, plan.rhs_cache, "rhs", self.hlo, made=self.computed[1])
        batches = [replace(self.c.one_batch, origin=at) for at in product(*map(range, self.c.dims(self.c.batch)))]
        blocks = [(batch, m, n) for batch in batches for m, n in _blocks(plan)]
        later = iter(blocks[1:])
        self.ctx.next_product()
        if self.ctx.region is None:
            self.ctx.begin_ring(self._ring(plan, len(blocks)))
        self.finish.begin()
        for number, block in enumerate(blocks):
            self._block(plan, block, list(islice(later, 1 if number else plan.ahead)))
        self.finish.end()

    def _ring(self, plan: GemmPlan, blocks: int) -> int:
        """Accumulator rows of a unit that are enough for blocks to overlap; 0: all of them, for a few blocks.

        Blocks that take the same rows again and again repeat, so that loops can be made of them.
        """
        work = plan.flow.totals.numbers
        jobs = min(plan.block_m, len(plan.m)) * min(plan.block_n, len(plan.n))
        rows = -(-jobs // self.ctx.chip.mxu.count) * max(m.elements for m in plan.m)
        least = max(RING, -(-RING_CYCLES * blocks // max(1, work["compute"])))
        most = min(blocks // (2 * RING), self.ctx.chip.mxu.acc_rows // rows)
        if most < least or EPILOGUE * work["vector"] > work["compute"]:
            return 0
        return rows * max(least, min(most, RING_OPERATIONS * blocks // plan.operations))

    def plans(self) -> Ranked:
        """The candidates that fit, the cheapest first.

        A product that waits for HBM has more room if it takes clearly fewer cycles then: more of its operands stay.
        """
        problem, budget = self._problem(), self.ctx.budget - self.finish.kept
        usual = ranked(problem, self.ctx.chip, budget)
        if self.ctx.region is not None or not usual or not usual[0].waits_for_hbm:
            return usual
        more = ranked(problem, self.ctx.chip, int(budget * MORE_ROOM))
        return more if more[0].cycles < usual[0].cycles * (1 - WORTH_ROOM) else usual

    def _text(self, signature: str) -> str:
        """A plan in the words of decisions; a group in blocks has several products."""
        return f"{self.hlo}: {signature}" if self.ctx.region is not None else signature

    def _decision(self, best: GemmPlan, plans: Ranked, why: str) -> Decision:
        mxu = self.ctx.chip.mxu
        rows = self.c.count(self.c.m) * self.c.count(self.c.batch)
        useful = self.c.lhs.inside(Box.whole(self.c.sizes))
        issued = rows * len(best.n) * len(best.k) * mxu.rows * mxu.cols
        rejected = tuple(
            Alternative(self._text(p.signature), p.loses_to(best), p.numbers)
            for p in plans.others(best.cycles, REJECTED)
        )
        numbers = {**best.numbers, "useful MACs": useful / issued, "candidates": len(plans)}
        text = self._text(best.signature)
        return Decision("tiles", self.ctx.origin("").group or self.hlo, text, why, numbers, rejected)

    def _problem(self) -> Problem:
        c = self.c
        one = Box.product(c.one_batch, Box.whole(c.dims(c.m)), box_tiles(c.dims(c.n), self.ctx.chip.mxu.cols)[0])
        depth, cost = self._depth(one)
        staged = self._staged(1, c.rhs, Box.product(one, Box.whole(c.dims(c.k))))
        ref, rows, _ = self._weights(staged, Box.product(one, packed_tiles(c.dims(c.k), depth)[0]))
        load = row_cost(ref, rows, self.ctx.chip) * prod(ref.pattern.counts[:rows])
        finish = self.finish
        weight_loads = len({b for _, b in self.passes})
        passes = (len(self.passes), weight_loads)
        left, right = (None if c is None else c.source(self.ctx.chip) for c in self.computed)
        return Problem(
            c, depth, self.lhs, self.rhs, cost, load, *passes, finish.stored, self.minor,
            finish.vector_cycles, (left, right), finish.read,
        )  # fmt: skip

    def _depth(self, one: Box) -> tuple[int, int]:
        """Terms of a k tile, at most, and cycles in which a row of them streams.

        A row that is copied for the sum to run along it has as many segments as lines of a window; more of them than
        the port takes at once would cost a cycle more each time.
        """
        mxu, c, sizes = self.ctx.chip.mxu, self.c, self.c.dims(self.c.k)
        staged = self._staged(0, c.lhs, Box.product(one, Box.whole(sizes)))
        staged = turned(staged, self.minor) if self.minor else staged
        found = []
        for depth in (mxu.rows, min(mxu.rows, mxu.segments * sizes[-1])) if self.minor else (mxu.rows,):
            tiles = packed_tiles(sizes, depth)
            lhs, rows = self._rows(staged, Box.product(one, tiles[0]))
            cost = row_cost(lhs, rows, self.ctx.chip)
            found.append((len(tiles) * cost, depth, cost))
        _, depth, cost = min(found, key=lambda f: f[0])
        return depth, cost

    def _staged(self, side: int, index: IndexMap, box: Box) -> Array:
        """How the part of an operand that a box reaches lies when it is staged."""
        array = (self.lhs, self.rhs)[side]
        if array.buf.space == Space.VMEM:
            return array
        part = index.reach(box, array.dims)
        strides = dense_like(part.dims, array.strides, array.dtype.size)
        return replace(array, dims=part.dims, strides=strides, origin=part.origin)

    # Emission.

    def _block(self, plan: GemmPlan, block: Block, later: list[Block]) -> None:
        batch, m, n = block
        jobs = [self._job(Box.product(batch, mt, nt)) for mt in m for nt in n]
        self._refs.clear()
        units = self.ctx.chip.mxu.count
        together = len(plan.k) - plan.apart
        for start in range(0, len(plan.k), plan.chunk):
            left, right = self._boxes(plan, block, start)
            made = self._made_ahead(plan, block, start)
            end = min(start + plan.chunk, len(plan.k))
            turns = [(range(len(jobs)), range(start, min(end, together)), False)]
            if end == len(plan.k):
                groups = (range(first, min(first + units, len(jobs))) for first in range(0, len(jobs), units))
                turns += [(some, range(together, end), True) for some in groups]
            for some, tiles, last in turns:
                if last and later:
                    # In the vector unit's queue these come before the results of this block.
                    self._compute((left, right), *(self._boxes(plan, b, 0) for b in later))
                    later = []
                for k, number in product(tiles, some):
                    boxes = left[number // len(n)], right[k - start]
                    operands = self._operand(self.left, boxes[0], made[0]), self._operand(self.right, boxes[1], made[1])
                    self._step(jobs[number], plan.k[k], operands, accumulate=k > 0)
                for number in some if last else ():
                    self.finish(*self._result(jobs[number]))

    def _made_ahead(self, plan: GemmPlan, block: Block, start: int) -> tuple[dict[Box, Array], dict[Box, Array]]:
        """A chunk of both operands of a block, if one is computed or turned; that of the next chunk is appended, too.

        The units that make it take what they have to do in order: behind the products of this chunk it would wait.
        """
        if not any(stager.made or stager.minor for stager in (self.left, self.right)):
            return {}, {}
        both = zip((self.left, self.right), self._boxes(plan, block, start), strict=True)
        left, right = ({box: stager.get(box) for box in dict.fromkeys(boxes)} for stager, boxes in both)
        if start + plan.chunk < len(plan.k):
            following = self._boxes(plan, block, start + plan.chunk)
            for stager, boxes in zip((self.left, self.right), following, strict=True):
                for box in dict.fromkeys(boxes) if stager.made or stager.minor else ():
                    stager.get(box)
        return left, right

    def _operand(self, stager: Stager, box: Box, made: Mapping[Box, Array]) -> Array:
        """A box of an operand in VMEM."""
        return made[box] if box in made else stager.get(box)

    def _boxes(self, plan: GemmPlan, block: Block, start: int) -> tuple[list[Box], list[Box]]:
        """Boxes of the operands that a chunk of a block needs: for each m tile, for each k tile."""
        batch, m, n = block
        chunk = plan.k[start : start + plan.chunk]
        # Weights that the first blocks wait for come in pieces.
        size = plan.piece if n[0] == plan.n[0] else plan.chunk
        span, columns = Box.hull(chunk), Box.hull(n)
        spans = [Box.hull(chunk[i : i + size]) for i in range(0, len(chunk), size) for _ in chunk[i : i + size]]
        left = [self.c.lhs.reach(Box.product(batch, mt, columns, span), self.lhs.dims) for mt in m]
        return left, [self.c.rhs.reach(Box.product(batch, m[0], columns, s), self.rhs.dims) for s in spans]

    def _compute(self, *needed: tuple[Sequence[Box], Sequence[Box]]) -> None:
        """Compute boxes of the left and the right operand, if those are not in memory."""
        for both in needed:
            for stager, boxes in zip((self.left, self.right), both, strict=True):
                for box in dict.fromkeys(boxes) if stager.made else ():
                    stager.get(box)

    def _job(self, box: Box) -> Job:
        unit = self.ctx.next_unit()
        row = self.ctx.acc_rows(unit, prod(box.dims[a] for a in self.c.m))
        return Job(box, unit, row)

    def _step(self, job: Job, k: Box, operands: tuple[Array, Array], accumulate: bool) -> None:
        box = Box.product(job.box, k)
        lhs, rows = self._seen(self._rows, self.c.m, operands[0], box)
        weights, weight_rows, transpose = self._seen(self._weights, self.c.n, operands[1], box)
        integer = int(self.integer)
        loaded = -1
        for number, (left, right) in enumerate(self.passes):
            if right != loaded:
                args: dict[str, Ref | int] = {
                    "src": weights,
                    "row_loops": weight_rows,
                    "transpose": transpose,
                    "part": right,
                    "integer": integer,
                }
                self._append("mxu.load", args, job.unit, "load weights")
                self._append("mxu.latch", {}, job.unit, "latch weights")
                loaded = right
            last = number == len(self.passes) - 1
            args = {
                "src": lhs,
                "row_loops": rows,
                "acc": job.row,
                "accumulate": int(accumulate or number > 0),
                "part": left,
                "integer": integer,
            }
            self._append("mxu.matmul", args, job.unit, "matmul", self.c.lhs.inside(box) if last else 0)

    def _seen(self, make: Callable[[Array, Box], R], axes: range, array: Array, box: Box) -> R:
        """The result of `make` for a tile: jobs of a block share it, whose other axis it does not depend on."""
        key = (make.__name__, array, *((box.origin[a], box.dims[a]) for a in (*self.c.batch, *axes, *self.c.k)))
        found: R | None = self._refs.get(key)
        if found is None:
            found = self._refs[key] = make(array, box)
        return found

    def _rows(self, lhs: Array, box: Box) -> tuple[Ref, int]:
        """Stream of the rows of a tile, and its row loops."""
        return operand_ref(self.c.lhs, lhs, box, (self.c.m, self.c.k))

    def _weights(self, rhs: Array, box: Box) -> tuple[Ref, int, int]:
        """Stream of a weight tile, its row loops, and whether it is read column by column (whichever costs less)."""
        straight, rows = operand_ref(self.c.rhs, rhs, box, (self.c.k, self.c.n))
        turned, columns = operand_ref(self.c.rhs, rhs, box, (self.c.n, self.c.k))
        costs = [
            row_cost(ref, loops, self.ctx.chip) * prod(ref.pattern.counts[:loops])
            for ref, loops in ((straight, rows), (turned, columns))
        ]
        return (straight, rows, 0) if costs[0] <= costs[1] else (turned, columns, 1)

    def _append(self, op: str, args: dict[str, Ref | int], unit: int, what: str, macs: int = 0) -> None:
        self.ctx.append(TileOp(op, dict(args), self.ctx.origin(what, macs, self.hlo), unit))

    def _result(self, job: Job) -> tuple[Array, Box]:
        """The accumulators of a job as an array over the output's box."""
        mxu = self.ctx.chip.mxu
        steps: dict[int, int] = {}
        for axes, unit in ((self.c.m, mxu.cols * 4), (self.c.n, 4)):
            steps.update(zip(axes, dense([job.box.dims[a] for a in axes], unit), strict=True))
        strides = tuple(next((steps[a] for a, _ in index.terms if a in steps), 4) for index in self.c.out.dims)
        dtype = S32 if self.integer else F32
        ends = [index.interval(job.box) for index in self.c.out.dims]
        box = Box(tuple(lo for lo, _ in ends), tuple(hi - lo + 1 for lo, hi in ends))
        acc = Array(self.ctx.acc(job.unit), dtype, box.dims, strides, box.origin, job.row * mxu.cols * 4)
        return acc, box


def _by_stride(c: Contraction, axes: range, streamed: Array) -> list[int]:
    """Axes by their stride in the streamed operand, the smallest innermost; a dilated dimension counts as though it
    were not divided.
    """

    def steps(e: Expr, axis: int) -> int:
        return e.coefs[axis] + sum(q.dividend.coefs[axis] for q, _ in e.quotients)

    strides = {a: sum(steps(e, a) * s for e, s in zip(c.lhs.dims, streamed.strides, strict=True)) for a in axes}
    return sorted(axes, key=lambda a: -abs(strides[a]))


def _blocks(plan: GemmPlan) -> Iterator[tuple[list[Box], list[Box]]]:
    m = [list(plan.m[i : i + plan.block_m]) for i in range(0, len(plan.m), plan.block_m)]
    n = [list(plan.n[i : i + plan.block_n]) for i in range(0, len(plan.n), plan.block_n)]
    if plan.m_outer:
        yield from ((a, b) for a in m for b in n)
    else:
        yield from ((a, b) for b in n for a in m)
