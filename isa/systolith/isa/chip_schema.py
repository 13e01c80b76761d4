"""The schema of a chip's configuration: every field declared once, with its unit, its limits and its meaning.

`chip.py` reads configurations from files; import from there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple, get_type_hints

from systolith.isa.chip_energy import AREA, ENERGY, Area, Energy
from systolith.isa.chip_fields import Declared, Doc, Ge, Le, declared


@dataclass(frozen=True)
class Seq:
    """The sequencer."""

    branch_penalty: Annotated[int, Ge(0), Le(64), Doc("cycles", "a taken branch costs this more than one cycle")]
    fetch_words: Annotated[
        int, Ge(6), Le(64), Doc("words/cycle", "32-bit instruction words fetched a cycle; 6: the longest of SEQ's own")
    ]


@dataclass(frozen=True)
class Smem:
    """Scalar memory."""

    bytes: Annotated[int, Ge(256), Le(2**24), Doc("bytes", "size of the scalar memory", power=True)]


@dataclass(frozen=True)
class Fifo:
    """Instruction queues."""

    depth: Annotated[int, Ge(1), Le(256), Doc("instructions", "depth of the queue in front of each unit")]


@dataclass(frozen=True)
class Token:
    """Counting tokens."""

    max: Annotated[int, Ge(1), Le(255), Doc("", "largest count of a token; one more traps")]


@dataclass(frozen=True)
class Mxu:
    """Matrix units."""

    count: Annotated[int, Ge(1), Le(8), Doc("", "matrix units")]
    rows: Annotated[int, Ge(2), Le(512), Doc("elements", "rows of the array: K of a weight tile", power=True)]
    cols: Annotated[int, Ge(2), Le(512), Doc("elements", "columns of the array: N of a weight tile", power=True)]
    acc_rows: Annotated[int, Ge(8), Le(65536), Doc("rows", "accumulator rows of `cols` 32-bit sums", power=True)]
    segments: Annotated[int, Ge(1), Le(64), Doc("segments/cycle", "segments a stream or weight port reads a cycle")]
    segment_bytes: Annotated[int, Ge(4), Le(4096), Doc("bytes", "bytes of one segment access", power=True)]
    load_latency: Annotated[int, Ge(1), Le(1024), Doc("cycles", "from the last weight row read to the signal")]
    pipeline: Annotated[int, Ge(3), Le(1024), Doc("cycles", "of a row's way, besides rows + cols of the array")]


@dataclass(frozen=True)
class Vpu:
    """The vector unit."""

    lanes: Annotated[int, Ge(2), Le(1024), Doc("elements", "lanes of a vector register", power=True)]
    sublanes: Annotated[int, Ge(1), Le(64), Doc("rows", "sublanes of a vector register", power=True)]
    alu_slots: Annotated[int, Ge(1), Le(15), Doc("ops/cycle", "ALU issue slots")]
    load_slots: Annotated[int, Ge(1), Le(15), Doc("ops/cycle", "load issue slots")]
    store_slots: Annotated[int, Ge(1), Le(15), Doc("ops/cycle", "store issue slots")]
    trans_slots: Annotated[int, Ge(1), Le(15), Doc("ops/cycle", "transcendental issue slots")]
    alu_latency: Annotated[int, Ge(1), Le(255), Doc("cycles", "ALU: from issue to the result's first use")]
    load_latency: Annotated[int, Ge(1), Le(255), Doc("cycles", "load: from issue to the result's first use")]
    trans_latency: Annotated[int, Ge(1), Le(255), Doc("cycles", "transcendental: from issue to the result's first use")]


@dataclass(frozen=True)
class Xlu:
    """The cross-lane unit."""

    latency: Annotated[int, Ge(2), Le(1024), Doc("cycles", "of an instruction, besides its accesses")]


@dataclass(frozen=True)
class Vmem:
    """Vector memory."""

    bytes: Annotated[int, Ge(1024), Le(2**30), Doc("bytes", "size of the vector memory", multiple=4)]


@dataclass(frozen=True)
class Hbm:
    """Off-chip memory: p/q bytes a cycle in chunks."""

    bytes: Annotated[int, Ge(2**16), Le(2**40), Doc("bytes", "capacity")]
    p: Annotated[int, Ge(1), Le(2**30), Doc("bytes", "bandwidth is p/q bytes a cycle: numerator")]
    q: Annotated[int, Ge(1), Le(2**20), Doc("cycles", "bandwidth is p/q bytes a cycle: denominator")]
    chunk: Annotated[int, Ge(4), Le(65536), Doc("bytes", "granted at once", power=True)]
    granule: Annotated[int, Ge(1), Le(65536), Doc("bytes", "a contiguous run is rounded up to it", power=True)]
    latency: Annotated[int, Ge(1), Le(100000), Doc("cycles", "from the last grant to the signal")]


@dataclass(frozen=True)
class Dma:
    """The DMA engines."""

    segments: Annotated[
        int, Ge(1), Le(64), Doc("segments/cycle", "VMEM accesses of hbm.chunk bytes a cycle", power=True)
    ]
    local_latency: Annotated[int, Ge(1), Le(10000), Doc("cycles", "of transfers that do not touch HBM")]


@dataclass(frozen=True)
class Host:
    """The host interface: p/q bytes a cycle in each direction."""

    queues: Annotated[int, Ge(0), Le(64), Doc("", "infeed queues, and as many outfeed queues")]
    p: Annotated[int, Ge(1), Le(2**20), Doc("bytes", "bandwidth of each direction is p/q bytes a cycle: numerator")]
    q: Annotated[int, Ge(1), Le(2**12), Doc("cycles", "bandwidth of each direction is p/q bytes a cycle: denominator")]
    setup: Annotated[int, Ge(0), Le(100000), Doc("cycles", "of each transfer, before its first byte")]
    latency: Annotated[int, Ge(1), Le(100000), Doc("cycles", "from a transfer's last byte to the signal")]
    room: Annotated[
        int,
        Ge(4),
        Le(2**30),
        Doc("bytes", "that a host queue holds: until the chip, or the host, takes them"),
    ]
    launch: Annotated[
        int, Ge(0), Le(10**8), Doc("cycles", "that a program's call and the word of its end take, beside its run")
    ]


@dataclass(frozen=True)
class Link:
    """Links to other chips."""

    count: Annotated[int, Ge(0), Le(64), Doc("", "links")]


@dataclass(frozen=True)
class Features:
    """Capabilities."""

    wide: Annotated[bool, Doc("", "has 64-bit element types")]


class Provenance(NamedTuple):
    """Where a value is from: its label and source."""

    label: str
    source: str


class Row(NamedTuple):
    """A row of `describe`."""

    field: str
    value: int | float | bool | str
    unit: str
    provenance: str
    source: str
    text: str


@dataclass(frozen=True)
class Chip:
    """A chip configuration; groups and fields as declared above.

    Attributes:
        name: for people and binaries; not part of the digest.
        clock_mhz: core clock.
        provenance: field name such as `mxu.rows` to where its value is from.
        declared: what follows from the clock, as it was declared: `hbm.gbps`, and times in place of cycles.
        absent: parts of the published chip that the machine lacks or has otherwise, and how.
        energy: of its events; None: it is not known.
        area: of its units.
    """

    name: Annotated[str, Doc("", "name")]
    clock_mhz: Annotated[float, Ge(1.0), Le(100000.0), Doc("MHz", "core clock")]
    seq: Seq
    smem: Smem
    fifo: Fifo
    token: Token
    mxu: Mxu
    vpu: Vpu
    xlu: Xlu
    vmem: Vmem
    hbm: Hbm
    dma: Dma
    host: Host
    link: Link
    features: Features
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False, repr=False)
    declared: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    absent: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    energy: Energy | None = field(default=None, compare=False, repr=False)
    area: Area = field(default=Area(), compare=False, repr=False)

    def digest(self) -> str:
        """Twelve hexadecimal digits that change with any value (not with the name or the provenance)."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        from hashlib import sha256  # late: who lists chips does without it

        text = "\n".join(f"{r.field}={r.value}" for r in describe(self) if r.field != "name")
        return sha256(text.encode()).hexdigest()[:12]


BESIDES = ("provenance", "declared", "absent", "energy", "area")
"""Attributes of a chip that are not values of its fields; no part of the digest."""


SCHEMA: dict[str, Declared] = {d.name: d for d in declared(Chip, "", BESIDES)}
GROUPS: dict[str, Any] = {n: t for n, t in get_type_hints(Chip).items() if is_dataclass(t)} | {"energy": Energy}
"""The groups of fields: their names in a chip, and their classes."""
FIELDS: dict[str, Declared] = SCHEMA | ENERGY | AREA
"""Fields of a chip, those that no digest covers too."""

TIME_FIELDS = frozenset(
    {
        "clock_mhz", "seq.branch_penalty", "seq.fetch_words", "fifo.depth", "mxu.segments", "mxu.segment_bytes",
        "mxu.load_latency", "mxu.pipeline", "xlu.latency", "hbm.p", "hbm.q", "hbm.chunk", "hbm.granule", "hbm.latency",
        "dma.segments", "dma.local_latency", "host.launch",
    }
)  # fmt: skip
"""Fields that decide how long instructions take, and neither which programs are legal nor their results."""


def value_of(chip: Chip, name: str) -> Any:
    """The value of a field by its dotted name, such as `mxu.rows`."""
    obj: Any = chip
    for part in name.split("."):
        obj = getattr(obj, part)
    return obj


def describe(chip: Chip) -> list[Row]:
    """One row a field of the schema, in declaration order: (field, value, unit, provenance, source, text)."""
    return [_row(chip, name) for name in SCHEMA]


def describe_beside(chip: Chip) -> list[Row]:
    """The same of energies and areas, as far as the chip has them."""
    names = [*(ENERGY if chip.energy else ()), *(n for n in AREA if value_of(chip, n))]
    return [_row(chip, name) for name in names]


def _row(chip: Chip, name: str) -> Row:
    p, d = chip.provenance.get(name, Provenance("", "")), FIELDS[name]
    return Row(name, value_of(chip, name), d.doc.unit, p.label, p.source, d.doc.text)
