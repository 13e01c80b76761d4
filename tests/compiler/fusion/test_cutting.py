"""Groups cut at any of their values give the same bits as before, and compile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from systolith.compiler.driver import compile_grouped
from systolith.compiler.errors import CompileError, LimitError
from systolith.compiler.groups.multi_output import FuseOutputs
from systolith.compiler.groups.splitting import Oversized, split
from systolith.compiler.hlo.ir import Computation, Module
from systolith.compiler.hlo.rules.verifier import verify
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.group import Group, Unit, is_cheap
from systolith.compiler.ops.table import ROOTS, family
from systolith.compiler.options import Options
from systolith.compiler.passes.base import run_passes
from systolith.compiler.passes.rewrite import Names
from tests.compiler.driver.random_limits import random_wide_module
from tests.compiler.driver.random_modules import random_module
from tests.compiler.fusion.test_fusion import check_group, grouped, running
from tests.compiler.machine import TINY, Array, error, run

PROBLEM = LimitError("more than an instruction has")


def groups(module: Module) -> list[tuple[Computation, Group]]:
    return [(c, i) for c in running(module) for i in c.instructions if isinstance(i, Group)]


def split_all(module: Module) -> int:
    """Split every group that has more than one operation; gives how many."""
    names, made = Names(c.name for c in module.computations), 0
    for computation, group in groups(module):
        try:
            made += len(split([Oversized(computation, group, PROBLEM)], names, module))
        except CompileError:
            continue
    return made


def joined(text: str) -> Module:
    """The module in groups, of which some have several results."""
    return run_passes(grouped(text), [FuseOutputs(TINY)])


def same(got: list[Array], want: list[Array]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))


@pytest.mark.parametrize("make", [random_module, random_wide_module])
@pytest.mark.parametrize("seed", range(16))
def test_split_groups_mean_the_same(seed: int, make: Callable[[int], tuple[str, list[Array]]]) -> None:
    text, args = make(seed)
    module = joined(text)
    with np.errstate(all="ignore"):
        want = evaluate(module, *args)
        for _ in range(3):
            before = len(groups(module))
            made = split_all(module)
            verify(module)
            assert len(groups(module)) >= before + made // 2
            same(evaluate(module, *args), want)
    for _, group in groups(module):
        inside = group.body.instructions
        if group.unit is Unit.VPU and not group.reduces:
            assert all(is_cheap(i) for i in inside if i.opcode not in ("parameter", "constant", "tuple"))
        elif sum(family(i) in ROOTS for i in inside) == 1:
            check_group(group)


@pytest.mark.parametrize("seed", range(6))
def test_split_groups_compile(seed: int) -> None:
    text, args = random_module(seed)
    module = joined(text)
    split_all(module)
    with np.errstate(all="ignore"):
        want = evaluate(parse_hlo(text), *args, precision="highest")
    program = compile_grouped(module, TINY, Options(precision="highest")).program
    for a, b in zip(run(program, TINY, args), want, strict=True):
        assert error(a, b) < 2.0**-5
