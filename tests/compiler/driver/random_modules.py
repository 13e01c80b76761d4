"""Random small HLO modules, and arguments for them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from systolith.isa.dtypes import dtype
from tests.compiler.driver.random_values import FLOATS, LARGEST, SIZES, Computation, Text, Value, kind
from tests.compiler.machine import Array

BINARY = {
    "float": ("add", "subtract", "multiply", "maximum", "minimum"),
    "int": ("add", "subtract", "multiply", "maximum", "minimum", "and", "xor"),
    "pred": ("and", "or", "xor"),
}
UNARY = {"float": ("negate", "abs", "sign", "floor"), "int": ("negate", "abs", "not"), "pred": ("not",)}
FOLDS = {"float": ("add", "maximum", "minimum"), "int": ("add", "maximum", "or"), "pred": ("and", "or")}


class Body(Computation):
    """One computation being written; `make_...` appends an instruction of its kind, or nothing where none fits."""

    def make_unary(self) -> None:
        v = self.pick()
        if v:
            op = self.one([op for op in UNARY[kind(v.t)] if op != "abs" or not v.t.startswith("u")])
            self.add(v.t, v.dims, f"{op}({v.name})", v.most)

    def make_binary(self) -> None:
        a = self.pick()
        if a:
            b = self.like(a.t, a.dims)
            op = self.one(BINARY[kind(a.t)])
            a, b = self.one(((a, b), (b, a)))
            self.add(a.t, a.dims, f"{op}({a.name}, {b.name})", a.most * b.most if op == "multiply" else a.most + b.most)

    def make_select(self) -> None:
        a = self.pick(lambda v: v.t != "pred")
        if a:
            b = self.like(a.t, a.dims)
            direction = self.one(("LT", "GE", "EQ"))
            p = self.add("pred", a.dims, f"compare({a.name}, {b.name}), direction={direction}")
            c = self.like(a.t, a.dims)
            self.add(a.t, a.dims, f"select({p.name}, {c.name}, {a.name})", max(a.most, c.most))

    def make_convert(self) -> None:
        v = self.pick()
        if v:
            self.converted(v, self.one(self.types))

    def make_broadcast(self) -> None:
        v = self.pick(lambda v: prod(v.dims) <= 200 and len(v.dims) < 4)
        if v:
            at = sorted(self.rng.permutation(len(v.dims) + self.roll(1, 2))[: len(v.dims)].tolist())
            rank = max([*at, len(v.dims)]) + 1
            dims = [self.size((1, 2, 3, 5, 9)) for _ in range(rank)]
            for size, d in zip(v.dims, at, strict=True):
                dims[d] = size
            if prod(dims) <= LARGEST:
                self.add(v.t, dims, f"broadcast({v.name}), dimensions={{{','.join(map(str, at))}}}", v.most)

    def make_reshape(self) -> None:
        v = self.pick()
        if v and not prod(v.dims):
            dims = [0, *(self.one(SIZES) for _ in range(self.roll(0, 3)))]
            self.add(v.t, [dims[k] for k in self.rng.permutation(len(dims))], f"reshape({v.name})", v.most)
        elif v:
            factors, rest = [], prod(v.dims)
            for p in (2, 3, 5, 7, 11, 17):
                while rest % p == 0:
                    factors.append(p)
                    rest //= p
            dims = [1] * self.roll(1, 4)
            for f in [*factors, rest]:
                dims[self.roll(0, len(dims) - 1)] *= f
            self.add(v.t, dims, f"reshape({v.name})", v.most)

    def make_transpose(self) -> None:
        v = self.pick(lambda v: len(v.dims) > 1)
        if v:
            order = self.rng.permutation(len(v.dims)).tolist()
            shown = ",".join(map(str, order))
            self.add(v.t, [v.dims[d] for d in order], f"transpose({v.name}), dimensions={{{shown}}}", v.most)

    def make_slice(self) -> None:
        v = self.pick(lambda v: len(v.dims) > 0)
        if v:
            parts, dims = [], []
            for n in v.dims:
                first = self.roll(0, max(n - 1, 0) // 2)
                last, step = first + self.length(n - first), self.one((1, 1, 2, 3))
                parts.append(f"[{first}:{last}:{step}]")
                dims.append(-(-(last - first) // step))
            self.add(v.t, dims, f"slice({v.name}), slice={{{', '.join(parts)}}}", v.most)

    def make_pad(self) -> None:
        v = self.pick(lambda v: len(v.dims) > 0 and prod(v.dims) < 600)
        if v:
            fill = self.like(v.t, ())
            parts, dims = [], []
            for n in v.dims:
                low, high, inner = self.one((0, 0, 1, 2, -1)), self.one((0, 0, 1, 3, -1)), self.one((0, 0, 1, 2))
                size = low + high + n + max(n - 1, 0) * inner
                if size < (0 if self.text.empty else 1):
                    low, high, inner, size = 0, 0, 0, n
                parts.append(f"{low}_{high}_{inner}")
                dims.append(size)
            code = f"pad({v.name}, {fill.name}), padding={'x'.join(parts)}"
            if prod(dims) <= LARGEST:
                self.add(v.t, dims, code, max(v.most, fill.most))

    def make_reverse(self) -> None:
        v = self.pick(lambda v: len(v.dims) > 0)
        if v:
            some = [d for d in range(len(v.dims)) if self.roll(0, 1)]
            self.add(v.t, v.dims, f"reverse({v.name}), dimensions={{{','.join(map(str, some))}}}", v.most)

    def make_concatenate(self) -> None:
        v = self.pick(lambda v: len(v.dims) > 0 and prod(v.dims) < 800)
        if v:
            d = self.roll(0, len(v.dims) - 1)
            parts = [v]
            for _ in range(self.roll(0, 2)):
                dims = (*v.dims[:d], self.size((1, 2, v.dims[d])), *v.dims[d + 1 :])
                parts.append(self.like(v.t, dims))
            dims = (*v.dims[:d], sum(p.dims[d] for p in parts), *v.dims[d + 1 :])
            code = f"concatenate({', '.join(p.name for p in parts)}), dimensions={{{d}}}"
            self.add(v.t, dims, code, max(p.most for p in parts))

    def fold(self, t: str, windowed: bool = False) -> tuple[str, str, Value]:
        """A computation that combines two scalars: its name, its operation, its initial value."""
        op = self.one(FOLDS[kind(t)])
        name = self.text.fresh("fold")
        self.text.computations.append(
            f"{name} {{\n a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n ROOT r = {t}[] {op}(a, b)\n}}\n"
        )
        start = self.scalar(t, self.one({"add": (0, 0, 1), "and": (1,)}.get(op, (0, 0, -3 if t != "pred" else 0))))
        return name, op, self.scalar(t, 0) if windowed and op == "add" else start

    def make_reduce(self) -> None:
        v = self.pick(lambda v: len(v.dims) > 0)
        if v:
            over = [d for d in range(len(v.dims)) if self.roll(0, 1)] or [self.roll(0, len(v.dims) - 1)]
            name, op, start = self.fold(v.t)
            n = prod(v.dims[d] for d in over) + 1 if op == "add" else 1
            kept = [n for d, n in enumerate(v.dims) if d not in over]
            shown = ",".join(map(str, over))
            code = f"reduce({v.name}, {start.name}), dimensions={{{shown}}}, to_apply={name}"
            self.add(v.t, kept, code, max(v.most, start.most) * n)

    def window(
        self, sizes: Sequence[int], small: Sequence[int] | None = None
    ) -> tuple[str, list[int], list[int]] | None:
        """A random window over dimensions: its text, the kernel's sizes and the result's."""
        columns: list[list[str]] = [[], [], [], [], [], []]
        kernel, out = [], []
        for d, n in enumerate(sizes):
            k = small[d] if small else min(self.one((1, 1, 2, 3)), n + 1)
            stride, low, high = self.one((1, 1, 2, 3)), self.one((0, 0, 1, 2, -1)), self.one((0, 0, 1, 2, -1))
            dilated, base = self.one((1, 1, 1, 2)), self.one((1, 1, 1, 2))
            span = (n and (n - 1) * base + 1) + low + high - ((k - 1) * dilated + 1)
            if span < 0 and not (self.text.empty and span + (k - 1) * dilated + 1 >= 0):
                return None
            kernel.append(k)
            out.append(max(0, span // stride + 1))
            row = (str(k), str(stride), f"{low}_{high}", str(base), str(dilated), str(self.roll(0, 1)))
            for column, item in zip(columns, row, strict=True):
                column.append(item)
        names = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")
        parts = [f"{n}={'x'.join(c)}" for n, c in zip(names, columns, strict=True)]
        return "window={" + " ".join(parts) + "}", kernel, out

    def make_reduce_window(self) -> None:
        v = self.pick(lambda v: 0 < len(v.dims) < 4 and prod(v.dims) < 500)
        made = self.window(v.dims) if v else None
        if v and made and prod(made[2]) <= LARGEST:
            name, op, start = self.fold(v.t, windowed=True)
            text = made[0][: made[0].index(" rhs_reversal")] + "}"
            n = prod(made[1]) + 1 if op == "add" else 1
            code = f"reduce-window({v.name}, {start.name}), {text}, to_apply={name}"
            self.add(v.t, made[2], code, max(v.most, start.most) * n)

    def make_dot(self) -> None:
        a = self.pick(lambda v: v.t in ("f32", "bf16", "s8") and len(v.dims) > 0 and v.most < 64)
        if not a:
            return
        order = self.rng.permutation(len(a.dims)).tolist()
        contracted = order[: self.roll(0, min(2, len(order)))]
        batch = order[len(contracted) :][: self.one((0, 0, 1, 2))]
        free = [d for d in range(len(a.dims)) if d not in contracted and d not in batch]
        extra = [self.size((1, 2, 5, 8, 11)) for _ in range(self.roll(0, 2))]
        tags = [("c", d) for d in contracted] + [("b", d) for d in batch] + [("f", i) for i in range(len(extra))]
        places = [tags[i] for i in self.rng.permutation(len(tags))]
        b_dims = tuple(extra[i] if tag == "f" else a.dims[i] for tag, i in places)
        out = [a.dims[d] for d in (*batch, *free)] + [extra[i] for tag, i in places if tag == "f"]
        if prod(b_dims) > LARGEST or prod(out) > LARGEST:
            return
        b = self.like(a.t, b_dims)
        if b.most > 64:
            b = self.clamped(b, 8)
        numbers = {
            "lhs_batch_dims": batch,
            "rhs_batch_dims": [places.index(("b", d)) for d in batch],
            "lhs_contracting_dims": contracted,
            "rhs_contracting_dims": [places.index(("c", d)) for d in contracted],
        }
        shown = ", ".join(f"{k}={{{','.join(map(str, ds))}}}" for k, ds in numbers.items())
        t = {"s8": "s32", "bf16": self.one(("bf16", "f32"))}.get(a.t, a.t)
        most = a.most * b.most * prod(a.dims[d] for d in contracted)
        self.add(t, out, f"dot({a.name}, {b.name}), {shown}", most)

    def make_convolution(self) -> None:
        t = self.one(("f32", "bf16", "s8"))
        rank = self.one((0, 1, 1, 2, 2))
        spatial = [self.size((1, 3, 5, 8)) for _ in range(rank)]
        groups, channels, features = self.one((1, 1, 2, 3)), self.size((1, 2, 4)), self.size((1, 2, 3))
        batches = self.one((1, 1, 2))
        batch, kind_ = self.size((1, 2, 4)), self.roll(0, 3)
        if kind_ == 0 and groups > 1:
            groups, batches = 1, groups
        elif groups > 1:
            batches = 1
        made = self.window(spatial, [self.one((1, 2, 3)) for _ in spatial])
        if not made:
            return
        window, taps, out = made
        outputs = groups * batches * features
        lhs_order, rhs_order, out_order = (self.rng.permutation(rank + 2).tolist() for _ in range(3))
        lhs = [batch * batches, channels * groups, *spatial]
        rhs = [channels, outputs, *taps]
        result = [batch, outputs, *out]
        labels = [("b", "f"), ("i", "o"), ("b", "f")]
        orders = (lhs_order, rhs_order, out_order)
        shown = ["".join([*pair, *map(str, range(rank))][d] for d in o) for pair, o in zip(labels, orders, strict=True)]
        if prod(lhs) > LARGEST or prod(rhs) > LARGEST or prod(result) > LARGEST:
            return
        a, b = self.like(t, tuple(lhs[d] for d in lhs_order)), self.like(t, tuple(rhs[d] for d in rhs_order))
        a, b = (self.clamped(v, 8) if v.most > 64 else v for v in (a, b))
        code = f"convolution({a.name}, {b.name}), {window}, " if rank else f"convolution({a.name}, {b.name}), "
        code += f"dim_labels={shown[0]}_{shown[1]}->{shown[2]}"
        code += f", feature_group_count={groups}" * (groups > 1) + f", batch_group_count={batches}" * (batches > 1)
        most = a.most * b.most * channels * prod(taps)
        self.add({"s8": "s32"}.get(t, t), [result[d] for d in out_order], code, most)

    def make_dynamic_slice(self) -> None:
        v = self.pick(lambda v: 0 < len(v.dims) < 4)
        if v:
            sizes = [self.length(n) for n in v.dims]
            starts = ", ".join(self.like("s32", ()).name for _ in sizes)
            shown = ",".join(map(str, sizes))
            self.add(v.t, sizes, f"dynamic-slice({v.name}, {starts}), dynamic_slice_sizes={{{shown}}}", v.most)

    def make_dynamic_update_slice(self) -> None:
        v = self.pick(lambda v: 0 < len(v.dims) < 4)
        if v:
            u = self.like(v.t, tuple(self.length(n) for n in v.dims))
            starts = ", ".join(self.like("s32", ()).name for _ in v.dims)
            self.add(v.t, v.dims, f"dynamic-update-slice({v.name}, {u.name}, {starts})", max(u.most, v.most))

    # Control.

    def called(self, state: Sequence[Value], stem: str, step: int | None = None) -> str:
        """A computation from a tuple of the state's shapes to another; its name.

        `step`: state 0 is a counter that it adds to.
        """
        inner = type(self)(self.text, self.depth + 1)
        name, shape = self.text.fresh(stem), _tuple(state)
        inner.lines.append(f"p = {shape} parameter(0)")
        for n, v in enumerate(state):
            inner.add(v.t, v.dims, f"get-tuple-element(p), index={n}", 8.0)
        counter = inner.values[0]
        inner.make(self.roll(0, 4))
        results = []
        for n, v in enumerate(state):
            if step is not None and n < 2:
                one = inner.scalar("s32", step) if n == 0 else counter
                last = inner.values[[x.shape for x in inner.values].index("s32[]") + 1]
                results.append(inner.add("s32", (), f"add({counter.name}, {one.name})") if n == 0 else last)
                continue
            out = inner.like(v.t, v.dims)
            if step is not None and out is inner.values[n]:  # else the loop need not carry it
                out = inner.add(v.t, v.dims, f"{'negate' if v.t in FLOATS else 'not'}({out.name})", out.most)
            results.append(inner.clamped(out, 8) if out.most > 8 and v.t in FLOATS else out)
        inner.lines.append(f"ROOT r = {shape} tuple({', '.join(v.name for v in results)})")
        self.text.computations.append(f"{name} {{\n " + "\n ".join(inner.lines) + "\n}\n")
        return name

    def state(self, count: int) -> list[Value]:
        picked = [self.pick() or self.like("s32", ()) for _ in range(count)]
        return [self.clamped(v, 8) if v.t in FLOATS and v.most > 8 else v for v in picked]

    def opened(self, name: str, state: Sequence[Value]) -> None:
        for n, v in enumerate(state):
            if self.roll(0, 3):
                self.add(v.t, v.dims, f"get-tuple-element({name}), index={n}", 8.0)

    def make_while(self) -> None:
        if self.depth > 1:
            return
        limit = self.like("s32", ())
        low, high = self.scalar("s32", self.one((0, 2, 3))), self.scalar("s32", 4)
        limit = self.add("s32", (), f"clamp({low.name}, {limit.name}, {high.name})")
        state = [self.scalar("s32", self.one((0, 0, 2))), limit, *self.state(self.roll(0, 3))]
        body = self.called(state, "body", step=self.one((1, 1, 2)))
        shape, cond = _tuple(state), self.text.fresh("cond")
        self.text.computations.append(
            f"{cond} {{\n p = {shape} parameter(0)\n i = s32[] get-tuple-element(p), index=0\n"
            f" n = s32[] get-tuple-element(p), index=1\n ROOT r = pred[] compare(i, n), direction=LT\n}}\n"
        )
        tuple_, loop = self.text.fresh("t"), self.text.fresh("w")
        self.lines.append(f"{tuple_} = {shape} tuple({', '.join(v.name for v in state)})")
        self.lines.append(f"{loop} = {shape} while({tuple_}), condition={cond}, body={body}")
        self.opened(loop, state)

    def make_conditional(self) -> None:
        if self.depth > 1:
            return
        state = self.state(self.roll(1, 3))
        shape = _tuple(state)
        count = self.roll(2, 3)
        index = self.like(*(("pred", ()) if count == 2 else ("s32", ())))
        called = [self.called(state, "branch") for _ in range(count)]
        name, tuples = self.text.fresh("choice"), []
        for _ in range(count):
            tuples.append(self.text.fresh("t"))
            self.lines.append(f"{tuples[-1]} = {shape} tuple({', '.join(v.name for v in state)})")
        given = ", ".join([index.name, *tuples])
        listed = f"branch_computations={{{', '.join(called)}}}"
        branches = f"true_computation={called[0]}, false_computation={called[1]}" if index.t == "pred" else listed
        self.lines.append(f"{name} = {shape} conditional({given}), {branches}")
        self.opened(name, state)

    def makers(self) -> Sequence[str]:
        """Names of the methods that append an instruction, more often of those that are more likely."""
        return KINDS

    def make(self, count: int) -> None:
        """Append `count` instructions of random kinds (and their operands)."""
        makers = [getattr(self, name) for name in self.makers()]
        for _ in range(count):
            self.one(makers)()


KINDS = (
    *("make_binary",) * 4,
    *("make_dot", "make_convolution", "make_reduce", "make_while", "make_conditional") * 2,
    *"make_unary make_select make_convert make_broadcast make_reshape make_transpose make_slice make_pad".split(),
    *"make_reverse make_concatenate make_reduce_window make_dynamic_slice make_dynamic_update_slice".split(),
)


def _tuple(values: Sequence[Value]) -> str:
    return "(" + ", ".join(v.shape for v in values) + ")"


def random_module(seed: int, empty: bool = False) -> tuple[str, list[Array]]:
    """A module's text and arguments; the same for the same seed.  `empty`: with dimensions of size 0."""
    return filled(Body(Text(np.random.default_rng(seed), empty)), 15)


def filled(entry: Body, most: int) -> tuple[str, list[Array]]:
    """A module of up to `most` random instructions (and their operands) in its entry: its text and arguments."""
    rng = entry.rng
    only_scalars = entry.roll(0, 19) == 0
    for number in range(entry.roll(1, 4)):
        entry.parameter(entry.one(entry.types), () if only_scalars else entry.dims(), number)
    given = list(entry.values)
    entry.make(entry.roll(3, most))
    results = [entry.values[-1], *(entry.one(entry.values) for _ in range(entry.one((0, 0, 1, 2, 4))))]
    shown = ", ".join(v.name for v in results)
    entry.lines.append(f"ROOT r = {_tuple(results)} tuple({shown})")
    text = "HloModule m\n" + "".join(entry.text.computations) + "ENTRY e {\n " + "\n ".join(entry.lines) + "\n}\n"
    return text, [_argument(rng, v) for v in given]


def _argument(rng: np.random.Generator, v: Value) -> Array:
    if v.t == "pred":
        return rng.integers(0, 2, v.dims).astype(np.bool_)
    return np.asarray(rng.integers(-4, 5, v.dims)).astype(dtype(v.t).stored)
