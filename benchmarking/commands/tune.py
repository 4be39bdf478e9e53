"""Finds the configuration to deploy: runtime, precision, threads, batch size and options, within limits and a budget.

Everything that can run here gets one short launch. What is behind, or cannot meet a limit, is left there; the rest is
measured longer, in turns. All launches are stored, with the tag tune. Ctrl-C prints the answer so far.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarking.core import plugins
from benchmarking.core.axes import AXES, FURTHER
from benchmarking.core.command_line import Parser, command, database_flags, note
from benchmarking.core.command_names import words_as_typed
from benchmarking.core.errors import (
    EXIT_FAILED,
    EXIT_NOT_ENOUGH_DATA,
    EXIT_OK,
    BenchhouseError,
    LockedError,
    StorageError,
    UsageError,
)
from benchmarking.core.plugins import check_measuring
from benchmarking.core.provenance import uuid7
from benchmarking.core.quality import TEXT_WINDOWS
from benchmarking.core.settings import PATH, SECONDS, Setting, add_flags, add_settings, one_of, table
from benchmarking.core.shared_settings import COMMON, SHARED, parse_limits
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import TEXT_WIDTH, stdout_page
from benchmarking.core.text import duration, grouped, listed, wrapped
from benchmarking.core.verdicts.launches import ROUNDS_TO_PROVE
from benchmarking.measure.context import settings
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.flags import command_line
from benchmarking.sweep.plan.measuring_settings import MEASURING
from benchmarking.sweep.plan.plan import Machine
from benchmarking.sweep.plan.request import Request, request_fields, workload_of
from benchmarking.sweep.run import command_session, spool
from benchmarking.sweep.run.command_session import Ingest
from benchmarking.tuning import space as spaces
from benchmarking.tuning.search import TAG, UNFINISHED, Configuration, Search, race_plan
from benchmarking.tuning.space import LIMITS, Choices, Goal, Space, quality_to_show

if TYPE_CHECKING:
    from benchmarking.tuning.race import Out


OBJECTIVES = ("throughput", "latency", "energy", "cost")
DEFAULT_BUDGET_S = 600.0

TUNING = table(
    replace(
        COMMON["limit"],
        metavar="LIMIT",
        default=(),
        help="such as latency_p95:50ms; repeatable: the most latency (median), latency_p90, latency_p95, "
        "latency_p99, ttft, memory, energy (per item), kl, perplexity_increase; the least throughput, agreement",
    ),
    Setting("objective", one_of(OBJECTIVES, "objective"), "what to optimize within the limits", default="throughput"),
    Setting(
        "budget",
        SECONDS,
        "time for the whole search, builds included",
        metavar="TIME",
        default=DEFAULT_BUDGET_S,
        default_words="10m",
    ),
    Setting("space", PATH, "YAML file that restricts or extends it (see --help-all)", default_words="none"),
    replace(COMMON["price"], is_rare=True),
    replace(COMMON["resume"], help="go on with the interrupted search in --output-dir"),
    base=MEASURING,
)


NAME = "benchhouse tune"
EXAMPLES = """\
examples:
  benchhouse tune bert-base-uncased --limit latency_p95:50ms --budget 10m
  benchhouse tune gpt2 --objective latency --precisions int8,int4
  benchhouse tune bert-base-uncased --dry-run --space space.yaml
"""
EXIT_CODES = """
exit codes: 0 a configuration is recommended; 1 not stored; 2 usage; 3 none meets the limits, or nothing could be judged
"""
RESTRICTED = ("runtime", "precision", "batch_size", "num_threads")
"""What a flag restricts; --space does it for the options of runtimes too."""
LEAST_ROWS, MOST_ROWS = 5, 12
"""Configurations in the table: the recommended one, its equals, the front, and the next best where these are few."""
MOST_REASONS = 12
"""Reasons listed; --json has all."""
MOST_LOST = 4
"""Cells named whose launches had no result."""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    check_measuring()
    flags.use_cache_dir(arguments.cache_dir, writes=not arguments.dry_run)
    limits = parse_limits(",".join(arguments.limit), LIMITS) if arguments.limit else {}
    goal = Goal(objective=arguments.objective, limits=limits)
    given = Choices(
        runtimes=arguments.runtimes or (),
        precisions=arguments.precisions or (),
        batch_sizes=arguments.batch_sizes or (),
        num_threads=arguments.num_threads or (),
    )
    if arguments.space is not None and not arguments.space.exists():
        name, equals, values = str(arguments.space).partition("=")
        lists = (TUNING[one] for one in RESTRICTED if name in (one, TUNING[one].plural))
        instead = next((f"give {setting.list_flag} {values}" for setting in lists), f"write {name}: [{values}] in it")
        hint = instead if equals else "it does not exist (see --help-all)"
        raise UsageError(f"--space {arguments.space} is no YAML file: {hint}")
    choices = given if arguments.space is None else given.or_of(spaces.read_choices(arguments.space))
    if arguments.price is None:
        if arguments.objective == "cost":
            raise UsageError("--objective cost requires --price FILE, with the price per hour of the device")
        prices: Any = None
    else:
        from db.analysis.recommend.recommendation import read_prices

        prices = read_prices(arguments.price)
    if arguments.resume and not arguments.save:
        raise UsageError("--resume and --no-save exclude each other: an interrupted search is in --output-dir")
    request = Request(
        model_id=arguments.model_id,
        settings=settings("quick"),
        command=("tune", *argv),
        **request_fields(vars(arguments), without=RESTRICTED),
    )
    workload, machine, session_id = workload_of(request), Machine(), uuid7()
    if goal.needs_quality:
        quality = quality_to_show(limits, workload)
        request = replace(request, settings=replace(request.settings, quality=quality))
        if quality.windows > TEXT_WINDOWS:
            note(f"the quality of each cell takes {quality.windows} inputs, by the limit on agreement (kl takes fewer)")
    found = spaces.space(
        request, choices, session_id, workload, machine, needs_latency_only=goal.objective == "latency"
    )
    device = found.candidates[0].plan.cell.device
    if (
        prices is not None
        and prices.lookup(
            found.candidates[0].plan.hardware.hardware_id, device.name, device.type, len(device.selector.split(","))
        )
        is None
    ):
        raise UsageError(f"--price {arguments.price}: no price for {device.type}: add it under per_hour")
    command_session.note_choices([found.candidates[0].plan])
    if arguments.dry_run:
        command_session.check_saving(arguments)
        note(f"the search takes {duration(arguments.budget)} at most, by --budget")
        return _show_space(found, as_json=arguments.json)
    if arguments.timeout != MEASURING["timeout"].default and arguments.budget == DEFAULT_BUDGET_S:
        note(f"--timeout is the limit of each launch: the search has that of --budget, {DEFAULT_BUDGET_S / 60:g}m")
    if device.simulated:
        note(f"{device.selector} is simulated: its times rank configurations of the simulation only")
    tagged = [race_plan(candidate, {TAG: session_id}) for candidate in found.candidates]
    if arguments.anonymous:
        tagged = [replace(candidate, plan=candidate.plan.anonymous()) for candidate in tagged]
    found = replace(found, candidates=tuple(tagged))
    output_dir, ingest = command_session.saving(arguments)
    with spool.opened_folder(output_dir) as folder:
        search = Search(
            found,
            goal,
            arguments.budget,
            folder,
            say=(lambda line: None) if arguments.quiet else note,
            device_wait_s=arguments.lock_timeout,
        )
        try:
            if arguments.resume:
                search.resume()
            return _searched(search, arguments, argv, ingest, prices)
        finally:
            search.close()


def _searched(
    search: Search, arguments: argparse.Namespace, argv: Sequence[str], ingest: Ingest | None, prices: Any
) -> int:
    """Measure, store, and print the answer; after an interruption, or where the device stays in use, that so far."""
    try:
        search.run()
    except (KeyboardInterrupt, LockedError) as stop:
        if isinstance(stop, LockedError) and not any(track.loads for track in search.tracks.values()):
            raise
        again = shlex.join(["benchhouse", "tune", *argv, *([] if arguments.resume else ["--resume"])])
        kept = f"saved; continue with {again}" if arguments.save else "not saved, because of --no-save"
        ended = "interrupted" if isinstance(stop, KeyboardInterrupt) else "stopped"
        stored = f"; {command_session.storing_unfinished(search.folder)}" if ingest is not None else ""
        note(f"{ended} after {search.spent_s:.0f} s: {kept}{stored}; the answer so far:")
        _print_answer(search, arguments, prices)
        raise
    code = EXIT_OK
    if arguments.save:
        try:
            search.store(ingest)
        except StorageError as error:
            note(f"not stored: {error}")
            code = EXIT_FAILED
    is_stored = arguments.save and code == EXIT_OK
    return max(code, _print_answer(search, arguments, prices, is_stored=is_stored))


def _parser() -> Parser:
    parser = Parser(
        prog=NAME,
        usage="%(prog)s MODEL [flags]",
        description=__doc__,
        epilog=EXAMPLES + EXIT_CODES,
        details=spaces.FILE_FORMAT,
    )
    flags.add_named_model(parser.add_argument_group("model"))
    goal = parser.add_argument_group("goal")
    add_settings(goal, TUNING, "limit", "objective", "budget", "price")
    tried = parser.add_argument_group("what is tried")
    flags.add_device(tried)
    all_of_them = dict.fromkeys(("runtime", "precision", "num_threads"), "what can run here")
    words = {**all_of_them, "batch_size": ",".join(map(str, spaces.BATCH_SIZES))}
    restricted = [TUNING[name].here(default=None, default_words=words.get(name)) for name in RESTRICTED]
    add_flags(tried, *restricted, lists=RESTRICTED)
    add_flags(
        tried,
        TUNING["space"],
        MEASURING["sequence_length"].here(default_words="128 for text"),
        MEASURING["new_tokens"].here(default_words="16"),
        *(MEASURING[name] for name in FURTHER),
    )
    add_settings(parser.add_argument_group("measurement"), MEASURING, "timeout", "cache_dir")
    output = parser.add_argument_group("output")
    flags.add_saved(output)
    add_settings(output, TUNING, "resume")
    flags.add_keeping(output)
    flags.add_output_format(output)
    add_settings(output, SHARED, "dry_run")
    return parser


def _show_space(found: Space, *, as_json: bool) -> int:
    """Print what is tried, and what is left out and why."""
    if as_json:
        tried = {candidate.name: [point.label for point in candidate.plan.runnable] for candidate in found.candidates}
        print(json.dumps({"configurations": tried, "left_out": dict(found.left_out)}, indent=1))
        return EXIT_OK
    page = stdout_page()
    rows = tuple(
        (candidate.name, ", ".join(point.label for point in candidate.plan.runnable)) for candidate in found.candidates
    )
    title = f"{len(found.candidates)} cells, {found.size} configurations; the most promising are tried first"
    print(f"{title}\n\n{table_text(Table(headings=('cell', 'points'), rows=rows), page)}")
    by_reason = grouped((why, name) for name, why in found.left_out.items())
    if by_reason:
        lines = [f"{'; '.join(names)}: {why}" for why, names in by_reason.items()]
        print(wrapped("\n".join(["\nleft out", *lines]), page.text_width))
    return EXIT_OK


def _print_answer(search: Search, arguments: argparse.Namespace, prices: Any, *, is_stored: bool = False) -> int:
    """Print the answer; returns the exit code."""
    from db.analysis.recommend.measured_options import option_of, workload_of
    from db.analysis.recommend.recommendation import recommend_of_turns, with_prices

    limits: Any = search.goal.limits
    options: dict[str, Any] = {}
    runs = {name: search.run_of(name) for name in search.candidates if search.tracks[name].measurements}
    for key, one in search.configurations.items():
        run = runs.get(one.candidate.name)
        result = None if run is None else next(each for each in run.results if each.point == one.point)
        launches = search.race.entrants[key].launches.values()
        if run is None or result is None or not launches:
            continue
        rates = [1 / launch.cost for launch in launches if launch.cost] if arguments.objective in RATES else []
        if (option := option_of(run, result, rates)) is not None:
            options[key] = with_prices(option, prices)
            workload = workload_of(run, result)
    if not options:
        reasons = _reasons(search)[:MOST_REASONS] or ["no launch was measured"]
        note(f"nothing could be judged: {'; '.join(reasons)}")
        if arguments.json:
            print(json.dumps(_document(search, {}, None), indent=1))
        return EXIT_NOT_ENOUGH_DATA
    recommendation = recommend_of_turns(
        list(options.values()),
        limits,
        arguments.objective,
        {option.result_id: search.race.entrants[key].costs for key, option in options.items()},
        is_of_all=all(entrant.launches or entrant.out == "failed" for entrant in search.race.entrants.values()),
    )
    if arguments.json:
        print(json.dumps(_document(search, options, recommendation), indent=1))
    else:
        print(_text(search, workload, options, recommendation, prices))
        if is_stored:
            among = f"tag.{TAG}={search.session_id}"
            shown, ranked = (
                shlex.join(["benchhouse", *words, *database_flags(arguments.db_path)])
                for words in (["show", among], ["recommend", arguments.model_id, "--among", among])
            )
            print(f"\nall that was measured is stored:\n  {shown}")
            if not search.space.candidates[0].plan.cell.device.simulated:  # which recommend leaves out
                print(f"rank it by other limits or another objective:\n  {ranked}")
    return EXIT_OK if recommendation.best is not None else EXIT_NOT_ENOUGH_DATA


RATES = ("throughput", "cost")
"""Objectives whose cost of a launch is the inverse of its throughput."""


def _text(search: Search, workload: Any, options: Mapping[str, Any], recommendation: Any, prices: Any) -> str:
    from db.analysis.recommend.recommendation_text import recommendation_text, recommendation_words

    page = stdout_page()
    limits: Any = search.goal.limits
    first, *others = recommendation.rated
    named = [one for one in others if one.is_on_front or one in recommendation.equal]
    named += [one for one in others if one not in named][: max(0, LEAST_ROWS - 1 - len(named))]
    shown = [first, *(one for one in others if one in named)][:MOST_ROWS]
    chosen = (limits, None if prices is None else prices.currency, page)
    words = recommendation_words(workload, recommendation, *chosen, shown=shown)
    fits = sum(one.fits for one in recommendation.rated)
    counts = f"{len(options)} of {len(search.configurations)} configurations measured in {search.spent_s:.0f} s"
    limits = f"; {fits} meet{'s' * (fits == 1)} the limits" if search.goal.limits else ""
    title = f"{workload.text}: {counts} of {search.budget_s:g} s{limits}"
    words = replace(words, title=title, precisions=None)
    parts = [recommendation_text(words, page)]
    if len(shown) < len(options):
        parts.append(f"{len(options) - len(shown)} more were measured (--json lists them)")
    elif len(options) < len(search.configurations):  # the table says only in which settings they differ
        parts.append(wrapped(f"measured: {'; '.join(options)}", page.text_width))
    keys = {option.result_id: key for key, option in options.items()}
    if reasons := _reasons(search, [keys[one.option.result_id] for one in recommendation.equal]):
        parts.append(wrapped("\n".join(reasons[:MOST_REASONS]), page.text_width))
    if recommendation.best is not None:
        best = search.configurations[keys[recommendation.best.option.result_id]]
        width = (page.text_width or TEXT_WIDTH) - 8
        again = textwrap.wrap(shlex.join(_again(best)), width, break_long_words=False, break_on_hyphens=False)
        parts.append("measure it again:\n  " + " \\\n      ".join(again))
        is_simulated = best.candidate.plan.cell.device.simulated
        lines = None if is_simulated else _deployment(best)
        if lines is None and not is_simulated:
            parts.append(f"deploy it: a few lines do not run this task in {best.candidate.plan.cell.runtime}")
        elif lines is not None:
            indented = "\n".join(f"  {line}".rstrip() for line in lines.splitlines())
            random = best.candidate.plan.cell.workload.weights == "random"
            warning = " (the weights are random here: search again with the pretrained ones first)" if random else ""
            parts.append(f"deploy it{warning}:\n{indented}")
    return "\n\n".join(parts)


def _reasons(search: Search, equal: Collection[str] = ()) -> list[str]:
    """How many left the race for each kind of reason, but for those that are equal to the best in the end; what failed
    or did not finish, with its reason; and the time that launches without a result took."""
    left = [
        entrant for entrant in search.race.entrants.values() if entrant.out is not None and entrant.key not in equal
    ]
    all_s = search.budget_for_all_s
    longer = "a longer --budget measures them"
    longer += "" if all_s is None else f", about {math.ceil(all_s / 60)}m tries all"
    words: dict[Out, str] = {
        "behind": "behind the best as measured",
        "misses": "missed a limit",
        "unknown": "unknown in the objective or a limit, which is not met",
        "failed": "failed",
    }
    counts = {out: sum(entrant.out == out for entrant in left) for out in words}
    lines = [f"{counts[out]} {text}" for out, text in words.items() if counts[out]]
    unfinished = [entrant for entrant in left if entrant.reason == UNFINISHED and not entrant.launches]
    if unfinished:
        lines.append(f"{len(unfinished)} launched but not finished in time")
    without_room = [bool(one.launches) for one in left if one.out == "no room" and one not in unfinished]
    if measured := without_room.count(True):
        lines.append(f"{measured} had no room in the budget for more launches")
    if untried := without_room.count(False):
        lines.append(f"{untried} had no room in the budget for any launch")
    if without_room or unfinished:
        lines[-1] += f": nothing is proven about them, {longer}"
    by_reason = grouped((str(one.reason), one.key) for one in left if one.out == "failed" or one in unfinished)
    lost_s, waited_s = sum(search.lost_s.values()), sum(track.waited_s for track in search.tracks.values())
    each = [f"{name} {lost:.0f} s" for name, lost in sorted(search.lost_s.items(), key=lambda item: -item[1])]
    return [
        *([", ".join(lines)] if lines else []),
        *([f"{waited_s:.0f} s passed in waiting for the device, which was in use"] * (waited_s >= 1)),
        *([f"{lost_s:.0f} s went into launches without a result: {listed(each, MOST_LOST, '; ')}"] * (lost_s >= 1)),
        *(f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {why}" for why, names in by_reason.items()),
    ]


def _again(best: Configuration) -> tuple[str, ...]:
    """The command that measures a configuration again."""
    request, point = best.candidate.request, best.point
    values: dict[str, Any] = {AXES[name].key: (value,) for name, value in point.stated.items()}
    again = replace(
        request,
        **{"sequence_lengths": None, "new_tokens": None, "concurrency": None, **values},
        axes={name: (value,) for name, value in point.axes.items()},
        settings=replace(settings("quick", launches=ROUNDS_TO_PROVE), quality=request.settings.quality),
    )
    return words_as_typed(command_line(again))


def _deployment(best: Configuration) -> str | None:
    cell = best.candidate.plan.cell
    runtime = plugins.runtime(cell.runtime)
    try:
        return runtime.deployment(cell, best.point)
    except BenchhouseError as error:
        note(f"no lines that deploy it: {error}")
        return None


def _document(search: Search, options: Mapping[str, Any], recommendation: Any) -> dict[str, Any]:
    from benchmarking.core.records import to_json

    rated = {} if recommendation is None else {one.option.result_id: one for one in recommendation.rated}
    chosen = None if recommendation is None else recommendation.best
    keys = {option.result_id: key for key, option in options.items()}
    equal = [] if chosen is None else [keys[one.option.result_id] for one in recommendation.equal]
    configurations = []
    for key, entrant in search.race.entrants.items():
        one = rated.get(options[key].result_id) if key in options else None
        configurations.append(
            {
                "configuration": key,
                "launches": len(entrant.launches),
                "state": "finalist" if key in equal else entrant.out or "finalist",
                "reason": entrant.reason,
                "fits": None if one is None else one.fits,
                "misses": [] if one is None else to_json(one.misses),
                "is_on_front": one is not None and one.is_on_front,
                "option": None if one is None else to_json(one.option),
            }
        )
    best = None if chosen is None else search.configurations[keys[chosen.option.result_id]]
    return {
        "model_id": search.space.candidates[0].plan.cell.workload.model_id,
        "session_id": search.session_id,
        "objective": search.goal.objective,
        "limits": dict(search.goal.limits),
        "budget_s": search.budget_s,
        "budget_for_all_s": None if (all_s := search.budget_for_all_s) is None else round(all_s),
        "spent_s": round(search.spent_s, 1),
        "rounds": search.race.round,
        "recommended": None
        if best is None
        else {
            "configuration": best.key,
            "equal": equal,
            "judged": {keys[name]: to_json(judgement) for name, judgement in recommendation.judged.items()},
            "command": list(_again(best)),
            "deployment": _deployment(best),
        },
        "configurations": configurations,
        "left_out": dict(search.space.left_out),
    }
