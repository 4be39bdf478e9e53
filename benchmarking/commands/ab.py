"""Compares two commands that are measured in alternating launches.

A and B are commands such as benchhouse run or benchhouse batch, in quotes: with different flags, with VAR=value in
front, with the interpreter of another environment (/venv/bin/benchhouse run ...), or in worktrees of two commits
(--worktree-a, --worktree-b; without B, both sides run A there). Each round is one launch of each side, in a fresh
process, in random order. No shell is involved.

The difference is first tested after --rounds. Results are paired by round, so that drift of the machine cancels out.
While the confidence interval of a point extends beyond 2 %, more rounds are measured, up to --max-rounds or --budget.
The test corrects for these looks, so that they add no false positives.

The exit code is 1 if a point failed, and 3 if no point has an interval. With --fail-on slower it gates CI, without any
history: 1 also if B is slower, and 3 if that is not known.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarking.core.axes import AXES
from benchmarking.core.child_process import environment_variable, pass_on
from benchmarking.core.command_line import Parser, choice, command, database_flags, flag_words, note, notes
from benchmarking.core.command_names import SCRIPTS, as_typed, typed_as
from benchmarking.core.errors import EXIT_FAILED, EXIT_NOT_ENOUGH_DATA, EXIT_OK, StorageError, UsageError
from benchmarking.core.help_texts import few_need
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import JUDGED
from benchmarking.core.plugins import check_measuring, default_runtime
from benchmarking.core.provenance import MeasuredRun, uuid7
from benchmarking.core.records import Device, Json, Point, Run, from_json, to_json
from benchmarking.core.settings import SECONDS_FROM_0, WHOLE, Setting, add_flags, add_settings
from benchmarking.core.shared_settings import COMMON, SHARED
from benchmarking.core.temporary import held_folder, temporary_folder
from benchmarking.core.terminal import Page
from benchmarking.core.text import listed, markdown_code, wrapped
from benchmarking.core.verdicts.words import FLAG, HELP, Condition, conditions
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.flags import repeated_command
from benchmarking.sweep.plan.measuring_settings import options_in
from benchmarking.sweep.run import command_session, spool
from benchmarking.sweep.run.command_session import StoredComparison, compare_stored, selection_of, stored_runs
from benchmarking.sweep.run.command_turns import (
    COMMANDS,
    DEFAULT_COMMAND,
    NOT_OURS,
    Arm,
    Letter,
    arm,
    check_folders,
    measure_in_turns,
    run_files,
)

NAME = "benchhouse ab"

DEFAULT_ROUNDS = 5
MAX_ROUNDS = 20
GROWTH = 1.6
"""Growth of the number of rounds from one look to the next."""

EXAMPLES = """\
examples:
  benchhouse ab "benchhouse run gpt2" "benchhouse run gpt2 --runtime compiled"
  benchhouse ab "benchhouse run gpt2" "OMP_NUM_THREADS=4 benchhouse run gpt2"
  benchhouse ab "benchhouse run gpt2" --worktree-a ../main --fail-on slower
"""

LETTERS: tuple[Letter, Letter] = ("a", "b")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Where runs are saved, and how the comparison is shown."""

    output_dir: Path | None
    """None to save nothing."""
    db_path: str
    lock_timeout_s: float | None
    """Seconds to wait for a database or device in use; None for the defaults."""
    tags: Mapping[str, str]
    description: str | None
    metric: str | None
    fail_on: Sequence[Condition]
    anonymous: bool
    json: bool
    quiet: bool
    markdown: bool = False
    junit: Path | None = None


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    with ExitStack() as stack:
        if arguments.junit is not None:
            from db.analysis.junit import junit_of_error

            stack.enter_context(junit_of_error(arguments.junit, NAME))
        check_measuring("measuring")
        first_folder, second_folder, second = arguments.worktree_a, arguments.worktree_b, arguments.b
        if second is None:  # one command in two folders, so the one without a flag has the modules of this folder
            first_folder, second_folder, second = first_folder or Path.cwd(), second_folder or Path.cwd(), arguments.a
            if first_folder.resolve() == second_folder.resolve():
                problem = "only in different worktrees (--worktree-a, --worktree-b) is it the same as A"
                raise UsageError(f"B is missing: {problem}")
        arms = (arm("a", arguments.a, first_folder), arm("b", second, second_folder))
        check_metric(arguments.metric, *arms)
        check_folders(*arms)
        looks = looks_of(arguments)
        check_commands(arms, metric=arguments.metric)
        output = output_options(arguments, metric=arguments.metric, fail_on=arguments.fail_on)
        output = replace(output, markdown=arguments.markdown, junit=arguments.junit)
        return run_comparison(arms, looks, output, arguments.budget)


def output_options(
    arguments: argparse.Namespace, *, fail_on: Sequence[Condition], metric: str | None = None
) -> OutputOptions:
    return OutputOptions(
        # Absolute, since a side may run in another folder.
        output_dir=Path(arguments.output_dir).resolve() if arguments.save else None,
        db_path=arguments.db_path,
        lock_timeout_s=arguments.lock_timeout,
        tags=dict(arguments.tag),
        description=arguments.description,
        metric=metric,
        fail_on=fail_on,
        json=arguments.json,
        anonymous=arguments.anonymous,
        quiet=arguments.quiet,
    )


def check_metric(metric: str | None, *sides: Arm) -> None:
    """Raise UsageError for a metric that no side can have. Only benchmarks of the user's own add metrics."""
    if metric is not None and all(side.words[: len(DEFAULT_COMMAND)] == DEFAULT_COMMAND for side in sides):
        choice(metric, tuple(JUDGED), "metric")


def check_commands(arms: Sequence[Arm], name_in_errors: str | None = None, *, metric: str | None = None) -> None:
    """Plan each side in this process, so that a mistake in the second costs no launch of the first, nor two sides that
    have nothing in common, nor a metric that neither has. Raises UsageError with its message. Sides in other folders or
    interpreters, which may know other flags, are not checked."""
    planned: list[Sequence[Any]] = []
    for one in arms:
        name = next((name for name, words in COMMANDS.items() if one.words[: len(words)] == words), None)
        if name is None or one.folder is not None:
            continue
        module = importlib.import_module(f"benchmarking.{name}")
        plans, printed = io.StringIO(), io.StringIO()
        with ExitStack() as stack:
            for variable, value in one.environment.items():
                stack.enter_context(environment_variable(variable, value))
            stack.enter_context(typed_as(name))
            stack.enter_context(redirect_stdout(plans))
            stack.enter_context(redirect_stderr(printed))
            code = module.main([*one.words[len(COMMANDS[name]) :], "--dry-run", "--quiet", "--json"])
        pass_on(code)
        if code != EXIT_OK:
            *_, message = printed.getvalue().splitlines() or [one.typed]
            raise UsageError(f"{name_in_errors or one.name}: {message.partition(': error: ')[2] or message}")
        try:
            document: Any = json.loads(plans.getvalue())
        except ValueError:
            document = None
        cells: Any = document.get("cells") if isinstance(document, dict) else document
        if not cells or not all("points" in cell for cell in cells):  # a list was printed, or a help
            raise UsageError(f"{name_in_errors or one.name}: it writes {NOT_OURS}")
        planned.append(cells)
    has_own = any(cell["cell"]["workload"]["source"] == "bench" for cells in planned for cell in cells)
    if metric is not None and len(planned) == len(arms) and not has_own:
        choice(metric, tuple(JUDGED), "metric")
    if len(planned) == len(LETTERS):
        _check_common_points(*planned)


def _check_common_points(before: Sequence[Json], after: Sequence[Json]) -> None:
    """Raise UsageError for the plans of two sides that share no point: everything else may differ."""
    sides = [_planned_points(before), _planned_points(after)]
    if not all(sides) or not sides[0].keys().isdisjoint(sides[1]):
        return
    values = [
        {name: list(dict.fromkeys(point.value(name) for point in side.values())) for name in AXES} for side in sides
    ]
    differing = [name for name in AXES if values[0][name] != values[1][name]]
    one, other = (listed(list(side), MOST_POINTS) for side in sides)
    problem = f"A measures {one}, B {other}: ab compares equal points, so there would be nothing to compare"
    of_both = {name: tuple(dict.fromkeys((*values[0][name], *values[1][name]))) for name in differing}
    if not differing or any(None in both for both in of_both.values()):  # no grid of one command has both
        raise UsageError(f"{problem}. Give both sides the same points")
    grid = " ".join(f"{AXES[name].flag} {','.join(f'{one:.15g}' for one in both)}" for name, both in of_both.items())
    field = AXES[differing[0]].selected_as if len(differing) == 1 and len(of_both[differing[0]]) == 2 else None
    chosen = [f"{field}={one:.15g}" for one in of_both[differing[0]]] if field else []
    then = f", then benchhouse compare {' '.join(chosen)}" if chosen else ", whose table has both"
    raise UsageError(f"{problem}. Measure both in one command: benchhouse run MODEL {grid} --save{then}")


def _planned_points(plans: Sequence[Json]) -> dict[str, Point]:
    """The points that plans will measure, by label."""
    of_plans: Any = plans
    points = ((from_json(Point, point), plan["skipped"]) for plan in of_plans for point in plan["points"])
    return {point.label: point for point, skipped in points if point.label not in skipped}


def looks_of(arguments: argparse.Namespace) -> tuple[int, ...]:
    """The looks of --rounds and --max-rounds. Raises UsageError for a maximum below the first look."""
    most: int | None = arguments.max_rounds
    if most is not None and most < arguments.rounds:
        raise UsageError(f"--max-rounds {most} is below --rounds {arguments.rounds}: raise it, or leave it out")
    return planned_looks(arguments.rounds, max(arguments.rounds, MAX_ROUNDS) if most is None else most)


def planned_looks(rounds: int, most: int) -> tuple[int, ...]:
    """The numbers of rounds after which the difference is tested: 5, 8, 13, 20."""
    looks = [rounds]
    while looks[-1] < most:
        looks.append(min(most, max(looks[-1] + 1, round(looks[-1] * GROWTH))))
    return tuple(looks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ABResult:
    """Two sides that were measured in turns."""

    exit_code: int
    """1 if a point failed."""
    name: str = ""
    """The tag `ab` of all its runs."""
    run_ids: Mapping[Letter, Sequence[str]]
    rounds: int
    comparison: StoredComparison
    junit: str | None = None
    """JUnit XML of it, if requested."""


def run_comparison(
    arms: tuple[Arm, Arm], looks: Sequence[int], output: OutputOptions, budget_s: float | None = None
) -> int:
    """Measure both sides in turns until every point has a verdict, store their runs and print the comparison.

    `looks` are the numbers of rounds after which the difference is tested. Returns the exit code.
    """
    found = measure_and_compare(arms, looks, output, budget_s)
    if output.json:
        sides = {one.letter: {"command": one.typed, "run_ids": list(found.run_ids[one.letter])} for one in arms}
        print(json.dumps({**sides, "comparison": found.comparison.document}, indent=2, ensure_ascii=False))
    else:
        for one in arms:
            line = one.typed if one.folder is None else f"{one.typed} (in {one.folder})"
            print(f"- {one.name}: {markdown_code(line)}" if output.markdown else f"{one.name}  {line}")
        print(f"\n{found.comparison.text}")
    if output.output_dir is not None:
        selections = [f"tag.ab={found.name},tag.ab_side={letter}" for letter in LETTERS]
        again = shlex.join(["benchhouse", "compare", *selections, *database_flags(output.db_path)])
        notes(quiet=output.quiet)(f"both are stored: {again} shows this again")
    written = EXIT_OK
    if output.junit is not None and found.junit is not None:
        from db.analysis.junit import write_for_ci

        written = write_for_ci(NAME, "--junit", output.junit, found.junit)
    return found.exit_code or found.comparison.exit_code or written


def is_undecided(comparison: Json) -> bool:
    """Whether the interval of any point extends beyond 2 %."""
    document: Any = comparison
    judgements = [finding["judgement"] for finding in document["findings"]]
    return any(judgement["scope"] is not None and not judgement["is_decided"] for judgement in judgements)


def measure_and_compare(
    arms: tuple[Arm, Arm],
    looks: Sequence[int],
    output: OutputOptions,
    budget_s: float | None = None,
    *,
    needs_more_rounds: Callable[[Json], bool] = is_undecided,
    keep_partial: bool = True,
) -> ABResult:
    """Measure both sides in turns while `needs_more_rounds` of the comparison after a look, and store their runs.

    The name of the comparison, which is the tag `ab` of all its runs, is the seed of the order in each round. No rounds
    are added after `budget_s`. With `keep_partial`, results measured before an error are kept.
    """
    name = uuid7()
    runs: dict[Letter, list[str]] = {letter: [] for letter in LETTERS}
    code, rounds, started, is_measured, compared = EXIT_OK, 0, monotonic(), False, output
    format_flags = ["--json"] if output.json else ["--markdown"] if output.markdown else []
    with ExitStack() as stack:  # the working folder of the sides is in the output folder, if there is one
        if output.output_dir is not None:
            spool.prepare(output.output_dir)
            keep_folder = _keep_after_error if keep_partial else held_folder
            folder = stack.enter_context(keep_folder(output.output_dir / f"ab-{name}"))
        else:
            folder = stack.enter_context(temporary_folder("benchhouse-ab"))
            if keep_partial:
                stack.enter_context(_keep_after_error(folder, f"benchhouse-ab-{name}"))
        db_path = output.db_path if output.output_dir is not None else str(folder / "compared.duckdb")
        ingest = command_session.database(db_path, output.lock_timeout_s, quiet=True)
        say = notes(quiet=output.quiet)
        more = "" if len(looks) == 1 else f", and up to {looks[-1]} while they do not decide"
        limit = "" if budget_s is None or len(looks) == 1 else f" and --budget {budget_s:g} leaves time"
        say(f"{looks[0]} rounds of one launch of A and one of B{more}{limit}; the first shows how long they take")
        for count in looks:
            if rounds and not needs_more_rounds(_compare(runs, db_path, compared, "--json").document):
                break
            if rounds and budget_s is not None and (monotonic() - started) / rounds * count > budget_s:
                note(f"{count - rounds} more rounds would exceed --budget {budget_s:g}: stopping after {rounds}")
                break
            part = folder / f"{rounds + 1}-{count}"
            turns = range(rounds, count)
            # Tags identify the comparison and the side.
            tags = [word for key, value in {**output.tags, "ab": name}.items() for word in ("--tag", f"{key}={value}")]
            words = [] if output.description is None else ["--description", output.description]
            quiet = [*(["--anonymous"] if output.anonymous else []), *(["--quiet"] if output.quiet else [])]
            wait = [] if output.lock_timeout_s is None else ["--lock-timeout", f"{output.lock_timeout_s:g}"]
            further = {letter: [*tags, "--tag", f"ab_side={letter}", *words, *wait, *quiet] for letter in LETTERS}
            code = max(code, measure_in_turns(arms, turns, part, further, say, name))
            for letter in LETTERS:
                for path in _collect_run_files(part, letter, output):
                    ingest(path)
                    run_id, has_values = _stored(path)
                    runs[letter].append(run_id)
                    is_measured = is_measured or has_values
            rounds = count
            # Where all failed, that is what there is to say, not that no result has the metric.
            compared = output if is_measured else replace(output, metric=None)
        if (file := None if output.junit is None else folder / "junit.xml") is not None:
            format_flags += ["--junit", str(file), *(["--failed"] if code == EXIT_FAILED else [])]
        last = _compare(runs, db_path, compared, *_fail_on_flags(output.fail_on), *format_flags)
        junit = None if file is None else file.read_text(encoding="utf-8")
        return ABResult(exit_code=code, name=name, run_ids=runs, rounds=rounds, comparison=last, junit=junit)


def _compare(
    runs: Mapping[Letter, Sequence[str]], db_path: str, output: OutputOptions, *flags: str
) -> StoredComparison:
    metric = ["--metric", output.metric] if output.metric else []
    names = ["--before-name", "the first command", "--after-name", "the second command"]
    return compare_stored(selection_of(runs["a"]), selection_of(runs["b"]), db_path, *metric, *names, *flags)


def _fail_on_flags(asked: Sequence[Condition]) -> list[str]:
    return [FLAG, ",".join(asked)] if asked else []


def _collect_run_files(folder: Path, letter: Letter, output: OutputOptions) -> list[Path]:
    """The run files of a side, moved to the output folder."""
    files = run_files(folder, letter)
    if output.output_dir is None:
        return files
    name = folder.parent.name[-8:]
    targets = [output.output_dir / f"{path.stem}_ab-{letter}-{name}-{folder.name}.json" for path in files]
    for path, target in zip(files, targets, strict=True):
        path.rename(target)
        if not output.quiet:
            note(f"run file: {target}")
    return targets


@contextmanager
def _keep_after_error(folder: Path, name: str | None = None) -> Iterator[Path]:
    """The folder, deleted at the end. After an error it is kept if it has results, under another name if given."""
    try:
        yield folder
    except BaseException:
        if any(folder.glob("*/*/*.json*")):
            folder = folder if name is None else folder.rename(folder.with_name(name))
            partial = sorted({path.parent for path in folder.glob(f"*/*/*{spool.PARTIAL_SUFFIX}")})
            places = [shlex.join(flag_words("--output-dir", str(path))) for path in partial]
            commands = [f"{as_typed('run')} --resume {place}" for place in places]
            advice = "load them"
            if commands:
                is_any_finished = any(folder.glob("*/*/*.json"))
                rest = "or load the finished ones" if is_any_finished else "then load them"
                advice = f"finish them with {' and '.join(commands)}, {rest}"
            note(
                f"the results so far are in {folder}: {advice} with "
                f"{as_typed('setup')} {shlex.join(flag_words('--ingest', str(folder)))}"
            )
            if partial:
                note(command_session.storing_unfinished(folder))
        else:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder)


def _stored(path: Path) -> tuple[str, bool]:
    """The id of the run in a file, and whether any of its points was measured."""
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        return str(run["run_id"]), any(result["metrics"] for result in run["results"])
    except (OSError, ValueError, KeyError) as error:
        raise StorageError(f"{path}: not a run file: {error}") from error


def _parser() -> Parser:
    parser = Parser(prog=NAME, usage="%(prog)s A [B] [flags]", description=__doc__, epilog=EXAMPLES)
    sides = parser.add_argument_group("sides")
    sides.add_argument("a", metavar="A", help="command line of the baseline, in quotes")
    sides.add_argument(
        "b", metavar="B", nargs="?", help="command line of the candidate, in quotes (default, in another worktree: A)"
    )
    for letter in LETTERS:
        what = f"folder to run {letter.upper()} in, with its modules (default: this folder)"
        sides.add_argument(f"--worktree-{letter}", type=Path, metavar="DIR", help=what)
    add_measurement_flags(parser.add_argument_group("measurement"))
    output = parser.add_argument_group("output")
    flags.add_saved(output)
    flags.add_keeping(output)
    add_settings(output, SHARED, "quiet")
    form = output.add_mutually_exclusive_group()
    add_settings(form, SHARED, "json")
    add_flags(form, COMMON["markdown"].here(help="comparison as Markdown for a pull request"))
    add_settings(output, COMMON, "junit")
    output.add_argument(FLAG, type=conditions, default=(), metavar="VERDICTS", help=HELP)
    return parser


def add_measurement_flags(group: argparse._ArgumentGroup) -> None:
    """The number of launches of each side, and the metric to compare."""
    most = "maximum launches per side; equal to --rounds for a single look"
    budget = "seconds that rounds beyond --rounds must fit, with those before"
    add_flags(
        group,
        Setting("rounds", WHOLE, "launches per side before the first test of the difference", default=DEFAULT_ROUNDS),
        Setting("max_rounds", WHOLE, most, default_words=f"{MAX_ROUNDS}, or --rounds"),
        Setting("budget", SECONDS_FROM_0, budget, default_words="no limit"),
        COMMON["metric"].here(help="metric to compare", default=None, default_words="latency_median_ms"),
    )


COMPARE_TO, INTERLEAVE = "--compare-to", "--interleave"
MOST_POINTS = 4
"""Maximum points listed in an advice; the rest are counted."""
HOST_KEYS = ("cpu_model", "cpu_cores", "cpu_threads", "numa_nodes", "memory_class_bytes")
"""The parts of a hardware id that describe the machine rather than its device."""


def add_comparison_flags(group: argparse._ArgumentGroup) -> None:
    """Flags that compare a run with a stored one."""
    what = "with --save: compare with a stored run, given by id, commit, latest or tag.NAME=VALUE"
    group.add_argument(COMPARE_TO, metavar="RUN", help=what)
    what = f"with {COMPARE_TO}: remeasure that run in turns with this one"
    few_need(group.add_argument(INTERLEAVE, action="store_true", help=what))
    what = f"with {COMPARE_TO}, where B is this run: {HELP}"
    few_need(group.add_argument(FLAG, type=conditions, default=(), metavar="VERDICTS", help=what))


def check_comparison_flags(arguments: argparse.Namespace) -> None:
    """Check that the stored run exists, before anything is measured. Raises UsageError, StorageError."""
    if arguments.interleave and arguments.compare_to is None:
        raise UsageError(f"{INTERLEAVE} requires {COMPARE_TO}: add the run to measure in turns with this one")
    if arguments.fail_on and arguments.compare_to is None:
        raise UsageError(f"{FLAG} requires {COMPARE_TO} RUN: add the stored run that this one may not be slower than")
    if arguments.compare_to is None:
        return
    if not (arguments.save or arguments.interleave):
        raise UsageError(f"{COMPARE_TO} requires --save, since it compares stored runs: add --save")
    if not stored_runs(arguments.compare_to, arguments.db_path):
        from db.analysis.selection import Selection, unstored
        from db.warehouse import Warehouse

        with Warehouse.open(arguments.db_path, read_only=True) as warehouse:
            why = unstored(warehouse, Selection.parse(arguments.compare_to))
        raise UsageError(f"{COMPARE_TO} {arguments.compare_to}: no results of that run in {arguments.db_path}{why}")


def show_comparison(
    show: command_session.Show, arguments: argparse.Namespace, run_ids: Sequence[str], codes: list[int]
) -> command_session.Show:
    """Shows the runs as before, then their comparison with the stored run, whose exit code is appended to `codes`."""
    # Selected by id, because "latest" is the new run by then.
    stored_before = stored_runs(arguments.compare_to, arguments.db_path)
    stored = [run.run_id for run in stored_before]
    points = {point.label for run in stored_before for point in run.points}
    typed = name = arguments.compare_to
    if not any(run_id.startswith(typed) for run_id in stored):
        # With ids by which each can be selected: a UUIDv7's first two groups are its time in milliseconds.
        ids = listed(["-".join(run_id.split("-")[:2]) for run_id in stored], 2)
        name = f"{typed} (run{'s' * (len(stored) > 1)} {ids})"
    names = ["--before-name", name, "--after-name", "this run"]
    gate = _fail_on_flags(arguments.fail_on)

    def compared(*format_flags: str) -> StoredComparison:
        found = compare_stored(
            selection_of(stored), selection_of(run_ids), arguments.db_path, *names, *gate, *format_flags
        )
        codes.append(found.exit_code)
        return found

    def text(runs: Sequence[Run], page: Page) -> str:
        result = (command_session.tables if show.text is None else show.text)(runs, page)
        found = compared()
        if found.exit_code != EXIT_NOT_ENOUGH_DATA:
            return "\n".join([result, "", found.text])
        advice = (
            f"to decide without a history, add {INTERLEAVE}: {typed} is then measured again, in turns with this run"
        )
        if points.isdisjoint(one.point.label for run in runs for one in run.results):
            advice = f"{typed} has other points: to compare, measure {listed(sorted(points), MOST_POINTS)}"
        return "\n".join([result, "", found.text, wrapped(advice, page.text_width)])

    def document(runs: Sequence[Run]) -> Json:
        result = [to_json(run) for run in runs] if show.document is None else show.document(runs)
        return {"measured": result, "comparison": compared("--json").document}

    return replace(show, text=text, document=document)


def _alike(runs: Sequence[MeasuredRun], arguments: argparse.Namespace) -> Sequence[MeasuredRun]:
    """Of runs of one model on one device in several setups, as of a search, those in the setup of this command. All of
    them if there is none, and of several models or devices, since another one's run is no other setup."""
    if len({(run.model_id, run.task, run.device) for run in runs}) > 1:
        return runs
    stated = options_in(vars(arguments))
    alike = [
        run
        for run in runs
        if run.runtime in (arguments.runtimes or (default_runtime(),))
        and run.precision in arguments.precisions
        and run.num_threads in (arguments.num_threads or (None,))
        and all(run.runtime_mode.get(name, value) == value for name, value in stated.items())
    ]
    return alike or runs


def arms(arguments: argparse.Namespace, argv: Sequence[str]) -> tuple[Arm, Arm]:
    """The two sides: the stored run and this command. Raises UsageError if they cannot be measured in turns.

    The stored run is repeated from its stored fields. Its command line is never executed, since it may be any text.
    """
    runs = _alike(stored_runs(arguments.compare_to, arguments.db_path), arguments)
    try:
        words = repeated_command(runs)
    except UsageError as error:
        raise UsageError(f"{INTERLEAVE}: {COMPARE_TO} {arguments.compare_to}: {error}") from error
    from benchmarking.core.plugins import processor
    from benchmarking.devices.support.host import hashed_keys, host_facts

    machine = hashed_keys(Device(type=processor().name, selector=processor().name, found=True), host_facts())
    recorded = runs[-1].hashed_keys
    differing = [name for name in HOST_KEYS if name in recorded and recorded[name] != machine[name]]
    if differing:
        values = "; ".join(f"{name}: {json.dumps(recorded[name])} / {json.dumps(machine[name])}" for name in differing)
        raise UsageError(f"{INTERLEAVE}: the stored run is from another machine ({values}): run this command there")
    positions = {position for position, word in enumerate(argv) if word in (COMPARE_TO, FLAG)}
    dropped = positions | {position + 1 for position in positions}
    own = [
        word
        for position, word in enumerate(argv)
        if position not in dropped and word != INTERLEAVE and not word.startswith((f"{COMPARE_TO}=", f"{FLAG}="))
    ]
    return arm("a", shlex.join(words)), arm("b", shlex.join((SCRIPTS["run"], *own)))
