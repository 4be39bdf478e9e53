"""Gates CI: judges the newest results against the earlier runs of their series.

Each result is compared with a prediction interval of its series since the last confirmed change point (at least 10
runs, at most the last 60). A result has regressed if it is more than 2 % worse, and outside an interval that at most
5 % of the checks leave if nothing has changed (9 % with fewer than 20 runs). With --confirm, regressions are measured
again in a fresh session and count only if they show up there too. Each regression is stored as an alert (benchhouse
alert list), once per range of commits; new alerts go as JSON to $BENCHHOUSE_WEBHOOK_URL if it is set.

Without such a history, gate with benchhouse ab A B --fail-on slower.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.argument_types import file_to_write
from benchmarking.core.command_line import Parser, clipped, command, database_flags, note, one_line
from benchmarking.core.command_names import words_as_typed
from benchmarking.core.errors import EXIT_NOT_ENOUGH_DATA, EXIT_OK, BenchhouseError, UsageError
from benchmarking.core.plugins import check_measuring
from benchmarking.core.settings import NEW_FILE, SWITCH, WORD, Setting, add_flags
from benchmarking.core.shared_settings import COMMON, SHARED
from benchmarking.core.storage_paths import database_exists
from benchmarking.core.terminal import stdout_page
from db.analysis.junit import STDOUT, junit_xml, write_for_ci
from db.commands.arguments import (
    add_database,
    add_metrics,
    add_selection,
    add_shared,
    chosen_metrics,
    command_parser,
    open_to_read,
    open_to_write,
    plain_values,
    print_json,
    selection_in,
    unstored_in,
)
from db.connection import UnwritableError

if TYPE_CHECKING:
    from db.analysis.gate.candidates import Newest
    from db.analysis.gate.findings import Finding, FlaggedRun, QualityCheck

NAME = "benchhouse check"
EXAMPLES = """
examples:
  benchhouse check
  benchhouse check --session 0199a3f2 --confirm --junit gate.xml --markdown gate.md
  benchhouse check --confirm --github comment.md
  benchhouse check model=bert-base-uncased,runtime=eager --metric latency_median_ms,memory_peak_rss_infer_mb
"""
EXIT_CODES = """
exit codes:
  0  nothing judged regressed or lost quality; series with few runs are listed
  1  something regressed, has a worse quality, or failed although it worked
     before; also if nearly all moved together (the machine, not the code)
  2  usage
  3  not enough data, or too noisy, to judge anything; or no warehouse yet
"""
UNSTORED = "neither alerts nor change points are stored, and no alert is sent"


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    on_stdout = [f"--{name}" for name in ("junit", "markdown") if getattr(arguments, name) == STDOUT]
    on_stdout += ["--json"] if arguments.json else []
    on_stdout += ["--github"] if arguments.github is not None else []
    if len(on_stdout) > 1:
        raise UsageError(f"{' and '.join(on_stdout)} all print to stdout: choose one, and give the others a FILE")
    from db.analysis.gate.findings import exit_code

    try:
        judged = _judge(arguments)
    except BenchhouseError as error:  # a CI shows its files, so they say why there is no verdict
        _write_instead(arguments, "error", clipped(one_line(str(error))), error.exit_code)
        raise
    if isinstance(judged, str):
        first = shlex.join(["benchhouse", "run", "MODEL", "--save", *database_flags(arguments.db_path)])
        reason = f"{judged}: store the first ones with {first}"
        note(f"{NAME}: not enough data: {reason}")
        _write_instead(arguments, "not enough data", reason, EXIT_NOT_ENOUGH_DATA)
        return EXIT_NOT_ENOUGH_DATA
    findings, quality = judged
    code = exit_code(findings, quality)
    try:
        if not arguments.no_alerts:
            _store_alerts(arguments, findings, quality)
    except UnwritableError as error:
        note(f"{NAME}: {UNSTORED}: {error}")
    finally:  # the findings are printed even if the alerts cannot be stored
        written = _print(arguments, findings, quality, code)
    return code or written


def _judge(arguments: argparse.Namespace) -> tuple[Sequence[Finding], Sequence[QualityCheck]] | str:
    """The findings and the quality of the results to judge, or why there are none at all."""
    from db.analysis.selection import OF_RUNS, OF_SESSIONS, OTHER_NEWEST, Selection, shared_prefixes

    Selection.parse(arguments.selection)  # an error also where there is no warehouse yet
    words = ("latest", *OTHER_NEWEST)
    if arguments.run in words:
        raise UsageError(f"--run {arguments.run}: takes a run id; without it the newest session is judged")
    session = None if arguments.session in words else arguments.session
    metrics = chosen_metrics(arguments, arguments.metric)
    if not database_exists(arguments.db_path):
        return f"there is no warehouse at {arguments.db_path}"
    selection = selection_in(arguments, arguments.selection)

    from db.analysis.gate.candidates import Scope, candidates, newest
    from db.analysis.gate.findings import (
        SHORT,
        check_quality,
        confirm,
        exit_code,
        flagged_runs,
        judge_candidates,
        with_commands,
    )
    from db.analysis.history.changes import open_refreshed, unstored_changes

    refreshed = None
    if not arguments.no_alerts:
        try:
            refreshed, _ = open_refreshed(arguments.db_path, metrics, lock_timeout_s=arguments.lock_timeout)
        except UnwritableError as error:
            note(f"{NAME}: {UNSTORED}: {error}")
            arguments.no_alerts = True
    scope, is_alike = Scope(run=arguments.run, session=session), True
    with refreshed or open_to_read(arguments) as warehouse:
        for flag, prefix, sql in (("run", scope.run, OF_RUNS), ("session", scope.session, OF_SESSIONS)):
            if prefix is not None and (shared := shared_prefixes(warehouse, [(prefix, f"{flag}s", sql)])):
                raise UsageError(f"--{flag} {shared[0]}: give more of the one to judge")
        if scope == Scope() and (chosen := newest(warehouse, selection, metrics)) is not None:
            scope, is_alike = Scope(session=chosen.session_id), chosen.kind is None
            _note_other_kinds(chosen)
        unstored = partial(unstored_changes, warehouse)
        findings = judge_candidates(candidates(warehouse, selection, scope, metrics, unstored))
        runs = {
            finding.candidate.run_id: (finding.candidate.session_id, finding.candidate.subject) for finding in findings
        }
        quality = check_quality(warehouse, runs)
        flagged = flagged_runs(warehouse, findings)
        # A search or comparison has no earlier runs of its kind, so measuring one of its setups again decides nothing.
        is_short = is_alike and exit_code(findings) == EXIT_NOT_ENOUGH_DATA
        short = flagged_runs(warehouse, findings, SHORT) if is_short else ()
    # What is measured again is stored where the next check looks for it.
    there = database_flags(arguments.db_path)
    findings = with_commands(findings, flagged, lambda one: _command(one, "--save", *there))
    findings = with_commands(findings, short, _command, SHORT) if short else findings
    if not findings:  # a usage error for a named selection, exit code 3 for a database without results
        if selected := " ".join(filter(None, (arguments.selection, arguments.run, session))):
            listing = (
                'benchhouse query "FROM benchmark_runs" lists the runs' if arguments.run else "see benchhouse history"
            )
            why = unstored_in(arguments, arguments.selection) or f": {listing}"
            raise UsageError(f"{selected!r} selects no result of {arguments.db_path}{why}")
        return f"{arguments.db_path} has no results"
    if arguments.confirm:  # regressions are measured again, in a fresh session per run
        if flagged:
            check_measuring()
        findings = confirm(
            findings, flagged, lambda one: _measure_again(arguments, one), lambda: open_to_read(arguments)
        )
    return findings, quality


def _parser() -> Parser:
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    what = parser.add_argument_group("results to judge")
    add_selection(what)
    which = what.add_mutually_exclusive_group()
    newest = "the newest, but for tune, ab and --find-rate"
    add_flags(
        which,
        Setting("run", WORD, "run id or unique prefix", metavar="ID"),
        Setting("session", WORD, "session id or unique prefix", metavar="ID", default_words=newest),
    )
    add_metrics(what)
    add_flags(
        parser.add_argument_group("confirmation"),
        Setting("confirm", SWITCH, "measure regressions again in a fresh session"),
        SHARED["output_dir"].here(help="folder for the run files of --confirm"),
    )
    output = parser.add_argument_group("output")
    add_shared(output, junit="JUnit XML, one test case per series")
    words = "findings as Markdown, for a pull request comment, in FILE or on stdout (default: a table)"
    output.add_argument("--markdown", type=file_to_write, nargs="?", const=STDOUT, metavar="FILE", help=words)
    words = (
        "GitHub workflow annotations on stdout, and the body of a pull request comment in FILE; with -, the body on "
        "stdout and the annotations on stderr"
    )
    json = COMMON["json"].here(help="findings as JSON on stdout")
    alerts = Setting("no_alerts", SWITCH, "store neither alerts nor change points")
    add_flags(output, Setting("github", NEW_FILE, words), json, alerts)
    add_database(parser)
    return parser


def _note_other_kinds(chosen: Newest) -> None:
    """Say which session is judged, if it is not the newest of all or the last that was stored, or measures something
    else each time."""
    if chosen.newer is not None:
        session, kind = chosen.newer
        note(
            f"{NAME}: judged is session {chosen.session_id}: the newer {session} is {kind}, which --session {session} "
            "judges"
        )
    elif chosen.kind is not None:
        note(
            f"{NAME}: judged is session {chosen.session_id}, {chosen.kind}: a gate judges what is measured alike each "
            "time, such as benchhouse run MODEL --save; --session ID judges another session"
        )
    if chosen.imported is not None:
        session, origin = chosen.imported
        note(
            f"{NAME}: judged is session {chosen.session_id}, the newest by date: what was imported after it "
            f"({origin}) is older: benchhouse check --session {session} judges that"
        )


def _command(flagged: FlaggedRun, *further: str) -> str:
    """The command that measures a flagged run again, with further words, for a shell."""
    from benchmarking.sweep.plan.flags import repeated_request

    return shlex.join((*words_as_typed(repeated_request(flagged.run, flagged.points).command), *further))


def _write_instead(arguments: argparse.Namespace, what: str, reason: str, code: int) -> None:
    """Write why there are no findings in the requested files."""
    from db.analysis.gate.gate_text import comment, unjudged_annotation, unjudged_markdown

    text = unjudged_markdown(what, reason)
    if arguments.github is not None:
        write_for_ci(NAME, "--github", arguments.github, comment(text))
        line = unjudged_annotation(what, reason)
        print(line, file=sys.stderr if arguments.github == STDOUT else sys.stdout)
    if arguments.junit is not None:
        write_for_ci(NAME, "--junit", arguments.junit, junit_xml(NAME, (), code, reason))
    if arguments.markdown is not None:
        write_for_ci(NAME, "--markdown", arguments.markdown, text)


def _measure_again(arguments: argparse.Namespace, flagged: FlaggedRun) -> str | None:
    """Measure a flagged run's points again and store them; returns the error, or None on success.

    Its output goes to stderr: stdout is for the gate's findings.
    """
    from benchmarking.core.provenance import uuid7
    from benchmarking.sweep.plan.flags import repeated_request
    from benchmarking.sweep.plan.request import plan_cell
    from benchmarking.sweep.run import command_session
    from benchmarking.sweep.run.command_session import database

    try:
        request = repeated_request(flagged.run, flagged.points, flagged.tags)
        note(f"{NAME}: measuring again: {shlex.join(words_as_typed(request.command))}")
        ingest = database(arguments.db_path, arguments.lock_timeout, quiet=False)
        with contextlib.redirect_stdout(sys.stderr):
            plans = [plan_cell(request, uuid7())]
            code = command_session.run_plans(plans, Path(arguments.output_dir), ingest, command_session.Show())
    except BenchhouseError as error:
        return str(error)
    return None if code == EXIT_OK else "some points could not be measured or stored: see the errors above"


def _print(
    arguments: argparse.Namespace, findings: Sequence[Finding], quality: Sequence[QualityCheck], code: int
) -> int:
    """The findings on stdout and in the requested files; returns the exit code of writing those."""
    from db.analysis.gate.gate_text import (
        gate_document,
        gate_markdown,
        gate_text,
        github_comment,
        junit_cases,
        summary,
        without_commands,
        workflow_annotations,
    )

    written = []
    if arguments.github is not None:
        # The comment's body and the annotations. No line of the text may act as a workflow command.
        body, lines = github_comment(findings, quality), workflow_annotations(findings, quality)
        if arguments.github == STDOUT:
            print(body, end="")
            sys.stderr.writelines(f"{line}\n" for line in lines)
        else:
            print("\n".join([without_commands(gate_text(findings, quality)), *lines]))
            written.append(write_for_ci(NAME, "--github", arguments.github, body))
    elif arguments.json:
        print_json(gate_document(findings, quality))
    elif STDOUT not in (arguments.junit, arguments.markdown):
        print(gate_text(findings, quality, stdout_page()))
    if arguments.junit is not None:
        cases, reason = junit_cases(findings, quality), f"nothing could be judged: {summary(findings, quality)}"
        written.append(write_for_ci(NAME, "--junit", arguments.junit, junit_xml(NAME, cases, code, reason)))
    if arguments.markdown is not None:
        text = gate_markdown(findings, quality)
        written.append(write_for_ci(NAME, "--markdown", arguments.markdown, text))
    return max(written, default=EXIT_OK)


def _store_alerts(arguments: argparse.Namespace, findings: Sequence[Finding], quality: Sequence[QualityCheck]) -> None:
    """Store each regression and each worse quality as an alert."""
    if all(finding.verdict != "regressed" for finding in findings) and all(
        check.judgement.verdict != "worse" for check in quality
    ):
        return
    from db.analysis.gate.alerts import alerts_of, store_alerts
    from db.analysis.gate.webhook import notify

    with open_to_write(arguments) as warehouse:
        stored = store_alerts(warehouse, findings, quality)
        rows = [plain_values(row) for row in alerts_of(warehouse, stored.new)]
    notify(NAME, rows)
    listing = shlex.join(["benchhouse", "alert", "list", *database_flags(arguments.db_path)])
    note(f"{NAME}: alerts: {len(stored.new)} new, {len(stored.known)} already known: see {listing}")


if __name__ == "__main__":
    sys.exit(main())
