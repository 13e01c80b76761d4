"""Multi-output fusion: the groups that are joined, and that they compute the same bits as the groups apart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.driver import Compiled
from systolith.compiler.explain import Decision
from systolith.compiler.groups import fuse_pair, multi_output
from systolith.compiler.groups.fusion import Fuse
from systolith.compiler.groups.multi_output import FuseOutputs
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.error_bounds import bounded
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.expression_builder import GroupPlan, analyze, group_roots
from systolith.compiler.ops.group import Group
from systolith.compiler.passes.base import run_pass, run_passes
from systolith.compiler.passes.pipeline import canonicalise
from systolith.isa.chip import Chip, load_chip
from tests.compiler.fusion.test_blocking import FOLDS
from tests.compiler.machine import Array, assert_within, compiled, run, with_vmem
from tests.examples import with_slow
from tests.runtime.command import systolith

TINY = load_chip("tiny")
CHIPS = {f"tiny {kib}K": with_vmem(TINY, kib << 10) for kib in (16, 256)}
CHIPS["small"] = load_chip("small")


def module(body: str, *heads: str) -> str:
    return f"HloModule m{''.join(f', {h}' for h in heads)}\n{FOLDS}\nENTRY e {{\n{body}\n}}\n"


def adam(n: int, *heads: str) -> str:
    """One step of Adam for a vector: parameters p, m, v, the gradient; results p, m, v."""
    a, s = f"f32[{n}]", "f32[]"
    constants = {"b1": 0.9, "c1": 0.1, "b2": 0.999, "c2": 0.001, "rate": 0.01, "eps": 1e-8}
    lines = [f"{name} = {a} parameter({k})" for k, name in enumerate(("p", "m", "v", "g"))]
    for name, value in constants.items():
        lines += [f"{name}.s = {s} constant({value})", f"{name} = {a} broadcast({name}.s), dimensions={{}}"]
    lines += [
        f"m1 = {a} multiply(b1, m)", f"m2 = {a} multiply(c1, g)", f"mn = {a} add(m1, m2)",
        f"gg = {a} multiply(g, g)", f"v1 = {a} multiply(b2, v)", f"v2 = {a} multiply(c2, gg)", f"vn = {a} add(v1, v2)",
        f"root = {a} sqrt(vn)", f"down = {a} add(root, eps)", f"up = {a} multiply(rate, mn)",
        f"by = {a} divide(up, down)", f"pn = {a} subtract(p, by)", f"ROOT t = ({a}, {a}, {a}) tuple(pn, mn, vn)",
    ]  # fmt: skip
    return module("\n".join(f" {line}" for line in lines), *heads)


def adam_arguments(n: int) -> list[Array]:
    rng = np.random.default_rng(0)
    p, m, v, g = rng.standard_normal((4, n)).astype(np.float32)
    return [p, m, np.abs(v), g]


def softmax(rows: int, width: int) -> str:
    x, r = f"f32[{rows},{width}]", f"f32[{rows}]"
    return module(f""" x = {x} parameter(0)
 low = f32[] constant(-inf)
 m = {r} reduce(x, low), dimensions={{1}}, to_apply=max
 mb = {x} broadcast(m), dimensions={{0}}
 d = {x} subtract(x, mb)
 e = {x} exponential(d)
 zero = f32[] constant(0)
 s = {r} reduce(e, zero), dimensions={{1}}, to_apply=add
 sb = {x} broadcast(s), dimensions={{0}}
 ROOT r = {x} divide(e, sb)""")


def moments(rows: int, width: int, result: str = "tuple(s, q)") -> str:
    x, r = f"f32[{rows},{width}]", f"f32[{rows}]"
    return module(f""" x = {x} parameter(0)
 zero = f32[] constant(0)
 s = {r} reduce(x, zero), dimensions={{1}}, to_apply=add
 xx = {x} multiply(x, x)
 q = {r} reduce(xx, zero), dimensions={{1}}, to_apply=add
 ROOT t = ({r}, {r}) {result}""")


@contextmanager
def apart() -> Iterator[None]:
    """No group joins another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multi_output, "NEAREST", 0)
        yield


def grouped(text: str, chip: str = "tpu_v3") -> tuple[Module, tuple[Decision, ...]]:
    """The module in groups, and the decisions about their results."""
    made = run_passes(canonicalise(parse_hlo(text)), [Fuse()])
    return made, run_pass(made, FuseOutputs(load_chip(chip))).decisions


def groups(text: str, chip: str = "tpu_v3") -> list[tuple[str, int]]:
    """Kind and number of results of each group of the entry."""
    found = [i for i in grouped(text, chip)[0].entry.instructions if isinstance(i, Group)]
    return [(g.kind, len(group_roots(g.body))) for g in found]


def same_bits(text: str, args: list[Array], chip: Chip = TINY, bounds: bool = False) -> Compiled:
    """Compile with and without, run both in hostile mode; every result is the same to the bit.

    Args:
        text: of the module.
        args: of its entry.
        chip: to compile for.
        bounds: whether the results are within their bounds of the evaluator's, too.
    """
    fused = compiled(text, chip, "highest")
    with apart():
        plain = compiled(text, chip, "highest")
    got, want = (run(c.program, chip, args) for c in (fused, plain))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))
    if bounds:
        assert_within(got, bounded(parse_hlo(text).entry, args, "highest"))
    return fused


def test_an_optimisers_update_is_one_group() -> None:
    assert groups(adam(5000)) == [("kLoop", 3)]
    made, decisions = grouped(adam(5000))
    assert all(d.numbers["vector cycles saved"] > 0 for d in decisions)
    assert all("one pass" in d.chosen for d in decisions)
    got, want = (evaluate(m, *adam_arguments(5000)) for m in (made, parse_hlo(adam(5000))))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    assert print_hlo(parse_hlo(print_hlo(made))) == print_hlo(made)


def test_an_exponential_and_its_sum_are_one_pass() -> None:
    assert groups(softmax(512, 512)) == [("kInput", 1), ("kInput", 2), ("kLoop", 1)]


def test_moments_are_one_pass() -> None:
    assert groups(moments(512, 768)) == [("kInput", 2)]


@pytest.mark.parametrize(("dims", "over"), [("16", ""), ("1,16", "0"), ("16,1", "1"), ("2,16", "0")])
def test_sums_may_meet_in_one_result(dims: str, over: str) -> None:
    text = module(f""" x = f32[{dims}] parameter(0)
 y = f32[{dims}] multiply(x, x)
 z = f32[] constant(0)
 s = f32[16] reduce(x, z), dimensions={{{over}}}, to_apply=add
 q = f32[16] reduce(y, z), dimensions={{{over}}}, to_apply=add
 d = f32[16] multiply(s, s)
 ROOT v = f32[16] subtract(q, d)""")
    x = np.ones([int(n) for n in dims.split(",")], np.float32)
    summed = x.size // 16
    assert (run(compiled(text).program, load_chip("tiny"), [x])[0] == summed - summed**2).all()


def test_a_value_that_only_its_consumer_needs_is_not_stored() -> None:
    """`y` is stored for `a` and `b`; once both are made where it is, nothing reads it."""
    text = module(""" x = f32[64,64] parameter(0)
 w = f32[64,64] parameter(1)
 e = f32[64,64] exponential(x)
 y = f32[64,64] multiply(e, w)
 a = f32[64,64] tanh(y)
 n = f32[64,64] negate(y)
 b = f32[64,64] exponential(n)
 ROOT t = (f32[64,64], f32[64,64]) tuple(a, b)""")
    assert groups(text) == [("kLoop", 2)]


CHAIN = module(""" x = f32[32,32] parameter(0)
 y = f32[32,32] parameter(1)
 a = f32[32,32] add(x, y)
 d = f32[32,32] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 c = f32[32,32] sine(y)
 b = f32[32,32] add(x, d)
 s = f32[32,32] sine(b)
 p = f32[32,32] dot(s, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT t = (f32[32,32], f32[32,32], f32[32,32], f32[32,32]) tuple(a, b, p, d)""")


def test_what_depends_through_another_group_stays_apart() -> None:
    """`b` needs `d`, which needs `a`, with which it shares `x`."""
    made, _ = grouped(CHAIN)
    place = {i.name: n for n, i in enumerate(made.entry.instructions)}
    assert place["a"] < place["d"] < place["b"]
    rng = np.random.default_rng(0)
    same_bits(CHAIN, list(rng.standard_normal((2, 32, 32)).astype(np.float32)))


def test_a_transposed_operand_is_no_common_element() -> None:
    text = module(""" x = f32[64,64] parameter(0)
 e = f32[64,64] exponential(x)
 t = f32[64,64] transpose(e), dimensions={1,0}
 s = f32[64,64] sine(t)
 ROOT r = (f32[64,64], f32[64,64]) tuple(e, s)""")
    assert groups(text) == [("kLoop", 1), ("kLoop", 1)]


def test_no_value_lives_longer_that_has_no_room() -> None:
    """Between the two groups VMEM is full: to make `b` early would spill."""
    big = "f32[512,2048]"
    body = f""" x = {big} parameter(0)
 y = {big} parameter(1)
 w = f32[2048,2048] parameter(2)
 a = {big} sine(x)
 d = {big} dot(a, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 s = {big} sine(d)
 f = {big} dot(s, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 q = {big} dot(f, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 b = {big} cosine(x)
 g = {big} dot(b, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 h = {big} multiply(q, g)
 ROOT r = {big} multiply(h, a)"""
    made, decisions = grouped(module(body))
    assert any("would live longer" in d.why for d in decisions)
    assert not any(i.name.endswith(".outputs") for i in made.entry.instructions)


def test_sums_are_one_pass_wherever_they_are_and_however_much_is_spilled() -> None:
    """Beside values that wait in HBM as they are too many for VMEM; many groups lie between the two sums."""
    big, square = "f32[1024,2048]", "f32[2048,2048]"
    flat = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    steps = [f" d{n} = {big} dot({f'd{n - 1}' if n else 'x'}, w), {flat}" for n in range(6)]
    ends = [f" e{n} = {big} sine(d{n})" for n in range(6)]
    small = [f" s{n} = f32[1024] {'sine' if n % 2 else 'cosine'}({f's{n - 1}' if n else 'y'})" for n in range(80)]
    roots = ", ".join(("q", "p", "s79", *(f"e{n}" for n in range(6))))
    shapes = ", ".join(("f32[2048]", "f32[2048]", "f32[1024]", *(big for _ in ends)))
    text = module("\n".join([
        f" x = {big} parameter(0)", f" w = {square} parameter(1)", " y = f32[1024] parameter(2)",
        " zero = f32[] constant(0)", *steps,
        " p = f32[2048] reduce(d5, zero), dimensions={0}, to_apply=add",
        *small, f" dd = {big} multiply(d5, d5)",
        " q = f32[2048] reduce(dd, zero), dimensions={0}, to_apply=add", *ends,
        f" ROOT t = ({shapes}) tuple({roots})",
    ]))  # fmt: skip
    _, decisions = grouped(text)
    assert any(d.chosen == "p and q in one pass" for d in decisions)


@pytest.mark.parametrize("name", with_slow(CHIPS, {"tiny 256K"}))
def test_same_bits(name: str) -> None:
    chip = CHIPS[name]
    rng = np.random.default_rng(0)
    same_bits(adam(1000), adam_arguments(1000), chip)
    for rows, width in ((64, 32), (33, 50)):
        x = rng.standard_normal((rows, width)).astype(np.float32)
        for text in (softmax(rows, width), moments(rows, width)):
            same_bits(text, [x], chip, bounds=True)


UNARY = ("negate", "abs", "exponential", "tanh", "cosine")
BINARY = ("add", "subtract", "multiply", "maximum")


@st.composite
def siblings(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """A module of values of one shape, reductions of them, and which of them are results; shapes of its parameters."""
    dims = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 8, 9, 17, 40)), min_size=1, max_size=3)))
    axis = draw(st.sampled_from(range(len(dims))))
    rest = dims[:axis] + dims[axis + 1 :]
    t = draw(st.sampled_from(("f32", "f32", "bf16")))
    whole, row = (f"{t}[{','.join(map(str, d))}]" for d in (dims, rest))
    shapes = [dims] * draw(st.integers(1, 2))
    lines = [f"x{k} = {whole} parameter({k})" for k in range(len(shapes))]
    lines += [f"low = {t}[] constant(-inf)", f"zero = {t}[] constant(0)"]
    rows: list[str] = []
    full = [f"x{k}" for k in range(len(shapes))]
    for n in range(draw(st.integers(2, 7))):
        what = draw(st.sampled_from(("unary", "binary", "binary", "add", "max", "spread", "meet")))
        a, b = (draw(st.sampled_from(full)) for _ in range(2))
        if what == "unary":
            lines.append(f"v{n} = {whole} {draw(st.sampled_from(UNARY))}({a})")
        elif what == "binary":
            lines.append(f"v{n} = {whole} {draw(st.sampled_from(BINARY))}({a}, {b})")
        elif what == "spread" and rows:
            places = ",".join(str(d) for d in range(len(dims)) if d != axis)
            lines.append(f"v{n} = {whole} broadcast({draw(st.sampled_from(rows))}), dimensions={{{places}}}")
        elif what == "meet" and rows:
            c, d = (draw(st.sampled_from(rows)) for _ in range(2))
            lines.append(f"r{n} = {row} {draw(st.sampled_from(BINARY))}({c}, {d})")
            rows.append(f"r{n}")
            continue
        else:
            fold, init = ("max", "low") if what == "max" else ("add", "zero")
            lines.append(f"r{n} = {row} reduce({a}, {init}), dimensions={{{axis}}}, to_apply={fold}.{t}")
            rows.append(f"r{n}")
            continue
        full.append(f"v{n}")
    made = [*full[len(shapes) :], *rows]
    results = draw(st.lists(st.sampled_from(made), min_size=1, max_size=4, unique=True))
    types = ", ".join(whole if r in full else row for r in results)
    lines.append(f"ROOT t = ({types}) tuple({', '.join(results)})")
    folds = "".join(
        f"{n}.{t} {{\n a = {t}[] parameter(0)\n b = {t}[] parameter(1)\n ROOT r = {t}[] {op}(a, b)\n}}\n"
        for n, op in (("add", "add"), ("max", "maximum"))
    )
    return f"HloModule m\n{folds}ENTRY e {{\n" + "\n".join(f" {line}" for line in lines) + "\n}\n", shapes


@given(siblings(), st.sampled_from(list(CHIPS)), st.integers(0, 9))
def test_any_groups_have_the_same_bits(case: tuple[str, list[tuple[int, ...]]], chip: str, seed: int) -> None:
    text, shapes = case
    rng = np.random.default_rng(seed)
    types = [p.shape.dtype.stored for p in parse_hlo(text).entry.parameters]
    args = [rng.standard_normal(s).astype(np.float32).astype(t) for s, t in zip(shapes, types, strict=True)]
    same_bits(text, args, CHIPS[chip])


DONATED = "input_output_alias={ {0}: (0, {}, must-alias), {1}: (1, {}, must-alias), {2}: (2, {}, must-alias) }"


@pytest.mark.parametrize("n", [1000, pytest.param(40000, marks=pytest.mark.slow)])
def test_each_result_is_made_in_its_donated_operand(n: int) -> None:
    text = adam(n, DONATED)
    made = compiled(text, TINY)
    assert sum(d.kind == "outputs" and "in one pass" in d.chosen for d in made.explain) == 2
    shared = [b.alias for b in made.program.buffers if b.role == "result"]
    assert shared == [0, 1, 2]
    assert sum("is made or stored in" in d.chosen for d in made.explain) == 3
    same_bits(text, adam_arguments(n))


def test_a_result_stays_in_place_of_what_is_read_before_it() -> None:
    """`b` may overwrite `x` where `d` has read it; if it joined `a`, it would come before."""
    text = module(
        """ x = f32[40,40] parameter(0)
 y = f32[40,40] parameter(1)
 a = f32[40,40] sine(y)
 d = f32[40,40] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 b = f32[40,40] add(x, y)
 ROOT t = (f32[40,40], f32[40,40], f32[40,40]) tuple(a, b, d)""",
        "input_output_alias={ {1}: (0, {}, may-alias) }",
    )
    made, decisions = grouped(text)
    assert [d.why for d in decisions] == ["d reads what a result would overwrite"]
    assert all(i.opcode != "get-tuple-element" for i in made.entry.instructions)
    rng = np.random.default_rng(0)
    same_bits(text, list(rng.standard_normal((2, 40, 40)).astype(np.float32)))


def trained(n: int, steps: int) -> str:
    """So many steps of Adam in a loop, on the gradient of a square."""
    a, state = f"f32[{n}]", f"(f32[{n}], f32[{n}], f32[{n}], s32[])"
    _, _, body = adam(n).partition("ENTRY e {")
    left = ("", "}")
    lines = [line for line in body.splitlines() if line not in left and "parameter" not in line and "ROOT" not in line]
    entry = "\n".join(lines)
    return f"""HloModule m
body {{
 state = {state} parameter(0)
 p = {a} get-tuple-element(state), index=0
 m = {a} get-tuple-element(state), index=1
 v = {a} get-tuple-element(state), index=2
 k = s32[] get-tuple-element(state), index=3
 g = {a} add(p, p)
{entry}
 one = s32[] constant(1)
 k1 = s32[] add(k, one)
 ROOT next = {state} tuple(pn, mn, vn, k1)
}}
condition {{
 state = {state} parameter(0)
 k = s32[] get-tuple-element(state), index=3
 steps = s32[] constant({steps})
 ROOT c = pred[] compare(k, steps), direction=LT
}}
ENTRY e {{
 p = {a} parameter(0)
 m = {a} parameter(1)
 v = {a} parameter(2)
 zero = s32[] constant(0)
 start = {state} tuple(p, m, v, zero)
 loop = {state} while(start), condition=condition, body=body
 pn = {a} get-tuple-element(loop), index=0
 mn = {a} get-tuple-element(loop), index=1
 vn = {a} get-tuple-element(loop), index=2
 ROOT t = ({a}, {a}, {a}) tuple(pn, mn, vn)
}}
"""


@pytest.mark.parametrize(("n", "chip"), [(100, "tiny 256K"), pytest.param(1500, "tiny 16K", marks=pytest.mark.slow)])
def test_a_loops_state_is_updated_where_it_lies(n: int, chip: str) -> None:
    text = trained(n, 20)
    made, _ = grouped(text, "tiny")
    (loop,) = (i for i in made.entry.instructions if i.opcode == "while")
    inside = [i for i in loop.computation("body").instructions if i.opcode == "fusion"]
    assert 3 in [len(group_roots(i.computation("calls"))) for i in inside]
    program = same_bits(text, adam_arguments(n)[:3], CHIPS[chip], bounds=True).program
    assert not any(o.what == "carry" and o.group == "loop" for o in program.origins)


@pytest.mark.parametrize(
    ("text", "group"), [(adam(3000, DONATED), "pn.outputs"), (softmax(2, 16), "s.outputs")], ids=["adam", "softmax"]
)
def test_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, group: str) -> None:
    """A group of several results is checked against the evaluator, reported, predicted and explained."""
    path = tmp_path / "m.hlo"
    path.write_text(text)
    ran = systolith(capsys, "run", path, "--chip", "tiny", "--random", 0, "--check", "--hostile", "--json")
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    (row,) = (g for g in record["groups"] if g["name"] == group)
    assert row["cycles"] > 0
    assert record["checks"]["groups"] == sum(bool(g["name"]) for g in record["groups"])
    explained = json.loads(systolith(capsys, "explain", path, "--chip", "tiny", "--group", group, "--json").out)
    (about,) = explained["groups"]
    assert about["predicted"] > 0
    assert any("in one pass" in d["chosen"] and d["numbers"]["vector cycles saved"] for d in about["decisions"])


def test_computations_are_analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group is looked at beside several others, and again with what it was joined with."""
    seen: Counter[tuple[Instruction, ...]] = Counter()

    def counted(roots: Sequence[Instruction]) -> GroupPlan:
        seen[tuple(roots)] += 1
        return analyze(roots)

    monkeypatch.setattr(fuse_pair, "analyze", counted)
    run_passes(canonicalise(parse_hlo(adam(1000))), [Fuse(), FuseOutputs(TINY)])
    assert seen
    assert max(seen.values()) == 1
