"""Plans of user-written benchmarks: the same plans of cells as for models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from benchmarking.benches.config import BenchmarkConfig
from benchmarking.benches.discovery import Bench
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Json, Precision, Workload, canonical_hash
from benchmarking.measure.context import Settings
from benchmarking.runtimes.bench import PLUGIN as BENCH_RUNTIME
from benchmarking.runtimes.bench import SERIES_FIELDS
from benchmarking.sweep.plan.measuring_settings import DEFAULT_TIMEOUT_S
from benchmarking.sweep.plan.plan import CellPlan, Machine, ascending
from benchmarking.sweep.plan.request import Request, plan_points


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
    skip_unsupported: bool = False
    command: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    """Added to the configs' tags, which they override."""
    description: str | None = None


def plan_benches(
    benches: Sequence[Bench], planning: BenchPlanning, machine: Machine | None = None
) -> tuple[CellPlan, ...]:
    """A plan for each group of configs of a benchmark that differ only in their point. Raises UsageError for invalid
    configs."""
    machine = Machine() if machine is None else machine
    plans: list[CellPlan] = []
    for bench in benches:
        cells: dict[str, list[BenchmarkConfig]] = {}
        for config in bench.configs:
            cell = replace(config, batch_size=1, sequence_length=None, new_tokens=None, axes={})
            cells.setdefault(canonical_hash(cell), []).append(config)
        plans += [_plan(bench, configs, planning, machine) for configs in cells.values()]
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


def _plan(bench: Bench, configs: Sequence[BenchmarkConfig], planning: BenchPlanning, machine: Machine) -> CellPlan:
    first, settings = configs[0], planning.settings
    request = Request(
        model_id=first.name,
        device=planning.device or first.device,
        runtime=BENCH_RUNTIME.name,
        precision=planning.precision or first.precision,
        options={} if first.variant is None else {"variant": first.variant},
        settings=replace(
            settings,
            fixed_iterations=_first(settings.fixed_iterations, first.iterations),
            fixed_warmup_iterations=_first(settings.fixed_warmup_iterations, first.warmup_iterations),
        ),
        timeout_s=planning.timeout_s,
        skip_unsupported=planning.skip_unsupported,
        command=planning.command,
        tags={**first.tags, **planning.tags},
        description=planning.description,
    )
    points = ascending(config.point for config in configs)
    try:
        return plan_points(request, planning.session_id, workload_of(bench, first), points, skipped={}, machine=machine)
    except UsageError as error:
        raise type(error)(f"benchmark {bench.label}, {first.name}: {error}") from error


def workload_of(bench: Bench, config: BenchmarkConfig) -> Workload:
    """A benchmark as a workload. The folder of its file and the name for its results are not part of its identity; the
    worker finds it by `path`."""
    identity: dict[str, Json] = {
        "bench": bench.class_name,
        "file": Path(bench.path).name,
        "timed_by": bench.timed_by,
        "devices": list(bench.devices),
        "options": dict(config.options),
        **{name: value for name in SERIES_FIELDS if (value := getattr(config, name))},
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
