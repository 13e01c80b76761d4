"""Places of a module's instructions in the user's Python, so that errors name them."""

from __future__ import annotations

from systolith.compiler.hlo.errors import Line, SourceMap
from systolith.compiler.hlo.ir import Computation, Module
from systolith.compiler.hlo.text.stack_frames import source_lines


def mark(module: Module) -> None:
    """Give instructions the line of Python that their metadata names; one without takes that of the call around it.

    It is their line where the module was no text, else it stands beside that in the text.
    """
    frames = source_lines(module.preamble)
    maps: dict[str, SourceMap] = {}
    pending: list[tuple[Computation, str]] = [(module.entry, "")]
    seen: set[Computation] = set()
    while pending:
        computation, around = pending.pop()
        if computation in seen:
            continue
        seen.add(computation)
        for instruction in computation.instructions:
            place = _place(instruction.attributes.get("metadata"), frames) or around
            if isinstance(instruction.line, Line):
                instruction.line.made_by = place
            elif place:
                instruction.line = _line(place, maps)
            pending += [(called, place) for called in instruction.called]


def _place(metadata: object, frames: dict[int, str]) -> str:
    """`file:line`, empty if none is known."""
    if not isinstance(metadata, dict):
        return ""
    if "source_file" in metadata:
        return f"{metadata['source_file']}:{metadata.get('source_line', 0)}"
    frame = metadata.get("stack_frame_id", 0)
    return frames.get(frame, "") if isinstance(frame, int) else ""


def _line(place: str, maps: dict[str, SourceMap]) -> Line:
    file, _, number = place.rpartition(":")
    line = Line(number)
    line.map = maps.setdefault(file, SourceMap("", file))
    return line
