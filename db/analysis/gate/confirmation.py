"""Measures again what the gate flagged, in a session of its own, and sees whether that says the same.

The command that measures a stored run's points again, from what is stored of it. Pure.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import AXES
from benchmarking.core.child_process import environment, module_command
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.records import Point
from db.analysis.gate.candidates import Candidate, repeated
from db.analysis.gate.findings import Finding, confirmed, worst_first
from db.analysis.gate.gate import Parameters

if TYPE_CHECKING:
    from db.warehouse import Warehouse


COMMAND = "run_hardware_benchmark"

COLUMNS = (
    *("run_id", "model_id", "model_source", "task", "weights", "device", "runtime", "runtime_mode", "precision"),
    *("num_threads", "cpu_list", "settings", "tags", "description", "origin_format", "requested_device"),
)

"""Of benchmark_runs: what a repetition is made from."""

CONFIRMS = "confirms"

"""The tag of a run that was made to confirm another: its value is that run's id."""

SETTINGS = {
    "profile": "--profile",
    "launches": "--launches",
    "fixed_iterations": "--iterations",
    "fixed_warmup_iterations": "--warmup-iterations",
}

NOT_BY_COMMAND = {
    "module": "a torch module was handed over in Python: call benchmark_model again",
    "bench": "it is a benchmark of one's own: run its file again",
    "import": "another tool measured it: run that tool again",
}

"""Source of the model -> why no command of ours measures it again."""


def why_not_repeat(run: Mapping[str, Any]) -> str | None:
    """Why the run (a row of benchmark_runs) cannot be measured again by a command, None where it can."""
    if run["origin_format"] is not None:
        return NOT_BY_COMMAND["import"]
    return NOT_BY_COMMAND.get(run["model_source"])


def repeat_command(run: Mapping[str, Any], points: Sequence[Point]) -> tuple[str, ...]:
    """The arguments that measure the points again, on the grid that spans them: the command's name first, and without
    what says where results go.

    `run` has the COLUMNS of benchmark_runs. What ran is asked for, not what was asked for then: a device that "auto"
    picked, the weights that "auto" found. Raises UnsupportedError for a run that no command measures.
    """
    if (why_not := why_not_repeat(run)) is not None:
        raise UnsupportedError(f"run {run['run_id']} cannot be measured again by a command: {why_not}")
    settings = json.loads(run["settings"])
    return (
        *(COMMAND, "--model-id", run["model_id"], "--device", run["device"], "--runtime", run["runtime"]),
        *("--precision", run["precision"], "--task", run["task"], "--weights", run["weights"]),
        *_given("--num-threads", run["num_threads"]),
        *_given("--cpu-list", run["cpu_list"]),
        *_mode(json.loads(run["runtime_mode"])),
        *_grid(points),
        *(word for name, flag in SETTINGS.items() for word in _given(flag, settings.get(name))),
    )


def confirming(run: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments that mark a repetition of the run: its own tags, and which run it is to confirm."""
    tags = {**run["tags"], CONFIRMS: run["run_id"]}
    return tuple(word for name, value in tags.items() for word in ("--tag", f"{name}={value}"))


def _given(flag: str, value: object) -> tuple[str, ...]:
    return () if value is None else (flag, str(value))


def _mode(mode: Mapping[str, object]) -> tuple[str, ...]:
    """The runtime's settings: each is an option with a flag of its name."""
    return tuple(word for name, value in mode.items() for word in (f"--{name.replace('_', '-')}", str(value)))


def _grid(points: Sequence[Point]) -> tuple[str, ...]:
    words: list[str] = []
    for name, axis in AXES.items():
        values = sorted({value for point in points if (value := point.value(name)) is not None})
        # The implied value is what is measured without the flag, which most runtimes refuse.
        if values and values != [axis.implied]:
            words += [axis.flag, ",".join(map("{:.15g}".format, values))]
    return tuple(words)


MODULE = f"benchmarking.{COMMAND}"

RUNS = f"SELECT {', '.join(COLUMNS)} FROM benchmark_runs WHERE run_id IN (SELECT unnest($runs))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """How the flagged points of a run are measured again."""

    run_id: str
    command: tuple[str, ...] | None
    """Its name first; without where the results go. None where no command does it."""
    why_not: str | None = None
    marks: tuple[str, ...] = ()
    """Arguments that say which run it is to confirm."""

    @property
    def text(self) -> str:
        """The command for a shell, or why there is none."""
        return f"not possible: {self.why_not}" if self.command is None else shlex.join(self.command)


def repetitions(warehouse: Warehouse, findings: Iterable[Finding]) -> tuple[Repetition, ...]:
    """How each run with a regression is measured again, at the points that regressed."""
    points: dict[str, list[Candidate]] = {}
    for finding in findings:
        if finding.verdict == "regressed":
            points.setdefault(finding.candidate.run_id, []).append(finding.candidate)
    rows = {row["run_id"]: row for row in warehouse.query(RUNS, {"runs": list(points)}).dicts()}
    return tuple(_repetition(rows[run_id], candidates) for run_id, candidates in points.items())


def with_repetitions(findings: Iterable[Finding], known: Iterable[Repetition]) -> tuple[Finding, ...]:
    """The findings, each regression with the command that measures it again."""
    texts = {repetition.run_id: repetition.text for repetition in known}
    return tuple(
        replace(finding, repeat=texts[finding.candidate.run_id]) if finding.verdict == "regressed" else finding
        for finding in findings
    )


def measure(repetition: Repetition, db_path: str, output_dir: str, lock_timeout_s: float) -> str | None:
    """Measure a run's points again and store them; gives why that did not work, None where it did.

    What the command prints goes to stderr. Nothing may hold the database meanwhile.
    """
    if repetition.command is None:
        return repetition.why_not
    kept = ("--save", "--db-path", db_path, "--output-dir", output_dir, "--lock-timeout", f"{lock_timeout_s:g}")
    command = module_command(MODULE, *repetition.command[1:], *repetition.marks, *kept)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=environment(), check=False)
    return None if done.returncode == 0 else f"{COMMAND} ended with exit code {done.returncode}, see above"


def seen_again(
    warehouse: Warehouse, findings: Sequence[Finding], why_not: Mapping[str, str | None], since: datetime
) -> tuple[Finding, ...]:
    """The findings after their runs were measured again since then, worst first.

    `why_not`: run -> why measuring it again did not work. A point that was measured all the same counts.
    """
    again: dict[tuple[str, str], dict[str, Candidate]] = {}
    looked = []
    for finding in findings:
        candidate = finding.candidate
        if finding.verdict != "regressed":
            looked.append(finding)
            continue
        key = (candidate.run_id, candidate.metric.column)
        if key not in again:
            again[key] = repeated(warehouse, candidate.run_id, since, candidate.metric)
        reason = why_not.get(candidate.run_id)
        looked.append(confirmed(finding, again[key].get(candidate.series_id), reason, Parameters()))
    return worst_first(looked)


def _repetition(run: Mapping[str, object], candidates: Sequence[Candidate]) -> Repetition:
    run_id = str(run["run_id"])
    if (why_not := why_not_repeat(run)) is not None:
        return Repetition(run_id=run_id, command=None, why_not=why_not)
    points = [candidate.point for candidate in candidates]
    return Repetition(run_id=run_id, command=repeat_command(run, points), marks=confirming(run))
