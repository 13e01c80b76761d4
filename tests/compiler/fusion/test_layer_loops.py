"""Layers that are written out, as a loop: which are, that values stay the same, what that saves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.driver import compile_groups, compile_tile
from systolith.compiler.groups.layer_loops import LoopOverLayers
from systolith.compiler.groups.layers import layers_of
from systolith.compiler.hlo.ir import Module
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.text.printer import print_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.ops.group import read_groups
from systolith.compiler.passes.base import run_pass
from systolith.compiler.passes.pipeline import canonicalise
from systolith.compiler.tile.parser import parse_tile_ir
from systolith.hw.lockstep import lockstep
from systolith.isa.chip import Chip, load_chip
from systolith.runtime.memories import overwritten
from systolith.sim.simulate import simulate
from tests.compiler.machine import Array, check, checked, compiled, error, memory, run, with_vmem
from tests.examples import examples

TINY = load_chip("tiny")
X, C = "f32[8,32]", "f32[16,32]"
READ_AGAIN = f"y = {X} dot(x6, w1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("systolith.compiler.groups.layer_loops.LEAST", 0)


def text(
    count: int = 6, caches: bool = True, donated: bool = True, last: str = "", more: str = "", odd: int = -1
) -> str:
    """Layers that multiply x by weights, put a row of the product into a cache, and read all of that, masked.

    Args:
        count: of layers.
        caches: whether the cache is one of the layer's own, and a result.
        donated: whether it is updated where it is.
        last: further results.
        more: instructions after the layers.
        odd: a layer that has another operation than the others.
    """
    given, lines, results = [f"x0 = {X} parameter(0)", "pos = s32[] parameter(1)"], [], []
    for n in range(count):
        given.append(f"w{n} = f32[32,32] parameter({2 + n})")
        given.append(f"c{n} = {C} parameter({2 + count + n})" if caches or not n else "")
        cache = f"c{n}" if caches else "c0"
        lines.append(f"""h{n} = {X} dot(x{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  r{n} = f32[1,32] slice(h{n}), slice={{[0:1], [0:32]}}
  d{n} = {C} {f"dynamic-update-slice({cache}, r{n}, pos, zero)" if caches else f"add({cache}, {cache})"}
  s{n} = f32[8,16] dot(h{n}, d{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  m{n} = f32[8,16] select(mask, s{n}, small)
  e{n} = f32[8,16] {"tanh" if n != odd else "sine"}(m{n})
  o{n} = {X} dot(e{n}, d{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  x{n + 1} = {X} add(x{n}, o{n})""")
        results += [f"d{n}"] * caches
    shapes = [X, *[C] * len(results), *[X] * bool(last)]
    aliases = ", ".join(f"{{{1 + n}}}: ({2 + count + n}, {{}}, may-alias)" for n in range(len(results)))
    head = f", input_output_alias={{ {aliases} }}" if donated and caches else ""
    values = ", ".join([f"x{count}", *results, *[last] * bool(last)])
    return f"""HloModule layers{head}
ENTRY e {{
  {chr(10).join("  " + g for g in given if g).lstrip()}
  zero = s32[] constant(0)
  half = f32[] constant(-1)
  small = f32[8,16] broadcast(half), dimensions={{}}
  rows = s32[8,16] iota(), iota_dimension=0
  at = s32[8,16] iota(), iota_dimension=1
  mask = pred[8,16] compare(at, rows), direction=LE
  {chr(10).join("  " + line for line in lines).lstrip()}
  {more}
  ROOT t = ({", ".join(shapes)}) tuple({values})
}}
"""


def arguments(count: int = 6, caches: bool = True) -> list[Array]:
    draw = np.random.default_rng(0)
    shapes = [(8, 32), (), *[(32, 32)] * count, *[(16, 32)] * (count if caches else 1)]
    args = [(draw.standard_normal(s) / 4).astype(np.float32) for s in shapes]
    args[1] = np.array(3, np.int32)
    return args


def looped(given_text: str, chip: Chip = TINY) -> tuple[Module, list[str]]:
    """A module after the pass, and what was chosen."""
    module = canonicalise(parse_hlo(given_text))
    return module, [d.chosen for d in run_pass(module, LoopOverLayers(chip)).decisions]


@pytest.mark.parametrize("caches", [False, True])
def test_layers_become_a_loop(caches: bool) -> None:
    module, chosen = looped(text(caches=caches))
    assert chosen == [f"a loop of 6 layers of {8 if caches else 6} operations"]
    args = arguments(caches=caches)
    for got, want in zip(evaluate(module, *args), evaluate(parse_hlo(text(caches=caches)), *args), strict=True):
        np.testing.assert_array_equal(got, want)
    made = check(text(caches=caches), args)
    assert [d.chosen for d in made.explain if d.kind == "loop"] == chosen


def test_what_they_have_in_common_is_made_in_each_of_few_bytes() -> None:
    """The mask is made of iotas again; the loop does not carry it."""
    module, _ = looped(text())
    (loop,) = [i for i in module.entry.instructions if i.opcode == "while"]
    assert not any(s.dims == (8, 16) for s in loop.shape.elements)


@pytest.mark.parametrize(
    "given_text",
    [
        pytest.param(text(3), id="few"),
        pytest.param(text(last="h2"), id="a value of a layer is a result"),
        pytest.param(text(donated=False), id="caches are copied"),
        pytest.param(text(odd=3), id="one is another"),
    ],
)  # fmt: skip
def test_written_out_as_before(given_text: str) -> None:
    module, chosen = looped(given_text)
    assert not chosen
    assert not any(i.opcode == "while" for i in module.instructions())


def test_weights_may_be_read_again() -> None:
    source = text(last="y", more=READ_AGAIN)
    assert looped(source)[1] == ["a loop of 6 layers of 8 operations"]
    check(source, arguments())


def test_weights_whose_memory_a_result_gets_are_read_before() -> None:
    """Results that need no layer are made in the memory of weights, which the loop reads: not before it has."""
    count = 6
    names, shape = [f"w{n}.half" for n in range(count)], "f32[32,32]"
    halves = "\n  ".join(f"{name} = {shape} add(w{n}, w{n})" for n, name in enumerate(names))
    aliases = ", ".join(f"{{{n + 1}}}: ({n + 2}, {{}}, may-alias)" for n in range(count))
    source = text(count, caches=False).replace(
        "HloModule layers", f"HloModule layers, input_output_alias={{ {aliases} }}"
    )
    source = source.replace("  h0 = ", f"  {halves}\n  h0 = ")
    results = ", ".join([X, *[shape] * count])
    source = source.replace(
        f"ROOT t = ({X}) tuple(x{count})", f"ROOT t = ({results}) tuple(x{count}, {', '.join(names)})"
    )
    assert looped(source)[1] == ["a loop of 6 layers of 6 operations"]
    check(source, arguments(count, caches=False))


def test_what_a_layer_replaces_may_be_read_afterwards() -> None:
    """The result that gets a parameter's memory is made first, and not of it."""
    count, x = 6, "f32[8,32]"
    lines = "\n  ".join(
        f"h{n} = {x} dot(x{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
        f"  c{n}.new = {x} add(h{n}, h{n})\n  y{n} = {x} subtract(c{n}.new, c{n})\n  x{n + 1} = {x} add(y{n}, x{n})"
        for n in range(count)
    )
    given = [f"w{n} = f32[32,32] parameter({1 + n})" for n in range(count)]
    given += [f"c{n} = {x} parameter({1 + count + n})" for n in range(count)]
    aliases = ", ".join(f"{{{1 + n}}}: ({1 + count + n}, {{}}, may-alias)" for n in range(count))
    values = ", ".join([f"x{count}", *(f"c{n}.new" for n in range(count))])
    source = f"""HloModule m, input_output_alias={{ {aliases} }}
ENTRY e {{
  x0 = {x} parameter(0)
  {chr(10).join(given)}
  {lines}
  ROOT t = ({", ".join([x] * (1 + count))}) tuple({values})
}}
"""
    draw = np.random.default_rng(0)
    shapes = [(8, 32), *[(32, 32)] * count, *[(8, 32)] * count]
    args = [(draw.standard_normal(s) / 8).astype(np.float32) for s in shapes]
    assert looped(source)[1] == ["a loop of 6 layers of 4 operations"]
    made = check(source, args)
    assert overwritten(made.program) == {1 + count + n for n in range(count)}


def test_what_others_do_stays_in_its_order() -> None:
    """Infeeds and outfeeds are in the order of the text."""
    source = text(caches=False).replace(
        "  zero = s32[]", "  token = token[] after-all()\n  fed = ((f32[8]), token[]) infeed(token)\n  zero = s32[]", 1
    )
    assert "infeed" in source
    assert not looped(source)[1]


def test_small_parameters_are_not_worth_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert not looped(text())[1]


def test_caches_are_updated_where_they_are() -> None:
    made = check(text(), arguments())
    assert overwritten(made.program) == {2 + 6 + n for n in range(6)}
    assert not any(b.role == "temp" and b.bytes >= 16 * 32 * 4 for b in made.program.buffers)


def test_caches_are_updated_at_places_of_any_type() -> None:
    given_text = text().replace("pos = s32[]", "pos = u32[]").replace("zero = s32[]", "zero = u32[]")
    args = arguments()
    args[1] = args[1].astype(np.uint32)
    made = check(given_text, args)
    assert [d for d in made.explain if d.kind == "loop"]
    assert overwritten(made.program) == {2 + 6 + n for n in range(6)}


def test_programs_do_not_grow_with_layers() -> None:
    few, many = (len(compiled(text(count)).program.code) for count in (8, 12))
    assert few == many


def test_they_take_no_longer() -> None:
    """But for the ends of iterations: the weights of these take HBM as long as little else does."""
    wide = text(4).replace("32,32]", "512,512]").replace("[8,32]", "[8,512]").replace("[16,32]", "[16,512]")
    wide = wide.replace("[1,32]", "[1,512]").replace("[0:32]", "[0:512]")
    chip = load_chip("small")
    cycles = []
    for least in (0, 1 << 60):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("systolith.compiler.groups.layer_loops.LEAST", least)
            made = compiled(wide, chip)
        assert bool([d for d in made.explain if d.kind == "loop"]) == (least == 0)
        cycles.append(simulate(made.program, chip, mode="time").cycles or 0)
    assert cycles[0] < 1.1 * cycles[1]


def test_as_text_it_is_the_same() -> None:
    """Grouped HLO and tile IR, printed and read again."""
    made, args = compiled(text()), arguments()
    again = compile_groups(read_groups(parse_hlo(print_hlo(made.module))), TINY)
    assert again.program.code == made.program.code
    tile = compile_tile(parse_tile_ir(made.stages["tile.txt"]), TINY).program
    assert (tile.code, tile.buffers) == (made.program.code, made.program.buffers)
    for got, want in zip(run(tile, TINY, args), evaluate(parse_hlo(text()), *args, precision="default"), strict=True):
        assert error(got, want) < 3e-2


def test_groups_are_checked() -> None:
    assert checked(compiled(text(), precision="highest"), TINY, arguments()).executions >= 5 * 6


def test_the_core_does_the_same() -> None:
    made, args = compiled(text()), arguments()
    result = lockstep(made.program, TINY, memory(made.program, args))
    assert result.difference is None, result.difference


def named(source: int | str, n: int) -> str:
    """An operand of layer n: the residual (-1), an operation's result by its number, a parameter by its letter."""
    if isinstance(source, str):
        return source if source == "g" else f"{source}{n}"
    return f"x{n}" if source < 0 else f"i{n}_{source}"


@examples(10, 30)
@given(st.data())
def test_random_layers(data: st.DataObject) -> None:
    """Of operations on what came before, in this layer or the last one, on parameters and what all have in common.

    Some of what they make is used outside: of all layers or of a few, from the first or from the last layer on.
    """
    count, length = data.draw(st.integers(4, 6)), data.draw(st.integers(8, 14))
    shape = "f32[4,8]"
    plan = []
    for slot in range(length):
        sources = st.sampled_from([*range(-1, slot), "w", "v", "g"]) if slot else st.just(-1)
        plan.append(
            (
                data.draw(st.sampled_from(["add", "multiply", "subtract", "maximum"])),
                data.draw(sources),
                data.draw(sources),
            )
        )
    lines = []
    for n in range(count):
        for slot, (op, first, second) in enumerate(plan):
            name = f"x{n + 1}" if slot == length - 1 else f"i{n}_{slot}"
            lines.append(f"{name} = {shape} {op}({named(first, n)}, {named(second, n)})")
    total = f"x{count}"
    for slot in data.draw(st.lists(st.integers(0, length - 2), max_size=3, unique=True)):
        layers = [*range(count)][:: data.draw(st.sampled_from([1, -1]))][: data.draw(st.integers(1, count))]
        for n in layers:
            lines.append(
                f"t{slot}_{n} = {shape} {data.draw(st.sampled_from(['add', 'minimum']))}({total}, i{n}_{slot})"
            )
            total = f"t{slot}_{n}"
    given = [f"x0 = {shape} parameter(0)", f"g = {shape} parameter(1)"]
    given += [
        f"{name}{n} = {shape} parameter({2 + k * count + n})" for k, name in enumerate("wv") for n in range(count)
    ]
    module = f"HloModule m\nENTRY e {{\n{chr(10).join([*given, *lines])}\n  ROOT r = {shape} negate({total})\n}}\n"
    draw = np.random.default_rng(1)
    args = [draw.standard_normal((4, 8)).astype(np.float32) for _ in range(2 + 2 * count)]
    wanted = evaluate(parse_hlo(module), *args)
    # For the second one all values are large, and computed again where others give them.
    made, _ = looped(module, data.draw(st.sampled_from([TINY, with_vmem(TINY, 1024)])))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(evaluate(made, *args)[0], wanted[0])
    entry = canonicalise(parse_hlo(module)).entry
    assert all(len(found.rows) >= 4 for found in layers_of(entry, entry.instructions))
