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
from itertools import product
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
    """A row of a topology, or a part of one.

    Attributes:
        line, name: of the row.
        numbers: of a product or a convolution.
        batch: images that a convolution is of.
        part: which part of the left operand, and which of the right one, it reads.
    """

    line: int
    name: str
    numbers: tuple[int, ...]
    batch: int = 1
    part: tuple[int, int] = (0, 0)


def read_topology(path: Path, element: str = "bf16") -> Module:
    """The module of a topology.

    Args:
        path: the CSV; a row has a name, and 3 numbers (M, N, K) or 7 or 8 (a convolution); a column of convolutions
            that the heading calls `Batch ...` has numbers of images.  Columns behind one without a heading are remarks.
        element: type of all operands.

    A layer with an array of more bytes than an operation reaches is several operations: on parts of its rows (images,
    or rows of outputs), and of its columns (filters).

    Raises:
        ScaleSimError: naming file, line and column.
    """
    lines = ["HloModule " + _name(path.stem), "", "ENTRY network {"]
    taken: dict[str, int] = {}
    operands: dict[str, str] = {}
    roots = []
    for layer in _layers(path):
        stem = _name(layer.name)
        taken[stem] = taken.get(stem, 0) + 1
        stem = stem if taken[stem] == 1 else f"{stem}.{taken[stem]}"
        parts = _parts(layer, path, dtype(element).size)
        for part in parts:
            *arrays, operation = _operation(part)
            x, w, y = (f"{element}[{','.join(map(str, dims))}]" for dims in arrays)
            split = len(parts) > 1
            read = [f"{stem}.{side}{n if split else ''}" for side, n in zip("xw", part.part, strict=True)]
            for name, shape in zip(read, (x, w), strict=True):
                if name not in operands:
                    lines.append(f"  {name} = {shape} parameter({len(operands)})")
                    operands[name] = shape
            name = f"{stem}.{part.part[0]}.{part.part[1]}" if split else stem
            lines.append(f"  {name} = {y} {operation.format(', '.join(read))}")
            roots.append((y, name))
    shapes, names = (", ".join(each) for each in zip(*roots, strict=True))
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
    if names is _CONVOLUTION:
        h, w, fh, fw, *_ = numbers
        if fh > h or fw > w:
            raise ScaleSimError(f"{where}: {layer.name}: a filter of {fh} x {fw} is larger than {h} x {w}")


Dims = tuple[int, ...]


def _parts(layer: Layer, path: Path, size: int) -> list[Layer]:
    """The layer in few parts that have no array of more than `LARGEST` bytes; `size`: of an element."""
    where, extents = f"{path}:{layer.line}: {layer.name}", _extents(layer)
    most = max(_sizes(layer, size))
    if most > _UNLIMITED:
        raise ScaleSimError(f"{where}: an array of {most} bytes; chips have at most {_UNLIMITED} of HBM")
    over = 1, 1
    while over[0] <= extents[0] and over[1] <= extents[1]:
        last = over[0] - 1, over[1] - 1  # no other is larger
        x, w, y = _sizes(_part(layer, last, over), size)
        if max(x, w, y) <= LARGEST:
            return [_part(layer, at, over) for at in product(range(over[0]), range(over[1]))]
        by_rows = x > LARGEST or (w <= LARGEST and extents[0] // over[0] >= extents[1] // over[1])
        over = (over[0] + 1, over[1]) if by_rows else (over[0], over[1] + 1)
    raise ScaleSimError(
        f"{where}: an operand of one row or filter takes more than the {LARGEST} bytes that an operation reaches:"
        " make its depth smaller"
    )


def _sizes(layer: Layer, size: int) -> list[int]:
    """Bytes of its arrays."""
    return [prod(dims) * size for dims in _operation(layer)[:3]]


def _extents(layer: Layer) -> tuple[int, int]:
    """Rows and columns that parts may be of: of the result of a product; images or rows of results, and filters."""
    if len(layer.numbers) == len(_PRODUCT):
        return layer.numbers[0], layer.numbers[1]
    filters = 1 if _DEPTHWISE in layer.name else layer.numbers[5]
    return layer.batch if layer.batch > 1 else _outputs(layer)[0], filters


def _part(layer: Layer, at: tuple[int, int], over: tuple[int, int]) -> Layer:
    """One of so many parts of its rows, and of its columns."""
    (row, rows), (_, columns) = (_share(*each) for each in zip(_extents(layer), at, over, strict=True))
    if len(layer.numbers) == len(_PRODUCT):
        return replace(layer, numbers=(rows, columns, layer.numbers[2]), part=at)
    if over[1] > 1:
        layer = replace(layer, numbers=(*layer.numbers[:5], columns, *layer.numbers[6:]))
    if layer.batch > 1:
        return replace(layer, batch=rows, part=at)
    h, _, fh, _, _, _, sh, *_ = layer.numbers
    height = min((row + rows - 1) * sh + fh, h) - row * sh
    return replace(layer, numbers=(height, *layer.numbers[1:]), part=at)


def _share(extent: int, number: int, of: int) -> tuple[int, int]:
    """The first of one of so many parts that are as large as each other, or one smaller; and how many it has."""
    start, end = (extent * n // of for n in (number, number + 1))
    return start, end - start


def _operation(layer: Layer) -> tuple[Dims, Dims, Dims, str]:
    """The dimensions of the operands and of the result, and the text of the operation."""
    return (_product if len(layer.numbers) == len(_PRODUCT) else _convolution)(layer)


def _outputs(layer: Layer) -> tuple[int, int]:
    """Rows and columns of the results of a convolution."""
    h, w, fh, fw, _, _, *strides = layer.numbers
    return ceil((h - fh + strides[0]) / strides[0]), ceil((w - fw + strides[-1]) / strides[-1])


def _product(layer: Layer) -> tuple[Dims, Dims, Dims, str]:
    m, n, k = layer.numbers
    return (m, k), (k, n), (m, n), "dot({}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


def _convolution(layer: Layer) -> tuple[Dims, Dims, Dims, str]:
    h, w, fh, fw, channels, filters, *strides = layer.numbers
    sh, sw = strides * 2 if len(strides) == 1 else strides
    oh, ow = _outputs(layer)
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
