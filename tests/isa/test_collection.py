import gc

import pytest

from systolith.isa.collection import collection_paused


def test_collection_is_paused_inside_and_as_before_outside() -> None:
    @collection_paused()
    def inner() -> bool:
        return gc.isenabled()

    assert gc.isenabled()
    with collection_paused():
        assert not gc.isenabled()
        assert not inner()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"), collection_paused():
        raise ValueError("x")
    assert gc.isenabled()


def test_what_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
