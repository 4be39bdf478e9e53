"""A folder as a user of some weeks has it: a warehouse with histories, a run file, and a copy of `examples/`."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarking.core.records import Run, to_json
from db.warehouse import Warehouse
from tests.helpers.paths import ROOT
from tests.helpers.records import RunMaker
from tests.helpers.served_commands import commands_in

DAYS = 14
CHANGED_ON = 8
"""Day on which gpt2 became 30 % slower."""


def history(make_run: RunMaker) -> Iterator[Run]:
    """Two weeks of two models, a run of each a day and commit, with a scatter of 1 % by turns."""
    for day in range(1, DAYS + 1):
        scatter = math.exp(0.01 * (-1) ** day)
        for model_id, family, slowdown in (
            ("bert-base-uncased", "encoder-only", scatter),
            ("gpt2", "decoder-only", scatter * (1.3 if day >= CHANGED_ON else 1.0)),
        ):
            run = make_run(
                model_id=model_id, family=family, slowdown=slowdown, started_at=f"2026-03-{day:02}T12:00:00Z",
                launches=3, iterations=3, sequence_lengths=(128,),
            )  # fmt: skip
            made = replace(
                run.provenance, git_commit=f"{day:07x}" + "0" * 33, git_commit_time=f"2026-03-{day:02}T10:00:00Z"
            )
            yield replace(run, provenance=made)


def others(make_run: RunMaker) -> Iterator[Run]:
    """Other runtimes and devices, a run with a doubt and a failed point, and two builds under tags."""
    yield make_run(runtime="onnxruntime", slowdown=0.6, sequence_lengths=(128,))
    yield make_run(runtime="openvino", slowdown=0.7, sequence_lengths=(128,))
    yield make_run(device="cuda", slowdown=0.1, sequence_lengths=(128,), with_doubtful=True, with_failed=True)
    yield make_run(model_id="google/vit-base-patch16-224", family="vision")
    for build, slowdown in (("old", 1.0), ("new", 0.8)):
        run = make_run(model_id="roberta-base", slowdown=slowdown, sequence_lengths=(128,))
        yield replace(run, provenance=replace(run.provenance, tags={"build": build}))


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory, make_run: RunMaker) -> Path:
    """The folder, made once; `judged_run` in it holds the id of the newest run of a steady history."""
    folder = tmp_path_factory.mktemp("furnished")
    (folder / "benchmark_results").mkdir()
    days = tuple(history(make_run))
    runs = (*days, *others(make_run))
    with Warehouse.open(folder / "benchmark_db.duckdb") as warehouse:
        warehouse.ingest_all(runs)
    (folder / "benchmark_results" / "run.json").write_text(json.dumps(to_json(runs[-1])), encoding="utf-8")
    (folder / "judged_run").write_text(days[-2].run_id)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the commands of this environment; on Linux they are forked."""
    if sys.platform == "linux":
        with commands_in(tmp_path_factory.mktemp("commands")) as folder:
            yield folder
    else:
        yield Path(sys.executable).parent


@pytest.fixture
def scratch(
    furnished: Path, commands: Path, build_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The current folder: a copy, in which the commands of this environment are found and no network is."""
    shutil.copytree(furnished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCHMARK_DB_PATH", raising=False)
    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(build_cache))
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{Path(sys.executable).parent}", prepend=os.pathsep)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path
