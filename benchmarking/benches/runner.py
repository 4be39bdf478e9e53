"""Measures a benchmark class from Python, in fresh processes like `benchhouse benches`."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarking.benches.discovery import IS_LOADING, RECORDED, Bench, BenchRequest, NoResults, describe
from benchmarking.benches.model_benchmark import BenchmarkConfig, ModelBenchmark, configs_of
from benchmarking.core.errors import UsageError, storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import (
    BENCH_FIELDS,
    Json,
    Precision,
    Result,
    Run,
    Workload,
    bench_settings,
    canonical_hash,
)
from benchmarking.core.scenario_file import scenario_file
from benchmarking.core.text import told_apart
from benchmarking.core.untrusted.redaction import know_secrets_named
from benchmarking.measure.context import DEFAULT_PROFILE, ProfileName, Settings, settings
from benchmarking.runtimes.bench import PLUGIN as BENCH_RUNTIME
from benchmarking.sweep.plan.measuring_settings import DEFAULT_TIMEOUT_S
from benchmarking.sweep.plan.plan import CellPlan, Machine, ascending
from benchmarking.sweep.plan.request import Request, plan_points
from benchmarking.sweep.run import journal
from benchmarking.sweep.run.command_session import measure_plans

Scenarios = Mapping[str, Any] | Sequence[BenchmarkConfig]
"""Configs, or a mapping of names to configs or objects with a `config`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    run: Run
    """The run, for example to store with `Warehouse.ingest(run)`."""
    result: Result


class BenchmarkRunner:
    """Measures a benchmark class, each config in fresh processes, and writes the results as JSON.

    `profile` and `launches` are those of the command; `device` replaces the configs' device.
    """

    def __init__(
        self,
        logger: logging.Logger | None = None,
        output_dir: str | Path = "benchmark_results",
        *,
        profile: ProfileName = DEFAULT_PROFILE,
        launches: int | None = None,
        device: str | None = None,
    ) -> None:
        self.logger = logger or logging.getLogger(__name__)
        self.output_dir = Path(output_dir)
        self._settings = settings(profile, iterations=None, warmup_iterations=None, launches=launches, cold_cache=False)
        self._device = device
        self._has_gpu_metrics = True

    def run_benchmark(
        self,
        benchmark: ModelBenchmark | type[ModelBenchmark],
        scenarios: Scenarios | None = None,
        collect_gpu_metrics: bool = True,
        *,
        commit_id: str | None = None,
    ) -> dict[str, ScenarioResult]:
        """Measure the configs (by default the class's own). Returns results by scenario name; failed ones are omitted
        and logged as warnings.

        `collect_gpu_metrics` is whether the saved file contains the use of the GPU; it is always measured, in further
        calls that are not timed. `commit_id` replaces the commit of the working folder.

        Raises UsageError for invalid configs, for a class that is not in a file, and during the import of the file,
        where measuring would recurse endlessly.
        """
        kind = benchmark if isinstance(benchmark, type) else type(benchmark)
        configs = _by_name(kind, scenarios)
        if (recorded := RECORDED.get()) is not None:
            recorded.append(BenchRequest(kind=kind, configs=list(configs.values())))
            return NoResults()
        if IS_LOADING.get():
            raise UsageError('run_benchmark was called during import: put the call below if __name__ == "__main__":')
        self._has_gpu_metrics = collect_gpu_metrics
        planning = BenchPlanning(
            session_id=uuid7(), settings=self._settings, device=self._device, command=tuple(sys.argv)
        )
        machine, bench = Machine(), describe(kind, list(configs.values()))
        benches = [replace(bench, configs=(config,)) for config in configs.values()]
        plans = [plan for single in benches for plan in plan_benches([single], planning, machine)]
        if commit_id is not None:
            plans = [replace(plan, provenance=replace(plan.provenance, git_commit=commit_id)) for plan in plans]
        results: dict[str, ScenarioResult] = {}
        for name, run in zip(configs, measure_plans(plans), strict=True):
            (result,) = run.results
            if result.status == "ok":
                results[name] = ScenarioResult(run=run, result=result)
            else:
                self.logger.warning("%s: %s: %s", name, result.status.replace("_", " "), result.error)
        return results

    def save_results(self, model_name: str, results: Mapping[str, ScenarioResult]) -> str:
        """Write results to `<output_dir>/<model_name>/`, in the layout of `core.scenario_file`; returns the path.

        Raises StorageError for a folder that cannot be written to.
        """
        if (recorded := RECORDED.get()) is not None:
            for request in recorded:
                request.saved_as = request.saved_as or model_name
            return ""
        document = scenario_file(model_name, [(scenario.run, scenario.result) for scenario in results.values()])
        for scenario, name in zip(document["benchmark_scenarios"], results, strict=False):
            scenario["scenario_name"] = name
            if not self._has_gpu_metrics:
                del scenario["gpu_metrics"]
        path = write_scenarios(self.output_dir, document)
        self.logger.info("results: %s", path)
        return str(path)


def write_scenarios(output_dir: Path, document: Mapping[str, Any]) -> Path:
    """Write a document of `scenario_file` to a folder named after its model, in `output_dir`. Raises StorageError."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", document["model_name"]).strip(".") or "model"
    begin = f"{name}_benchmark_{datetime.now():%Y%m%d_%H%M%S}"
    paths = (output_dir / name / f"{begin}{ending}.json" for ending in journal.endings())
    path = next(path for path in paths if not path.exists())
    with storage_errors(f"cannot write {path}", "choose another output_dir"):
        path.parent.mkdir(parents=True, exist_ok=True)
        journal.replace(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def _by_name(kind: type[ModelBenchmark], scenarios: Scenarios | None) -> dict[str, BenchmarkConfig]:
    """The configs by scenario name, by default a unique one: "gpt2 compiled b1 s128 (2)", with the settings in which
    it differs from others of that name. Raises UsageError for anything other than configs."""
    named: dict[str, Any] = {}
    if isinstance(scenarios, Mapping):
        named = {name: getattr(scenario, "config", scenario) for name, scenario in scenarios.items()}
    else:
        configs = configs_of(kind) if scenarios is None else scenarios
        named = {f"{number}": config for number, config in enumerate(configs, 1)}
    for name, config in named.items():
        if not isinstance(config, BenchmarkConfig):
            raise UsageError(f"scenario {name} takes a BenchmarkConfig: got {config!r}")
    if not named:
        raise UsageError(f"{kind.__name__}: no scenario to run: give at least one config")
    if isinstance(scenarios, Mapping):
        return named
    words = [(one.name, one.variant, one.precision, one.point.label) for one in named.values()]
    fields = [{name: getattr(one, name) for name in (*BENCH_FIELDS, "options")} for one in named.values()]
    settings = [{"device": one.device, **bench_settings(of)} for one, of in zip(named.values(), fields, strict=True)]
    names = told_apart([" ".join(filter(None, each)) for each in words], settings)
    return {f"{name} ({number})": config for name, (number, config) in zip(names, named.items(), strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlanning:
    """The options of a command that apply to benchmarks."""

    session_id: str
    settings: Settings
    """Fixed numbers of calls here override those of a config."""
    device: str | None = None
    """A value of `--device` that replaces the configs' device."""
    precision: Precision | None = None
    """Replaces the configs' precision."""
    model_id: str | None = None
    """Replaces the model of configs that have one."""
    new_tokens: tuple[int, ...] | None = None
    """Replaces the number of tokens of configs that generate tokens, with one config per number."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    skip_unsupported: bool | None = None
    command: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    """Added to the configs' tags, which they override."""
    description: str | None = None


def plan_benches(benches: Sequence[Bench], planning: BenchPlanning, machine: Machine) -> tuple[CellPlan, ...]:
    """A plan for each group of configs of a benchmark that differ only in their point. Raises UsageError for invalid
    configs."""
    plans: list[CellPlan] = []
    for bench in benches:
        cells: dict[str, list[BenchmarkConfig]] = {}
        for config in bench.configs:
            cell = replace(config, batch_size=1, sequence_length=None, new_tokens=None, axes={})
            cells.setdefault(canonical_hash(cell), []).append(config)
        for configs in cells.values():
            first, settings = configs[0], planning.settings
            settings = replace(
                settings,
                fixed_iterations=_first(settings.fixed_iterations, first.iterations),
                fixed_warmup_iterations=_first(settings.fixed_warmup_iterations, first.warmup_iterations),
            )
            request = Request(
                model_id=first.name,
                device=planning.device or first.device,
                runtime=BENCH_RUNTIME.name,
                precision=planning.precision or first.precision,
                options={} if first.variant is None else {"variant": first.variant},
                settings=settings,
                timeout_s=planning.timeout_s,
                skip_unsupported=planning.skip_unsupported,
                command=planning.command,
                tags={**first.tags, **planning.tags},
                description=planning.description,
            )
            workload, points = workload_of(bench, first), ascending(config.point for config in configs)
            try:
                plans.append(plan_points(request, planning.session_id, workload, points, skipped={}, machine=machine))
            except UsageError as error:
                raise type(error)(f"benchmark {bench.label}, {first.name}: {error}") from error
    return tuple(plans)


def replaced_configs(
    benches: Sequence[Bench], planning: BenchPlanning, *, is_shared: bool = False
) -> tuple[Bench, ...]:
    """The benchmarks with the model and number of tokens of the command. Raises UsageError if no config has one to
    replace, unless the command also measures models, to which the flag may apply (`is_shared`)."""
    configs = [config for bench in benches for config in bench.configs]
    if not is_shared:
        if planning.model_id is not None and all(config.model_id is None for config in configs):
            raise UsageError(
                f"--model-id {planning.model_id}: no config of these benchmarks has a model_id: remove the flag"
            )
        if planning.new_tokens is not None and all(config.new_tokens is None for config in configs):
            raise UsageError(
                "--new-tokens (--num-tokens-to-generate): no config of these benchmarks has new_tokens "
                "(num_tokens_to_generate): remove the flag"
            )
    updated: list[Bench] = []
    for bench in benches:
        distinct: list[BenchmarkConfig] = []
        for config in bench.configs:
            if planning.model_id is not None and config.model_id is not None:
                name = planning.model_id if config.name == config.model_id else config.name
                config = replace(config, model_id=planning.model_id, name=name)
            variants = [config]
            if planning.new_tokens is not None and config.new_tokens is not None:
                variants = [replace(config, new_tokens=count) for count in planning.new_tokens]
            for variant in variants:
                if variant not in distinct:
                    distinct.append(variant)
        updated.append(replace(bench, configs=tuple(distinct)))
    return tuple(updated)


def workload_of(bench: Bench, config: BenchmarkConfig) -> Workload:
    """A benchmark as a workload. The folder of its file and the name for its results are not part of its identity; the
    worker finds it by `path`. Secrets among its options are replaced in every text from now on."""
    know_secrets_named(config.options)
    identity: dict[str, Json] = {
        "bench": bench.class_name,
        "file": Path(bench.path).name,
        "timed_by": bench.timed_by,
        "devices": list(bench.devices),
        "options": dict(config.options),
        **{name: value for name in BENCH_FIELDS if (value := getattr(config, name))},
    }
    return Workload(
        model_id=config.name,
        family=None,
        task=bench.task,
        source="bench",
        config={**identity, **({} if bench.saved_as is None else {"saved_as": bench.saved_as})},
        config_hash=canonical_hash(identity),
        weights="given",
        path=bench.path,
    )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
