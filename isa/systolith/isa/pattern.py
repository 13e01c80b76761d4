"""Address patterns: the programs of address generators.

Every port of every unit that touches memory is driven by one pattern: up to eight affine loops, and up to four
coordinates that decide which elements exist.  Patterns live in the program's pattern table; an instruction's `Stream`
names one and gives the base address and the run-time operands.

For loop indices i (outermost first), with `index[i]` the s32 list at the stream's index address in VMEM:

    i_k      = index[i_k]  if k == indirect            (the loop's own counter otherwise)
    c_j      = offset_j + sum_k coefs_j[k] * i_k + (the stream's bias[bias_j] if bias_j >= 0)
    inside   = for all j:  c_j mod div_j == 0  and  lo_j <= c_j / div_j < hi_j
    address  = base + sum_k strides[k] * i_k + sum_j (c_j / div_j) * stride_j        (bytes)

Elements outside read as `fill` and are not written; their address is never used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from systolith.isa.dtypes import DType

MAX_LOOPS = 8
MAX_COORDS = 4
MAX_BIASES = 2
UNBOUNDED = (-(2**31), 2**31 - 1)


@dataclass(frozen=True)
class Coord:
    """One coordinate: an affine function of the loop indices, its bounds, divisibility and stride.

    Attributes:
        coefs: one coefficient a loop, same length as the pattern's counts.
        offset: constant term.
        lo: first value inside, after division by `div`.
        hi: first value beyond, after division by `div`.
        div: c must be a multiple of it (1: always).
        stride: bytes that c / div adds to the address.
        bias: which of the stream's bias operands is added to c (0 or 1); -1: none.
    """

    coefs: tuple[int, ...]
    offset: int = 0
    lo: int = UNBOUNDED[0]
    hi: int = UNBOUNDED[1]
    div: int = 1
    stride: int = 0
    bias: int = -1


@dataclass(frozen=True)
class Pattern:
    """An address generator's program.

    Attributes:
        dtype: element type in memory.
        counts: trip count of each loop, outermost first; 1 to 8 loops, each count at least 1.
        strides: bytes each loop adds; may be 0 or negative.
        coords: up to four coordinates.
        fill: 32-bit register image that an element outside reads as (VPU, MXU: the widened value's bits; DMA: the low
            bytes).
        indirect: the loop whose counter goes through the index list; -1: none.
    """

    dtype: DType
    counts: tuple[int, ...]
    strides: tuple[int, ...]
    coords: tuple[Coord, ...] = ()
    fill: int = 0
    indirect: int = -1

    def __post_init__(self) -> None:
        n = len(self.counts)
        if not 1 <= n <= MAX_LOOPS or any(c < 1 for c in self.counts):
            raise ValueError(f"pattern: counts {self.counts}: 1 to {MAX_LOOPS} loops, each at least 1")
        if len(self.strides) != n:
            raise ValueError(f"pattern: {len(self.strides)} strides for {n} loops")
        if len(self.coords) > MAX_COORDS:
            raise ValueError(f"pattern: {len(self.coords)} coordinates, at most {MAX_COORDS}")
        for j, c in enumerate(self.coords):
            if len(c.coefs) != n:
                raise ValueError(f"pattern: coordinate {j} has {len(c.coefs)} coefficients for {n} loops")
            if c.div < 1 or not -1 <= c.bias < MAX_BIASES:
                raise ValueError(f"pattern: coordinate {j}: div {c.div} >= 1, bias {c.bias} in -1 to {MAX_BIASES - 1}")
        if not -1 <= self.indirect < n:
            raise ValueError(f"pattern: indirect loop {self.indirect} of {n}")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Patterns are looked up again and again."""
        return hash((self.dtype, self.counts, self.strides, self.coords, self.fill, self.indirect))

    @property
    def elements(self) -> int:
        """How many elements the loops visit, inside or not."""
        return prod(self.counts)
