"""Views: data movement that only changes how an array in memory is addressed.

Transposes, slices, reverses and those reshapes that merge or split strided dimensions give another `Array` over the
same bytes.  Dots and convolutions take such views as operands, and an entry computation's `bitcast` is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from systolith.compiler.hlo.ir import Instruction
from systolith.compiler.index.affine import IndexMap, reshape_factors
from systolith.compiler.ops.table import info
from systolith.compiler.tile.arrays import dense_array, parts
from systolith.compiler.tile.ir import Array, Buf
from systolith.compiler.tile.patterns import address
from systolith.isa.dtypes import DType
from systolith.isa.instruction import Space


def view_base(instruction: Instruction) -> Instruction:
    """The base of a chain of views."""
    while info(instruction).view:
        instruction = instruction.operands[0]
    return instruction


def is_view_chain(instruction: Instruction) -> bool:
    """Whether a chain of view operations on a dense array only changes how it is addressed."""
    return _of_dense(instruction) is not None


def _of_dense(instruction: Instruction) -> Array | None:
    """As `as_view`, of a dense array that lies nowhere."""
    base = view_base(instruction)
    return as_view(dense_array(Buf("", Space.NONE, 0), base.shape.dtype, base.dims), instruction)


def read_from(product: Instruction) -> list[Instruction]:
    """The values that the operands of a product are read from: the bases of chains of views, or the operands."""
    return [view_base(o) if _stays(product, o) else o for o in product.operands[:2]]


def view_chains(product: Instruction) -> Iterator[Instruction]:
    """The view operations on a product's operands that stay in its group."""
    for operand in product.operands[:2]:
        if _stays(product, operand):
            while info(operand).view:
                yield operand
                operand = operand.operands[0]


def _stays(product: Instruction, operand: Instruction) -> bool:
    """Whether a product reads an operand through views: not the input of a convolution whose channels they take apart.

    A row of an operand of the matrix unit would be gathered from as many places as it has channels, again for each
    element of the kernel.
    """
    read = _of_dense(operand)
    if read is None or product.opcode != "convolution" or operand is not product.operands[0]:
        return read is not None
    channels = product.conv_dims.input_feature
    return operand.dims[channels] == 1 or read.strides[channels] == operand.shape.dtype.size


def as_view(array: Array, instruction: Instruction) -> Array | None:
    """The array that a chain of view operations gives.

    Args:
        array: the whole value of `view_base(instruction)`, in memory.
        instruction: the last operation of the chain (may be the base itself).

    Returns:
        The whole value of `instruction` over the same bytes; None if some reshape in the chain would have to copy.
    """
    chain = []
    while info(instruction).view:
        chain.append(instruction)
        instruction = instruction.operands[0]
    viewed: Array | None = array
    for view in reversed(chain):
        if viewed is not None:
            viewed = _step(viewed, view)
    return viewed


def _step(x: Array, i: Instruction) -> Array | None:
    move, origin = info(i).move, (0,) * len(i.dims)
    if move is None or i.opcode == "reshape":
        fitting = reshaped_strides(x.dims, x.strides, i.dims)
        return None if fitting is None else replace(x, dims=i.dims, strides=fitting, origin=origin)
    index = move(i, IndexMap.identity(len(i.dims)))
    assert index is not None
    offset, strides, _ = address(x, index)
    return replace(x, dims=i.dims, strides=strides, offset=offset, origin=origin)


def reshaped_strides(operand: Sequence[int], strides: Sequence[int], result: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of a reshape's result over the operand's bytes; None if no strides address it."""
    out = [0] * len(result)
    for xs, ys in reshape_factors(operand, result):
        live = [x for x in xs if operand[x] != 1]
        if any(strides[a] != strides[b] * operand[b] for a, b in pairwise(live)):
            return None
        step = strides[live[-1]] if live else 0
        for k, y in enumerate(ys):
            out[y] = step * prod(result[z] for z in ys[k + 1 :])
    return tuple(out)


def recast(array: Array, dims: Sequence[int], dtype: DType | None = None) -> Array:
    """A whole array as one of other dims over the same bytes (grouped HLO's `bitcast`).

    Args:
        array: the array.
        dims: the others.
        dtype: of the elements: another one of as many bytes, parts of elements along a new last dimension, or that of
            what has its parts there; None: the array's.

    Raises:
        ValueError: no strides address it; dense arrays always can be.
    """
    dtype = dtype.in_memory if dtype else array.dtype
    if array.dtype.size > dtype.size:
        array = parts(array, dtype)
    elif array.dtype.size < dtype.size:
        array = recast(array, (*dims, dtype.size // array.dtype.size))
        array = replace(array, dims=array.dims[:-1], strides=array.strides[:-1], origin=array.origin[:-1])
    array = replace(array, dtype=dtype)
    if array.dims == tuple(dims):
        return array
    strides = reshaped_strides(array.dims, array.strides, dims)
    if strides is None:
        raise ValueError(f"{array.buf.name} {array.dims} with strides {array.strides} has no view of {tuple(dims)}")
    return replace(array, dims=tuple(dims), strides=strides, origin=(0,) * len(dims))


def untransposed(roots: Sequence[Instruction], arrays: Sequence[Array]) -> tuple[list[Instruction], list[Array]]:
    """Operands of the transposes at the roots of a group, and the roots' arrays seen through these transposes."""
    inner, views = [], []
    for root, array in zip(roots, arrays, strict=True):
        while root.opcode == "transpose":
            order = root.ints("dimensions")
            place = [order.index(d) for d in range(len(order))]
            dims, strides, origin = (tuple(v[k] for k in place) for v in (array.dims, array.strides, array.origin))
            array = replace(array, dims=dims, strides=strides, origin=origin)
            root = root.operands[0]
        inner.append(root)
        views.append(array)
    return inner, views
