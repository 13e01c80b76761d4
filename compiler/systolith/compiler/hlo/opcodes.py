"""XLA's opcodes: the names that may stand in HLO text, and how many operands each takes.

Source: `xla/hlo/ir/hlo_opcode.h`, `CreateInstruction` of `hlo_parser.cc`.  Opcodes such as `slice-start` are printed
for asynchronous calls of any operation, so `-start`, `-update` and `-done` after a known opcode are known too.
"""

from __future__ import annotations

from difflib import get_close_matches

ELEMENTWISE_UNARY = frozenset(
    """abs acos acosh asin asinh atan atanh bitcast-convert cbrt ceil convert copy cosh cosine count-leading-zeros erf
    exponential exponential-minus-one floor imag is-finite log log-plus-one logistic negate not popcnt real
    reduce-precision round-nearest-afz round-nearest-even rsqrt sign sine sinh sqrt tan tanh""".split()
)
ELEMENTWISE_BINARY = frozenset(
    """add and atan2 compare complex divide maximum minimum mulhi multiply or power remainder shift-left
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
    **dict.fromkeys("all-gather-start all-reduce-start collective-permute-start".split(), _ANY),
    **dict.fromkeys("all-gather-done all-reduce-done collective-permute-done".split(), (1, 1)),
    **dict.fromkeys("parameter constant iota partition-id replica-id rng-get-and-update-state".split(), (0, 0)),
    **dict.fromkeys("bitcast broadcast cholesky domain fft get-dimension-size get-tuple-element".split(), (1, 1)),
    **dict.fromkeys("reshape reverse slice topk transpose while opt-barrier".split(), (1, 1)),
    **dict.fromkeys("convolution dot gather pad set-dimension-size triangular-solve add-dependency".split(), (2, 2)),
    **dict.fromkeys("after-all call custom-call fusion tuple scan rng all-to-all map".split(), _ANY),
    **dict.fromkeys("concatenate conditional dynamic-reshape dynamic-slice sort".split(), (1, None)),
    **dict.fromkeys("reduce reduce-window dynamic-update-slice".split(), (2, None)),
    **dict.fromkeys("infeed recv recv-done send-done copy-start copy-done rng-bit-generator".split(), (1, 1)),
    **dict.fromkeys("outfeed send".split(), (2, 2)),
    **dict.fromkeys("select-and-scatter ragged-dot batch-norm-training".split(), (3, 3)),
    **dict.fromkeys("batch-norm-grad batch-norm-inference".split(), (5, 5)),
    "scatter": (3, None),
    "scaled-dot": (4, 4),
    "async-start": _ANY,
    "async-update": (1, 1),
    "async-done": (1, 1),
}

KNOWN = frozenset(_OPERANDS)
"""Every opcode, without the short forms of asynchronous calls."""

NEEDS_SHAPE = frozenset(
    """async-start async-update async-done all-gather all-gather-start all-gather-done all-reduce all-reduce-start
    all-reduce-done all-to-all collective-broadcast collective-permute collective-permute-start collective-permute-done
    copy-done copy-start dynamic-reshape dynamic-slice dynamic-update-slice ragged-all-to-all recv recv-done
    reduce-scatter send send-done slice bitcast bitcast-convert constant convert custom-call fusion infeed iota outfeed
    parameter reduce-precision reshape rng rng-bit-generator rng-get-and-update-state stochastic-convert""".split()
)
"""Opcodes whose result's shape a text must state (`CanInferShape` of `hlo_parser.cc`)."""

_ASYNC_SUFFIXES = ("-start", "-update", "-done")


def async_parts(opcode: str) -> tuple[str, str] | None:
    """The operation and the opcode of the long form of an asynchronous call: (`slice`, `async-start`).

    The operation is empty for the long form; None for an opcode that is no asynchronous call (`all-reduce-start` and
    the like are opcodes of their own).
    """
    if opcode in ("async-start", "async-update", "async-done"):
        return "", opcode
    if opcode in KNOWN:
        return None
    for suffix in _ASYNC_SUFFIXES:
        if opcode.endswith(suffix) and opcode.removesuffix(suffix) in KNOWN:
            return opcode.removesuffix(suffix), f"async{suffix}"
    return None


def is_known(opcode: str) -> bool:
    """Whether XLA has an opcode of this name."""
    return opcode in KNOWN or async_parts(opcode) is not None


def suggestion(opcode: str) -> str:
    """A hint "did you mean X?" with the known opcode nearest to `opcode`, or nothing."""
    near = get_close_matches(opcode, KNOWN, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def operand_limits(opcode: str) -> tuple[int, int | None]:
    """The fewest and the most operands an opcode takes (None: no limit)."""
    return _OPERANDS.get(opcode, _ANY)
