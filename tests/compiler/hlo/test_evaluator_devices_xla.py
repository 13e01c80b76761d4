"""Several devices against XLA's CPU backend: collectives, functions of sharded arrays, and the corpus."""

import itertools
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from systolith.compiler.hlo import evaluate_devices, parse_hlo, verify
from tests.compiler.hlo.device_oracle import Array, Program, run_xla_devices
from tests.compiler.hlo.partitioned_cases import partitioned
from tests.compiler.hlo.shard_map_cases import shard_maps
from tests.corpus.load import load

NUMPY = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64,
    "u8": np.uint8, "u32": np.uint32, "pred": np.bool_,
}  # fmt: skip


def values(dtype: str, dims: tuple[int, ...], seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if dtype.startswith(("f", "bf")):
        return (rng.standard_normal(dims) * 100).astype(NUMPY[dtype])
    return rng.integers(0, 2 if dtype == "pred" else 120, dims).astype(NUMPY[dtype])


def program(
    root: str, result: str, replicas: int = 1, partitions: int = 1, x: str = "f32[8,4]", reduction: str = "add"
) -> Program:
    """One instruction on a parameter `x` of every device; `apply` is a reduction."""
    dtype, dims = x.rstrip("]").split("[")
    scalar = f"{dtype}[]"
    text = f"""HloModule m, replica_count={replicas}, num_partitions={partitions}
apply {{
  a = {scalar} parameter(0)
  b = {scalar} parameter(1)
  ROOT c = {scalar} {reduction}(a, b)
}}
ENTRY e {{
  x = {x} parameter(0)
  y = {x} parameter(1)
  ROOT r = {result} {root}
}}
"""
    sizes = tuple(int(n) for n in dims.split(",") if n)
    count = replicas * partitions
    arguments = [[values(dtype, sizes, 2 * n), values(dtype, sizes, 2 * n + 1)] for n in range(count)]
    return Program(text, arguments, replicas, partitions)


# Replicas, partitions and attributes that make groups: each of XLA's modes with groups of its own, and without.
GLOBAL = [
    (4, 1, "replica_groups={}"),
    (4, 1, "replica_groups={{3,1},{0,2}}"),
    (4, 1, "replica_groups=[2,2]<=[2,2]T(1,0)"),
    (2, 2, "replica_groups={{1,0}}"),
    (2, 2, "replica_groups={}, channel_id=1"),
    (2, 2, "replica_groups={{1,0}}, channel_id=1"),
    (2, 4, "replica_groups={{0,5},{1,4},{7,2},{3,6}}, channel_id=1, use_global_device_ids=true"),
    (2, 4, "replica_groups=[4,2]<=[2,4]T(1,0), channel_id=1, use_global_device_ids=true"),
]
BY_PARTITION = [
    (4, 1, "replica_groups={{2,1},{3,0}}"),
    (4, 2, "replica_groups={{3,1},{0,2}}"),
    (2, 4, "replica_groups={{3,1},{0,2}}, channel_id=3"),
]


def size(replicas: int, partitions: int, groups: str) -> int:
    """Devices of a group."""
    if "{{" in groups or "<=" in groups:
        ids = 2
    else:
        ids = replicas
    return ids * (partitions if "channel_id" in groups and "global" not in groups else 1)


def collectives() -> list[Program]:
    found = []
    for r, p, groups in GLOBAL:
        n = size(r, p, groups)
        found += [
            program(f"all-reduce(x), {groups}, to_apply=apply", "f32[8,4]", r, p),
            program(f"all-gather(x), {groups}, dimensions={{1}}", f"f32[8,{4 * n}]", r, p),
            program(f"all-gather(x), {groups}, dimensions={{0}}", f"f32[{8 * n},4]", r, p),
            program(f"reduce-scatter(x), {groups}, dimensions={{0}}, to_apply=apply", f"f32[{8 // n},4]", r, p),
        ]
        if p == 1:  # XLA's partitioner, which runs where there are partitions, takes one operand
            found.append(program(f"all-reduce(x, y), {groups}, to_apply=apply", "(f32[8,4], f32[8,4])", r, p))
            pair = f"(f32[8,{4 * n}], f32[8,{4 * n}])"
            found.append(program(f"all-gather(x, y), {groups}, dimensions={{1}}", pair, r, p))
    for r, p, groups in BY_PARTITION:
        found += [
            program(f"all-to-all(x), {groups}, dimensions={{0}}", "f32[8,4]", r, p),
            program(f"all-to-all(x), {groups}, dimensions={{1}}", "f32[8,4]", r, p),
            program(f"all-to-all(x, y), {groups}", "(f32[8,4], f32[8,4])", r, p),
        ]
    for r, p, channel in ((4, 1, ""), (4, 2, ""), (2, 4, ", channel_id=7")):
        for pairs in ("{{0,1},{1,2},{2,3},{3,0}}", "{{0,3},{1,1}}", "{}"):
            found.append(program(f"collective-permute(x), source_target_pairs={pairs}{channel}", "f32[8,4]", r, p))
    found += [program("tuple(x, x)", "(f32[8,4], f32[8,4])", 2, 1), program("replica-id()", "u32[]", 4, 2)]
    return found


def reductions() -> list[Program]:
    kinds = [(d, op) for d, op in itertools.product(NUMPY, ("add", "multiply", "minimum", "maximum")) if d != "pred"]
    kinds += [("pred", "and"), ("pred", "or")]
    return [
        program("all-reduce(x), replica_groups={{2,0,3,1}}, to_apply=apply", f"{d}[7]", 4, 1, f"{d}[7]", op)
        for d, op in kinds
    ]


PROGRAMS = collectives() + reductions()


@cache
def from_xla() -> list[list[list[Array]] | str]:
    return run_xla_devices(PROGRAMS)


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=lambda n: PROGRAMS[n].text.splitlines()[-2][7:70])
def test_as_xla(number: int) -> None:
    expected = from_xla()[number]
    assert not isinstance(expected, str), expected
    module = parse_hlo(PROGRAMS[number].text)
    verify(module)
    results = evaluate_devices(module, PROGRAMS[number].arguments)
    assert len(results) == len(expected)
    for ours, theirs in zip(results, expected, strict=True):
        assert len(ours.values) == len(theirs)
        for a, b in zip(ours.values, theirs, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shardy", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_shard_map_before_partitioning(shardy: bool) -> None:
    for case in shard_maps(shardy):
        module = parse_hlo(case.text, case.name)
        verify(module)
        for device in evaluate_devices(module, [case.arguments] * 8, partitions=8):
            for ours, theirs in zip(device.values, case.results, strict=True):
                np.testing.assert_array_equal(ours, theirs, case.name)


def test_programs_that_xla_has_partitioned() -> None:
    """Loops, halos, sorts and more, which XLA cuts into collectives and arithmetic on the partition's number."""
    for case in partitioned():
        module = parse_hlo(case.text, case.name)
        verify(module)
        arguments = [list(pieces) for pieces in zip(*case.arguments, strict=True)]
        for number, device in enumerate(evaluate_devices(module, arguments, precision="highest")):
            for ours, theirs in zip(device.values, case.results, strict=True):
                np.testing.assert_allclose(ours, theirs[number], rtol=1e-5, atol=1e-5, err_msg=case.name)


CORPUS = "shardmap_psum_allgather_a2a_ppermute"


def test_corpus_before_partitioning() -> None:
    case = load(CORPUS)
    module = parse_hlo(case.text, CORPUS)
    verify(module)
    for device in evaluate_devices(module, [case.args] * 8, partitions=8):
        for ours, theirs in zip(device.values, case.expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_corpus_after_partitioning() -> None:
    case = load(CORPUS)
    module = parse_hlo(case.optimized_text, CORPUS)
    verify(module)
    results = evaluate_devices(module, [[part] for part in np.split(case.args[0], 8)])
    for number, theirs in enumerate(case.expected):
        pieces = [device.values[number] for device in results]
        whole = pieces[0] if pieces[0].shape == theirs.shape else np.concatenate(pieces)
        np.testing.assert_array_equal(whole, theirs)
