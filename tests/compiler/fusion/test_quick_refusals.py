"""Groups that are not looked at beside others, since no kernel can have both: as many join as if all pairs were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.groups import fuse_pair
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.ops.group import Group
from tests.compiler.fusion.test_multi_output import adam, grouped, module, siblings, softmax
from tests.examples import examples


def slices_of_one(count: int, reduced: bool) -> str:
    """Rows of one matrix: a sum, or an elementwise operation, of each."""
    rows, made, kind = [], [], "f32[]" if reduced else "f32[64]"
    for n in range(count):
        rows.append(f" r{n} = f32[1,64] slice(x), slice={{[{n}:{n + 1}], [0:64]}}")
        rows.append(f" v{n} = f32[64] reshape(r{n})")
        rows.append(f" e{n} = f32[64] multiply(v{n}, v{n})")
        made.append(
            f" o{n} = {kind} " + (f"reduce(e{n}, zero), dimensions={{0}}, to_apply=add" if reduced else f"negate(e{n})")
        )
    head = [f" x = f32[{count},64] parameter(0)", " zero = f32[] constant(0)"]
    end = f" ROOT t = ({', '.join([kind] * count)}) tuple({', '.join(f'o{n}' for n in range(count))})"
    return module("\n".join([*head, *rows, *made, end]))


def long_chains(count: int, operations: int) -> str:
    """Chains of elementwise operations on one vector."""
    lines = [" x = f32[512] parameter(0)"]
    for n in range(count):
        lines.append(f" c{n}.0 = f32[512] {('sine', 'cosine', 'exponential', 'tanh')[n % 4]}(x)")
        lines += [f" c{n}.{k + 1} = f32[512] multiply(c{n}.{k}, x)" for k in range(operations)]
    ends = ", ".join(f"c{n}.{operations}" for n in range(count))
    return module("\n".join([*lines, f" ROOT t = ({', '.join(['f32[512]'] * count)}) tuple({ends})"]))


@contextmanager
def looked_at_whole() -> Iterator[None]:
    """Every pair of groups is looked at, however large they are and whatever has been looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fuse_pair.Kernels, "_fills", lambda *_: False)
        patch.setattr(fuse_pair.Kernels, "check_streams", lambda *_: None)
        patch.setattr(fuse_pair.Kernels, "saved", fuse_pair.Kernels._saved_of)
        yield


def same_groups(text: str) -> None:
    """What is known of groups before they are looked at beside others leads to the same joint ones."""
    quickly = print_hlo(grouped(text)[0])
    with looked_at_whole():
        whole = print_hlo(grouped(text)[0])
    assert quickly == whole


@pytest.mark.parametrize(
    "text",
    [
        slices_of_one(16, True),
        slices_of_one(16, False),
        long_chains(6, 3),
        long_chains(5, 40),
        adam(1000),
        softmax(64, 64),
    ],
    ids=["sums of rows", "rows", "chains", "long chains", "adam", "softmax"],
)
def test_quick_refusals_are_those_of_a_whole_look(text: str) -> None:
    same_groups(text)


@given(siblings())
def test_quick_refusals_of_any_groups(case: tuple[str, list[tuple[int, ...]]]) -> None:
    same_groups(case[0])


@st.composite
def rows_of_one(draw: st.DrawFn) -> str:
    """Values and reductions of several rows of one matrix, of a vector, a scalar, and of one another: many streams."""
    count = draw(st.integers(4, 14))
    lines = [f" x = f32[{count},64] parameter(0)", " z = f32[64] parameter(1)", " s = f32[] parameter(2)"]
    lines += [" zero = f32[] constant(0)", " low = f32[] constant(-inf)", " all = f32[64] broadcast(s), dimensions={}"]
    for n in range(count):
        lines += [f" r{n} = f32[1,64] slice(x), slice={{[{n}:{n + 1}], [0:64]}}", f" v{n} = f32[64] reshape(r{n})"]
    given, results = [*(f"v{n}" for n in range(count)), "z", "all"], dict[str, str]()
    for n in range(draw(st.integers(2, 14))):
        name = f"e{n}"
        lines.append(f" {name}.0 = f32[64] multiply({draw(st.sampled_from(given))}, {draw(st.sampled_from(given))})")
        steps = draw(st.sampled_from((0, 1, 2, 30)))
        lines += [f" {name}.{k + 1} = f32[64] add({name}.{k}, {draw(st.sampled_from(given))})" for k in range(steps)]
        last, fold = f"{name}.{steps}", draw(st.sampled_from(("", "add", "max")))
        given.append(last)
        if fold:
            init = "zero" if fold == "add" else "low"
            lines.append(f" {name} = f32[] reduce({last}, {init}), dimensions={{0}}, to_apply={fold}")
        if fold or draw(st.booleans()):
            results[name if fold else last] = "f32[]" if fold else "f32[64]"
    results = results or {given[-1]: "f32[64]"}
    return module("\n".join([*lines, f" ROOT t = ({', '.join(results.values())}) tuple({', '.join(results)})"]))


@given(rows_of_one())
@examples(3, 60)
def test_quick_refusals_of_groups_of_many_streams(text: str) -> None:
    same_groups(text)


@pytest.mark.parametrize(
    ("text", "few"), [(slices_of_one(40, True), 80), (slices_of_one(40, False), 80)], ids=["sums", "rows"]
)
def test_few_pairs_are_looked_at(monkeypatch: pytest.MonkeyPatch, text: str, few: int) -> None:
    """Kernels are full after some rows: the others are not tried with each of those before them."""
    looks = []
    whole = fuse_pair.Kernels._saved_of

    def counted(kernels: fuse_pair.Kernels, first: Group, second: Group, joint: fuse_pair.Joint) -> int:
        looks.append(joint)
        return whole(kernels, first, second, joint)

    monkeypatch.setattr(fuse_pair.Kernels, "_saved_of", counted)
    grouped(text)
    assert 0 < len(looks) <= few
