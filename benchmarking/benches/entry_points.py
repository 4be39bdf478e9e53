"""Benchmarks that are functions: `run_<name>` in a file <name>.py or <name>_benchmark.py, or `run_benchmark`.

A function with a parameter `output_dir`, or with `logger` and `**kwargs`, is a driver that uses a `BenchmarkRunner`
itself; one with another name is found too, if the file has no second one. It is called once while the
benchmarks are listed, when the runner only records the requested benchmarks; it gets the command's values for the
parameters that it has, or all of them as `**kwargs`. Any other function is the timed call: its parameters are fields of
the config, and their defaults form the config.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from benchmarking.benches.model_benchmark import (
    FIELD_ALIASES,
    FIELDS,
    OPTION_ALIASES,
    BenchmarkConfig,
    ModelBenchmark,
    resolve_aliases,
)
from benchmarking.core.errors import UsageError, first_line
from benchmarking.core.lazy_dataclass import dataclass


@dataclass(kw_only=True)
class BenchRequest:
    """A benchmark requested from a runner."""

    kind: type[ModelBenchmark]
    configs: Sequence[BenchmarkConfig]
    saved_as: str | None = None
    """The name under which the driver saves the results."""


BenchRequests = list[BenchRequest]
CONFIG_PARAMETERS = (*FIELDS, *FIELD_ALIASES, *OPTION_ALIASES)
"""Parameters whose defaults form a config."""
EXTRA_PARAMETERS = ("config", "torch_device", "logger")
"""Further parameters of a timed function."""
_requests: ContextVar[BenchRequests | None] = ContextVar("requests", default=None)
_is_loading: ContextVar[bool] = ContextVar("is_loading", default=False)


class FunctionBenchmark(ModelBenchmark):
    """A function whose call is timed."""

    function: ClassVar[Callable[..., Any]]

    def setup_model(self) -> None:
        fields = {name: getattr(self.config, name) for name in FIELDS}
        known = {**self.config.options, **fields, **{other: fields[name] for other, name in FIELD_ALIASES.items()}}
        known |= {"config": self.config, "torch_device": self.torch_device, "logger": logging.getLogger(__name__)}
        parameters = inspect.signature(type(self).function).parameters
        self._arguments = {name: known[name] for name in parameters if known.get(name) is not None}

    def run(self) -> Any:
        return type(self).function(**self._arguments)


def entry_point(module: ModuleType, path: Path) -> Callable[..., Any] | None:
    """The function of a file that is a benchmark; None without one. Raises UsageError for several drivers of which none
    has the name of the file: measuring the classes without their drivers' configs would measure something else."""
    own = {
        name: value
        for name, value in vars(module).items()
        if name.startswith("run_") and inspect.isfunction(value) and value.__module__ == module.__name__
    }
    names = (f"run_{path.stem}", f"run_{path.stem.removesuffix('_benchmark')}", "run_benchmark")
    if named := next((own[name] for name in names if name in own), None):
        return named
    drivers = [name for name, function in own.items() if is_driver(function)]
    if len(drivers) > 1:
        raise UsageError(f"{path}: {', '.join(drivers)} could each be the benchmark: call one of them {names[0]}")
    return own[drivers[0]] if drivers else None


def is_driver(function: Callable[..., Any]) -> bool:
    """Whether the function is a driver, which uses a runner itself."""
    parameters = inspect.signature(function).parameters
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return "output_dir" in parameters or ("logger" in parameters and takes_all)


def function_benchmark(function: Callable[..., Any]) -> type[ModelBenchmark]:
    """The class for a timed function. Raises UsageError for a parameter without a value."""
    parameters = inspect.signature(function).parameters.values()
    defaults: dict[str, Any] = {}
    for parameter in parameters:
        name, default = parameter.name, parameter.default
        has_default = default is not inspect.Parameter.empty
        is_rest = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if not has_default and not is_rest and name not in (*CONFIG_PARAMETERS, *EXTRA_PARAMETERS):
            raise UsageError(
                f"{function.__name__}: parameter {name!r} is not a field of BenchmarkConfig: give it a default"
            )
        if has_default and name in CONFIG_PARAMETERS and default is not None:
            defaults[name] = default
    defaults.setdefault("name", defaults.get("model_id") or function.__name__.removeprefix("run_"))
    config = BenchmarkConfig(**resolve_aliases(defaults))
    members = {
        "function": staticmethod(function),
        "configs": [config],
        "__module__": function.__module__,
        "__doc__": function.__doc__,
    }
    return type(function.__name__, (FunctionBenchmark,), members)


def requested_by(driver: Callable[..., Any], given: Mapping[str, Any]) -> tuple[BenchRequests, str | None]:
    """The benchmarks that a driver requests from its runner, without measuring, and why it ended early, if it did.
    `given` are the command's values.

    An error of the driver passes through if it has not requested anything yet; later it is usually about results, which
    do not exist here.
    """
    given = {**given, "logger": logging.getLogger(driver.__module__), "output_dir": "."}
    parameters = inspect.signature(driver).parameters.values()
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    requests: BenchRequests = []
    token = _requests.set(requests)
    try:
        named = {parameter.name for parameter in parameters}
        driver(**{name: value for name, value in given.items() if takes_all or name in named})
    except Exception as error:
        if not requests:
            raise
        return requests, f"{type(error).__name__}: {first_line(error)}"
    finally:
        _requests.reset(token)
    return requests, None


class NoResults(dict[str, Any]):
    """What a runner returns to a driver while benchmarks are listed: nothing, but not a failure to measure."""

    def __bool__(self) -> bool:
        return True


def recorded_requests() -> BenchRequests | None:
    """The list in which a runner records requests instead of measuring; None if it is to measure."""
    return _requests.get()


@contextmanager
def loading() -> Iterator[None]:
    """Inside, a file of benchmarks is being imported, which must not measure."""
    token = _is_loading.set(True)
    try:
        yield
    finally:
        _is_loading.reset(token)


def is_loading() -> bool:
    """Whether a file of benchmarks is being imported."""
    return _is_loading.get()
