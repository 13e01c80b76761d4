"""XLA's opcodes: the names that may stand in HLO text, and how many operands each takes.

Source: `xla/hlo/ir/hlo_opcode.h`.  Opcodes such as `slice-start` are printed for asynchronous wrappers of any opcode,
so `-start`, `-update` and `-done` after a known opcode are known too.
"""

from __future__ import annotations

from difflib import get_close_matches

ELEMENTWISE_UNARY = frozenset(
    """abs acos acosh asin asinh atanh bitcast-convert cbrt ceil convert copy cosh cosine count-leading-zeros erf
    exponential exponential-minus-one floor imag is-finite log log-plus-one logistic negate not popcnt real
    reduce-precision round-nearest-afz round-nearest-even rsqrt sign sine sinh sqrt tan tanh""".split()
)
ELEMENTWISE_BINARY = frozenset(
    """add and atan2 compare complex divide maximum minimum multiply or power remainder shift-left
    shift-right-arithmetic shift-right-logical stochastic-convert subtract xor""".split()
)
ELEMENTWISE_TERNARY = frozenset({"clamp", "select"})
ELEMENTWISE = (ELEMENTWISE_UNARY - {"bitcast-convert"}) | ELEMENTWISE_BINARY | ELEMENTWISE_TERNARY

COLLECTIVES = frozenset(
    """all-gather all-reduce all-to-all collective-broadcast collective-permute ragged-all-to-all reduce-scatter
    """.split()
)

# Operands as (fewest, most); None is no limit.
_ANY = (0, None)
_OPERANDS: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(ELEMENTWISE_UNARY, (1, 1)),
    **dict.fromkeys(ELEMENTWISE_BINARY, (2, 2)),
    **dict.fromkeys(ELEMENTWISE_TERNARY, (3, 3)),
    **dict.fromkeys(COLLECTIVES, _ANY),
    **dict.fromkeys(("parameter", "constant", "iota", "partition-id", "replica-id"), (0, 0)),
    **dict.fromkeys("bitcast broadcast cholesky domain fft get-dimension-size get-tuple-element".split(), (1, 1)),
    **dict.fromkeys("reshape reverse slice topk transpose while opt-barrier".split(), (1, 1)),
    **dict.fromkeys("convolution dot gather pad set-dimension-size triangular-solve add-dependency".split(), (2, 2)),
    **dict.fromkeys("after-all call custom-call fusion tuple".split(), _ANY),
    **dict.fromkeys("concatenate conditional dynamic-reshape dynamic-slice map sort".split(), (1, None)),
    **dict.fromkeys(("reduce", "reduce-window", "dynamic-update-slice"), (2, None)),
    **dict.fromkeys(("scatter", "ragged-dot"), (3, None)),
    "batch-norm-grad": (5, 5),
    "batch-norm-inference": (5, 5),
    "batch-norm-training": (3, 3),
    "infeed": (0, 1),
    "outfeed": (1, 2),
    "recv": (1, 1),
    "recv-done": (1, 1),
    "rng": (2, 2),
    "rng-bit-generator": (1, 1),
    "rng-get-and-update-state": (0, 0),
    "scaled-dot": (2, None),
    "scan": _ANY,
    "select-and-scatter": (3, 3),
    "send": (2, 2),
    "send-done": (1, 1),
    "async-start": _ANY,
    "async-update": (1, 1),
    "async-done": (1, 1),
    "copy-start": (1, 1),
    "copy-done": (1, 1),
}

KNOWN = frozenset(_OPERANDS)
"""Every opcode, without the asynchronous forms of others."""

_ASYNC_SUFFIXES = ("-start", "-update", "-done")


def is_known(opcode: str) -> bool:
    """Whether XLA has an opcode of this name."""
    if opcode in KNOWN:
        return True
    return any(opcode.endswith(suffix) and opcode.removesuffix(suffix) in KNOWN for suffix in _ASYNC_SUFFIXES)


def suggestion(opcode: str) -> str:
    """A hint "did you mean X?" with the known opcode nearest to `opcode`, or nothing."""
    near = get_close_matches(opcode, KNOWN, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def operand_limits(opcode: str) -> tuple[int, int | None]:
    """The fewest and the most operands an opcode takes (None: no limit)."""
    return _OPERANDS.get(opcode, _ANY)
