"""Settings of the plugin, from options and the environment."""

from __future__ import annotations

import pytest

from systolith.isa.errors import SystolithError
from systolith.pjrt.settings import Settings


def test_a_variant_of_a_chip() -> None:
    settings = Settings.read({"chip": "tiny", "set": "vmem.bytes=64KiB hbm.gbps=3.2"}, {})
    assert (settings.chip.vmem.bytes, settings.chip.hbm.p) == (65536, 32)
    settings = Settings.read({}, {"SYSTOLITH_SET": "vmem.bytes=8MiB"})
    assert settings.chip.name == "tpu_v3 vmem.bytes=8MiB"
    assert Settings.read({}, {}).chip.name == "tpu_v3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vmem.bytes", "SYSTOLITH_SET: 'vmem.bytes': must be FIELD=VALUE, such as vmem.bytes=8MiB"),
        ("vmem.bits=3", "SYSTOLITH_SET: chip tpu_v3: vmem.bits = '3': unknown field; did you mean vmem.bytes?"),
    ],
)
def test_a_wrong_change_is_refused_by_its_name(text: str, message: str) -> None:
    with pytest.raises(SystolithError) as error:
        Settings.read({}, {"SYSTOLITH_SET": text})
    assert str(error.value) == message
