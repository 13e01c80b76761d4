"""Which value is stored where a group's data movement does not fold: the one that trying each would find."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.groups import folding, fusion
from systolith.compiler.groups.folding import folding_cut
from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.ops.expression_builder import NotFoldableError, analyze
from systolith.compiler.passes.base import run_passes
from tests.examples import examples

SHAPES = [(4, 6), (6, 4), (24,), (2, 12), (2, 3, 4)]


def text(shape: tuple[int, ...]) -> str:
    return f"f32[{','.join(map(str, shape))}]"


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Data movement, sums of values of one shape, and values used more than once."""
    made: list[tuple[str, tuple[int, ...]]] = [(f"p{n}", draw(st.sampled_from(SHAPES))) for n in range(2)]
    lines = [f"{name} = {text(shape)} parameter({n})" for n, (name, shape) in enumerate(made)]
    for n in range(draw(st.integers(1, 14))):
        x, shape = draw(st.sampled_from(made[-5:]))
        alike = [name for name, other in made if other == shape]
        kind = draw(st.sampled_from(["reshape", "transpose", "reverse", "add", "add", "pad"]))
        new, what = shape, f"add({x}, {draw(st.sampled_from(alike))})"
        if kind == "reshape":
            sizes = prod(shape)
            new = draw(st.sampled_from([s for s in SHAPES if prod(s) == sizes] or [(sizes,)]))
            what = f"reshape({x})"
        elif kind == "transpose":
            order = draw(st.permutations(range(len(shape))))
            new, what = tuple(shape[d] for d in order), f"transpose({x}), dimensions={{{','.join(map(str, order))}}}"
        elif kind == "reverse":
            what = f"reverse({x}), dimensions={{{draw(st.integers(0, len(shape) - 1))}}}"
        elif kind == "pad":
            new, what = (
                (shape[0] + 1, *shape[1:]),
                f"pad({x}, zero), padding={'x'.join(['1_0', *['0_0'] * 9][: len(shape)])}",
            )
        lines.append(f"v{n} = {text(new)} {what}")
        made.append((f"v{n}", new))
    body = "\n ".join(["zero = f32[] constant(0)", *lines[:-1], f"ROOT {lines[-1]}"])
    return f"HloModule m\nENTRY e {{\n {body}\n}}\n"


def folds(root: Instruction, frontier: set[Instruction]) -> bool:
    try:
        analyze([root], frontier=frontier)
    except NotFoldableError:
        return False
    return True


@examples(40, 250)
@given(programs())
def test_the_value_is_the_first_without_which_the_rest_folds(program: str) -> None:
    computation = parse_hlo(program).entry
    place = {i: n for n, i in enumerate(computation.instructions)}
    root = computation.result
    inner = [i for i in computation.instructions if i.opcode not in ("parameter", "constant")]
    wanted = None if folds(root, set()) else next(i for i in inner if folds(root, {i}))
    assert folding_cut(root, set(), place) is wanted


def test_a_value_that_is_read_twice_is_on_both_ways() -> None:
    lines = [
        "x = f32[4,6] parameter(0)",
        "a = f32[6,4] reshape(x)",
        "b = f32[6,4] reshape(x)",
        "c = f32[6,4] add(b, a)",
    ]
    body = "\n ".join([*lines, "ROOT z = f32[6,4] add(c, a)"])
    computation = parse_hlo(f"HloModule m\nENTRY e {{\n {body}\n}}\n").entry
    place = {i: n for n, i in enumerate(computation.instructions)}
    assert folding_cut(computation.result, set(), place) is computation.result


def chain(stages: int) -> str:
    """Each stage reads the one before in an order that does not fold twice."""
    lines = ["x = f32[6,4] parameter(0)", "v0 = f32[6,4] negate(x)"]
    for n in range(stages):
        lines += [
            f"t{n} = f32[4,6] transpose(v{n}), dimensions={{1,0}}",
            f"r{n} = f32[6,4] reshape(t{n})",
            f"v{n + 1} = f32[6,4] add(r{n}, x)",
        ]
    body = "\n ".join([*lines, f"ROOT z = f32[6,4] negate(v{stages})"])
    return f"HloModule m\nENTRY e {{\n {body}\n}}\n"


@pytest.mark.parametrize("stages", [20, 40, 80])
def test_a_group_is_walked_a_few_times_for_each_value_that_is_stored(
    stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[object] = []

    def counted(module: object, name: str) -> None:
        walk = getattr(module, name)

        def count(*args: Any, **kwargs: Any) -> Any:
            walks.append(name)
            return walk(*args, **kwargs)

        monkeypatch.setattr(module, name, count)

    counted(fusion, "analyze")
    counted(fusion, "folding_cut")
    module = run_passes(parse_hlo(chain(stages)), [Fuse()])
    assert sum(i.opcode == "fusion" for i in module.entry.instructions) > stages // 2
    assert len(walks) < 5 * stages


def test_nothing_is_cut_where_all_folds() -> None:
    computation = parse_hlo(chain(0)).entry
    place = {i: n for n, i in enumerate(computation.instructions)}
    assert folding.folding_cut(computation.result, set(), place) is None
