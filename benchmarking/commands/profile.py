"""Shows where the time and the memory of a model's call go: by part of the model, by layer and by operator.

The model runs under its runtime's profiler in a fresh process, alternating with unprofiled calls, which show the
profiler's overhead. Profiles have their own files and tables and never mix with latency results. benchhouse compare
--profiles finds the layer that got slower between two profiles.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from benchmarking.core import plugins
from benchmarking.core.codec import is_whole
from benchmarking.core.command_line import Parser, command, default_database, note, notes
from benchmarking.core.command_names import shown_name
from benchmarking.core.errors import (
    EXIT_FAILED,
    EXIT_OK,
    BenchhouseError,
    StorageError,
    UnsupportedError,
    UsageError,
    storage_errors,
)
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import check_measuring, default_runtime, export_runtimes
from benchmarking.core.profiles import TRACE_FILE, Profile, ProfileSettings
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import FAILED, Json, to_json
from benchmarking.core.settings import FOLDER, SWITCH, WHOLE, Setting, add_flags, add_settings
from benchmarking.core.shared_settings import COMMON, DEFAULT_OUTPUT_DIR, SHARED
from benchmarking.core.suggestions import ARGUMENT, in_our_words
from benchmarking.core.tables import Table, table_text
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.terminal import PLAIN, Page, stdout_page
from benchmarking.core.text import number, wrapped
from benchmarking.core.untrusted.redaction import redacted
from benchmarking.measure.context import settings
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.measuring_settings import MEASURING, add_runtime_options, options_in
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.plan.request import (
    Request,
    default_sizes,
    plan_cell,
    request_fields,
    runtime_named,
    workload_of,
)
from benchmarking.sweep.run import journal, spool
from benchmarking.sweep.run.command_session import database, measured_peaks, store_run
from benchmarking.sweep.run.profile_launch import NOT_CALIBRATED, profile_cell, profiler_of
from benchmarking.sweep.show.profile_report import KIND_NAMES, kind_shares, profile_text
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
DEFAULT_RUNS = 20
RESULTS_PREFIX = "profiling_results_"
TENSORBOARD_ENDING = ".pt.trace.json"
"""The file name that TensorBoard's torch profiler plug-in expects: WORKER.TIME.pt.trace.json."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A profile, and the trace of its last call."""

    profile: Profile
    trace: str | None
    """JSON in Chrome's format; None for a profiler that writes none."""


def plan_profile(request: Request, session_id: str) -> CellPlan:
    """The plan of a request's first point. Raises UsageError, also for a runtime without a profiler."""
    plan = plan_cell(request, session_id)
    profiler_of(plan.cell.runtime)
    return replace(plan, points=plan.points[:1])


def profiled(
    plan: CellPlan,
    num_runs: int,
    db_path: str,
    say: Say,
    *,
    texts: Sequence[str] = (),
    device_wait_s: float | None = None,
) -> Profiled:
    """Profile a plan in a worker, with the device's peak rates from the database. If the database cannot be read, the
    profile lacks only these. Raises as `profile_cell` does."""
    peaks: dict[str, float] = {}
    try:
        peaks, why_none = measured_peaks(plan.hardware.hardware_id, db_path), NOT_CALIBRATED
    except StorageError as error:
        say(f"without the device's peak rates: {error}")
        why_none = f"{FAILED}: {error}"
    with temporary_folder("benchhouse-profile") as folder:
        profile_settings = ProfileSettings(num_runs=num_runs, folder=str(folder), texts=tuple(texts))
        profile = profile_cell(plan, profile_settings, peaks, say, why_no_peaks=why_none, device_wait_s=device_wait_s)
        trace = folder / TRACE_FILE
        return Profiled(profile=profile, trace=trace.read_text(encoding="utf-8") if trace.is_file() else None)


def on_exported(request: Request, profile: Callable[[CellPlan], Profiled], say: Say) -> list[Profiled]:
    """The same request on each other runtime of exported graphs with a profiler. Runtimes that cannot run it here are
    reported with the reason."""
    found, session_id = list[Profiled](), uuid7()
    for name in export_runtimes().values():
        if request.runtime is not None and runtime_named(request.runtime) == name:
            continue
        try:
            plan = plan_profile(replace(request, runtime=name, options={}), session_id)
            found.append(profile(plan))
        except BenchhouseError as error:
            say(f"without {name}: {error}")
    return found


def save(
    found: Profiled, folder: Path, tensorboard: Path | None = None, *, file: Path | None = None
) -> dict[str, Path]:
    """Write `profiling_results_*.json` and `trace_*.json` to a folder, and a copy of the trace for TensorBoard:
    kind of file -> path, the results first. `file` is another path for the results, with the trace beside it. Raises
    StorageError."""
    name = _name(found.profile)
    paths = {"results": file or folder / f"{RESULTS_PREFIX}{name}.json"}
    document = redacted(to_json(found.profile), anonymous=not found.profile.run.provenance.host)
    spool.write(paths["results"], document)
    if found.trace is None:
        return paths
    short = None if file is None else file.stem.removeprefix(RESULTS_PREFIX)
    traces = {"trace": paths["results"].with_name(f"trace_{short or name}.json")}
    if tensorboard is not None:
        traces["tensorboard"] = tensorboard / f"{name}{TENSORBOARD_ENDING}"
    for path in traces.values():
        spool.prepare(path.parent)
        with storage_errors(f"cannot write {path}", "choose another path"):
            journal.replace(path, found.trace)
    return paths | traces


NOT_JUDGED = (
    "speedup: the ratio of the medians of one process each, not judged: benchhouse compare-runtimes measures in turns"
)


def save_comparison(profiles: Sequence[Profile], folder: Path) -> Path:
    """Write `onnx_comparison_*.json`. Raises StorageError."""
    path = folder / f"onnx_comparison_{_name(profiles[0])}.json"
    spool.write(path, comparison(profiles))
    return path


def comparison(profiles: Sequence[Profile]) -> dict[str, Json]:
    """Profiles of one model on several runtimes: medians without the profiler, the speedup over the first, and the
    share of each part of the model."""
    first = median(profiles[0].call.latency_ms)
    rows: list[Json] = [
        {
            "runtime": profile.run.cell.runtime,
            "profile_id": profile.profile_id,
            "latency_median_ms": (median_ms := median(profile.call.latency_ms)),
            "speedup": first / median_ms if median_ms else None,
            "shares": dict[str, Json](kind_shares(profile)),
        }
        for profile in profiles
    ]
    return {"model_id": profiles[0].run.cell.workload.model_id, "point": profiles[0].point.label, "runtimes": rows}


def comparison_text(profiles: Sequence[Profile], page: Page = PLAIN) -> str:
    """That comparison as a table, with what its speedups do not say."""
    rows: Any = comparison(profiles)["runtimes"]
    kinds = list(dict.fromkeys(kind for row in rows for kind in row["shares"]))
    table = table_text(
        Table(
            headings=("runtime", "median ms", "speedup", *(KIND_NAMES.get(kind, kind) for kind in kinds)),
            rows=tuple(
                (
                    row["runtime"],
                    number(row["latency_median_ms"], 4),
                    "-" if row["speedup"] is None else f"{row['speedup']:.2f}x",
                    *("-" if (share := row["shares"].get(kind)) is None else f"{share:.0%}" for kind in kinds),
                )
                for row in rows
            ),
            numbers=tuple(range(1, 3 + len(kinds))),
        ),
        page,
    )
    return f"{table}\n\n{wrapped(NOT_JUDGED, page.text_width)}"


class MLRuntimeProfiler:
    """Profiles one model on one device, in a new process each time.

    profiler = MLRuntimeProfiler("bert-base-uncased", device="cpu")
    profiler.profile_inference(["What takes the time?"], num_runs=20)
    profiler.print_summary()
    profiler.save_results("profiles")
    """

    def __init__(self, model_name: str, device: str = "auto", **fields: Any) -> None:
        """`fields` are further fields of a request: runtime, precision, weights, options, num_threads, tags, ..."""
        self._fields = {"model_id": model_name, "device": device, "settings": settings("quick"), **fields}
        self._request: Request | None = None
        self._found: Profiled | None = None
        self._compared: list[Profiled] = []
        self._num_runs = DEFAULT_RUNS

    def profile_inference(
        self, texts: str | Sequence[str] | None = None, num_runs: int = DEFAULT_RUNS, **axes: Any
    ) -> Profile:
        """Profile a call on a batch of these texts: one sequence each, as long as the longest of them in tokens,
        without padding. Without texts `axes` are the fields of the point (batch_size, sequence_length, new_tokens).

        The texts are tokenized as they are; the model runs on ids of that shape, since what the ids are makes no
        difference to the time of a dense model. Without a tokenizer in the model's folder a word counts as a token, and
        `missing["tokenize"]` has the reason. Raises UsageError, BenchhouseError.
        """
        plugins.check_measuring()
        if not is_whole(num_runs) or num_runs < 1:
            raise UsageError(f"num_runs takes a whole number from 1: got {num_runs!r}")
        if isinstance(texts, int):
            raise UsageError(f"profile_inference takes texts first: got {texts}; a size has a name: batch_size={texts}")
        given = (texts,) if isinstance(texts, str) else tuple(texts or ())
        try:
            known = ("batch_size", "sequence_length", "new_token")
            named = {name.removesuffix("s"): value for name, value in axes.items()}
            if unknown := sorted(set(named) - set(known)):
                raise UsageError(
                    f"profile_inference has no axis {unknown[0]!r}: it has batch_size, sequence_length, new_tokens"
                )
            sizes: dict[str, Any] = {f"{name}s": (value,) for name, value in {"batch_size": 1, **named}.items()}
            request = Request(**self._fields, **sizes)
        except TypeError as error:
            raise UsageError(f"profile_inference: {error}") from error
        if given:
            from benchmarking.workloads.support.processing import has_processor, load, token_count

            workload = workload_of(request)
            if workload.path is not None and has_processor(Path(workload.path), "text"):
                count = token_count(load(Path(workload.path), "text"), given)
            else:
                count = max(1, *(len(text.split()) for text in given))
            tokens = min(count, workload.max_sequence_length or count)
            request = replace(request, batch_sizes=(len(given),), sequence_lengths=(tokens,))
        request = replace(request, command=tuple(sys.argv))
        plan = plan_profile(request, uuid7())
        self._found = profiled(plan, num_runs, default_database(), lambda message: None, texts=given)
        self._num_runs, self._request, self._compared = num_runs, request, []
        return self._found.profile

    @property
    def profile(self) -> Profile:
        """The last profile. Raises UsageError before the first."""
        return self._last.profile

    def print_summary(self) -> None:
        """Print where the time of the last profile goes, and what to try."""
        print(profile_text(self.profile, stdout_page()))
        if self._compared:
            print("\n" + comparison_text([self.profile, *(one.profile for one in self._compared)], stdout_page()))

    def save_results(self, path: str | Path) -> dict[str, Path]:
        """Write the files of the last profile, and of those compared with it, to a folder: kind of file -> path. A path
        that ends in .json is the file of the last profile; the others are beside it."""
        file = Path(path) if Path(path).suffix == ".json" else None
        folder = Path(path) if file is None else file.parent
        paths = save(self._last, folder, file=file)
        for one in self._compared:
            save(one, folder)
        if self._compared:
            profiles = [self.profile, *(one.profile for one in self._compared)]
            paths["onnx_comparison"] = save_comparison(profiles, folder)
        return paths

    def compare_onnx(self) -> dict[str, Json]:
        """Profile the last point on the runtimes of exported graphs too: medians, speedups, and the share of each part
        of the model. Raises UsageError before the first profile, BenchhouseError when none of them runs here."""
        request, runs = self._request, self._num_runs
        if request is None:
            raise UsageError("compare_onnx needs a profile to compare with: call profile_inference first")
        self._compared = on_exported(
            request, lambda plan: profiled(plan, runs, default_database(), lambda message: None), note
        )
        if not self._compared:
            raise BenchhouseError(f"no other runtime to compare {default_runtime()} with: see the reasons above")
        return comparison([self.profile, *(one.profile for one in self._compared)])

    @property
    def _last(self) -> Profiled:
        if self._found is None:
            raise UsageError("there is no profile yet: call profile_inference first")
        return self._found


def _name(profile: Profile) -> str:
    """The common part of a profile's file names. The end of the id keeps profiles of the same second apart."""
    run = profile.run
    name = spool.file_name(run.cell, run.started_at, is_anonymous=not run.provenance.host)
    return f"{name}_{profile.profile_id[-8:]}"


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
    family = {"default": None, "default_words": "the family's first default"}
    axes = (MEASURING[name].here(**({"default": 1} if name == "batch_size" else family)) for name in AXIS_FLAGS)
    limit = "time limit in seconds for loading, and for all calls"
    add_flags(
        calls,
        *axes,
        Setting("num_runs", WHOLE, "calls under the profiler, and as many without", default=DEFAULT_RUNS),
        Setting("compare_onnx", SWITCH, "also profile the runtimes of exported graphs, and compare"),
        MEASURING["timeout"].here(help=limit),
    )
    add_settings(parser.add_argument_group("builds"), MEASURING, "cache_dir", "rebuild")
    output = parser.add_argument_group("output")
    file = "JSON file of the profile, with trace_*.json beside it; auto is results/profiling_results_*.json"
    files = "folder of profiling_results_*.json, trace_*.json (Chrome, Perfetto) and onnx_comparison_*.json"
    add_flags(
        output,
        COMMON["output"].here(help=file),
        SHARED["output_dir"].here(help=files, default=None, default_words=f"none, with --save {DEFAULT_OUTPUT_DIR}"),
        SHARED["save"].here(help="also store the profile in the database (default: print only)"),
        Setting("tensorboard", FOLDER, "TensorBoard log folder to write the trace to", default_words="none"),
    )
    flags.add_database_and_labels(output)
    flags.add_output_format(output)
    return parser
