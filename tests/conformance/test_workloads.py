"""One suite for all families, which includes new files in benchmarking/workloads automatically."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarking.core import plugins
from benchmarking.core.plugins import family_names
from benchmarking.core.records import Cell, Device, Point
from benchmarking.workloads.support import families
from benchmarking.workloads.support.families import family_of
from benchmarking.workloads.support.resolve import resolve

PACKAGE = "benchmarking.workloads"
ORDER = (
    *("encoder-only", "decoder-only", "encoder-decoder", "vision", "vision-text", "speech", "multimodal", "diffusion"),
    *("mixture-of-experts", "state-space", "rag"),
)
"""Of the families that have a rank; others follow by name."""
NAMES = plugins.names(PACKAGE)
CPU = Device(type="cpu", selector="cpu", found=True, precisions=("float32",))


@pytest.fixture(params=NAMES)
def plugin(request: pytest.FixtureRequest) -> Any:
    return plugins.load(PACKAGE, request.param)


@pytest.fixture
def tiny(plugin: Any) -> Any:
    """The workload of the family's tiny model; of several, the first by name."""
    entries = [e for e in families.catalog_entries() if not e.hub and family_of(e.config, e.name) is plugin]
    assert entries, f"family {plugin.name} needs a tiny model in the catalog"
    entries.sort(key=lambda entry: entry.name)
    return resolve(entries[0].name)


def points(plugin: Any, workload: Any) -> Iterator[Point]:
    """The smallest values of the workload's axes, sequences cut to 8 and new tokens to 3, at two batch sizes."""
    small = {"sequence_length": 8, "new_tokens": 3, "steps": 2}
    values = {name: small.get(name, min(values)) for name, values in plugin.axes(workload).items()}
    own = {name: values.pop(name) for name in ("sequence_length", "new_tokens") if name in values}
    for batch_size in (1, 2):
        yield Point(batch_size=batch_size, **own, axes=values)


def open_session(workload: Any, options: dict[str, Any] | None = None) -> Any:
    from contextlib import nullcontext

    from benchmarking.runtimes.eager import PLUGIN

    cell = Cell(
        workload=workload,
        device=CPU,
        requested_device="cpu",
        runtime="eager",
        runtime_mode=PLUGIN.mode(CPU, workload, options or {}),
    )
    return PLUGIN.open(cell, SimpleNamespace(torch_name="cpu"), lambda name: nullcontext(), ())  # type: ignore[arg-type]


def test_file_and_family_have_the_same_name(plugin: Any) -> None:
    assert plugin.name in {name.replace("_", "-") for name in NAMES}
    assert type(plugin).__module__ == f"{PACKAGE}.{plugin.name.replace('-', '_')}"


def test_families_are_in_the_order_of_tables_and_charts() -> None:
    assert tuple(name for name in family_names() if name in ORDER) == ORDER
    assert len(family_names()) == len(NAMES)


def test_generative_tasks_are_tasks_and_have_new_tokens_and_caches(plugin: Any, tiny: Any) -> None:
    assert plugin.tasks
    assert set(plugin.tasks) >= plugin.generative_tasks
    for task in plugin.tasks_of(tiny.config):
        workload = resolve(tiny.model_id, task=task)
        assert ("new_tokens" in plugin.axes(workload)) == (task in plugin.generative_tasks)
    assert plugin.caches or not plugin.generative_tasks


def test_points_with_missing_or_foreign_axes_are_errors(plugin: Any, tiny: Any) -> None:
    point = next(points(plugin, tiny))
    foreign = dataclasses.replace(point, axes={**point.axes, "storeys": 3})
    assert "storeys" in plugin.check(tiny, foreign)
    for name in point.axes:
        fewer = {axis: value for axis, value in point.axes.items() if axis != name}
        assert plugin.check(tiny, dataclasses.replace(point, axes=fewer)) is not None
    for name in ("sequence_length", "new_tokens"):
        if getattr(point, name) is not None:
            assert plugin.check(tiny, dataclasses.replace(point, **{name: None})) is not None


def test_model_types_belong_to_one_family_and_are_known_to_a_library(plugin: Any) -> None:
    import diffusers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    unknown = {name for name in plugin.model_types if name not in CONFIG_MAPPING}
    assert {name for name in unknown if not hasattr(diffusers, name)} == set()
    for other in (plugins.load(PACKAGE, name) for name in NAMES):
        assert other is plugin or plugin.model_types.isdisjoint(other.model_types)
        assert plugin.model_types.isdisjoint(other.unsupported_model_types)


def test_tiny_models_have_the_family_and_its_default_task(plugin: Any, tiny: Any) -> None:
    assert (tiny.family, tiny.task) == (plugin.name, plugin.tasks[0])


def test_inputs_are_seeded_and_match_the_point(plugin: Any, tiny: Any) -> None:
    for point in points(plugin, tiny):
        assert plugin.check(tiny, point) is None
        first, again, other = (plugin.inputs(tiny, point, seed) for seed in (1, 1, 2))
        assert first
        for name, array in first.items():
            assert array.shape[0] == point.batch_size
            np.testing.assert_array_equal(array, again[name])
        assert any((first[name] != other[name]).any() for name in first)


def test_meta_device_models_match_the_parameter_count_of_the_catalog(plugin: Any, tiny: Any) -> None:
    import torch

    with torch.device("meta"):
        model = plugin.build(tiny, dtype=torch.float32)
    assert type(model) is plugin.model_class(tiny)
    assert sum(parameter.numel() for parameter in model.parameters()) == tiny.parameter_count


def test_every_task_runs_with_finite_outputs(plugin: Any, tiny: Any) -> None:
    for task in plugin.tasks_of(tiny.config):
        workload = resolve(tiny.model_id, task=task)
        session = open_session(workload)
        for point in points(plugin, workload):
            operation, marks = session.operation(point), []
            operation.reset()
            output = operation.run(marks.append)
            assert operation.problem(output) is None
            assert operation.items_per_call == point.batch_size
            assert operation.new_tokens == point.new_tokens
            assert marks.count("token") == (point.new_tokens or 0)
            assert all(np.isfinite(array).all() for array in operation.arrays(output).values())
        session.close()


def test_same_seed_gives_the_same_output(plugin: Any, tiny: Any) -> None:
    point = next(points(plugin, tiny))
    arrays = []
    for _ in range(2):
        session = open_session(tiny)
        operation = session.operation(point)
        arrays.append(operation.arrays(operation.run(lambda event: None)))
        session.close()
    assert arrays[0].keys() == arrays[1].keys()
    for name in arrays[0]:
        np.testing.assert_allclose(arrays[0][name], arrays[1][name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_importing_a_family_imports_nothing_heavy(name: str) -> None:
    code = (
        f"import sys, {PACKAGE}.{name}; "
        "heavy = {'torch', 'transformers', 'numpy', 'safetensors'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
