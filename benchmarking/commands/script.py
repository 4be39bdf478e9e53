"""Measures the torch models that Python scripts call, with the scripts' inputs.

Each script runs in a process that records which models it calls, and again up to that call in each one that measures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from benchmarking.builds.inventory import lean_cache
from benchmarking.cluster.target import Target, add_remote, open_target, resolve_target
from benchmarking.commands import cache
from benchmarking.core.child_process import environment_variable
from benchmarking.core.command_line import Parser, note, notes, print_version, run_command, shows_tracebacks
from benchmarking.core.command_names import as_typed, typed_as
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, UsageError
from benchmarking.core.help_texts import few_need
from benchmarking.core.plugins import NO_GROQ, check_measuring, default_runtime
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import Json, Run, to_json
from benchmarking.core.settings import COUNT, DIR, SWITCH, WORD, Setting, add_flags, add_settings
from benchmarking.core.shared_settings import SHARED
from benchmarking.core.suggestions import SIMILAR, lists_joined, nearest
from benchmarking.core.terminal import Page, stdout_page
from benchmarking.core.text import flag_of, number, visible
from benchmarking.scripts.analysis import Analysis
from benchmarking.scripts.script_models import (
    OF_TARGETS,
    Models,
    Selection,
    analyse_each,
    outlines,
    split_arguments,
    targets,
)
from benchmarking.scripts.states import builds_table
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.measuring_settings import (
    MEASURING,
    add_runtime_options,
    check_shared_options,
    measured_by,
    options_in,
)
from benchmarking.sweep.plan.request import Request, request_fields
from benchmarking.sweep.run import command_session

NAME = "benchit"
EXAMPLES = """\
examples:
  benchhouse script example.py
  benchhouse script example.py::d5b1ab77 --device x86 --runtime ort --save
  benchhouse script --all --analyze-only --max-depth 1

benchhouse cache list|print|stats|delete|report shows the builds.
"""
TRACEBACK, DEBUG = "MLAGILITY_TRACEBACK", "MLAGILITY_DEBUG"
"""Environment variables of MLAgility: True shows tracebacks, and everything that scripts print."""


ACTIONS = {"cache": "cache list", "version": "version", "benchmark": "benchmark SCRIPT"}
"""What the command does besides measuring -> an example; their names come before all flags."""
UNKNOWN_BATCH = "the inputs do not show how many items a call holds: throughput counts calls (--batch-size N says it)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    with environment_variable("BENCHHOUSE_TRACEBACK", "1") if _is_set(TRACEBACK) else nullcontext():
        if words[:1] == ["cache"]:
            with typed_as(f"{NAME} cache"):
                return cache.main(words[1:])
        if words[:1] == ["version"]:
            return print_version(f"{NAME} version", words[1:])
        return run_command(NAME, _run, words[1:] if words[:1] == ["benchmark"] else words)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "true", "yes")


def _own_arguments(argv: Sequence[str]) -> list[str]:
    """The words, with the value of --script-args as one word: it is another program's flags, which look like ours.
    Raises UsageError for an action that is misspelt or after a flag."""
    words: list[str] = []
    first = next(iter(argv), "-")
    meant = [] if first.startswith("-") else nearest(first, ACTIONS, number=1, similar=SIMILAR)
    if meant and first not in ACTIONS and ".py" not in first and not Path(first).exists():
        raise UsageError(f"{first}: did you mean {as_typed('script')} {ACTIONS[meant[0]]}? A script ends with .py")
    for word in argv:
        if words[-1:] == ["--script-args"]:
            words[-1] = f"--script-args={word}"
            continue
        is_value = bool(words) and words[-1].startswith("-")
        if word in ACTIONS and not is_value and not Path(word).exists():
            raise UsageError(f"{word} comes first, as in {as_typed('script')} {ACTIONS[word]}")
        words.append(word)
    return words


def _run(argv: Sequence[str]) -> int:
    parser = _parser()
    flags_of_groq = (word.partition("=")[0] for word in argv if word.startswith("--groq"))
    if groq := next((flag for flag in flags_of_groq if flag not in parser._option_string_actions), None):
        # A plugin for its compiler may have added some.
        raise UsageError(f"{groq}: {NO_GROQ}: remove the flag")
    words = lists_joined(_own_arguments(argv), ("--device", "--devices"), ".py")
    arguments = parser.parse_args(words)
    resolve_target(arguments)
    if arguments.cluster is not None:  # flags that do not work on another machine
        for flag in ("analyze_only", "build_only", "sequence_file"):
            if getattr(arguments, flag):
                raise UsageError(f"{flag_of(flag)} works on this machine only: remove --backend and --use-slurm")
    scripts = targets(arguments.script, arguments.search_dir, everything=arguments.all)
    script_arguments = split_arguments(arguments.script_args)
    check_measuring("measuring the models of a script")
    selection = Selection(devices=arguments.devices, runtimes=arguments.runtimes or (), precision=arguments.precision)
    selection.check(is_here=arguments.cluster is None and not arguments.analyze_only)
    flags.use_cache_dir(arguments.cache_dir)
    say = notes(quiet=arguments.quiet)
    with lean_cache(is_lean=arguments.lean_cache, say=note):
        models = Models()
        analyses = analyse_each(
            models,
            scripts,
            script_arguments,
            max_depth=arguments.max_depth,
            limit_s=arguments.timeout,
            sequence=arguments.sequence_file,
            batch_size=arguments.batch_size,
            say=say,
        )
        code = EXIT_OK
        if arguments.analyze_only or any(script.hashes for script in scripts):
            analyses = iter(list(analyses))  # an unknown hash is found before anything is measured
        if not arguments.analyze_only:
            with open_target(arguments, arguments.devices, [one.path for one in scripts]) as target:
                request = Request(
                    model_id="",
                    options=(options := options_in(vars(arguments))),
                    shared_options=frozenset(options),
                    build_only=arguments.build_only,
                    settings=measured_by(vars(arguments)),
                    command=(NAME, *argv),
                    **request_fields(vars(arguments), without=OF_TARGETS),
                )
                act = _build if arguments.build_only else _measure
                code = act(models, analyses, selection, request, arguments, target)
    if arguments.analyze_only and arguments.json:
        print(json.dumps({"scripts": _scripts_json(models)}, indent=1))
    elif arguments.analyze_only:
        print("\n\n".join(outlines(models.analyses)))
    if _is_set(DEBUG):  # what the scripts printed
        for log in (Path(analysis.log) for analysis in models.analyses if analysis.log is not None):
            if log.is_file() and (text := log.read_text(encoding="utf-8", errors="replace").rstrip()):
                note(f"output of the script ({log}):")
                print(visible(text, kept="\n"), file=sys.stderr, flush=True)
    for failure in models.failures:
        note(f"failed: {failure}")
    for analysis in models.analyses:
        if analysis.traceback is not None and shows_tracebacks():
            print(visible(analysis.traceback, kept="\n"), file=sys.stderr)
        elif analysis.traceback is not None:
            where = "" if analysis.log is None else f"in {analysis.log}; "
            note(f"{analysis.name}: the whole traceback is {where}shown with BENCHHOUSE_TRACEBACK=1")
    return EXIT_FAILED if models.failures else code


def _build(
    models: Models,
    analyses: Iterator[Analysis],
    selection: Selection,
    request: Request,
    arguments: argparse.Namespace,
    target: Target,
) -> int:
    """Make the builds of all models; returns the exit code."""
    for _ in analyses:
        models.plan(selection, request, uuid7(), note, machine=target.machine)
    models.check_planned()
    check_shared_options(request.shared_options, [plan.cell for plan in models.plans])
    if not arguments.json:
        print("\n\n".join(outlines(models.analyses)), end="\n\n", flush=True)
    engines = models.build(notes(quiet=arguments.quiet))
    if arguments.json:
        records = [to_json(engine) for engine in engines]
        print(json.dumps({"scripts": _scripts_json(models), "builds": records}, indent=1))
    else:
        print(builds_table(engines, stdout_page()))
    return EXIT_OK


def _measure(
    models: Models,
    analyses: Iterator[Analysis],
    selection: Selection,
    request: Request,
    arguments: argparse.Namespace,
    target: Target,
) -> int:
    """Measure the models of each script before the next script runs; returns the exit code."""
    session_id, runs, codes = uuid7(), list[Run](), [EXIT_OK]
    show = command_session.Show(json=arguments.json, quiet=arguments.quiet, text=_results_text, is_last=False)
    output_dir, ingest = command_session.saving(arguments)

    def keep(run: Run) -> None:
        models.keep(run)
        runs.append(run)

    for analysis in analyses:
        is_first = not models.plans
        plans = models.plan(selection, request, session_id, note, machine=target.machine)
        if is_first and plans:
            check_shared_options(request.shared_options, [plan.cell for plan in plans])
        if not arguments.json:
            print("\n\n".join(outlines([analysis])), end="\n\n", flush=True)
        if plans:
            plans, wait_s = flags.named_plans(arguments, plans), arguments.lock_timeout
            codes.append(
                command_session.run_plans(
                    *(plans, output_dir, ingest, show), device_wait_s=wait_s, finished=keep, executor=target.executor
                )
            )
    models.check_planned()
    if arguments.json:
        print(json.dumps({"scripts": _scripts_json(models), "runs": [to_json(run) for run in runs]}, indent=1))
    return max(codes)


def _scripts_json(models: Models) -> list[Json]:
    return [to_json(analysis) for analysis in models.analyses]


def _results_text(runs: Sequence[Run], page: Page) -> str:
    """The tables of the runs, then a line per result with latency, throughput and their units."""
    lines = []
    for run in runs:
        target = f"{run.cell.subject} on {run.cell.device.selector} in {run.cell.runtime} ({run.cell.precision})"
        for result in run.results:
            found = run.performance_of(result)
            if found.mean_latency is None or found.throughput is None:
                lines.append(f"{target}, {result.point.label}: {result.status}: {result.error or 'no latency'}")
                continue
            lines.append(
                f"{target}, {result.point.label}: {number(found.mean_latency)} {found.latency_units} on average, "
                f"{number(found.throughput)} {found.throughput_units}"
            )
        if any(run.cell.workload.counts_calls_at(result.point) for result in run.results):
            lines.append(f"{run.cell.subject}: {UNKNOWN_BATCH}")
    return "\n\n".join([command_session.tables(runs, page), "\n".join(lines)])


def _parser() -> Parser:
    parser = Parser(prog=NAME, usage="%(prog)s SCRIPT[::HASH,HASH] ... [flags]", description=__doc__, epilog=EXAMPLES)
    scripts = parser.add_argument_group("scripts")
    what = "Python script, optionally only its models with these hashes (default: all models)"
    scripts.add_argument("script", nargs="*", metavar="SCRIPT", help=what)
    first = "the inputs' first dimension, where it is a batch"
    words = 'their arguments as one string: "--width 64"'
    levels = "levels of submodules to measure below the models that the script calls"
    add_flags(
        scripts,
        Setting("search_dir", DIR, "folder of the scripts", default_words="current folder", short_flag="-s"),
        Setting("all", SWITCH, "measure every script (*.py) in --search-dir"),
        Setting("script_args", WORD, words, default="", default_words="none", metavar="ARGS"),
        Setting("max_depth", COUNT, levels, default=0),
        MEASURING["batch_size"].here(help="items that each call holds", default=None, default_words=first),
    )
    instead = parser.add_argument_group("instead of measuring").add_mutually_exclusive_group()
    listed = Setting("analyze_only", SWITCH, "list the models of the scripts and exit")
    add_flags(instead, listed, Setting("build_only", SWITCH, "build what the runtimes load and exit"))
    hardware = parser.add_argument_group("devices and runtimes")
    device, usual = MEASURING["device"], f"the device's own, else {default_runtime()}"
    add_flags(
        hardware,
        device.here(help=f"{device.help}, or their aliases", default_words=str(device.default)),
        MEASURING["runtime"].here(help="runtimes or their aliases", default_words=usual),
        MEASURING["precision"].here(default=None, default_words="the script's"),
        lists=("device", "runtime"),
    )
    flags.add_threads(hardware)
    flags.add_measuring(parser, has_quality=False)  # of modules without a name or folder there is no reference
    flags.add_builds(parser)
    add_runtime_options(parser)
    add_remote(parser)
    stages = "Python file whose get_sequence() returns the build stages (default: export only)"
    few_need(scripts.add_argument("--sequence-file", metavar="FILE", help=stages))
    output = parser.add_argument_group("output")
    add_settings(output, SHARED, "save")
    flags.add_keeping(output)
    flags.add_output_format(output)
    return parser
