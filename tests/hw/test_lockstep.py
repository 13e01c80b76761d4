"""Lockstep's reports of differences between the core and the simulator, and the command around it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from systolith.compiler.driver import compile_module
from systolith.compiler.options import Options
from systolith.hw import model
from systolith.hw.compare import Difference
from systolith.hw.image import BUFFERS, CONSTANTS, HBM, HOST, IMEM
from systolith.hw.lockstep import Case, Lockstep, Result, compare, lockstep_many, prepare
from systolith.hw.model import CoreModel, Job, ModelError, Outcome, Status, Write
from systolith.isa.asm import assemble
from systolith.isa.chip import PRESETS, Chip, load_chip
from systolith.isa.encode import encode_code
from systolith.isa.instruction import Instruction, Reg
from systolith.isa.opcodes import size_words
from systolith.isa.program import Program, Role
from systolith.runtime.inputs.sources import parse_module
from systolith.sim.memory import Machine
from tests.compiler.index_cases import ADD, row_arguments, update
from tests.programs.cases import HERE
from tests.runtime.command import systolith

MODULE = """HloModule scaled
ENTRY main {
  x = f32[40] parameter(0)
  c = f32[] constant(2.5)
  b = f32[40] broadcast(c), dimensions={}
  ROOT scaled.product = f32[40] multiply(x, b)
}
"""


@pytest.fixture(scope="module")
def tiny() -> Chip:
    return load_chip("tiny")


@pytest.fixture(scope="module")
def core(tiny: Chip) -> Iterator[CoreModel]:
    with CoreModel(tiny) as running:
        yield running


@pytest.fixture(scope="module")
def program(tiny: Chip) -> Program:
    return compile_module(parse_module(MODULE, "scaled"), tiny, Options()).program


def entry_of(program: Program, role: Role) -> int:
    return next(i for i, b in enumerate(program.buffers) if b.role is role)


def case_of(program: Program) -> Case:
    return Case(program, {entry_of(program, Role.PARAMETER): np.arange(40, dtype=np.float32).view(np.uint8)})


def changed(job: Job, scope: str, word: int, flip: int) -> Job:
    """The job with bits of one written word flipped."""
    writes = []
    for w in job.writes:
        words = w.words.copy()
        if w.scope == scope:
            words[word] ^= flip
        writes.append(replace(w, words=words))
    return replace(job, writes=writes)


def differs(core: CoreModel, case: Case, scope: str, word: int, flip: int) -> Difference:
    """Lockstep's report of a core whose memory was changed before the run."""
    reference, job = prepare(case, core.chip)
    assert compare(reference, job, core.run(job)).ok
    found = compare(reference, job, core.run(changed(job, scope, word, flip))).difference
    assert found is not None
    return found


def test_a_wrong_value_names_who_wrote_it_and_for_what(core: CoreModel, program: Program) -> None:
    found = differs(core, case_of(program), CONSTANTS, 0, 1)
    assert (found.unit, found.origin.split(" of ")[-1]) == ("vpu", "scaled.product")
    assert "vpu.run" in found.instruction
    assert "words differ" in found.what
    assert found.expected != found.got
    assert "scaled.product" in str(found)


def test_a_wrong_time_shows_the_unit_s_last_events_on_both_sides(core: CoreModel, program: Program) -> None:
    other = replace(core.chip, hbm=replace(core.chip.hbm, latency=21))
    relabelled = replace(program, chip_digest=other.digest(), target=other)
    reference, job = prepare(case_of(relabelled), other)
    found = compare(reference, job, core.run(job)).difference
    assert found is not None
    assert (found.what, found.unit) == ("retire", "ld")
    assert "dma.load" in found.instruction
    expected, got = (int(text.removeprefix("cycle ")) for text in (found.expected, found.got))
    assert (expected, found.cycle) == (got + 1, got)
    assert [line for line in found.context if not line.startswith(" ")] == ["simulator:", "core:"]
    assert any(f"{got:>6} retire" in line for line in found.context)


def test_the_first_difference_is_the_one_that_is_reported(core: CoreModel) -> None:
    """A lost wait makes an instruction start early; all that follows differs too."""
    found = differs(core, case_of_axpy(core.chip), IMEM, first_wait(core.chip), 0xFF)
    assert found.what == "start"
    assert (found.unit, "vpu.run" in found.instruction) == ("vpu", True)


def test_a_difference_names_the_iteration(core: CoreModel) -> None:
    """The word that the third iteration copies was changed before the run."""
    text = """.program p
.buffer a parameter u32 [8] number=0
.buffer r result u32 [8] number=0
.token t ld -> st
.pattern word u32 counts=(1) strides=(4)
    loop 2, end
    loop 4, end
    dma.load hbm(a)[r1]:word, vmem[r1]:word signal t
    dma.store vmem[r1]:word, hbm(r)[r1]:word wait t
    add r1, r1, 4
end:
    halt
"""
    case = Case(assemble(text, core.chip), {0: np.arange(8, dtype=np.uint32).view(np.uint8)})
    found = differs(core, case, HBM, 6, 1)
    assert found.instruction.endswith("in iteration 2 of 2, 3 of 4")


def case_of_axpy(chip: Chip) -> Case:
    program = assemble((HERE.parents[1] / "examples" / "axpy.s").read_text(), chip)
    return Case(program)


def first_wait(chip: Chip) -> int:
    """Address of the word with the waits of the first kernel run."""
    code = case_of_axpy(chip).program.code
    index = next(i for i, instr in enumerate(code) if instr.op == "vpu.run" and instr.waits)
    return sum(size_words(i) for i in code[:index]) + 1


EMPTY = """HloModule empty
ENTRY main {
  x = f32[0,3] parameter(0)
  y = f32[4] parameter(1)
  n = f32[4] negate(y)
  d = f32[3,3] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT t = (f32[0,3], f32[4], f32[3,3]) tuple(x, n, d)
}
"""


def test_buffers_without_elements(core: CoreModel) -> None:
    program = compile_module(parse_module(EMPTY, "empty"), core.chip, Options()).program
    given = {n: np.ones(b.bytes, np.uint8) for n, b in enumerate(program.buffers) if b.role is Role.PARAMETER}
    assert sorted(map(len, given.values())) == [0, 16]
    reference, job = prepare(Case(program, given), core.chip)
    assert compare(reference, job, core.run(job)).ok


def test_what_goes_astray_in_hbm_is_found(core: CoreModel, program: Program) -> None:
    entry = entry_of(program, Role.RESULT)
    found = differs(core, case_of(program), BUFFERS, 2 * entry, 1 << 16)
    assert "words differ" in found.what


def test_a_wrong_byte_of_an_outfeed_queue_is_found(core: CoreModel) -> None:
    program = assemble((HERE / "host_queues.s").read_text(), core.chip)

    def setup(machine: Machine) -> None:
        machine.infeed[0].push(np.ones(128, np.float32))

    found = differs(core, Case(program, setup=setup), HOST, 0, 1 << 22)
    assert found.unit in ("ld", "vpu", "st")


def test_a_failed_assertion_is_a_difference_and_the_core_goes_on(core: CoreModel, program: Program) -> None:
    reference, job = prepare(case_of(program), core.chip)
    found = compare(reference, job, core.run(changed(job, IMEM, 0, 0x0F))).difference
    assert found is not None
    assert found.what == "assertion"
    assert ".sv" in found.got
    assert compare(reference, job, core.run(job)).ok


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ([Instruction("halt")], "opcode 238 is unknown"),
        ([Instruction("loop", {"count": 2, "end": 10})] * 9, "loops nest deeper than 8"),
        ([Instruction("loop", {"count": 2, "end": 1})], "has an empty body"),
        ([Instruction("lds", {"rd": Reg(1), "ra": Reg(0), "imm": 6})], "SMEM address 6 is not that of a word"),
        ([Instruction("mxu.latch", unit=7)], "queue 19, there are"),
    ],
    ids=["opcode", "nest", "empty", "misaligned", "queue"],
)
def test_an_assertion_notices_what_no_program_may_do(core: CoreModel, code: list[Instruction], message: str) -> None:
    reference, job = prepare(Case(assemble(".program p\n halt\n", core.chip)), core.chip)
    words = np.array(encode_code([*code, Instruction("halt")]), np.uint32)
    if "opcode" in message:
        words[0] = 0x3000 | 238
    outcome = core.run(replace(job, writes=[*job.writes, Write(IMEM, 0, words, by=1)]))
    assert outcome.status is Status.FAILED
    assert message in outcome.message
    assert not compare(reference, job, outcome).ok


def test_a_run_that_does_not_end_is_stopped(core: CoreModel, program: Program) -> None:
    reference, job = prepare(case_of(program), core.chip)
    outcome = core.run(replace(job, limit=20))
    assert (outcome.status, outcome.cycles) == (Status.LIMIT, 20)
    assert compare(reference, job, outcome).difference is not None


def test_a_trap_is_reported_with_its_code(core: CoreModel) -> None:
    reference, job = prepare(Case(assemble(".program p\n halt\n", core.chip)), core.chip)
    trap = np.array([0x00004001, 0xFFFFFFFF, 0xFFFFFFFF, 7], np.uint32)
    outcome = core.run(replace(job, writes=[*job.writes, Write(IMEM, 0, trap, by=1)]))
    assert (outcome.status, outcome.trap) == (Status.DONE, 7)
    assert not compare(reference, job, outcome).ok


def test_many_programs_run_on_one_core(tiny: Chip, program: Program) -> None:
    results = list(lockstep_many([case_of(program)] * 3, tiny))
    assert [r.ok for r in results] == [True] * 3
    assert len({(r.cycles, r.instructions, r.words) for r in results}) == 1
    assert results[0].cycles_per_second > 1000


def test_buffers_are_not_changed(tiny: Chip, program: Program) -> None:
    result = np.zeros(160, np.uint8)
    case = Case(program, {**(case_of(program).buffers or {}), entry_of(program, Role.RESULT): result})
    with Lockstep(tiny) as both:
        assert both.run(case).ok
    assert not result.any()


def test_a_core_with_other_parameters_is_refused(tiny: Chip, monkeypatch: pytest.MonkeyPatch) -> None:
    built = model.build(tiny)
    monkeypatch.setattr(model, "build", lambda *_: built)
    with pytest.raises(ModelError, match=r"AccRows = 256, not 128 \(mxu.acc_rows\)"):
        CoreModel(replace(tiny, mxu=replace(tiny.mxu, acc_rows=128)))


def test_a_program_that_does_not_fit_is_refused(tiny: Chip, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(model.CAPACITIES, "ImemWords", 8)
    with pytest.raises(ModelError, match=r"needs ImemWords = \d+, the model has 8"):
        prepare(case_of(program), tiny)


def test_the_command_says_what_it_compared(capsys: pytest.CaptureFixture[str]) -> None:
    ran = systolith(capsys, "lockstep", HERE / "bits.s", "--random", 0)
    assert (ran.code, ran.err) == (0, "")
    for part in ("bits on tiny: 161 cycles", "6 instructions", "words of memory", "no difference"):
        assert part in ran.out


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = tmp_path / "scaled.hlo"
    source.write_text(MODULE)
    ran = systolith(capsys, "lockstep", source, "--random", 3, "--json")
    record = json.loads(ran.out)
    assert (ran.code, record["equal"], record["difference"]) == (0, True, None)
    assert record["cycles"] > record["timed_instructions"] > 0
    assert record["chip"]["name"] == "tiny"


def test_the_command_fails_with_the_first_difference(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CoreModel.run

    def wrong(self: CoreModel, job: Job) -> Outcome:
        return run(self, changed(job, HBM, 0, 1))

    monkeypatch.setattr(CoreModel, "run", wrong)
    ran = systolith(capsys, "lockstep", HERE / "bits.s", "--random", 0)
    assert (ran.code, "a difference" in ran.out) == (1, True)
    assert "expected 0x" in ran.err
    assert "instruction" in ran.err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["nothing.s"], "No such file"),
        ([HERE / "bits.s"], "--args FILE.npz or --random SEED"),
        ([HERE / "bits.s", "--random", 0, "--wave", "waves.txt"], "waves.txt: waves are written to .fst or .vcd files"),
        ([HERE / "bits.s", "--random", 0, "--chip", "wide.toml"], "features.wide"),
    ],
    ids=["no file", "no arguments", "waves", "a feature"],
)
def test_bad_input(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[object],
    what: str,
) -> None:
    text = (PRESETS / "tiny.toml").read_text().replace("wide = { value = false", "wide = { value = true")
    (tmp_path / "wide.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    ran = systolith(capsys, "lockstep", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert what in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.slow
def test_waves_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wave = tmp_path / "waves.vcd"
    ran = systolith(capsys, "lockstep", HERE / "bits.s", "--random", 0, "--wave", wave)
    assert (ran.code, ran.err) == (0, "")
    text = wave.read_text()
    assert "u_vpu" in text
    assert "#320\n" in text  # 161 cycles, two times each


def test_a_result_without_a_difference_is_ok() -> None:
    assert Result("p", load_chip("tiny"), 10, 3, 2, 5, 0.5, None).cycles_per_second == 20.0


@pytest.mark.parametrize("equal", [pytest.param(False, marks=pytest.mark.slow), True])
def test_scatters_at_indices_that_are_said_to_be_unique(core: CoreModel, tiny: Chip, equal: bool) -> None:
    text = update(1300, 50, 700, ADD, unique=True)
    x, i, u = row_arguments(text)
    i[:, 0] = np.arange(700)[::-1] // (1 + equal)
    compiled = compile_module(parse_module(text, "m"), tiny, Options()).program
    given = {n: (x, i, u)[b.number] for n, b in enumerate(compiled.buffers) if b.role is Role.PARAMETER}
    case = Case(compiled, {n: a.reshape(-1).view(np.uint8) for n, a in given.items()})
    reference, job = prepare(case, tiny)
    assert compare(reference, job, core.run(job)).ok
