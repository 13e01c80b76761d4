"""The energy of a chip's events, and the areas of its units: no part of its times, and of no digest.

A chip has all fields of the table `energy` or none. Of `area`, what is published.
"""

from dataclasses import dataclass, fields
from math import log
from typing import Annotated

from systolith.isa.chip_fields import Declared, Doc, Ge, Le, declared

_MOST = Le(10**12)


@dataclass(frozen=True)
class Energy:
    """Femtojoules of an event; `isa/events.py` counts the events of an instruction."""

    mxu_mac_s8: Annotated[int, Ge(0), _MOST, Doc("fJ", "a product of 8-bit integers, added to a sum of 32 bits")]
    mxu_mac_bf16: Annotated[int, Ge(0), _MOST, Doc("fJ", "a product of bf16, added to a sum of f32")]
    mxu_weight_byte: Annotated[int, Ge(0), _MOST, Doc("fJ", "a byte of weights into the shadow tile")]
    mxu_acc_byte: Annotated[int, Ge(0), _MOST, Doc("fJ", "a byte of accumulators, read or written")]
    vpu_int: Annotated[int, Ge(0), _MOST, Doc("fJ", "an element of an integer, bitwise or move operation")]
    vpu_add: Annotated[int, Ge(0), _MOST, Doc("fJ", "an element of an f32 operation that is no product")]
    vpu_mul: Annotated[int, Ge(0), _MOST, Doc("fJ", "an element of a product of 32 bits")]
    vpu_trans: Annotated[int, Ge(0), _MOST, Doc("fJ", "an element of a division, root or transcendental function")]
    vpu_register_byte: Annotated[int, Ge(0), _MOST, Doc("fJ", "a byte of vector registers, read or written")]
    xlu_byte: Annotated[int, Ge(0), _MOST, Doc("fJ", "a byte through the cross-lane unit")]
    vmem_byte: Annotated[int, Ge(0), _MOST, Doc("fJ", "a byte of VMEM, read or written")]
    smem_byte: Annotated[int, Ge(0), _MOST, Doc("fJ", "a byte of SMEM, read or written")]
    hbm_byte: Annotated[int, Ge(0), _MOST, Doc("fJ", "a byte of HBM, read or written, in whole granules")]
    link_byte: Annotated[int, Ge(0), _MOST, Doc("fJ", "a byte through a link")]
    host_byte: Annotated[int, Ge(0), _MOST, Doc("fJ", "a byte from or to a host queue")]
    seq_word: Annotated[int, Ge(0), _MOST, Doc("fJ", "a 32-bit word of an instruction, fetched and issued")]
    idle_cycle: Annotated[int, Ge(0), _MOST, Doc("fJ", "a cycle, whatever runs: the clock")]
    leakage: Annotated[float, Ge(0.0), Le(1e9), Doc("mW", "power at any clock, whatever runs")]


@dataclass(frozen=True)
class Area:
    """Square millimetres; 0: not known."""

    die: Annotated[float, Ge(0.0), Le(1e5), Doc("mm2", "the die, all of its cores")] = 0.0
    mxu: Annotated[float, Ge(0.0), Le(1e5), Doc("mm2", "matrix units")] = 0.0
    acc: Annotated[float, Ge(0.0), Le(1e5), Doc("mm2", "accumulators")] = 0.0
    vpu: Annotated[float, Ge(0.0), Le(1e5), Doc("mm2", "vector unit")] = 0.0
    vmem: Annotated[float, Ge(0.0), Le(1e5), Doc("mm2", "vector memory")] = 0.0
    hbm: Annotated[float, Ge(0.0), Le(1e5), Doc("mm2", "interfaces of the off-chip memory")] = 0.0
    host: Annotated[float, Ge(0.0), Le(1e5), Doc("mm2", "interface of the host")] = 0.0
    control: Annotated[float, Ge(0.0), Le(1e5), Doc("mm2", "control")] = 0.0


SMALL, LARGE = 32 << 10, 1 << 20
"""Bytes of the SRAMs whose published energies the presets have for `smem_byte` and `vmem_byte`."""

GROWTH = log(14 / 8.5) / log(LARGE / SMALL), log(100 / 20) / log(LARGE / SMALL)
"""Exponents with which the energy of an access grows with the size of an SRAM, at 7 nm and at 45 nm: 8.5 and 14 pJ, 20
and 100 pJ for 64 bits of `SMALL` and `LARGE` ones (Jouppi et al., ISCA 2021; Horowitz, ISSCC 2014)."""


def growth(energy: Energy) -> float:
    """The exponent of a chip: that between its SMEM and its VMEM, within what is published."""
    small, large = energy.smem_byte, energy.vmem_byte
    least, most = GROWTH
    if not small or not large:
        return least
    return min(most, max(least, log(large / small) / log(LARGE / SMALL)))


ENERGY: dict[str, Declared] = {d.name: d for d in declared(Energy, "energy.")}
AREA: dict[str, Declared] = {d.name: d for d in declared(Area, "area.")}
EVENTS: tuple[str, ...] = tuple(f.name for f in fields(Energy) if f.name not in ("idle_cycle", "leakage"))
"""Events of instructions: the fields but `idle_cycle` and `leakage`, in their order."""
UNITS = tuple(dict.fromkeys(event.partition("_")[0] for event in EVENTS))
"""Units that events are of: the first word of the field."""
