"""Places of a module's instructions in the user's Python, so that errors name them."""

from __future__ import annotations

from typing import Any

from systolith.compiler.hlo.errors import Line, SourceMap
from systolith.compiler.hlo.ir import Computation, Module


def mark(module: Module, proto: Any) -> None:
    """Give instructions the line of Python that made them; one without takes that of the call around it.

    Args:
        module: as read from `proto`.
        proto: an HloModuleProto.
    """
    frames = _Frames(proto.stack_frame_index)
    pending: list[tuple[Computation, Line | None]] = [(module.entry, None)]
    seen: set[Computation] = set()
    while pending:
        computation, around = pending.pop()
        if computation in seen:
            continue
        seen.add(computation)
        for instruction in computation.instructions:
            line = frames.line(instruction.metadata.get("stack_frame_id", 0)) or around
            if line is not None:
                instruction.line = line
            pending += [(called, line) for called in instruction.called]


class _Frames:
    """Lines by numbers of stack frames, from 1."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._maps: dict[int, SourceMap] = {}

    def line(self, frame: object) -> Line | None:
        frames, locations = self._index.stack_frames, self._index.file_locations
        if not isinstance(frame, int) or not 0 < frame <= len(frames):
            return None
        location = frames[frame - 1].file_location_id
        if not 0 < location <= len(locations):
            return None
        row = locations[location - 1]
        return self._line(row.file_name_id, row.line)

    def _line(self, file: int, number: int) -> Line | None:
        if not 0 < file <= len(self._index.file_names):
            return None
        line = Line(number)
        line.map = self._maps.setdefault(file, SourceMap("", self._index.file_names[file - 1]))
        return line
