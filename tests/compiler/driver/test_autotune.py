"""Trying tile plans in the simulator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.autotune import Tuned, Tuner, default_cache, read_cache, write_cache
from systolith.compiler.driver import Compiled, compile_module
from systolith.compiler.errors import CompileError
from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.options import Options
from systolith.isa.chip import load_chip
from systolith.isa.program import Program
from systolith.sim.simulate import simulate
from tests.compiler.fusion.test_blocking import attention, softmax
from tests.compiler.gemm.test_predict import gemm
from tests.examples import examples

SMALL = load_chip("small")


def cycles(program: Program) -> int | None:
    return simulate(program, SMALL, mode="time").cycles


def tuned(text: str, tuner: Tuner | None) -> Compiled:
    count = tuner.count if tuner else 0
    return compile_module(parse_hlo(text), SMALL, Options(autotune=count, tuner=tuner))


def test_without_a_simulator_it_is_refused() -> None:
    with pytest.raises(CompileError, match="autotune needs a simulator"):
        compile_module(parse_hlo(gemm(8, 8, 8)), SMALL, Options(autotune=2))


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 200))
@examples(3, 8)
def test_never_worse_alone(tmp_path_factory: pytest.TempPathFactory, m: int, k: int, n: int) -> None:
    tuner = Tuner(4, cycles, tmp_path_factory.mktemp("tune") / "cache.json")
    tuned(gemm(m, k, n), tuner)
    assert all(t.cycles <= t.first for t in tuner.known.values())


def test_the_fastest_is_taken_and_remembered(tmp_path: Path) -> None:
    """A simulator that likes every new program better than those before makes the last candidate win."""
    asked: list[Program] = []

    def measure(program: Program) -> int:
        asked.append(program)
        return 1000 - len(asked)

    path = tmp_path / "deep" / "cache.json"
    first = tuned(gemm(300, 200, 100), Tuner(3, measure, path))
    assert len(asked) == 3 + 2  # and the whole module, without and with
    again = tuned(gemm(300, 200, 100), Tuner(3, measure, path))
    assert len(asked) == 3 + 4
    assert first.program == again.program
    assert first.program.code != tuned(gemm(300, 200, 100), None).program.code
    (decision,) = (d for d in first.explain if d.kind == "autotune" and d.group)
    assert decision.numbers == {"cycles": 997, "tried": 3}
    assert decision.rejected[0].numbers == {"cycles": 999}
    tuned(gemm(300, 200, 100), Tuner(4, measure, path))
    assert len(asked) == 3 + 4 + 4 + 2


@dataclass(frozen=True)
class Named:
    """A plan."""

    signature: str
    numbers: Mapping[str, int] = field(default_factory=dict)


@pytest.mark.parametrize(("fitting", "picked"), [("a b", "b"), ("b", "")])
def test_where_the_estimates_choice_does_not_fit_alone_it_stays(tmp_path: Path, fitting: str, picked: str) -> None:
    plans = [Named("a"), Named("b")]
    programs = {name: Program.on(SMALL, name) for name in "ab"}
    tuner = Tuner(2, lambda program: {"a": 9, "b": 7}[program.name], tmp_path / "cache.json")

    def alone(signature: str) -> tuple[Program | None, list[Named]]:
        name = signature or "a"
        return programs[name] if name in fitting.split() else None, plans

    assert tuner.pick("g", "key", alone)[0] == picked
    assert read_cache(tuner.path) == {"key": Tuned("b", 2, 7, 9) if picked else Tuned("", 2, 0, 0)}


@pytest.mark.parametrize(
    "text",
    [softmax(4096, 300), pytest.param(attention(12, 96, 32), marks=pytest.mark.slow)],
    ids=["softmax", "attention"],
)
def test_sizes_of_blocks_are_tried(tmp_path: Path, text: str) -> None:
    """The smallest blocks make the longest program, which is said to be the fastest."""
    cache = tmp_path / "cache.json"
    plain = tuned(text, None)
    whole = plain.program.name
    chosen = tuned(text, Tuner(9, lambda p: 0 if p.name == whole else -len(p.code), cache))
    (before,) = (d for d in plain.explain if d.kind == "blocks")
    (after,) = (d for d in chosen.explain if d.kind == "blocks")
    (found,) = (t for t in read_cache(cache).values() if t.plan.startswith("blocks"))
    most = max(before.rejected, key=lambda d: d.numbers["blocks"])
    assert found.plan == most.what
    assert after.chosen == most.what
    others = [{k: v for k, v in numbers.items() if k != "cycles"} for numbers in (after.numbers, most.numbers)]
    assert others[0] == others[1]  # the chosen one's cycles are of all blocks, not of copies of one
    assert found.cycles < found.first
    assert chosen.program.code != plain.program.code


def test_the_module_is_never_slower(tmp_path: Path) -> None:
    """Here the candidates get better and the whole modules worse."""
    whole: list[Program] = []

    def measure(program: Program) -> int:
        if program.name == "d":
            return 1000 - len(program.code)
        whole.append(program)
        return len(whole)

    result = tuned(gemm(300, 200, 100), Tuner(3, measure, tmp_path / "cache.json"))
    assert result.program == whole[0]
    assert result.program == tuned(gemm(300, 200, 100), None).program


def test_equal_groups_are_tried_once(tmp_path: Path) -> None:
    text = """HloModule t
ENTRY e {
  a = f32[64,64] parameter(0)
  b = f32[64,64] parameter(1)
  ROOT d = f32[64,64] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    tuner = Tuner(2, cycles, tmp_path / "cache.json")
    tuned(text, tuner)
    tuned(text.replace(" d = ", " other = ").replace(" a = ", " x = ").replace("(a,", "(x,"), tuner)
    assert len(tuner.known) == 1


def test_the_key_has_what_a_reduction_applies(tmp_path: Path) -> None:
    """Sums are combined in the order that XLA gives, maxima in any: their plans take other cycles."""
    tuner = Tuner(2, cycles, tmp_path / "cache.json")
    for text in (softmax(32, 64), softmax(32, 64).replace("to_apply=add", "to_apply=max")):
        tuned(text, tuner)
    known = len(tuner.known)
    tuned(softmax(32, 64), tuner)
    assert (known, len(tuner.known)) == (2, 2)


def test_the_key_has_the_chip(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    tuned(gemm(64, 64, 64), Tuner(2, cycles, path))
    other = replace(SMALL, hbm=replace(SMALL.hbm, latency=SMALL.hbm.latency + 1))

    def measure(program: Program) -> int | None:
        return simulate(program, other, mode="time").cycles

    compile_module(parse_hlo(gemm(64, 64, 64)), other, Options(autotune=2, tuner=Tuner(2, measure, path)))
    assert len(json.loads(path.read_text())) == 2


def test_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cache.json"
    assert read_cache(path) == {}
    write_cache(path, {"a": Tuned("p", 2, 10, 12)})
    write_cache(path, {"b": Tuned("q", 2, 5, 5)})
    assert read_cache(path) == {"a": Tuned("p", 2, 10, 12), "b": Tuned("q", 2, 5, 5)}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "systolith" / "autotune.json"


BAD_CACHES = {
    "a list": "[1]",
    "not JSON": "{",
    "too deep": "[" * 100000,
    "infinite": '{"a": {"plan": "p", "tried": 1e400, "cycles": 1, "first": 1}}',
    "digits": '{"a": {"plan": "p", "tried": ' + "9" * 5000 + ', "cycles": 1, "first": 1}}',
    "a key less": '{"a": {"plan": "p"}}',
    "another type": '{"a": {"plan": 3, "tried": 1, "cycles": 1, "first": 1}}',
    "not UTF-8": "\xff",
}


@pytest.mark.parametrize("name", BAD_CACHES)
def test_a_file_that_is_no_memory_is_ignored_and_left_alone(name: str, tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_bytes(BAD_CACHES[name].encode("latin-1"))
    before = path.read_bytes()
    assert_tunes_without(Tuner(2, cycles, path))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "name", ["folder/cache.json", "file/cache.json", "folder", "loop", "loop/x", "x" * 300, "a\0b"]
)
def test_an_impossible_place_for_the_memory_is_ignored(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder" / "cache.json").mkdir(parents=True)
    assert_tunes_without(Tuner(2, cycles, tmp_path / name))


def test_a_folder_that_cannot_be_written_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("systolith.isa.files.os.access", lambda *_: False)
    assert_tunes_without(Tuner(2, cycles, tmp_path / "cache.json"))


def assert_tunes_without(tuner: Tuner) -> None:
    compiled = tuned(gemm(16, 16, 16), tuner)
    assert tuner.known
    (said,) = (d for d in compiled.explain if d.chosen == "results are not remembered")
    assert said.why == tuner.problem
