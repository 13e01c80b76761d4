"""Random modules that ask for more than an instruction has: many operands, ranks up to 8, movement of movement."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tests.compiler.driver.random_modules import Body, filled
from tests.compiler.driver.random_values import LARGEST, Text, Value
from tests.compiler.machine import Array

RANK = 8


class WideBody(Body):
    """A computation of such operations."""

    def dims(self, rank: int | None = None) -> tuple[int, ...]:
        if rank is not None or self.roll(0, 1):
            return super().dims(rank)
        sizes = [self.one((1, 2, 2, 3)) for _ in range(self.roll(3, RANK))]
        while prod(sizes) > LARGEST // 4:
            sizes[sizes.index(max(sizes))] = 1
        return tuple(sizes)

    def others(self, v: Value, count: int) -> list[Value]:
        """Values of the same shape that are all different: moved, or of other values."""
        found = []
        for k in range(count):
            if v.dims and k % 2:
                d = self.roll(0, len(v.dims) - 1)
                found.append(self.add(v.t, v.dims, f"reverse({v.name}), dimensions={{{d}}}", v.most))
            else:
                found.append(self.shifted(v))
        return found

    def shifted(self, v: Value) -> Value:
        """The value moved along one dimension, with a constant where nothing comes from."""
        if not v.dims:
            return self.like(v.t, ())
        d, by, fill = self.roll(0, len(v.dims) - 1), self.one((-2, -1, 1, 2)), self.scalar(v.t, self.roll(0, 1))
        padding = "x".join(f"{by}_{-by}" if k == d and v.dims[d] > 2 else "0_0" for k in range(len(v.dims)))
        return self.add(v.t, v.dims, f"pad({v.name}, {fill.name}), padding={padding}", max(v.most, fill.most))

    def make_wide(self) -> None:
        """One expression of many values."""
        v = self.pick(lambda v: v.t != "pred" and prod(v.dims) < 500 and v.most <= 64)
        if v:
            total = v
            for other in self.others(v, self.roll(8, 20)):
                op = self.one(("add", "subtract", "maximum", "minimum"))
                total = self.add(v.t, v.dims, f"{op}({total.name}, {other.name})", total.most + other.most)

    def make_stack(self) -> None:
        """Many values side by side, and a result of all of them."""
        v = self.pick(lambda v: v.t != "pred" and 0 < len(v.dims) < RANK and prod(v.dims) < 150 and v.most <= 64)
        if v:
            d = self.roll(0, len(v.dims) - 1)
            parts = [v, *self.others(v, self.roll(3, 14))]
            dims = (*v.dims[:d], v.dims[d] * len(parts), *v.dims[d + 1 :])
            names = ", ".join(p.name for p in parts)
            most = max(p.most for p in parts)
            whole = self.add(v.t, dims, f"concatenate({names}), dimensions={{{d}}}", most)
            split = (*v.dims[:d], len(parts), *v.dims[d:])
            stacked = self.add(v.t, split, f"reshape({whole.name})", most)
            if self.roll(0, 1):
                name, op, start = self.fold(v.t)
                code = f"reduce({stacked.name}, {start.name}), dimensions={{{d}}}, to_apply={name}"
                self.add(v.t, v.dims, code, max(most, start.most) * (len(parts) + 1 if op == "add" else 1))

    def make_pads(self) -> None:
        """Pads of pads, with other movement between them."""
        for _ in range(self.roll(2, 4)):
            self.make_pad()
            self.one((self.make_slice, self.make_reverse, self.make_reshape, self.make_concatenate, _nothing))()

    def make_moves(self) -> None:
        """Movement of movement."""
        for _ in range(self.roll(3, 6)):
            self.one(
                (self.make_reshape, self.make_transpose, self.make_reverse, self.make_slice, self.make_concatenate)
            )()

    def make_factors(self) -> None:
        """A reshape to many dimensions, and a transpose of those."""
        v = self.pick(lambda v: prod(v.dims) > 7)
        if v:
            sizes: list[int] = []
            rest = prod(v.dims)
            for p in (2, 2, 2, 2, 2, 3, 3, 5):
                if rest % p == 0 and len(sizes) < RANK - 1:
                    sizes.append(p)
                    rest //= p
            sizes.insert(self.roll(0, len(sizes)), rest)
            split = self.add(v.t, sizes, f"reshape({v.name})", v.most)
            order = self.rng.permutation(len(sizes)).tolist()
            shown = ",".join(map(str, order))
            self.add(v.t, [sizes[d] for d in order], f"transpose({split.name}), dimensions={{{shown}}}", v.most)

    def make_repeated_reduce(self) -> None:
        """A reduction over dimensions that a broadcast made, and others."""
        v = self.pick(lambda v: len(v.dims) < 4 and prod(v.dims) < 100)
        if v:
            at = self.roll(0, len(v.dims))
            repeats = self.one((2, 3, 9, 20))
            dims = (*v.dims[:at], repeats, *v.dims[at:])
            kept = [d for d in range(len(dims)) if d != at]
            shown = ",".join(map(str, kept))
            wide = self.add(v.t, dims, f"broadcast({v.name}), dimensions={{{shown}}}", v.most)
            over = sorted({at, *(d for d in kept if self.roll(0, 2) == 0)})
            name, op, start = self.fold(v.t)
            count = prod(dims[d] for d in over) + 1 if op == "add" else 1
            code = f"reduce({wide.name}, {start.name}), dimensions={{{','.join(map(str, over))}}}, to_apply={name}"
            self.add(v.t, [n for d, n in enumerate(dims) if d not in over], code, max(v.most, start.most) * count)

    def make_windows(self) -> None:
        """A window over many dimensions, padded and dilated."""
        v = self.pick(lambda v: 3 <= len(v.dims) <= 6 and prod(v.dims) < 300 and v.t != "pred")
        made = self.window(v.dims) if v else None
        if v and made and prod(made[2]) <= LARGEST // 2 and prod(made[1]) <= 64:
            name, op, start = self.fold(v.t, windowed=True)
            text = made[0][: made[0].index(" rhs_reversal")] + "}"
            n = prod(made[1]) + 1 if op == "add" else 1
            code = f"reduce-window({v.name}, {start.name}), {text}, to_apply={name}"
            self.add(v.t, made[2], code, max(v.most, start.most) * n)

    def make_variadic(self) -> None:
        """A reduction of several operands at once."""
        v = self.pick(lambda v: v.t in ("f32", "s32") and 0 < len(v.dims) < 4 and prod(v.dims) < 300 and v.most <= 64)
        if v:
            parts = [v, *self.others(v, self.roll(1, 7))]
            n, fold = len(parts), self.text.fresh("fold")
            one = f"{v.t}[]"
            lines = [f"a{k} = {one} parameter({k})" for k in range(n)]
            lines += [f"b{k} = {one} parameter({n + k})" for k in range(n)]
            lines += [f"r{k} = {one} {self.one(('maximum', 'minimum'))}(a{k}, b{k})" for k in range(n)]
            shape = "(" + ", ".join([one] * n) + ")"
            lines.append(f"ROOT r = {shape} tuple({', '.join(f'r{k}' for k in range(n))})")
            self.text.computations.append(f"{fold} {{\n " + "\n ".join(lines) + "\n}\n")
            d = self.roll(0, len(v.dims) - 1)
            kept = (*v.dims[:d], *v.dims[d + 1 :])
            start = self.like(v.t, ())
            results = "(" + ", ".join([Value("", v.t, kept).shape] * n) + ")"
            given = ", ".join([*(p.name for p in parts), *[start.name] * n])
            name = self.text.fresh("v")
            self.lines.append(f"{name} = {results} reduce({given}), dimensions={{{d}}}, to_apply={fold}")
            for k in range(n):
                self.add(v.t, kept, f"get-tuple-element({name}), index={k}", max(v.most, start.most))

    def makers(self) -> Sequence[str]:
        return KINDS


def _nothing() -> None:
    """No movement."""


KINDS = (
    *"make_wide make_stack make_pads make_moves make_factors make_repeated_reduce make_windows make_variadic".split(),
    *"make_binary make_select make_convert make_broadcast make_reduce make_dot make_dynamic_slice".split(),
    *"make_dynamic_update_slice make_convolution make_while".split(),
)


def random_wide_module(seed: int) -> tuple[str, list[Array]]:
    """A module's text and arguments; the same for the same seed."""
    return filled(WideBody(Text(np.random.default_rng(seed))), 6)
