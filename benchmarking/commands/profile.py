"""Shows where the time and the memory of a model's call go: by part of the model, by layer and by operator.

The model runs under its runtime's profiler in a fresh process, alternating with unprofiled calls, which show the
profiler's overhead. Profiles have their own files and tables and never mix with latency results. benchhouse compare
--profiles finds the layer that got slower between two profiles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from benchmarking.commands.ml_runtime_profiler import (
    DEFAULT_RUNS,
    Profiled,
    comparison_text,
    on_exported,
    plan_profile,
    profiled,
    save,
    save_comparison,
)
from benchmarking.core import plugins
from benchmarking.core.argument_types import folder_to_write, positive_int
from benchmarking.core.command_line import Parser, command, note, notes
from benchmarking.core.command_names import shown_name
from benchmarking.core.errors import EXIT_FAILED, EXIT_OK, UnsupportedError
from benchmarking.core.plugins import check_measuring
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import to_json
from benchmarking.core.settings import add_settings
from benchmarking.core.shared_settings import COMMON, DEFAULT_OUTPUT_DIR, SHARED
from benchmarking.core.suggestions import ARGUMENT, in_our_words
from benchmarking.core.terminal import stdout_page
from benchmarking.core.untrusted.redaction import redacted
from benchmarking.measure.context import settings
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.measuring_settings import MEASURING, add_runtime_options, options_in
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.plan.request import Request, default_sizes, request_fields
from benchmarking.sweep.run import spool
from benchmarking.sweep.run.command_session import database, store_run
from benchmarking.sweep.show.profile_report import profile_text
from benchmarking.workloads.support.families import chosen_texts

NAME = "profile_model"
EXAMPLES = """\
examples:
  benchhouse profile bert-base-uncased --batch-size 8 --sequence-length 128
  benchhouse profile gpt2 --new-tokens 16 --tensorboard logs
  benchhouse profile bert-base-uncased --save --tag version=2
"""
WORDS = {"--model": ARGUMENT}
"""Flags of ML Runtime Profiler -> ours."""
AXIS_FLAGS = ("batch_size", "sequence_length", "new_tokens")
"""Axes with a flag, which takes a single value in this command."""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    return run(argv)


def run(argv: Sequence[str], sizes: Mapping[str, int] = MappingProxyType({}), default_model: str | None = None) -> int:
    """The command without its handling of errors. `sizes` are those by default of axes that the model has. A model has
    to be given if there is none by default."""
    arguments = _parser(needs_model=default_model is None).parse_args(in_our_words(argv, WORDS))
    if arguments.model_id is None:
        arguments.model_id = default_model
        written = f"; the profile is written to {spool.RESULTS_DIR}/" if arguments.output == spool.AUTO else ""
        note(f"no MODEL is given: {default_model} is taken ({shown_name(NAME)} MODEL takes another){written}")
    check_measuring("profiling")
    flags.use_cache_dir(arguments.cache_dir)
    say = notes(quiet=arguments.quiet)
    request = Request(
        model_id=arguments.model_id,
        options=options_in(vars(arguments)),
        settings=settings("quick"),
        command=(NAME, *argv),
        **request_fields(vars(arguments)),
    )
    plan = plan_profile(replace(request, **default_sizes(request, sizes, argv)), uuid7())
    file = None
    if arguments.output is not None:
        file = spool.checked(arguments.output, "profiling_results", plan.cell.workload.model_id)
    default = DEFAULT_OUTPUT_DIR if arguments.save and arguments.output is None else None
    named = (arguments.output_dir or default, arguments.tensorboard)
    folder, tensorboard = (None if one is None else Path(one) for one in named)
    runtime = plugins.runtime(plan.cell.runtime)
    if tensorboard is not None and not runtime.profiler_traces:
        raise UnsupportedError(f"--tensorboard: the profiler of {runtime.name} writes no trace")
    for path in filter(None, (folder, tensorboard)):
        spool.prepare(path)
    ingest = database(arguments.db_path, arguments.lock_timeout, quiet=arguments.quiet) if arguments.save else None
    for choice in chosen_texts(plan.cell.workload):
        say(choice)

    def measured(plan: CellPlan) -> Profiled:
        plan = plan.anonymous() if arguments.anonymous else plan
        return profiled(plan, arguments.num_runs, arguments.db_path, say, device_wait_s=arguments.lock_timeout)

    found = [measured(plan)]
    if arguments.compare_onnx:
        found += on_exported(request, measured, note)
    profiles = [made.profile for made in found]
    if arguments.json:
        document = [redacted(to_json(made), anonymous=not made.run.provenance.host) for made in profiles]
        print(json.dumps(document if len(document) > 1 else document[0], indent=1))
    else:
        page = stdout_page()
        print("\n\n".join(profile_text(made, page) for made in profiles))
        if len(profiles) > 1:
            print("\n" + comparison_text(profiles, page))
    code = EXIT_OK
    if (place := folder or (None if file is None else file.parent) or tensorboard) is None:
        return code
    for profile in found:
        paths = save(profile, place, tensorboard, file=file if profile is found[0] else None)
        for kind, path in paths.items():
            say(f"{kind}: {path}")
        problem = store_run(paths["results"], ingest)
        if problem is not None:
            note(f"not stored: {problem}")
            code = EXIT_FAILED
    if len(found) > 1:
        path = save_comparison([profile.profile for profile in found], place)
        say(f"comparison: {path}")
    return code


def _parser(*, needs_model: bool) -> Parser:
    parser = Parser(prog=NAME, usage="%(prog)s MODEL [flags]", description=__doc__, epilog=EXAMPLES)
    model = parser.add_argument_group("model")
    flags.add_named_model(model, is_needed=needs_model)
    flags.add_graph_inputs(model)
    hardware = parser.add_argument_group("device and runtime")
    flags.add_device(hardware)
    flags.add_runtime(hardware, "one with a profiler")
    add_settings(hardware, MEASURING, "precision")
    flags.add_threads(hardware)
    add_runtime_options(parser)
    calls = parser.add_argument_group("point and calls")
    defaults = {**dict.fromkeys(AXIS_FLAGS), "batch_size": 1}
    words = {name: "the family's first default" for name in AXIS_FLAGS if name != "batch_size"}
    add_settings(calls, MEASURING, *AXIS_FLAGS, defaults=defaults, default_words=words)
    calls.add_argument(
        "--num-runs",
        type=positive_int,
        default=DEFAULT_RUNS,
        metavar="N",
        help="calls under the profiler, and as many without (default: %(default)s)",
    )
    calls.add_argument(
        "--compare-onnx", action="store_true", help="also profile the runtimes of exported graphs, and compare"
    )
    add_settings(calls, MEASURING, "timeout", helps={"timeout": "time limit in seconds for loading, and for all calls"})
    builds = parser.add_argument_group("builds")
    add_settings(builds, MEASURING, "cache_dir")
    add_settings(builds, MEASURING, "rebuild")
    output = parser.add_argument_group("output")
    file = "JSON file of the profile, with trace_*.json beside it; auto is results/profiling_results_*.json"
    add_settings(output, COMMON, "output", helps={"output": file})
    files = "folder of profiling_results_*.json, trace_*.json (Chrome, Perfetto) and onnx_comparison_*.json"
    add_settings(
        output,
        SHARED,
        *("output_dir", "save"),
        helps={"output_dir": files, "save": "also store the profile in the database (default: print only)"},
        defaults={"output_dir": None},
        default_words={"output_dir": f"none, with --save {DEFAULT_OUTPUT_DIR}"},
    )
    output.add_argument(
        "--tensorboard",
        type=folder_to_write,
        metavar="DIR",
        help="TensorBoard log folder to write the trace to (default: none)",
    )
    flags.add_database_and_labels(output)
    flags.add_output_format(output)
    return parser
