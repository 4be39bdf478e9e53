"""The saved state of each model of a script: `<cache folder>/scripts/{script}_{hash}/state.yaml`.

It contains the model and its inputs, the digests of its builds in the build cache, and its results. Builds and results
of an earlier state of the model (other input shapes or script arguments, other package versions) are stale: they are
dropped from the file when the script is analysed again, and the build cache makes new builds, whose digests depend on
all of these. Other weights have another hash, and therefore another folder. The end has the states as text.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarking.builds.store import DIGEST_LENGTH, OTHER_CACHE, BuildStore, combined_facts, default_cache_dir
from benchmarking.core.codec import from_json, to_json
from benchmarking.core.contracts import MADE_BUILD
from benchmarking.core.errors import BenchhouseError, FormatError, StorageError, UsageError, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import module_versions, utc_now
from benchmarking.core.records import Json, Run, canonical_hash
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import first_few, number, size_text, visible
from benchmarking.core.untrusted.input_files import read_yaml
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run import journal
from benchmarking.workloads.support.given_modules import GivenModule

FOLDER = "scripts"
STATE = "state.yaml"
FORMAT_VERSION = 1
NAME = re.compile(r"[\w.-]+_[0-9a-f]{8}")
NOT_IN_NAMES = re.compile(r"[^\w.-]")
MADE = re.compile(rf"[a-z]+/[0-9a-f]{{{DIGEST_LENGTH}}}")
"""Kind and digest of a build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRecord:
    """The build of the model for a runtime, or the record that the runtime needs none."""

    runtime: str
    device: str
    precision: str
    kind: str | None
    """Kind of the build; None for a runtime that builds nothing."""
    digests: tuple[str, ...] = ()
    """Its folders in the build cache."""
    opset: int | None = None
    """ONNX opset version; None for a build in another format."""
    size_bytes: int | None = None
    build_s: float | None = None
    made_at: str
    """UTC, ISO 8601; when this command last used it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRecord:
    run_id: str
    runtime: str
    device: str
    precision: str
    point: str
    status: str
    error: str | None = None
    mean_latency: float | None = None
    latency_units: str = ""
    throughput: float | None = None
    throughput_units: str = ""
    measured_at: str
    """UTC, ISO 8601."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptState:
    """The content of a `state.yaml`."""

    format_version: int = FORMAT_VERSION
    name: str
    """{script}_{hash}."""
    model_id: str
    script: str
    """Its path."""
    model: GivenModule
    versions: Mapping[str, str]
    identity: str
    """Hash of everything that builds and results depend on, apart from the weights."""
    engines: tuple[BuildRecord, ...] = ()
    results: tuple[ResultRecord, ...] = ()
    updated_at: str

    @property
    def shapes(self) -> tuple[str, ...]:
        """The inputs of each kind of its calls."""
        calls = (", ".join(f"{name}: {what}" for name, what in call.signature.items()) for call in self.model.calls)
        return tuple(dict.fromkeys(calls))

    @property
    def folder(self) -> Path:
        return states_folder() / self.name


def states_folder() -> Path:
    return default_cache_dir() / FOLDER


def build_name(script: Path, module: GivenModule) -> str:
    """{script}_{hash}."""
    return f"{NOT_IN_NAMES.sub('_', script.stem)}_{module.short_hash}"


def opened(script: Path, model_id: str, module: GivenModule) -> tuple[ScriptState, str | None]:
    """The current state of a model, with the parts of the saved one that are still valid; and why others are stale."""
    name = build_name(script, module)
    now = module_versions()
    new = ScriptState(
        name=name,
        model_id=model_id,
        script=str(script),
        model=module,
        versions=now,
        identity=canonical_hash({**module.identity, "versions": dict(now)}),
        updated_at=utc_now(),
    )
    old = find(name)
    if old is None:
        return new, None
    if old.identity == new.identity:
        return replace(new, engines=old.engines, results=old.results), None
    before, after = old.model.identity, new.model.identity
    changed = [key for key in {**after, **before} if before.get(key) != after.get(key)]
    words = [key.replace("_", " ").replace("calls", "input shapes") for key in changed]
    packages = sorted({*old.versions, *new.versions})
    words += [f"the version of {name}" for name in packages if old.versions.get(name) != new.versions.get(name)]
    why = f"{', '.join(words)} changed" if words else "it was written by another version of this program"
    return new, f"{name} is stale: {why}"


def with_build(state: ScriptState, plan: CellPlan, build: Mapping[str, Json]) -> ScriptState:
    """The state with the build that a cell's launches load, replacing an earlier one of the same cell. `build` has the
    form of `Preparation.build`; empty for a cell without one."""
    kind, digests, build_s = build.get("kind"), build.get("digests"), build.get("build_s")
    engine = BuildRecord(
        runtime=plan.cell.runtime,
        device=plan.cell.device.selector,
        precision=plan.cell.precision,
        kind=kind if isinstance(kind, str) else None,
        digests=tuple(map(str, digests)) if isinstance(digests, list) else (),
        opset=_whole(build.get("opset")),
        size_bytes=_whole(build.get("size_bytes")),
        build_s=float(build_s) if isinstance(build_s, int | float) else None,
        made_at=utc_now(),
    )
    others = (record for record in state.engines if _place(record) != _place(engine))
    return replace(state, engines=(*others, engine), updated_at=utc_now())


def with_run(state: ScriptState, plan: CellPlan, run: Run) -> ScriptState:
    """The state with a run's results, replacing earlier ones of the same cell."""
    records = []
    for result in run.results:
        performance = run.performance_of(result)
        records.append(
            ResultRecord(
                run_id=run.run_id,
                runtime=run.cell.runtime,
                device=run.cell.device.selector,
                precision=run.cell.precision,
                point=result.point.label,
                status=result.status,
                error=result.error,
                mean_latency=performance.mean_latency,
                latency_units=performance.latency_units,
                throughput=performance.throughput,
                throughput_units=performance.throughput_units,
                measured_at=run.finished_at or run.started_at,
            )
        )
    places = {_place(record) for record in records}
    others = (record for record in state.results if _place(record) not in places)
    updated = replace(state, results=(*others, *records), updated_at=utc_now())
    prepared = {} if run.preparation is None else run.preparation.build
    return with_build(updated, plan, prepared or _made_by_launches(run))


def _made_by_launches(run: Run) -> dict[str, Json]:
    """The builds made by the launches themselves, such as compiled code, in the form of `Preparation.build`; without
    size and time if they are on another machine."""
    builds: list[str] = []
    for launches in (result.extra.get("launches") for result in run.results):
        for launch in launches if isinstance(launches, list) else ():
            verified = launch.get("verified") if isinstance(launch, dict) else None
            build = verified.get(MADE_BUILD) if isinstance(verified, dict) else None
            if isinstance(build, str) and MADE.fullmatch(build) and build not in builds:
                builds.append(build)
    if not builds:
        return {}
    kind = builds[0].partition("/")[0]
    digests = [build.partition("/")[2] for build in builds]
    store = BuildStore()
    stored = [(build, True) for digest in digests if (build := store.find_digest(kind, digest)) is not None]
    known = combined_facts(kind, stored) if len(stored) == len(digests) else {}
    return {**known, "kind": kind, "digests": [*digests]}


def write(state: ScriptState) -> None:
    """Write a state's file atomically. Raises StorageError."""
    import yaml

    with storage_errors(f"cannot write {state.folder}", OTHER_CACHE):
        state.folder.mkdir(parents=True, exist_ok=True)
        journal.replace(state.folder / STATE, yaml.safe_dump(to_json(state), sort_keys=False, allow_unicode=True))


def find(name: str) -> ScriptState | None:
    """The state with this name, or None. Raises StorageError for an invalid file."""
    if NAME.fullmatch(name) is None:
        return None
    path = states_folder() / name / STATE
    if not path.is_file():
        return None
    try:
        state: ScriptState = from_json(ScriptState, read_yaml(path).plain(), str(path))
        if state.name != name:  # by which its folder is deleted
            raise FormatError(f"its name is {state.name!r}")
    except BenchhouseError as error:
        raise StorageError(f"cannot read {path} ({error}): delete its folder {path.parent}") from error
    return state


def all_states() -> tuple[dict[str, ScriptState], dict[str, str]]:
    """All readable states by name, sorted; and the name of each unreadable one -> the problem and what to do."""
    root, readable, broken = states_folder(), dict[str, ScriptState](), dict[str, str]()
    for name in sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else ():
        try:
            if (state := find(name)) is not None:
                readable[name] = state
        except StorageError as error:
            broken[name] = str(error)
    return readable, broken


def named(name: str) -> ScriptState:
    """The state with this name or unique prefix. Raises UsageError for none or several."""
    states, _ = all_states()
    matching = [name] if name in states else [known for known in states if name and known.startswith(name)]
    if len(matching) == 1:
        return states[matching[0]]
    known = ", ".join(matching or states) or "none"
    what = f"{len(matching)} builds of scripts begin with" if matching else "no build of a script is named"
    raise UsageError(f"{what} {name!r}: found {known}")


def remove(names: Iterable[str]) -> None:
    """Delete the folders of these states, but not their builds in the cache. Raises StorageError."""
    for folder in (states_folder() / name for name in names):
        if folder.is_symlink():
            raise StorageError(f"{folder} is a symbolic link, so it was not deleted: remove the link yourself")
        with storage_errors(f"cannot write {folder}", OTHER_CACHE):
            shutil.rmtree(folder)


def _place(record: BuildRecord | ResultRecord) -> tuple[str, str, str]:
    return record.runtime, record.device, record.precision


def _whole(value: Json) -> int | None:
    return value if isinstance(value, int) else None


def _shown(value: float | None) -> str | None:
    return None if value is None else number(value)


def _throughput(result: ResultRecord) -> str | None:
    """With its unit: calls/s where nobody knows how many items a call holds."""
    unit = result.throughput_units.replace(" per second", "/s")
    return None if result.throughput is None else f"{number(result.throughput)} {unit}".rstrip()


BUILDS: tuple[Column[BuildRecord], ...] = (
    Column("runtime", lambda one: one.runtime, is_key=True),
    Column("device", lambda one: one.device, is_key=True),
    Column("precision", lambda one: one.precision),
    Column("build", lambda one: one.kind or "none"),
    Column("opset", lambda one: None if one.opset is None else str(one.opset)),
    Column("size", lambda one: None if one.size_bytes is None else size_text(one.size_bytes)),
    Column("build s", lambda one: _shown(one.build_s), is_number=True),
    Column("digest", lambda one: ", ".join(d[:12] for d in one.digests) or None, spare=1),
)
RESULTS: tuple[Column[ResultRecord], ...] = (
    Column("runtime", lambda one: one.runtime, is_key=True),
    Column("device", lambda one: one.device, is_key=True),
    Column("precision", lambda one: one.precision),
    Column("point", lambda one: one.point),
    Column("status", lambda one: one.status, is_state=True),
    Column("mean ms", lambda one: _shown(one.mean_latency), is_number=True),
    Column("throughput", _throughput, is_number=True),
    Column("measured", lambda one: one.measured_at[:16], spare=2),
    Column("error", lambda one: one.error, spare=1),
)
STATES: tuple[Column[ScriptState], ...] = (
    Column("script build", lambda one: one.name, is_key=True),
    Column("model", lambda one: one.model_id),
    Column("inputs", lambda one: first_few(one.shapes, 1, "; "), spare=1),
    Column("runtimes", lambda one: _listed(engine.runtime for engine in one.engines)),
    Column("opset", lambda one: _listed(str(engine.opset) for engine in one.engines if engine.opset)),
    Column("results", lambda one: str(len(one.results)), is_number=True),
)


def states_table(states: Sequence[ScriptState], page: Page = PLAIN) -> str:
    """A row per model of a script."""
    return table_text(table_of(STATES, states, page), page)


def state_text(state: ScriptState, page: Page = PLAIN) -> str:
    model = state.model
    rows = [
        ("model", f"{state.model_id} ({model.module_class}, {model.kind})"),
        ("script", state.script if model.line is None else f"{state.script}, line {model.line}"),
        ("arguments", " ".join(model.script_arguments) or "none"),
        ("hash", model.hash),
        ("parameters", f"{model.parameter_count} ({size_text(model.weights_bytes)})"),
        ("inputs", "; ".join(state.shapes)),
        ("executed", f"{model.executions}x, {number(model.seconds, 2)} s"),
        ("updated", state.updated_at),
        ("folder", str(state.folder)),
    ]
    lines = [state.name, *(visible(f"  {key:<10}  {text}") for key, text in rows)]
    return "\n\n".join(["\n".join(lines), builds_table(state.engines, page), results_table(state.results, page)])


def builds_table(engines: Sequence[BuildRecord], page: Page = PLAIN) -> str:
    """A row per build, or per runtime without one."""
    return table_text(table_of(BUILDS, engines, page), page) if engines else "no builds"


def results_table(results: Sequence[ResultRecord], page: Page = PLAIN) -> str:
    """A row per measured point."""
    return table_text(table_of(RESULTS, results, page), page) if results else "nothing measured"


def _listed(names: Iterable[str]) -> str | None:
    return ", ".join(dict.fromkeys(names)) or None
