"""What the judging commands print, with the names of real models and devices, fits 100 columns."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace

import pytest

from benchmarking.cli import main
from benchmarking.core.records import Doubt
from db.warehouse import Warehouse

pytestmark = pytest.mark.forked_children

MODEL = "mistralai/Mixtral-8x7B-Instruct-v0.1"
DEVICE = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
RUNTIMES = ("eager", "onnxruntime")
DOUBTS = tuple(Doubt(kind=kind, severity="noisy") for kind in ("drift", "run_queue_wait", "severe_outliers"))
RUNS = 13
COMMANDS = [
    ("compare", "runtime=eager", "runtime=onnxruntime"),
    ("compare", "tag.number=0", "tag.number=12"),
    ("compare", f"model={MODEL}", "--by", "runtime"),
    ("check", "--no-alerts"),
    ("check", "--no-alerts", "--metric", "latency_median_ms,memory_peak_rss_infer_mb,throughput_tokens_per_sec"),
    ("history",),
    ("history", "--metric", "throughput_tokens_per_sec"),
    ("recommend", MODEL, "--latency-ms", "20", "--memory-mb", "900", "--prefer", "memory"),
    ("recommend", MODEL),
    ("query", "SELECT * FROM hardware_comparison LIMIT 2"),
    ("query", "SELECT model_id, device_name, runtime, run_id, doubts FROM latest_results"),
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory, empty_database, make_run):
    """Path of a database: a model by two runtimes in thirteen sessions; in the last it is slower and noisy."""
    path = shutil.copy2(empty_database, tmp_path_factory.mktemp("width") / "a.duckdb")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all([long_names(make_run, number, name) for number in range(RUNS) for name in RUNTIMES])
    return path


def long_names(make_run, number, runtime):
    is_last = number == RUNS - 1
    run = make_run(
        model_id=MODEL,
        family="mixture-of-experts",
        runtime=runtime,
        launches=5,
        iterations=3,
        slowdown=(1.3 if is_last else math.exp(0.01 * (-1) ** number)) * (1 + RUNTIMES.index(runtime)),
        started_at=f"2026-03-{number + 1:02}T12:00:00Z",
        session_id=f"session-{number}",
    )
    device = replace(run.cell.device, name=DEVICE)
    provenance = replace(
        run.provenance,
        git_commit=f"{number:040x}",
        git_commit_time=f"2026-02-{number + 1:02}T12:00:00Z",
        tags={"number": str(number)},
    )
    results = run.results
    if is_last:
        results = tuple(replace(one, validity="noisy", doubts=DOUBTS) for one in results)
    return replace(
        run,
        cell=replace(run.cell, device=device),
        hardware=replace(run.hardware, device=device),
        provenance=provenance,
        results=results,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words)[:40])
@pytest.mark.parametrize("width", [None, 240, 80])
def test_every_line_fits(filled, capsys, monkeypatch, command, width):
    """In a pipe, on a wide and on a narrow terminal, where tables are as wide as it. Commands are for a shell: they
    break at its line ends only."""
    if width is not None:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "dumb")
    code = main([*command, "--db-path", str(filled)])
    out = capsys.readouterr().out
    assert code in (0, 1, 3), "nothing was shown"
    assert MODEL in out or "mistralai" in out
    widest = max(out.splitlines(), key=len)
    assert len(widest) <= (width or 100), widest


def test_a_command_in_a_note_is_one_for_the_shell(filled, capsys):
    import shlex

    main(["check", "--no-alerts", "--db-path", str(filled)])
    out = capsys.readouterr().out
    command = out.partition("measure again: ")[2].partition("\nmeasure again: ")[0]
    words = shlex.split(command)
    assert words[:4] == ["benchhouse", "run", "--model-id", MODEL]
    assert "\\\n" in command
