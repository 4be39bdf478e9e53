"""Folders of compiled code: cold means emptied, warm means what an earlier launch left."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core.records import Cell, Device, Point
from benchmarking.runtimes.support.torch.compiling import CompileCache, cache_key
from benchmarking.workloads.support.resolve import resolve

POINT = Point(batch_size=1, sequence_length=16)
CPU = Device(type="cpu", selector="cpu", found=True, name="Test CPU")


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cell:
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("BENCHHOUSE_LAUNCH", raising=False)
    mode = {"attention": "sdpa", "compile_mode": "default", "dynamic": "auto"}
    workload = resolve("tiny-bert")
    return Cell(workload=workload, device=CPU, requested_device="cpu", runtime="compiled", runtime_mode=mode)


@pytest.fixture
def at_launch(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that opens the folder in a launch, lets something be compiled into it, and keeps it."""

    def compile_at(number, write=None, keep=True):
        monkeypatch.setenv("BENCHHOUSE_LAUNCH", str(number))
        with ExitStack() as cleanup:
            cache = CompileCache.open(cell, POINT, cleanup)
            folder = cache.store.folder(cache.key) / "inductor"
            found = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
            assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder)
            if write is not None:
                folder.mkdir(exist_ok=True)
                (folder / write).write_text("code")
            if keep:
                cache.keep(graphs=1, compile_s=2.5 + number)
        return cache.state, found

    return compile_at


def test_the_first_launch_starts_without_compiled_code_and_later_ones_reuse_it(at_launch):
    assert at_launch(0, write="one") == ("cold", [])
    assert at_launch(1, write="two") == ("warm", ["one"])
    assert at_launch(2) == ("warm", ["one", "two"])
    assert at_launch(0) == ("cold", [])


def test_unsaved_compile_cache_is_not_warm(at_launch):
    assert at_launch(0, write="half", keep=False) == ("cold", [])
    assert at_launch(1) == ("cold", [])


def test_a_kept_folder_is_a_build_with_its_size(at_launch, cell):
    at_launch(0, write="one")
    at_launch(1)  # a warm one compiles less, and leaves the record alone
    found = BuildStore().find(cache_key(cell, POINT))
    assert (found.kind, found.size_bytes, found.build_s, found.facts) == ("inductor", 4, 2.5, {"graphs": 1})
    assert found.parts["point"] == "b1 s16"


@pytest.mark.parametrize("before", [None, "/somewhere"])
def test_users_cache_folder_is_restored(at_launch, monkeypatch, before):
    if before is None:
        monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    else:
        monkeypatch.setenv("TRITON_CACHE_DIR", before)
    at_launch(0)
    assert os.environ.get("TRITON_CACHE_DIR") == before


def test_each_launch_has_a_reason_for_the_reading_it_lacks(at_launch, cell):
    for number, reasons in (
        (0, {"compile_warm_s": "not_run: needs a second launch"}),
        (1, {"compile_cold_s": "not_run: an earlier launch left its compiled code"}),
    ):
        at_launch(number)
        with ExitStack() as cleanup:
            assert CompileCache.open(cell, POINT, cleanup).missing_times() == reasons


def test_everything_that_changes_the_code_has_its_own_folder(cell):
    same, digest = cache_key(cell, POINT).digest, lambda **changed: cache_key(replace(cell, **changed), POINT).digest
    others = {
        cache_key(cell, replace(POINT, batch_size=2)).digest,
        digest(precision="bfloat16"),
        digest(num_threads=3),
        digest(runtime_mode={**cell.runtime_mode, "dynamic": "true"}),
        digest(device=replace(CPU, selector="cuda:0")),
        digest(workload=resolve("tiny-gpt2")),
    }
    assert len(others | {same}) == 7
