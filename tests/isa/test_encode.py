from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.isa.decode import _one_by_one, decode_code, decode_instruction, decode_kernel, decode_pattern
from systolith.isa.decode_columns import decode_columns
from systolith.isa.encode import encode_code, encode_instruction, encode_kernel, encode_pattern
from systolith.isa.errors import EncodingError
from systolith.isa.instruction import Instruction, Reg, Space, Stream
from systolith.isa.kernel import Kernel
from systolith.isa.layout import Bits, check_layout
from systolith.isa.opcodes import OPCODES, size_words
from systolith.isa.pattern import Pattern
from tests.examples import examples
from tests.isa.strategies import codes, instructions, kernels, patterns


@pytest.mark.parametrize("op", OPCODES)
@examples(7, 15)
@given(data=st.data())
def test_every_instruction_round_trips(op: str, data: st.DataObject) -> None:
    instr = data.draw(instructions((op,)))
    words = encode_instruction(instr)
    assert len(words) == size_words(instr)
    assert all(0 <= w < 2**32 for w in words)
    assert decode_instruction([*words, 1, 2, 3]) == (instr, len(words))


@given(patterns())
def test_patterns_round_trip(pattern: Pattern) -> None:
    words = encode_pattern(pattern)
    assert decode_pattern([*words, 7]) == (pattern, len(words))


@given(kernels())
def test_kernels_round_trip(kernel: Kernel) -> None:
    words = encode_kernel(kernel)
    assert decode_kernel([*words, 7], kernel.name) == (kernel, len(words))


@given(instructions(), st.data())
def test_a_flipped_bit_changes_the_instruction_or_is_refused(instr: Instruction, data: st.DataObject) -> None:
    words = encode_instruction(instr)
    at, bit = data.draw(st.integers(0, len(words) - 1)), data.draw(st.integers(0, 31))
    words[at] ^= 1 << bit
    try:
        decoded, _ = decode_instruction(words)
    except EncodingError:
        return
    assert decoded != instr
    assert encode_instruction(decoded) == words


def _word_by_word(words: list[int]) -> tuple[list[Instruction], dict[int, int]] | None:
    try:
        return _one_by_one(words)
    except EncodingError:
        return None


@given(codes(12), st.data())
def test_columns_decode_as_words_do_one_after_the_other(code: list[Instruction], data: st.DataObject) -> None:
    words = encode_code(code)
    found = decode_columns(words)
    assert found is not None
    assert found == _word_by_word(words)
    assert repr(found) == repr(_word_by_word(words))  # no number of numpy's, no bool for an integer
    damaged = [*words]
    for at in data.draw(st.lists(st.integers(0, len(words) - 1), max_size=3)):
        damaged[at] ^= 1 << data.draw(st.integers(0, 31))
    damaged = damaged[: data.draw(st.integers(0, len(words))) or None]
    assert decode_columns(damaged) == _word_by_word(damaged)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_what_decodes_encodes_to_the_same_words(words: list[int]) -> None:
    try:
        instr, length = decode_instruction(words)
    except EncodingError:
        return
    assert encode_instruction(instr) == words[:length]


@given(st.integers(0, 5).flatmap(codes))
def test_code_is_instructions_one_after_another(code: list[Instruction]) -> None:
    words = encode_code(code)
    assert len(words) == sum(map(size_words, code))
    assert decode_code(words) == code


def test_targets_are_word_addresses() -> None:
    code = [Instruction("sync"), Instruction("li", {"rd": Reg(1), "imm": 5}), Instruction("jmp", {"target": 1})]
    words = encode_code(code)
    assert words[-1] == 3
    assert decode_code(words) == code
    with pytest.raises(EncodingError, match="target 4: no instruction starts at this word"):
        decode_code([*words[:-1], 4])
    with pytest.raises(EncodingError, match=r"jmp\.target = 9"):
        encode_code([Instruction("jmp", {"target": 9})])


SRC = Stream(Space.VMEM, 0)
MATMUL = Instruction("mxu.matmul", {"src": SRC, "row_loops": 1, "acc": 0, "accumulate": 0, "part": 0, "integer": 0}, 1)


@pytest.mark.parametrize(
    ("instr", "message"),
    [
        (Instruction("frob"), "frob"),
        (Instruction("li", {"rd": Reg(1)}), "must be (rd, imm)"),
        (Instruction("li", {"rd": Reg(32), "imm": 0}), "register = 32"),
        (Instruction("li", {"rd": Reg(1), "imm": 2**31}), "li.imm = 2147483648"),
        (Instruction("li", {"rd": 1, "imm": 0}), "must be a register"),
        (Instruction("sync", waits=(1, 2, 3, 4, 5)), "at most 4"),
        (Instruction("sync", waits=(255,)), "from 0 to 254"),
        (Instruction("sync", unit=1), "sync.unit = 1"),
        (Instruction("nop", {"queue": "w9"}), "must be one of"),
        (replace(MATMUL, args=MATMUL.args | {"part": 4}), "mxu.matmul.part = 4"),
        (replace(MATMUL, args=MATMUL.args | {"src": replace(SRC, pattern=2**20)}), "pattern = 1048576"),
        (replace(MATMUL, unit=8), "unit = 8"),
    ],
)
def test_what_does_not_fit_is_named(instr: Instruction, message: str) -> None:
    with pytest.raises(EncodingError) as e:
        encode_instruction(instr)
    assert message in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: 1 << 31}, "reserved bits"),
        ({0: 1 << 14}, "length"),
        ({0: 0xEE}, "opcode"),
        ({3: 1 << 31}, "reserved bits"),
        ({5: 1 << 31}, "reserved bits"),
    ],
)
def test_the_decoder_refuses(change: dict[int, int], message: str) -> None:
    words = encode_instruction(MATMUL)
    for at, bits in change.items():
        words[at] |= bits
    with pytest.raises(EncodingError, match=message):
        decode_instruction(words)


def test_truncated_words_are_refused() -> None:
    words = encode_instruction(MATMUL)
    for n in range(len(words)):
        with pytest.raises(EncodingError):
            decode_instruction(words[:n])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([Bits("a", 0, 7, 0), Bits("b", 0, 8, 7)], "overlaps"),
        ([Bits("a", 0, 7, 0), Bits("b", 0, 10, 9)], "gap"),
        ([Bits("a", 0, 32, 0)], "do not fit"),
        ([Bits("a", 0, 7, 0), Bits("b", 2, 7, 0)], "a word has no field"),
    ],
)
def test_layouts_that_overlap_or_leave_gaps_are_refused(parts: list[Bits], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_layout("x", parts, 0)
