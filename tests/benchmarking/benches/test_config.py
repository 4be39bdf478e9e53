"""Configs of user-written benchmarks, and variants of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import benchmarking
from benchmarking import BenchmarkConfig, create_config_variants
from benchmarking.core.errors import UsageError
from benchmarking.core.records import Point


def test_variants_are_all_combinations_with_the_last_field_fastest():
    base = BenchmarkConfig(name="b", sequence_length=8)
    variants = create_config_variants(base, {"variant": ["x", "y"], "batch_size": [1, 4]})
    assert [(v.variant, v.batch_size) for v in variants] == [("x", 1), ("x", 4), ("y", 1), ("y", 4)]
    assert {v.sequence_length for v in variants} == {8}


def test_without_values_there_is_only_the_base():
    base = BenchmarkConfig(name="b")
    assert create_config_variants(base, {}) == (base,)


def test_an_unknown_field_is_an_error_with_similar_names():
    with pytest.raises(UsageError, match="unknown field of BenchmarkConfig 'batchsize': did you mean batch_size"):
        create_config_variants(BenchmarkConfig(name="b"), {"batchsize": [1]})


@pytest.mark.parametrize("values", ["12", 3, [], {"a": 1}])
def test_values_other_than_lists_are_errors(values):
    with pytest.raises(UsageError, match="variant takes a list of values"):
        create_config_variants(BenchmarkConfig(name="b"), {"variant": values})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", " "),
        ("batch_size", 0),
        ("batch_size", None),
        ("batch_size", True),
        ("batch_size", 2**31),
        ("sequence_length", 1.5),
        ("new_tokens", -1),
        ("iterations", 0),
        ("warmup_iterations", -1),
        ("precision", "fp8"),
        ("options", {"a": [1]}),
        ("options", 3),
        ("axes", {"image_size": "224"}),
        ("axes", {"is_large": True}),
        ("tags", {1: "x"}),
    ],
)
def test_an_invalid_value_is_an_error(field, value):
    with pytest.raises(UsageError):
        BenchmarkConfig(**{"name": "b", field: value})


def test_invalid_variants_are_errors_as_in_a_config():
    with pytest.raises(UsageError, match="batch_size of b takes a whole number from 1: got 0"):
        create_config_variants(BenchmarkConfig(name="b"), {"batch_size": [1, 0]})


def test_a_field_that_is_given_under_two_names_is_an_error():
    with pytest.raises(UsageError, match="torch_dtype is an alias of precision: give only one"):
        BenchmarkConfig(name="b", torch_dtype="float32", precision="float32")
    with pytest.raises(UsageError, match="torch_dtype is an alias of precision: give only one"):
        create_config_variants(BenchmarkConfig(name="b"), {"precision": ["float32"], "torch_dtype": ["bfloat16"]})


def test_the_point_of_a_config_has_its_grid_fields_and_axes():
    config = BenchmarkConfig(name="b", batch_size=2, new_tokens=3, axes={"image_size": 32}, options={"x": 1})
    assert config.point == Point(batch_size=2, new_tokens=3, axes={"image_size": 32})


def test_the_public_names_are_loaded_on_demand_and_without_torch():
    code = (
        "import sys, benchmarking; before = set(sys.modules); benchmarking.ModelBenchmark;"
        "print('benchmarking.benches' in before, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False"]
    assert {"ModelBenchmark", "BenchmarkConfig", "create_config_variants"} <= set(benchmarking.__all__)
