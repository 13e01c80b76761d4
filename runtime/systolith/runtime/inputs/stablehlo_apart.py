"""Bytecode of MLIR, converted in a process of its own: its reader crashes on some that are damaged.

`python -m systolith.runtime.inputs.stablehlo_apart NAME` reads bytecode from standard input and writes a serialized
HloModuleProto, or ends with status 2 and a line on standard error.
"""

from __future__ import annotations

import subprocess
import sys

from systolith.runtime.inputs.stablehlo import StableHloError, proto_of_mlir

_MODULE = "systolith.runtime.inputs.stablehlo_apart"
_REFUSED = 2


def converted_apart(code: bytes, name: str) -> bytes:
    """As `proto_of_mlir`.

    Raises:
        StableHloError: as that; or the reader has crashed.
    """
    done = subprocess.run([sys.executable, "-m", _MODULE, name], input=code, capture_output=True, check=False)
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.decode(errors="replace").splitlines()
    if done.returncode == _REFUSED and lines:
        raise StableHloError(lines[-1])
    raise StableHloError(f"{name}: damaged: MLIR's reader ended with status {done.returncode} on it")


def main() -> int:
    """Convert standard input."""
    try:
        proto = proto_of_mlir(sys.stdin.buffer.read(), sys.argv[1])
    except StableHloError as error:
        print(error, file=sys.stderr)
        return _REFUSED
    sys.stdout.buffer.write(proto)
    return 0


if __name__ == "__main__":
    sys.exit(main())
