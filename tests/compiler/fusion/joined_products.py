"""What is asked of products whose groups others have joined."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from systolith.compiler.driver import Compiled
from systolith.compiler.hlo.ir import Module
from systolith.compiler.ops.expression_builder import group_roots
from systolith.compiler.ops.group import Group
from tests.runtime.command import systolith


def joins(made: Compiled) -> bool:
    """Whether a group has joined a product's."""
    return any(d.kind == "outputs" and "cycles saved" in d.numbers for d in made.explain)


def groups(module: Module) -> list[tuple[str, int]]:
    """Kind and number of results of each group of the entry."""
    return [(i.kind, len(group_roots(i.body))) for i in module.entry.instructions if isinstance(i, Group)]


def check_command(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    """The one group of a module is checked against the evaluator, reported, predicted and explained."""
    ran = systolith(capsys, "run", path, "--chip", "tiny", "--random", 0, "--check", "--hostile", "--json")
    assert ran.code == 0, ran.err
    (row,) = (g for g in json.loads(ran.out)["groups"] if g["name"])
    assert row["cycles"] > 0
    explained = json.loads(systolith(capsys, "explain", path, "--chip", "tiny", "--json").out)
    (about,) = (g for g in explained["groups"] if g["name"] == row["name"])
    assert about["predicted"] > 0
    assert any("in one pass" in d["chosen"] and d["numbers"].get("cycles saved") for d in about["decisions"])
