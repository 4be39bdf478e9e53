"""The states of scripts' models as text: a table of all, the details of one, and the results of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import number, size_text
from benchmarking.scripts.states import BuildRecord, ResultRecord, ScriptState

BUILDS = (
    Column[BuildRecord](heading="runtime", text=lambda one: one.runtime, is_key=True),
    Column[BuildRecord](heading="device", text=lambda one: one.device, is_key=True),
    Column[BuildRecord](heading="precision", text=lambda one: one.precision),
    Column[BuildRecord](heading="build", text=lambda one: one.kind or "none"),
    Column[BuildRecord](heading="opset", text=lambda one: None if one.opset is None else str(one.opset)),
    Column[BuildRecord](heading="size", text=lambda one: None if one.size_bytes is None else size_text(one.size_bytes)),
    Column[BuildRecord](
        heading="build s", text=lambda one: None if one.build_s is None else number(one.build_s), is_number=True
    ),
    Column[BuildRecord](heading="digest", text=lambda one: ", ".join(d[:12] for d in one.digests) or None, spare=1),
)
RESULTS = (
    Column[ResultRecord](heading="runtime", text=lambda one: one.runtime, is_key=True),
    Column[ResultRecord](heading="device", text=lambda one: one.device, is_key=True),
    Column[ResultRecord](heading="precision", text=lambda one: one.precision),
    Column[ResultRecord](heading="point", text=lambda one: one.point),
    Column[ResultRecord](heading="status", text=lambda one: one.status, is_state=True),
    Column[ResultRecord](
        heading="mean ms",
        text=lambda one: None if one.mean_latency is None else number(one.mean_latency),
        is_number=True,
    ),
    Column[ResultRecord](
        heading="items/s", text=lambda one: None if one.throughput is None else number(one.throughput), is_number=True
    ),
    Column[ResultRecord](heading="measured", text=lambda one: one.measured_at[:16], spare=2),
    Column[ResultRecord](heading="error", text=lambda one: one.error, spare=1),
)
STATES = (
    Column[ScriptState](heading="script build", text=lambda one: one.name, is_key=True),
    Column[ScriptState](heading="model", text=lambda one: one.model_id),
    Column[ScriptState](heading="inputs", text=lambda one: one.shapes, spare=1),
    Column[ScriptState](heading="runtimes", text=lambda one: _listed(engine.runtime for engine in one.engines)),
    Column[ScriptState](
        heading="opset", text=lambda one: _listed(str(engine.opset) for engine in one.engines if engine.opset)
    ),
    Column[ScriptState](heading="results", text=lambda one: str(len(one.results)), is_number=True),
)


def states_table(states: Sequence[ScriptState], page: Page = PLAIN) -> str:
    """A row per model of a script."""
    return table_text(table_of(STATES, states, page), page)


def state_text(state: ScriptState, page: Page = PLAIN) -> str:
    """The details of one state."""
    model = state.model
    rows = [
        ("model", f"{state.model_id} ({model.module_class}, {model.kind})"),
        ("script", state.script if model.line is None else f"{state.script}, line {model.line}"),
        ("arguments", " ".join(model.script_arguments) or "none"),
        ("hash", model.hash),
        ("parameters", f"{model.parameter_count} ({size_text(model.weights_bytes)})"),
        ("inputs", state.shapes),
        ("executed", f"{model.executions}x, {number(model.seconds, 2)} s"),
        ("updated", state.updated_at),
        ("folder", str(state.folder)),
    ]
    lines = [state.name, *(f"  {key:<10}  {text}" for key, text in rows)]
    return "\n\n".join(["\n".join(lines), builds_table(state.engines, page), results_table(state.results, page)])


def builds_table(engines: Sequence[BuildRecord], page: Page = PLAIN) -> str:
    """A row per build, or per runtime without one."""
    return table_text(table_of(BUILDS, engines, page), page) if engines else "no builds"


def results_table(results: Sequence[ResultRecord], page: Page = PLAIN) -> str:
    """A row per measured point."""
    return table_text(table_of(RESULTS, results, page), page) if results else "nothing measured"


def _listed(names: Iterable[str]) -> str | None:
    return ", ".join(dict.fromkeys(names)) or None
