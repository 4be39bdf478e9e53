"""Finds the commit that made a command slower, by git bisection with statistical verdicts.

BAD and GOOD are first measured in alternating launches, as in benchhouse ab. If they differ, commits in between are
compared with GOOD in the same way until one is left, which is then confirmed against its parent. A commit gets its
verdict as soon as the confidence interval allows, after 5, 8, 13 or 20 rounds. Commits that fail or have no verdict are
skipped, as with git bisect skip. Improvements are found in the same way as regressions.

COMMAND is a benchhouse run or benchhouse batch command (with --benches for your own benchmarks). It runs in a
temporary checkout of each commit, whose modules are imported first. No shell is involved. The repository is only read:
its working tree, index and references do not change, and its hooks and configuration are not used. With --log FILE.json
an interrupted bisection resumes where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from benchmarking.bisection.commit_search import (
    Log,
    Role,
    Step,
    changed_points,
    check_sides,
    conclusion_text,
    endpoints_outcome,
    is_inconclusive,
    log_text,
    outcome,
    point_changes,
    read_log,
    search,
    step_line,
    write_log,
)
from benchmarking.commands import ab
from benchmarking.core.command_line import Parser, note, notes, run_command
from benchmarking.core.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK, BenchhouseError, UsageError
from benchmarking.core.metrics import DEFAULT_METRIC
from benchmarking.core.plugins import check_measuring
from benchmarking.core.records import Json, to_json
from benchmarking.core.storage_paths import check_folder
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.untrusted.redaction import without_secrets
from benchmarking.core.untrusted.repository import History
from benchmarking.sweep.plan import flags
from benchmarking.sweep.run.command_turns import TurnError, arm

NAME = "benchhouse bisect"
MODULE_PATH = "PYTHONPATH"
EXAMPLES = """\
examples:
  benchhouse bisect v1.2 HEAD -- benchhouse run gpt2 --batch-sizes 1
  benchhouse bisect 1f0c2ab main --log bisect.json -- benchhouse run models/ranker
  benchhouse bisect v1.2 main -- benchhouse batch --benches benches --include Attention --devices cpu
"""
EXIT_CODES = """\
exit codes:
  0  culprit found, or BAD is equivalent to GOOD
  1  COMMAND failed at GOOD or BAD
  2  usage
  3  no confirmed culprit: commits were skipped, or the change is too small
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv, interrupted="with --log FILE.json, the same command resumes where it stopped")


def _run(argv: Sequence[str]) -> int:
    parser = Parser(
        prog=NAME, usage="%(prog)s GOOD BAD [flags] -- COMMAND", description=__doc__, epilog=f"{EXAMPLES}\n{EXIT_CODES}"
    )
    commits = parser.add_argument_group("commits")
    what = "commit without the change: hash, branch or tag, optionally with ~N"
    commits.add_argument("good", metavar="GOOD", help=what)
    commits.add_argument("bad", nargs="?", metavar="BAD", help="later commit with the change; also GOOD..BAD")
    measurement = parser.add_argument_group("measurement of each commit")
    ab.add_measurement_flags(measurement)
    output = parser.add_argument_group("output")
    what = "log of the steps, also written as FILE.txt; an existing log is continued"
    output.add_argument("--log", type=Path, metavar="FILE.json", help=what)
    flags.add_saved(output)
    flags.add_keeping(output)
    flags.add_output_format(output)
    words = list(argv)
    split = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:split])
    if arguments.bad is None:  # GOOD..BAD, as git writes a range
        arguments.good, _, arguments.bad = arguments.good.partition("..")
        arguments.bad = arguments.bad.removeprefix(".")
    if not arguments.good or not arguments.bad:
        raise UsageError("BAD is missing: give two commits, GOOD BAD or GOOD..BAD")
    command = tuple(words[split + 1 :])
    if not command:
        raise UsageError("no command: put it after --, as in benchhouse bisect GOOD BAD -- benchhouse run M")
    here = arm("a", shlex.join(command))  # raises UsageError for a missing program
    ab.check_metric(arguments.metric, here)
    if (path := arguments.log) is not None:  # a log must not overwrite another file
        if path.suffix != ".json":
            raise UsageError(f"--log {path}: expected a file FILE.json; FILE.txt is written next to it")
        if not path.absolute().parent.is_dir():
            raise UsageError(f"--log {path}: no folder {path.absolute().parent}: create it, or choose another path")
        check_folder(path.absolute().parent)
        if (beside := path.with_suffix(".txt")).exists() and not path.exists():
            raise UsageError(f"--log {path}: {beside} already exists: choose another path")
    check_measuring("measuring")
    # Planned before GOOD is measured, in this folder, whose modules can be imported as those of each commit.
    paths = (str(Path.cwd()), here.environment.get(MODULE_PATH, os.environ.get(MODULE_PATH)))
    modules = {MODULE_PATH: os.pathsep.join(filter(None, paths))}
    here_as_there = replace(here, environment={**here.environment, **modules})
    ab.check_commands([here_as_there], "COMMAND", metric=arguments.metric)
    with temporary_folder("benchhouse-bisect") as folder:
        (folder / "commits").mkdir()
        history = History(Path.cwd(), folder / "commits")
        bisection = _Bisection(arguments, command, history)
        log, history = bisection.log, bisection.history
        check_sides(history, log.good, log.bad)
        found = search(history, log.good, log.bad, bisection.measure, bisection.say)
        text = conclusion_text(found, history)
        stated = [{"commit": commit, **to_json(history.text(commit))} for commit in found.commits]
        document: Json = {**to_json(found), "commits": stated}
        bisection.write_log(replace(bisection.log, conclusion=document), text)
        if arguments.json:
            print(json.dumps(to_json(bisection.log), indent=2, ensure_ascii=False))
        else:
            print(log_text(bisection.log, text), end="")
        return EXIT_OK if found.kind in ("found", "equal") else EXIT_NOT_ENOUGH_DATA


class _Bisection:
    """Measures commits and writes the log."""

    def __init__(self, arguments: argparse.Namespace, command: tuple[str, ...], history: History) -> None:
        self.history = history
        self._typed = shlex.join(command)
        self.say: Callable[[str], None] = notes(quiet=arguments.quiet)
        self._path: Path | None = arguments.log
        self._budget_s: float | None = arguments.budget
        requested = Log(
            good=history.commit(arguments.good),
            bad=history.commit(arguments.bad),
            command=tuple(map(without_secrets, command)),  # the log is a file
            metric=arguments.metric or DEFAULT_METRIC,
            looks=ab.looks_of(arguments),
        )
        self.log = requested if self._path is None else read_log(self._path, requested)
        output = ab.output_options(arguments, metric=arguments.metric, fail_on=())
        tags = {**output.tags, "bisect": f"{requested.good[:12]}..{requested.bad[:12]}"}
        self._output = replace(output, json=True, tags=tags)

    def measure(self, role: Role, commit: str, against: str) -> Step:
        """The step from the log, else measured now and logged. Raises BenchhouseError if GOOD or BAD fails."""
        step = self.log.step(role, commit, against)
        if step is None:
            self.say(f"measuring {commit[:12]} in turns with {against[:12]}")
            step = Step(
                role=role, commit=commit, subject=self.history.text(commit).subject, against=against, outcome="skip"
            )
            started = monotonic()
            try:
                step = replace(self._compare(step), seconds=monotonic() - started)
            except TurnError as error:
                if role == "whole" or (error.letter == "a" and role != "culprit"):
                    side = "BAD" if error.letter == "b" else "GOOD"
                    raise BenchhouseError(f"{side}: COMMAND failed: {error}") from error
                note(f"skipping {commit[:12]}: {error}")
                step = replace(step, reason=f"COMMAND failed: {error}", seconds=monotonic() - started)
            self.write_log(replace(self.log, steps=(*self.log.steps, step)))
        self.say(step_line(self.log.steps.index(step) + 1, step))
        return step

    def write_log(self, log: Log, conclusion: str | None = None) -> None:
        self.log = log
        if self._path is not None:
            write_log(self._path, log, log_text(log, conclusion))

    def _compare(self, step: Step) -> Step:
        """The step with its points and its outcome."""
        requested = {}
        if step.role != "whole":
            requested = changed_points(next(one for one in self.log.steps if one.role == "whole").points)

        def needs_more_rounds(comparison: Json) -> bool:
            if step.role in ("step", "merge base"):
                return is_inconclusive(point_changes(comparison), requested)
            return ab.is_undecided(comparison)

        with temporary_folder("benchhouse-commit") as folder:
            sides = (
                arm("a", self._typed, self.history.check_out(step.against, folder / "a")),
                arm("b", self._typed, self.history.check_out(step.commit, folder / "b")),
            )
            found = ab.measure_and_compare(
                sides,
                self.log.looks,
                self._output,
                self._budget_s,
                needs_more_rounds=needs_more_rounds,
                keep_partial=False,
            )
        points = point_changes(found.comparison.document)
        word, reason = endpoints_outcome(points) if step.role == "whole" else outcome(points, requested)
        return replace(
            step,
            outcome=word,
            reason=reason,
            points=points,
            rounds=found.rounds,
            run_ids={letter: tuple(ids) for letter, ids in found.run_ids.items()},
        )
