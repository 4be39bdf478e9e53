"""Measures again what the gate flagged, in a session of its own, and sees whether that says the same."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from benchmarking.core.child_process import environment, module_command
from db.analysis.candidates import Candidate, repeated
from db.analysis.findings import Finding, confirmed, worst_first
from db.analysis.gate import Parameters
from db.analysis.repeat import COLUMNS, COMMAND, confirming, repeat_command, why_not_repeat

if TYPE_CHECKING:
    from db.warehouse import Warehouse

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
