"""Instructions as a queue of the core takes them: `issue_t` of core_pkg.sv, and words with their registers resolved."""

from __future__ import annotations

from dataclasses import dataclass

from systolith.hw.patterns import array, pack, pattern_entry
from systolith.isa.encode import encode_instruction
from systolith.isa.instruction import Instruction, Stream
from systolith.isa.program import Program

NO_TOKEN = 255
TOKENS_PER_INSTRUCTION = 4
ISSUE_BITS = 2 * TOKENS_PER_INSTRUCTION * 8 + 3 + 32


@dataclass(frozen=True)
class Issued:
    """An instruction for one of a matrix unit's queues.

    Attributes:
        queue: 0 is the weights', 1 the stream's.
        issue: its `issue_t`.
        words: its words, the first in the lowest bits.
        pattern: the table entry of its source, 0 if it has none.
    """

    queue: int
    issue: int
    words: int
    pattern: int


def _tokens(tokens: tuple[int, ...]) -> list[tuple[int, int]]:
    return array([*tokens, *[NO_TOKEN] * (TOKENS_PER_INSTRUCTION - len(tokens))], 8)


def issued(queue: int, instr: Instruction, program: Program) -> Issued:
    """An mxu.* or nop instruction whose operands are resolved."""
    flags = [(int(instr.fence), 1), (int(instr.op == "nop"), 1), (int(instr.op == "mxu.latch"), 1)]
    issue = pack([*_tokens(instr.waits), *_tokens(instr.signals), *flags, (0, 32)])
    src = instr.args.get("src")
    pattern = pattern_entry(program.patterns[src.pattern]) if isinstance(src, Stream) else 0
    return Issued(queue, issue, pack(array(encode_instruction(instr), 32)), pattern)
