"""Names and texts of a module are anybody's: none of them reaches a terminal or a page as anything but text."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from systolith.hw.compare import Difference
from systolith.hw.lockstep import Case, Result
from systolith.isa.asm import assemble, disassemble
from systolith.isa.binary import from_bytes, to_bytes
from systolith.isa.chip import PRESETS, load_chip
from systolith.reports.compare import render_comparison
from systolith.reports.html import render_report
from systolith.reports.run_data import from_json, timed
from tests.compiler.hlo.proto_oracle import serialized
from tests.reports.fabricate import fabricate
from tests.runtime.command import Ran, systolith

ROOT = Path(__file__).resolve().parents[2]
EVIL = (
    "\x1b[31mred\x1b]0;title\x07\x9b1m\x00\x08\r\u202etfel\u2066\u200f\u2028\ud7ff"
    "[/b][red]</script></title></style><img src=x onerror=alert(1)><a href=javascript:alert(1)>\"'` onload=x &amp;"
)
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
WORD = "e"  # a benign text of no tags

HLO = """HloModule m, frontend_attributes={a="EVIL"}

ENTRY main {
  x = f32[16,24] parameter(0), metadata={op_name="EVIL" source_file="EVIL" source_line=3}
  w = f32[24,8] parameter(1)
  d = f32[16,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_type="EVIL" op_name="EVIL"}
  ROOT t = f32[16,8] tanh(d), metadata={op_name="EVIL" source_file="EVIL" source_line=7}, backend_config="EVIL"
}
"""


def escaped(text: str) -> str:
    """A text inside quotes of HLO."""
    plain = {c for c in map(chr, range(32, 127)) if c not in "\"'\\"}
    return "".join(c if c in plain else "".join(f"\\{b:03o}" for b in c.encode()) for c in text)


@pytest.fixture(autouse=True)
def _keep_control_characters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Print as on a terminal: elsewhere click leaves out some control characters itself."""
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    monkeypatch.chdir(tmp_path)
    Path("m.hlo").write_text(HLO.replace("EVIL", escaped(EVIL)))


def is_clean(*texts: str) -> bool:
    for text in texts:
        found = UNPRINTABLE.search(text)
        assert not found, repr(text[max(0, found.start() - 80) : found.end() + 20])
    return True


class Tags(HTMLParser):
    """Tags with the names of their attributes, and where links lead; texts are not looked at."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, ...]] = []
        self.links: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, *(name for name, _ in attrs)))
        self.links |= {value or "" for name, value in attrs if name in ("href", "src")}


def said_by(words: Sequence[object], capsys: pytest.CaptureFixture[str], code: int = 0) -> Ran:
    """A command that prints nothing but text."""
    ran = systolith(capsys, *words)
    assert ran.code == code, ran.err
    is_clean(ran.out, ran.err)
    return ran


COMMANDS = (
    "run FILE --chip tiny --random 0 --report r.html --trace t.json --out o.npz",
    "run FILE --chip tiny --random 0 --json",
    "run FILE --chip tiny --random 0 --mode time",
    "compile FILE --chip tiny -o x.slb --dump-dir stages",
    "explain FILE --chip tiny",
    "explain FILE --chip tiny --json",
    "opt FILE --passes algsimp,dce --check 1",
    "cost FILE --by-op --chip tiny",
    "cost FILE --json",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_print_the_names_of_a_module_as_text(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    said_by(command.replace("FILE", "m.hlo").split(), capsys)


def evil_proto() -> bytes:
    """A serialized module that has nothing but hostile names; lengths of its fields are left to protobuf."""
    from systolith.compiler.hlo.proto.schema import message_class

    text = HLO.replace("EVIL", "x")
    proto: Any = message_class("HloModuleProto").FromString(serialized(text))
    proto.name = EVIL
    for computation in proto.computations:
        computation.name += EVIL
        for instruction in computation.instructions:
            instruction.name += EVIL
            instruction.metadata.op_name = instruction.metadata.source_file = instruction.metadata.op_type = EVIL
    return bytes(proto.SerializeToString())


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_print_the_names_of_a_serialized_module_as_text(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.pb").write_bytes(evil_proto())
    said_by(command.replace("FILE", "m.pb").split(), capsys)


def evil_binary(path: Path) -> None:
    """A binary whose names are hostile: all that META has."""
    from dataclasses import replace

    program = from_bytes(path.read_bytes())
    program.name += EVIL
    program.buffers = [replace(b, name=b.name + EVIL) for b in program.buffers]
    program.groups = [replace(g, name=g.name + EVIL, kind=EVIL, hlo=(EVIL,), opcodes=(EVIL,)) for g in program.groups]
    program.origins = [replace(o, hlo=EVIL, group=o.group + EVIL if o.group else "") for o in program.origins]
    program.kernels = [replace(k, name=k.name + EVIL) for k in program.kernels]
    path.write_bytes(to_bytes(program))


def test_commands_print_the_names_of_a_binary_as_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said_by("compile m.hlo --chip tiny -o x.slb".split(), capsys)
    evil_binary(Path("x.slb"))
    said_by("run x.slb --chip tiny --random 0 --report r.html".split(), capsys)
    said_by("run x.slb --chip tiny --random 0 --hostile --json".split(), capsys)
    said_by("explain x.slb --chip tiny".split(), capsys, 2)
    text = said_by("disasm x.slb".split(), capsys).out
    assert disassemble(assemble(text, load_chip("tiny"))) == text

    class FakeLockstep:
        """Finds a difference whose texts are hostile."""

        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> FakeLockstep:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def run(self, case: Case) -> Result:
            found = Difference(EVIL, 1, EVIL, EVIL, EVIL, EVIL, EVIL, (EVIL,))
            return Result(case.program.name, load_chip("tiny"), 1, 1, 1, 1, 1.0, found)

    monkeypatch.setattr("systolith.runtime.jobs.lockstep.Lockstep", FakeLockstep)
    said_by("lockstep x.slb --chip tiny --random 0".split(), capsys, 1)
    said_by("lockstep x.slb --chip tiny --random 0 --json".split(), capsys, 1)


def test_commands_print_the_names_of_files_and_options_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    name = EVIL.replace("/", "").replace("\x00", "")[:80]
    for words in (
        ["run", name],
        ["run", "m.hlo", "--chip", name],
        ["run", "m.hlo", "--random", "0", "--out", f"none/{name}"],
        ["opt", "m.hlo", "--passes", name],
        ["run", "m.hlo", f"--{name}"],
        [name],
        ["chips", name],
        ["explain", "m.hlo", "--group", name],
    ):
        assert said_by([*words], capsys, 2).err.count("\n") == 1
    Path(f"{name}.hlo").write_text(Path("m.hlo").read_text())
    said_by(["run", f"{name}.hlo", "--chip", "tiny", "--random", "0", "--out", f"{name}.npz"], capsys)


def test_commands_print_what_does_not_parse_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    line = EVIL.replace("\x00", "").replace("\x08", "").replace("\x07", "").replace("\x1b", "")
    Path("bad.hlo").write_text(f"HloModule m\nENTRY e {{\n  x = f32[2] {line} parameter(0)\n}}\n")
    Path("bad.s").write_text(f"    li r1, {EVIL}\n")
    Path("bad.json").write_text(json.dumps({EVIL: 1, "chip": [EVIL]}))
    said_by("run bad.hlo --random 0".split(), capsys, 2)
    said_by("asm bad.s -o x.slb".split(), capsys, 2)
    said_by("report bad.json".split(), capsys, 2)


def test_commands_print_the_texts_of_a_chip_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = (PRESETS / "tiny.toml").read_text().replace('name = "tiny"', f"name = {json.dumps(EVIL)}")
    rows = re.search(r"^rows = (\d+|\{.*\})$", text, re.MULTILINE)
    assert rows is not None
    entry = f'rows = {{ value = 8, provenance = "invented", source = {json.dumps(EVIL)} }}'
    Path("evil.toml").write_text(text.replace(rows[0], entry))
    assert "u001b" in said_by("chips evil.toml".split(), capsys).out
    said_by("run m.hlo --chip evil.toml --random 0".split(), capsys)
    said_by("cost m.hlo --chip evil.toml".split(), capsys)


def named(value: Any, extra: str) -> Any:
    """A run's JSON with `extra` in every free text and in names, the same ones everywhere."""
    if isinstance(value, dict):
        return {key: named(item, extra) for key, item in value.items()}
    if isinstance(value, list):
        return [named(item, extra) for item in value]
    return value + extra if isinstance(value, str) else value


def pages(extra: str) -> tuple[str, str]:
    """A report and a comparison of a run with this in its texts."""
    raw = fabricate()
    fixed = {key: raw[key] for key in ("mode", "chip_parameters")}
    run = timed(from_json(named(raw, extra) | fixed | {"units": {q + extra: c for q, c in raw["units"].items()}}))
    return render_report(run), render_comparison({"a": run, "b": run})


def test_pages_have_no_tag_or_attribute_of_a_name() -> None:
    for plain, evil in zip(pages(WORD * len(EVIL)), pages(EVIL), strict=True):
        is_clean(evil.replace("\n", ""))
        want, got = Tags(plain), Tags(evil)
        assert got.found == want.found
        assert all(link.startswith("#") for link in got.links)


def test_a_trace_is_plain_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    said_by("run m.hlo --chip tiny --random 0 --trace t.json".split(), capsys)
    assert Path("t.json").read_text().isascii()
    is_clean(Path("t.json").read_text())


# The benches of the RTL are left out: they pass recordings to the processes that they start.
AREAS = ("isa", "sim", "compiler", "hw", "runtime", "reports")
SOURCES = sorted(p for a in AREAS for p in (ROOT / a).rglob("*.py") if p.parent.name != "tb")
EXECUTING = {"eval", "exec", "__import__"}
UNPICKLING = {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib"}
WORDS = re.compile(rf"\b({'|'.join({*EXECUTING, *UNPICKLING, 'allow_pickle', 'load', 'yaml'})})\b")


def test_no_source_unpickles_or_evaluates_what_it_reads() -> None:
    assert len(SOURCES) > 300
    found = []
    texts = {path: text for path in SOURCES if WORDS.search(text := path.read_text())}
    assert len(texts) > 30
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {a.name.split(".")[0] for a in node.names} | {(getattr(node, "module", "") or "").split(".")[0]}
                found += [f"{path}:{node.lineno}"] if names & UNPICKLING else []
            if isinstance(node, ast.Call):
                function = getattr(node.func, "id", "")
                loads = getattr(node.func, "attr", "") == "load" and getattr(node.func, "value", None)
                given = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
                bad = function in EXECUTING or given.get("allow_pickle") is True
                bad |= (
                    getattr(getattr(node.func, "value", None), "id", "") == "yaml"
                    and getattr(node.func, "attr", "") != "safe_load"
                )
                bad |= isinstance(loads, ast.Name) and loads.id == "np" and given.get("allow_pickle") is not False
                found += [f"{path}:{node.lineno}"] if bad else []
    assert found == []


def test_an_archive_with_pickled_objects_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, ("was_here",)

    np.savez("evil.npz", arg0=np.array([Evil()], dtype=object), arg1=np.zeros(2), allow_pickle=True)
    said_by("run m.hlo --chip tiny --args evil.npz".split(), capsys, 2)
    assert not Path("was_here").exists()
