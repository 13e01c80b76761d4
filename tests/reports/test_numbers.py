import pytest
from hypothesis import given
from hypothesis import strategies as st

from systolith.reports.numbers import count, decimal, percent, ratio, si, size
from systolith.reports.svg import shorten, ticks


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (count(1234567), "1,234,567"), (count(None), "–"),
        (percent(0.1234), "12.3 %"), (percent(float("nan")), "–"), (percent(0.5, 0), "50 %"),
        (size(1023), "1,023 B"), (size(1536), "1.50 KiB"), (size(16 * 2**20), "16.0 MiB"), (size(2**60), "1,024 PiB"),
        (si(4.5e11, "B/s"), "450 GB/s"), (si(2.4e-5, "s"), "24.0 µs"), (si(0, "s"), "0 s"), (si(None, "s"), "–"),
        (si(999.9e9, "FLOP/s"), "1.00 TFLOP/s"),
        (ratio(3, 2), "1.50x"), (ratio(1, 0), "–"), (ratio(None, 1), "–"), (ratio(1000, 1), "1,000x"),
        (decimal(0.01234), "0.0123"), (decimal(1234.5), "1,234"),
        (shorten("abcdefghij", 5), "ab…ij"), (shorten("abc", 5), "abc"),
    ],
)  # fmt: skip
def test_as_people_read_it(shown: str, expected: str) -> None:
    assert shown == expected


@given(st.floats(1e-3, 1e12))
def test_ticks_are_even_and_within(limit: float) -> None:
    found = ticks(limit)
    assert found[0] == 0
    assert found[-1] <= limit * (1 + 1e-6)
    assert 3 <= len(found) <= 8
