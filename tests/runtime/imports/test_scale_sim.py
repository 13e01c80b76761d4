"""SCALE-Sim's topologies and configurations: the shapes and multiplications that it counts, run on its chip."""

from __future__ import annotations

import json
import re
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.tile.ir import LARGEST
from systolith.isa.chip import load_chip
from systolith.isa.errors import SystolithError
from systolith.runtime.imports import scale_sim
from systolith.runtime.imports.scale_sim import Layer, _outputs, _part, read_configuration, read_topology
from tests.runtime.command import systolith

CONVOLUTIONS = """\
Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,
Conv1, 18, 17, 3, 3, 4, 16, 2,
Conv/2, 8, 8, 1, 1, 16, 8, 1, 2,
DP1, 10, 10, 3, 3, 8, 1, 1,
"""
PRODUCTS = "Layer, M, N, K,\nFC1, 16, 24, 32,\nFC1, 8, 8, 64,\n"
CONFIGURATION = """\
[general]
run_name = example

[architecture_presets]
ArrayHeight:    32
ArrayWidth:     16
IfmapSramSzkB:   64
FilterSramSzkB:  32
OfmapSramSzkB:   32
Dataflow : ws
Bandwidth : 10

[run_presets]
InterfaceBandwidth: USER
"""


def write(folder: Path, text: str, name: str = "net.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_topology_has_the_multiplications_that_scale_sim_counts(tmp_path: Path) -> None:
    """By the formula of its documentation: outputs, rounded up, times the window."""
    module = read_topology(write(tmp_path, CONVOLUTIONS))
    rows = [(18, 17, 3, 3, 4, 16, 2, 2), (8, 8, 1, 1, 16, 8, 1, 2), (10, 10, 3, 3, 1, 8, 1, 1)]
    expected = {
        (1, ceil((h - fh + sh) / sh), ceil((w - fw + sw) / sw), n): fh * fw * c
        for h, w, fh, fw, c, n, sh, sw in rows
    }  # fmt: skip
    found = [i for i in module.entry.instructions if i.opcode == "convolution"]
    assert [i.name for i in found] == ["Conv1", "Conv_2", "DP1"]
    assert {i.dims: i.operands[1].dims[0] * i.operands[1].dims[1] * i.operands[1].dims[2] for i in found} == expected


def test_products(tmp_path: Path) -> None:
    module = read_topology(write(tmp_path, PRODUCTS), "f32")
    found = [i for i in module.entry.instructions if i.opcode == "dot"]
    assert [(i.name, i.dims, i.operands[0].dims) for i in found] == [
        ("FC1", (16, 24), (16, 32)),
        ("FC1.2", (8, 8), (8, 64)),
    ]


def test_lists_as_scale_sim_s_examples_have_them(tmp_path: Path) -> None:
    """Remarks behind a layer (its MobileNets), rows without cells, tabs (a U-Net), a ratio of 1 : 1, spaces."""
    head = "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,"
    rows = "\n,,,,,,,,\n\tConv2_dw, 11, 12, 3, 3, 1, 1, 2,#dw\nFC, 1, 1, 1, 1, 64, 10, 1, \n"
    dims = [(1, 5, 6, 1), (1, 1, 1, 10)]
    for text in (
        head + rows,
        (head + rows).replace("\t", "").replace(",", "\t"),
        head + rows.replace("2,#dw", "2, 1:1,"),
    ):
        module = read_topology(write(tmp_path, text))
        assert [i.dims for i in module.entry.instructions if i.opcode == "convolution"] == dims, text


def test_columns_behind_one_without_a_heading_are_remarks(tmp_path: Path) -> None:
    """As in its ResNet-50: the author's own figures, of some layers."""
    head = "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,,,Eh,Ew"
    rows = "\n,,,,,,,,,,,\nConv1,12,12,3,3,4,8,1,,,10,10\nConv2,12,12,1,1,4,8,1,,,,\n"
    module = read_topology(write(tmp_path, head + rows))
    dims = [(1, 10, 10, 8), (1, 12, 12, 8)]
    assert [i.dims for i in module.entry.instructions if i.opcode == "convolution"] == dims


def test_a_ratio_is_told_by_its_column(tmp_path: Path) -> None:
    head = "Layer Name, M, N, K, Sparsity,\n"
    module = read_topology(write(tmp_path, head + "G1, 1, 5, 16, 1,\nG2, 3, 5, 16, 1:1,\n"))
    assert [i.dims for i in module.entry.instructions if i.opcode == "dot"] == [(1, 5), (3, 5)]
    with pytest.raises(SystolithError, match=r":2: sparsity 0.5: no chip here skips zeros"):
        read_topology(write(tmp_path, head + "G1, 1, 5, 16, 0.5,\n"))


def test_a_column_of_batches_is_no_second_stride(tmp_path: Path) -> None:
    head = (
        "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides, Batch Size,"
    )
    module = read_topology(write(tmp_path, f"{head}\nAttention, 16, 16, 1, 1, 8, 24, 1, 4,\n"))
    (found,) = (i for i in module.entry.instructions if i.opcode == "convolution")
    assert (found.operands[0].dims, found.dims) == ((4, 16, 16, 8), (4, 16, 16, 24))
    with pytest.raises(SystolithError, match="batch = 2: a product has no batch"):
        read_topology(write(tmp_path, "Layer, M, N, K, Batch,\na, 1, 2, 3, 2,\n"))


def test_a_configuration_is_a_chip(tmp_path: Path) -> None:
    chip = read_configuration(write(tmp_path, CONFIGURATION, "scale.cfg"))
    assert (chip.mxu.count, chip.mxu.rows, chip.mxu.cols) == (1, 32, 16)
    assert chip.vmem.bytes == 128 * 1024 * 2
    assert chip.hbm.p / chip.hbm.q == 20
    assert chip.hbm.bytes == 2**40  # SCALE-Sim's has no end
    assert read_configuration(tmp_path / "scale.cfg", "s8").vmem.bytes == 128 * 1024


WRONG = [
    ("Layer, M, N, K,\n", "no layers"),
    ("Layer, M, N, K,\na, 1, x, 2,\n", r":2: 1, x, 2: must be whole numbers"),
    ("Layer, M, N, K,\na, 1, 2,\n", r":2: 2 numbers: a product has M, N, K; a convolution has IFMAP height"),
    ("Layer, M, N, K,\na, 1, 0, 2,\n", r":2: N = 0: must be from 1"),
    ("Layer, M, N, K, Sparsity,\na, 1, 1, 2, 2:4,\n", r":2: sparsity 2:4"),
    (
        "Layer, M, N, K,\na, 16777216, 1, 65536,\n",
        r":2: a: an array of 2199023255552 bytes; chips have at most 10995116277",
    ),
    (
        "h\na, 1024, 1048576, 1, 1048576, 1, 2, 1,\nb, 1, 16777216, 1, 1, 128, 2, 1,\n",
        r":3: b: an operand of one row or",
    ),
    ("h\na, 3, 3, 5, 5, 1, 1, 1,\n", r":2: a: a filter of 5 x 5 is larger than 3 x 3"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_topology_is_refused_by_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SystolithError, match=message):
        read_topology(write(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Dataflow : ws", "Dataflow : os", "Dataflow : os: the matrix units are weight-stationary"),
        ("ArrayWidth:     16", "", "has no arraywidth"),
        ("ArrayWidth:     16", "ArrayWidth: wide", "arraywidth : wide: must be a whole number"),
        ("ArrayWidth:     16", "ArrayWidth: 24", r"scale\.cfg: ArrayWidth: chip tpu_v3: mxu.cols = 24"),
        ("[architecture_presets]", "[x]", r"section \[architecture_presets\]"),
        ("[general]", "[sparsity]\nSparsitySupport: true\n[general]", "SparsitySupport : true"),
    ],
)
def test_a_wrong_configuration_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SystolithError, match=message):
        read_configuration(write(tmp_path, CONFIGURATION.replace(old, new), "scale.cfg"))


def test_another_dataflow_runs_weight_stationary_if_told_so_and_the_record_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = write(tmp_path, PRODUCTS)
    cfg = write(tmp_path, CONFIGURATION.replace("Dataflow : ws", "Dataflow : os"), "scale.cfg")
    hlo, chip = tmp_path / "net.hlo", tmp_path / "scale.toml"
    words = ("import", net, "-o", hlo, "--scale-sim", cfg, "--chip-file", chip, "--dataflow", "ws")
    assert systolith(capsys, *words).code == 0
    ran = systolith(capsys, "run", hlo, "--chip", chip, "--mode", "time", "--json")
    assert ran.code == 0, ran
    rows = {row["field"]: row for row in json.loads(ran.out)["chip_parameters"]}
    assert rows["mxu.rows"]["value"] == 32
    said = "ArrayHeight of scale.cfg, Dataflow : os, run as ws (weight-stationary)"
    assert rows["mxu.rows"]["source"] == said


def parts(folder: Path, text: str) -> tuple[Module, list[Instruction]]:
    module = read_topology(write(folder, text))
    return module, [i for i in module.entry.instructions if i.opcode in ("dot", "convolution")]


def test_a_layer_that_is_too_large_is_in_parts(tmp_path: Path) -> None:
    """Of the products' rows and columns, the images or rows of convolutions, and their filters."""
    module, found = parts(
        tmp_path, "Layer, M, N, K,\na, 1048577, 2, 2048,\nb, 8, 1048576, 2048,\nc, 65536, 65536, 4,\n"
    )
    assert [(i.name, i.dims) for i in found] == [
        ("a.0.0", (349525, 2)), ("a.1.0", (349526, 2)), ("a.2.0", (349526, 2)),
        ("b.0.0", (8, 524288)), ("b.0.1", (8, 524288)),
        ("c.0.0", (32768, 32768)), ("c.0.1", (32768, 32768)), ("c.1.0", (32768, 32768)), ("c.1.1", (32768, 32768)),
    ]  # fmt: skip
    assert [i.operands[1].name for i in found[:3]] == ["a.w0"] * 3
    assert [p.number for p in module.entry.parameters] == list(range(len(module.entry.parameters)))
    assert max(i.shape.bytes for i in (*found, *module.entry.parameters)) <= LARGEST
    head = "n, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides, Batch,\n"
    _, found = parts(tmp_path, f"{head}a, 4096, 4096, 3, 3, 64, 8, 1, 4,\n")
    assert [(i.operands[0].dims[0], i.dims[0]) for i in found] == [(1, 1)] * 4
    _, found = parts(tmp_path, "h\na, 9, 9, 3, 3, 32768, 65536, 1,\n")
    assert sum(i.dims[3] for i in found) == 65536
    assert {i.operands[0].name for i in found} == {"a.x0"}


@given(st.integers(5, 40), st.integers(1, 5), st.integers(1, 4), st.integers(1, 5))
def test_parts_of_rows_of_a_convolution_see_its_windows(h: int, fh: int, stride: int, over: int) -> None:
    def windows(layer: Layer, first: int) -> list[tuple[int, int]]:
        end = first + layer.numbers[0]
        return [(at := first + n * stride, min(at + fh, end)) for n in range(_outputs(layer)[0])]

    whole = Layer(2, "a", (h, 8, fh, 1, 4, 2, stride))
    over = min(over, _outputs(whole)[0])
    seen: list[tuple[int, int]] = []
    for n in range(over):
        seen += windows(_part(whole, (n, 0), (over, 1)), len(seen) * stride)
    assert seen == windows(whole, 0)


def test_a_topology_runs_on_the_chip_of_its_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, cfg = write(tmp_path, CONVOLUTIONS), write(tmp_path, CONFIGURATION, "scale.cfg")
    hlo, chip = tmp_path / "net.hlo", tmp_path / "scale.toml"
    ran = systolith(capsys, "import", net, "-o", hlo, "--scale-sim", cfg, "--chip-file", chip)
    assert ran.code == 0, ran
    assert load_chip(chip).mxu.rows == 32
    ran = systolith(capsys, "run", hlo, "--chip", chip, "--random", 0, "--check", "--json")
    assert ran.code == 0, ran
    record = json.loads(ran.out)
    # The last window's row beyond the input is no useful work; depthwise layers run on the vector unit.
    assert record["macs"] == (8 * 3 + 2) * 8 * 3 * 4 * 16 + 8 * 4 * 8 * 16
    assert record["chip"] == "scale"


@pytest.mark.parametrize("text", [CONVOLUTIONS, PRODUCTS])
def test_a_topology_in_parts_runs_with_the_same_useful_work(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    net, hlo = write(tmp_path, text), tmp_path / "net.hlo"

    def macs() -> int:
        assert systolith(capsys, "import", net, "-o", hlo).code == 0
        ran = systolith(capsys, "run", hlo, "--chip", "tiny", "--random", 0, "--check", "--json")
        assert ran.code == 0, ran
        found: int = json.loads(ran.out)["macs"]
        return found

    whole = macs()
    monkeypatch.setattr(scale_sim, "LARGEST", 700)
    assert macs() == whole
    assert len(re.findall(r" (?:dot|convolution)\(", hlo.read_text())) > len(text.splitlines()) + 1


def test_what_does_not_go_together_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, cfg = write(tmp_path, CONVOLUTIONS), write(tmp_path, CONFIGURATION, "scale.cfg")
    for words, message in (
        ((net, "--scale-sim", cfg), "give both"),
        ((net, "--args", tmp_path / "a.npz"), "are for ONNX models"),
        ((net, "--dtype", "f33"), "no such element type"),
        ((cfg,), "must be a SCALE-Sim topology"),
    ):
        ran = systolith(capsys, "import", *words, "-o", tmp_path / "x.hlo")
        assert (ran.code, ran.out) == (2, "")
        assert message in ran.err
        assert not (tmp_path / "x.hlo").exists()
