"""Measures one model in PyTorch (eager), ONNX Runtime and OpenVINO, and shows the speedup of each over eager.

Of these three, runtimes that cannot run here are left out, with the reason; --runtimes selects others. A speedup is
the ratio of median latencies at a point, from 3 launches on the geometric mean of their ratios; the summary shows the
geometric mean over all points, the best and the worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarking.builds.inventory import lean_cache
from benchmarking.core import plugins
from benchmarking.core.command_line import Parser, choice, command, note
from benchmarking.core.command_names import shown_name
from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.plugins import check_measuring, default_runtime, export_runtimes
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import Run
from benchmarking.core.settings import add_flags, add_settings
from benchmarking.core.shared_settings import COMMON, SHARED
from benchmarking.core.suggestions import ARGUMENT, flags_in, in_our_words
from benchmarking.core.verdicts.launches import ROUNDS_TO_PROVE
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.measuring_settings import MEASURING, add_runtime_options
from benchmarking.sweep.plan.request import ALL, default_sizes, plan_runtimes, requests_of
from benchmarking.sweep.run import command_session, spool

NAME = "compare_onnx"
OWN_NAME = "benchhouse compare-runtimes"
"""Its name in our words, by which a model must be named."""
WORDS = {"--model": ARGUMENT, "--num-runs": "--iterations"}
"""Flags of ML Runtime Profiler's script of this name -> ours."""
DEFAULT_MODEL = "distilbert-base-uncased"
"""The model that the script compares if none is given."""
ITERATIONS = 10
SIZES = {"batch_size": 4, "sequence_length": 128}
"""Its defaults, which hold if the model is given as there, with --model, or not at all, as that of --output does."""
LEAST_COMPARED = 2
EXAMPLES = """\
examples:
  benchhouse compare-runtimes bert-base-uncased --sequence-lengths 128
  benchhouse compare-runtimes gpt2 --new-tokens 16 --profile quick --save
  benchhouse compare-runtimes gpt2 --runtimes eager,compiled --device cuda
"""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    arguments = _parser(needs_model=shown_name(NAME) == OWN_NAME).parse_args(in_our_words(argv, WORDS))
    is_default = arguments.model_id is None
    is_theirs = "--model" in flags_in(argv) or is_default
    if is_theirs:
        arguments.model_id = arguments.model_id or DEFAULT_MODEL
        arguments.iterations = arguments.iterations or ITERATIONS
        arguments.output = arguments.output or spool.AUTO
    if arguments.launches is None:
        arguments.launches = ROUNDS_TO_PROVE
    check_measuring()
    flags.use_cache_dir(arguments.cache_dir)
    (request,) = requests_of(arguments, arguments.model_id, (NAME, *argv))
    if is_theirs:
        request = replace(request, **default_sizes(request, SIZES, argv))
    runtimes = arguments.runtimes or _compared()
    if len(runtimes) < LEAST_COMPARED and runtimes != (ALL,):
        choice(runtimes[0], (*plugins.names(plugins.RUNTIMES), ALL), "runtime")
        raise UsageError(f"--runtimes {runtimes[0]}: a comparison needs two or more")
    planned = plan_runtimes(request, runtimes, uuid7(), may_refuse=arguments.runtimes is None)
    # A runtime that was named and is unsupported has a plan whose points are all skipped.
    left_out = {
        plan.cell.runtime: next(iter(plan.skipped.values()))
        for plan in planned.plans
        if plan.skipped.keys() >= {point.label for point in plan.points}
    }
    left = [plan.cell.runtime for plan in planned.plans if plan.cell.runtime not in left_out]
    if len(left) < LEAST_COMPARED:
        reasons = "; ".join(f"{runtime}: {why}" for runtime, why in {**planned.refused, **left_out}.items())
        what = f"to compare {left[0]} with" if left else "to compare"
        raise UnsupportedError(f"nothing {what}: {reasons}")
    show = command_session.Show(json=arguments.json, quiet=arguments.quiet)
    show = command_session.show_runtimes(show, planned.refused)
    planned.report_refused(note)
    plans = flags.named_plans(arguments, planned.plans)
    model_id = plans[0].cell.workload.model_id
    output = None if arguments.output is None else spool.checked(arguments.output, "onnx_comparison", model_id)
    if is_default:
        written = "" if output is None or arguments.dry_run else f"; the comparison is written to {output}"
        note(f"no MODEL is given: {model_id} is taken ({shown_name(NAME)} MODEL takes another){written}")
    if arguments.dry_run:
        command_session.check_saving(arguments)
        return command_session.show_plans(plans, show)
    output_dir, ingest = command_session.saving(arguments)
    runs: list[Run] = []
    with lean_cache(is_lean=arguments.lean_cache, say=note):
        code = command_session.run_plans(
            *(plans, output_dir, ingest, show),
            device_wait_s=arguments.lock_timeout,
            finished=runs.append,
            interrupted=lambda measured: _write(output, show, measured, is_interrupted=True),
        )
    _write(output, show, runs)
    return code


def _write(
    output: Path | None, show: command_session.Show, runs: Sequence[Run], *, is_interrupted: bool = False
) -> None:
    """Write the comparison to the file of --output. What was measured before an interruption is marked as that."""
    if output is None or show.document is None or (is_interrupted and not runs):
        return
    document = show.document(runs)
    assert isinstance(document, dict)
    spool.write(output, {**document, "interrupted": True} if is_interrupted else document)
    note(f"comparison{' of what was measured' if is_interrupted else ''}: {output}")


def _compared() -> tuple[str, ...]:
    """The default runtimes: torch's default one, and those of exported graphs."""
    return (default_runtime(), *export_runtimes().values())


def _parser(*, needs_model: bool) -> Parser:
    parser = Parser(prog=NAME, usage="%(prog)s MODEL [flags]", description=__doc__, epilog=EXAMPLES)
    flags.add_named_model(parser.add_argument_group("model"), is_needed=needs_model)
    hardware = parser.add_argument_group("device and runtime")
    flags.add_device(hardware)
    default = f"{', '.join(_compared())}, if supported here"
    flags.add_runtime(hardware, "two or more, or all", several=True, default_words=default)
    add_settings(hardware, MEASURING, "precision")
    flags.add_threads(hardware)
    add_runtime_options(parser)
    flags.add_grid(parser)
    flags.add_measuring(parser)
    flags.add_builds(parser)
    output = parser.add_argument_group("output")
    add_settings(output, SHARED, "save")
    file = "JSON file of the comparison and its runs; auto is results/onnx_comparison_*.json"
    add_flags(output, COMMON["output"].here(help=file))
    flags.add_keeping(output)
    flags.add_output_format(output)
    add_settings(output, SHARED, "dry_run")
    return parser
