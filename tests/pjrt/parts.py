"""Scripts of this folder in one process, one after another; prints of each whether it ended well."""

from __future__ import annotations

import traceback

from systolith.pjrt.plugin import initialize
from tests.pjrt import behaviour, callbacks, programs


def ran_programs() -> None:
    assert not programs.main("fast")


def main() -> None:
    initialize()
    for part in (behaviour.main, callbacks.main, ran_programs):  # the first one on devices with nothing in their memory
        try:
            part()
            print(f"{part.__module__} {part.__name__} ended well")
        except Exception:
            traceback.print_exc()


if __name__ == "__main__":
    main()
