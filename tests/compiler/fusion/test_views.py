"""Views against the reference evaluator: the bytes that a chain of views addresses are the chain's value."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from systolith.compiler.hlo.text.parser import parse_hlo
from systolith.compiler.hlo.values.evaluator import evaluate
from systolith.compiler.tile.arrays import dense
from systolith.compiler.tile.ir import Array, Buf
from systolith.compiler.tile.views import as_view, is_view_chain, recast, untransposed
from systolith.isa.dtypes import F32
from systolith.isa.instruction import Space
from tests.compiler.vpu.machine import Machine
from tests.compiler.vpu.movement import Chain, chains, show


def whole(dims: tuple[int, ...]) -> Array:
    return Array(Buf("x", Space.VMEM, 4 * int(np.prod(dims))), F32, dims, dense(dims, 4), (0,) * len(dims))


@given(chains(moves=("transpose", "slice", "reverse", "reshape")))
def test_chain(chain: Chain) -> None:
    lines = "\n".join(chain.lines)
    text = (
        f"HloModule m\nENTRY e {{\n x = f32[{show(chain.first)}] parameter(0)\n{lines}\n"
        f" ROOT r = f32[{show(chain.last)}] copy({chain.result})\n}}\n"
    )
    module = parse_hlo(text)
    end = module.entry.result.operands[0]
    array = whole(chain.first)
    found = as_view(array, end)
    assert (found is not None) == is_view_chain(end)
    if found is None:
        return
    machine = Machine()
    x = np.arange(np.prod(chain.first), dtype=np.float32).reshape(chain.first)
    machine.write(array, x)
    np.testing.assert_array_equal(machine.read(found), evaluate(module, x)[0])


def test_reshape_of_a_transpose_is_no_view() -> None:
    text = (
        "HloModule m\nENTRY e {\n x = f32[2,3] parameter(0)\n t = f32[3,2] transpose(x), dimensions={1,0}\n"
        " ROOT r = f32[6] reshape(t)\n}\n"
    )
    root = parse_hlo(text).entry.result
    assert as_view(whole((2, 3)), root) is None
    assert not is_view_chain(root)


def test_recast_and_untransposed() -> None:
    array = whole((2, 3, 4))
    assert recast(array, (6, 4)).strides == (16, 4)
    text = (
        "HloModule m\nENTRY e {\n x = f32[4,2,3] parameter(0)\n n = f32[4,2,3] negate(x)\n"
        " ROOT r = f32[2,3,4] transpose(n), dimensions={1,2,0}\n}\n"
    )
    module = parse_hlo(text)
    (root,), (view,) = untransposed([module.entry.result], [array])
    assert (root.name, view.dims, view.strides) == ("n", (4, 2, 3), (4, 48, 16))
