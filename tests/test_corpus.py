"""The corpus itself: its files are complete, and its arrays are those that the modules ask for."""

import re
from collections.abc import Callable

import pytest

from tests.corpus.inputs import CASES, Array
from tests.corpus.load import HERE, INDEX, Case, names

# As stored: bf16 is its bits.
STORED = {
    "f32": "float32",
    "bf16": "uint16",
    "f16": "float16",
    "c64": "complex64",
    "s8": "int8",
    "s32": "int32",
    "u8": "uint8",
    "u32": "uint32",
    "pred": "bool",
}

STORED_NAMES = [name for name, entry in INDEX.items() if entry["expected"] == "stored"]


def shapes(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """The array types in a piece of HLO text, as (numpy dtype, shape)."""
    found = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", text)
    return [(STORED[kind], tuple(map(int, dims.split(","))) if dims else ()) for kind, dims in found]


def described(arrays: list[Array]) -> list[tuple[str, tuple[int, ...]]]:
    return [(str(array.dtype), array.shape) for array in arrays]


@pytest.mark.parametrize("name", STORED_NAMES)
def test_arrays_have_the_types_in_the_module_s_header(name: str, corpus: Callable[[str], Case]) -> None:
    case = corpus(name)
    header = case.text.splitlines()[0]
    layout = re.search(r"entry_computation_layout=\{(.*)\}", header)
    assert layout is not None
    arguments, results = layout[1].split("->")
    assert described(case.args) == shapes(arguments)
    assert described(case.expected) == shapes(results)


def test_every_file_belongs_to_a_module_in_the_index() -> None:
    assert {path.name.split(".")[0] for path in HERE.glob("*.hlo")} == set(INDEX)
    assert {path.name.split(".")[0] for path in HERE.glob("*.npz")} == set(STORED_NAMES)


def test_generated_arguments_are_not_stored_too() -> None:
    assert {name for name, entry in INDEX.items() if entry["arguments"] == "generated"} == set(CASES)
    assert not [name for name in CASES if (HERE / f"{name}.in.npz").exists()]


def test_groups_cover_the_corpus() -> None:
    assert sorted(names("path") + names("later")) == sorted(names())


def test_unknown_name_lists_the_known_ones(corpus: Callable[[str], Case]) -> None:
    with pytest.raises(KeyError, match=r"no module resnet51.*mlp_infer"):
        corpus("resnet51")
