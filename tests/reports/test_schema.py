"""The JSON schema of a record: every key that is written is described, and every record in the tests keeps to it."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter

from systolith.reports.record_model import Model
from systolith.reports.record_version import VERSION
from systolith.reports.run_data import RunData, RunDataError, from_json, json_schema, of_record
from systolith.runtime.cli import cli
from systolith.runtime.jobs.job import Request, run
from tests.corpus.load import load
from tests.reports.fabricate import fabricate
from tests.reports.records import require_schema


def parts(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {**schema["$defs"], "RunData": schema}


def test_the_command_prints_the_schema() -> None:
    result = CliRunner().invoke(cli, ["schema"], standalone_mode=False)
    printed = json.loads(result.stdout)
    assert printed == json_schema()
    assert printed["title"] == f"systolith record, version {VERSION}"
    assert printed["properties"]["schema_version"]["const"] == 1


def test_every_object_and_key_is_described() -> None:
    plain = {"Memory": {"instructions"}}
    for name, part in parts(json_schema()).items():
        assert len(part["description"]) > 5, name
        for key, value in part["properties"].items():
            assert value.get("description") or key in plain.get(name, ()), f"{name}.{key}"


def test_every_model_is_in_the_schema() -> None:
    def all_of(model: type[Model]) -> set[str]:
        return {model.__name__}.union(*(all_of(m) for m in model.__subclasses__()))

    assert set(parts(json_schema())) == all_of(Model) - {"Model"}


def test_a_record_has_no_key_that_the_schema_does_not() -> None:
    case = load("mlp_infer")
    outcome = run(Request(case.path, "small", args=case.args_path, check=True, expect=case.expected_path))
    require_schema(outcome.record())
    assert of_record(outcome.record()) == from_json(outcome.record())
    raw = fabricate()
    raw["groups"][0]["speed"] = 1
    with pytest.raises(AssertionError, match=r"groups\.0\.speed"):
        require_schema(raw)


def test_another_version_is_refused() -> None:
    assert from_json(fabricate()).schema_version == 1  # records from before versions
    with pytest.raises(RunDataError, match=r"run\.json: schema_version = 2: this systolith reads version 1 only"):
        from_json(fabricate() | {"schema_version": 2}, "run.json")


def test_the_schema_accepts_what_the_model_writes() -> None:
    """The other way round: what the model prints of itself, it reads again as the same."""
    data = from_json(fabricate())
    reader = TypeAdapter(RunData)
    assert reader.validate_json(reader.dump_json(data)) == data


def test_a_record_of_this_process_reads_as_one_that_is_checked() -> None:
    raw = fabricate() | {"program": "a\x1b[2Jb", "max_abs_error": float("inf"), "energy": None, "unknown": 1}
    raw["groups"][0]["busy"] = {"s\x07": 1}
    assert of_record(raw) == from_json(raw)
    assert "\x1b" not in of_record(raw).program
