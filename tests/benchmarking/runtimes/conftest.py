"""Sessions of the eager runtime on the CPU, without a supervisor around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarking.records import Cell, Device

CPU = Device(type="cpu", selector="cpu", found=True, name="Test CPU", precisions=("float32", "bfloat16", "float16"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test sees the user's cache or asks the real hub."""
    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf_home")))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def stages() -> list[str]:
    """The stages of the loads so far, in order."""
    return []


@pytest.fixture
def open_eager(stages: list[str]) -> Iterator[Callable[..., Any]]:
    """A function that opens a session for a model by name; every session is closed at the end."""
    from benchmarking.runtimes.eager import PLUGIN
    from benchmarking.workloads._resolve import resolve

    sessions = []

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        stages.append(name)
        yield

    def make(
        model_id: str,
        *,
        task: str | None = None,
        torch_name: str | None = "cpu",
        precision: Any = "float32",
        num_threads: int | None = None,
        weights: Any = "auto",
        **options: Any,
    ) -> Any:
        workload = resolve(model_id, task=task, weights=weights)
        cell = Cell(
            workload=workload,
            device=CPU,
            requested_device="cpu",
            runtime="eager",
            runtime_mode=PLUGIN.mode(CPU, workload, options),
            precision=precision,
            num_threads=num_threads,
        )
        sessions.append(PLUGIN.open(cell, SimpleNamespace(torch_name=torch_name), stage, ()))  # type: ignore[arg-type]
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()
