"""XLA's own rules through jaxlib: its text parser infers a shape that the text leaves out, its compiler verifies.

XLA ends the process on some bad input, so it runs in one of its own, which is started again when it has ended.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

SERVER = """
import importlib, json, sys

hlo = importlib.import_module("jaxlib._hlo")


def accept(text):
    return hlo.hlo_module_from_text(text).to_string(hlo.HloPrintOptions())


def compile_(text):
    computation = hlo.XlaComputation(hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    jaxlib, client = importlib.import_module("jaxlib._jax"), importlib.import_module("jaxlib.xla_client")
    device = importlib.import_module("jax").devices("cpu")[0]
    mlir = jaxlib.mlir.xla_computation_to_mlir_module(computation)
    device.client.compile_and_load(mlir, jaxlib.DeviceList((device,)), client.CompileOptions())
    return text


for line in sys.stdin:
    text, compiled = json.loads(line)
    try:
        answer = {"text": (compile_ if compiled else accept)(text)}
    except Exception as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
"""


@dataclass(frozen=True)
class Answer:
    """XLA's answer to a text.

    Attributes:
        text: the module; None if XLA refuses it.
        error: why it refuses; None also where the process has ended.
    """

    text: str | None = None
    error: str | None = None

    @property
    def ended(self) -> bool:
        return self.text is None and self.error is None


class _Server:
    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def running(self) -> subprocess.Popen[str]:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self.process

    def ask(self, text: str, compiled: bool) -> Answer:
        process = self.running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([text, compiled]) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            process.wait()
            return Answer()
        found: dict[str, Any] = json.loads(line)
        return Answer(found.get("text"), found.get("error"))

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()


_SERVER = _Server()
atexit.register(_SERVER.stop)


def parse_with_xla(text: str) -> Answer:
    """The module as XLA's parser reads and prints it."""
    return _SERVER.ask(text, compiled=False)


def compile_with_xla(text: str) -> Answer:
    """Whether XLA's CPU backend compiles a module."""
    return _SERVER.ask(text, compiled=True)
