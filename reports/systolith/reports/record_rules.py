"""What JSON must hold in a record, as pydantic checks it, by the names that `record_model.Rule` has."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AllowInfNan, Field, StrictBool, StrictFloat, StrictInt

from systolith.isa.printable import printable
from systolith.reports.record_version import MOST

_Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Label = Annotated[str, Field(strict=True), AfterValidator(printable)]
_Infinite = Annotated[Literal["Infinity", "-Infinity", "NaN"], AfterValidator(float)]

RULES: dict[str, Any] = {
    "count": Annotated[StrictInt, Field(ge=0, le=MOST)],
    "amount": Annotated[_Finite, Field(ge=0.0, le=MOST)],
    "energies": Annotated[StrictInt, Field(ge=0)],
    "flag": StrictBool,
    "label": _Label,
    # A result may be infinitely wrong: in JSON a string.
    "error": Annotated[StrictFloat, AllowInfNan(True)] | _Infinite,
    "value": Annotated[StrictInt, Field(ge=-MOST, le=MOST)] | _Finite | StrictBool | _Label,
}
