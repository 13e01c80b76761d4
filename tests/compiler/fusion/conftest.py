"""Fixtures of several files."""

from __future__ import annotations

from math import inf

import pytest

from systolith.compiler.groups import product_results


@pytest.fixture
def products_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups join those of products wherever that can be."""
    monkeypatch.setattr(product_results, "ALIKE", -inf)
