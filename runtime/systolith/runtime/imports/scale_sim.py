"""SCALE-Sim's files: a topology (CSV of convolutions or of products) as a module, a configuration as a chip.

Formats: the README of scalesim-project/SCALE-Sim.  A layer reads its operands from memory, as there, so layers are
independent results of one module.  An edge of an output is rounded up, as there: the last window reads zeros beyond.
"""

from __future__ import annotations

import configparser
import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from pathlib import Path
from typing import Any

from systolith.compiler.hlo.ir import Module
from systolith.compiler.tile.ir import LARGEST
from systolith.isa.chip import Chip, Provenance, load_chip, variant
from systolith.isa.dtypes import dtype
from systolith.isa.errors import ConfigError, SystolithError
from systolith.isa.files import read_text
from systolith.runtime.inputs.sources import parse_module

BASE = "tpu_v3"
"""The chip of whatever a configuration does not say."""

_CONVOLUTION = (
    "IFMAP height", "IFMAP width", "filter height", "filter width", "channels", "filters", "stride height",
    "stride width",
)  # fmt: skip
_PRODUCT = ("M", "N", "K")
_COLUMNS = ("batch", "sparsity")
_DEPTHWISE = "DP"
_LARGEST = 2**24


class ScaleSimError(SystolithError):
    """A file is none of SCALE-Sim's, or says what no chip here does."""


@dataclass(frozen=True)
class Layer:
    """A row of a topology: its line, its name, its numbers, and how many images a convolution is of."""

    line: int
    name: str
    numbers: tuple[int, ...]
    batch: int = 1


def read_topology(path: Path, element: str = "bf16") -> Module:
    """The module of a topology.

    Args:
        path: the CSV; a row has a name, and 3 numbers (M, N, K) or 7 or 8 (a convolution); a column of convolutions
            that the heading calls `Batch ...` has numbers of images.  Columns behind one without a heading are remarks.
        element: type of all operands.

    Raises:
        ScaleSimError: naming file, line and column.
    """
    layers = _layers(path)
    lines = ["HloModule " + _name(path.stem), "", "ENTRY network {"]
    taken: dict[str, int] = {}
    roots = []
    for number, layer in enumerate(layers):
        name = _name(layer.name)
        taken[name] = taken.get(name, 0) + 1
        name = name if taken[name] == 1 else f"{name}.{taken[name]}"
        make = _product if len(layer.numbers) == len(_PRODUCT) else _convolution
        *arrays, operation = make(layer, path)
        x, w, y = (_array(element, dims, layer, path) for dims in arrays)
        lines += [
            f"  {name}.x = {x} parameter({2 * number})",
            f"  {name}.w = {w} parameter({2 * number + 1})",
            f"  {name} = {y} {operation.format(f'{name}.x, {name}.w')}",
        ]
        roots.append((y, name))
    shapes, names = (", ".join(part) for part in zip(*roots, strict=True))
    lines += [f"  ROOT results = ({shapes}) tuple({names})", "}"]
    return parse_module("\n".join(lines) + "\n", str(path.with_suffix(".hlo")))


def _layers(path: Path) -> list[Layer]:
    text = read_text(path, ScaleSimError)
    rows = [*csv.reader(text.splitlines(), delimiter="," if "," in text else "\t")]
    heading = [cell.lower() for cell in _cells(rows[0])] if rows else []
    end = heading.index("") if "" in heading else None
    named = {n: kind for n, cell in enumerate(heading[:end]) for kind in _COLUMNS if cell.startswith(kind)}
    found = []
    for line, row in enumerate(rows[1:], 2):
        cells = _cells(row[:end])
        if not cells:
            continue
        said = {kind: cells[n] for n, kind in named.items() if n < len(cells)}
        where = f"{path}:{line}"
        plain = [cell for n, cell in enumerate(cells) if n not in named][1:]
        numbers = _whole([said.get("batch", "1"), *_dense(plain, said.get("sparsity", "1"), where)], where)
        found.append(Layer(line, cells[0], tuple(numbers[1:]), numbers[0]))
        _check(found[-1], where)
    if not found:
        raise ScaleSimError(f"{path}: no layers: a heading, then a layer a line")
    return found


def _cells(row: Sequence[str]) -> list[str]:
    """The cells of a row, without what follows a `#`, and without empty ones at the end."""
    cells = [cell.strip() for cell in row]
    comment = next((n for n, cell in enumerate(cells) if cell.startswith("#")), len(cells))
    cells = cells[:comment]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def _dense(cells: Sequence[str], ratio: str, where: str) -> list[str]:
    """The cells without a ratio; all ratios, that of the column too, have to say that nothing is zero."""
    for cell in (ratio, *(cell for cell in cells if ":" in cell)):
        values, _, of = cell.partition(":")
        if values != (of or "1"):
            raise ScaleSimError(f"{where}: sparsity {cell}: no chip here skips zeros; leave that column out")
    return [cell for cell in cells if ":" not in cell]


def _whole(cells: Sequence[str], where: str) -> list[int]:
    try:
        return [int(cell) for cell in cells]
    except ValueError:
        raise ScaleSimError(f"{where}: {', '.join(cells[1:])}: must be whole numbers") from None


def _check(layer: Layer, where: str) -> None:
    numbers = layer.numbers
    if len(numbers) not in (len(_PRODUCT), len(_CONVOLUTION) - 1, len(_CONVOLUTION)):
        raise ScaleSimError(
            f"{where}: {len(numbers)} numbers: a product has {', '.join(_PRODUCT)}; a convolution has"
            f" {', '.join(_CONVOLUTION)} (or one stride)"
        )
    names = _PRODUCT if len(numbers) == len(_PRODUCT) else _CONVOLUTION
    for name, number in (("batch", layer.batch), *zip(names, numbers, strict=False)):
        if not 1 <= number <= _LARGEST:
            raise ScaleSimError(f"{where}: {name} = {number}: must be from 1 to {_LARGEST}")
    if names is _PRODUCT and layer.batch != 1:
        raise ScaleSimError(f"{where}: batch = {layer.batch}: a product has no batch; its rows are M")


def _array(element: str, dims: Sequence[int], layer: Layer, path: Path) -> str:
    """The shape of an array."""
    shape = f"{element}[{','.join(map(str, dims))}]"
    size = prod(dims) * dtype(element).size
    if size > LARGEST:
        raise ScaleSimError(
            f"{path}:{layer.line}: {layer.name}: {shape} takes {size} bytes; an operation reaches at most {LARGEST}:"
            " smaller layers on several lines do the same work"
        )
    return shape


Dims = tuple[int, ...]


def _product(layer: Layer, path: Path) -> tuple[Dims, Dims, Dims, str]:
    m, n, k = layer.numbers
    return (m, k), (k, n), (m, n), "dot({}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


def _convolution(layer: Layer, path: Path) -> tuple[Dims, Dims, Dims, str]:
    h, w, fh, fw, channels, filters, *strides = layer.numbers
    sh, sw = strides * 2 if len(strides) == 1 else strides
    if fh > h or fw > w:
        raise ScaleSimError(f"{path}:{layer.line}: {layer.name}: a filter of {fh} x {fw} is larger than {h} x {w}")
    oh, ow = ceil((h - fh + sh) / sh), ceil((w - fw + sw) / sw)
    pads = [(o - 1) * s + f - n for o, s, f, n in ((oh, sh, fh, h), (ow, sw, fw, w))]
    window = f"size={fh}x{fw} stride={sh}x{sw} pad=0_{pads[0]}x0_{pads[1]}"
    depthwise = _DEPTHWISE in layer.name
    groups = f", feature_group_count={channels}" if depthwise else ""
    kernel, features = (1, channels * filters) if depthwise else (channels, filters)
    operation = f"convolution({{}}), window={{{{{window}}}}}, dim_labels=b01f_01io->b01f{groups}"
    return (layer.batch, h, w, channels), (fh, fw, kernel, features), (layer.batch, oh, ow, features), operation


def _name(text: str) -> str:
    name = re.sub(r"[^\w.-]", "_", text)
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"


# Configurations.

_UNLIMITED = 2**40
"""The most bytes of HBM that a chip may have: SCALE-Sim's memory has no end."""

_FIELDS = {"arrayheight": "mxu.rows", "arraywidth": "mxu.cols"}
_SRAMS = ("ifmapsramszkb", "filtersramszkb", "ofmapsramszkb")
_SOURCES = {
    "mxu.count": "an array", "mxu.rows": "ArrayHeight", "mxu.cols": "ArrayWidth",
    "vmem.bytes": "IfmapSramSzkB + FilterSramSzkB + OfmapSramSzkB", "hbm.bytes": "no limit", "hbm.p": "Bandwidth",
    "hbm.q": "Bandwidth",
}  # fmt: skip
"""The keys that fields come from."""


def read_configuration(path: Path, element: str = "bf16", dataflow: str | None = None) -> Chip:
    """The chip of a configuration: one array, all SRAM as VMEM, its bandwidth as that of HBM.

    SCALE-Sim counts words: one is an element, so that sizes in bytes are as many times larger as the element is. The
    sources of the chip's fields, which are in the record of each run on it, say where they are from, and under which
    dataflow.

    Args:
        path: the file.
        element: type of all operands.
        dataflow: `ws` runs any dataflow weight-stationary; None: others are refused.

    Raises:
        ScaleSimError: naming file, section and key.
    """
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    try:
        parser.read_string(read_text(path, ScaleSimError))
        found: Mapping[str, str] = parser["architecture_presets"]
    except (configparser.Error, KeyError) as problem:
        text = " ".join(str(problem).split())
        raise ScaleSimError(f"{path}: not a configuration with a section [architecture_presets]: {text}") from None
    flow = found.get("dataflow", "ws").strip()
    if flow != "ws" and dataflow != "ws":
        raise ScaleSimError(
            f"{path}: Dataflow : {flow}: the matrix units are weight-stationary (ws); --dataflow ws runs it so"
        )
    if parser.get("sparsity", "sparsitysupport", fallback="false").strip().lower() == "true":
        raise ScaleSimError(f"{path}: SparsitySupport : true: no chip here skips zeros; set it to false")
    size = dtype(element).size
    changes: dict[str, Any] = {"name": _name(path.stem), "mxu.count": 1}
    changes |= {field: _number(found, key, path) for key, field in _FIELDS.items()}
    changes["hbm.bytes"] = _UNLIMITED
    changes["vmem.bytes"] = sum(_number(found, key, path) for key in _SRAMS) * 1024 * size
    if parser.get("run_presets", "interfacebandwidth", fallback="USER").strip().upper() == "USER":
        words = _numbers(found, "bandwidth", path)[0]
        changes |= {"hbm.p": words * size, "hbm.q": 1}
    try:
        chip = variant(load_chip(BASE), changes)
    except ConfigError as problem:
        key = next((f"{key}: " for field, key in _SOURCES.items() if f" {field} = " in str(problem)), "")
        raise ScaleSimError(f"{path}: {key}{problem}") from None
    run_as = "" if flow == "ws" else f", Dataflow : {flow}, run as ws (weight-stationary)"
    sources = {
        f: Provenance("invented", f"{key} of {path.name}{run_as}") for f, key in _SOURCES.items() if f in changes
    }
    return replace(chip, provenance={**chip.provenance, **sources})


def _number(found: Mapping[str, str], key: str, path: Path) -> int:
    return _numbers(found, key, path)[0]


def _numbers(found: Mapping[str, str], key: str, path: Path) -> Sequence[int]:
    try:
        return [int(part) for part in found[key].split(",")]
    except KeyError:
        raise ScaleSimError(f"{path}: [architecture_presets] has no {key}") from None
    except ValueError:
        raise ScaleSimError(f"{path}: {key} : {found[key]}: must be a whole number") from None
