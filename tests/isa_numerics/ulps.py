"""Errors of f32 in units of the last place."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def ulps(got: Array, exact: Array) -> Array:
    """|got - exact| in units of f32's last place at `exact`; 0 where both are the same infinity or NaN."""
    unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-126))) - 23)
    error = np.abs(got.astype(np.float64) - exact) / unit
    same = (got == exact) | (np.isnan(got) & np.isnan(exact))
    overflow = np.isinf(got) & (np.abs(exact) >= 2.0**128 - 2.0**103) & (np.sign(got) == np.sign(exact))
    return np.where(same | overflow, 0, np.where(np.isnan(error), np.inf, error))
