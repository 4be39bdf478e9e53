"""Finds the benchmarks in a folder, and loads one from its file.

User code is imported in child processes only. As a child, this module reads paths as JSON from stdin and writes JSON
lines to stdout: for each file {"importing": path}, so that a file that ends the process can be identified, then
{"benches": [...]} or {"error": "..."}.

A benchmark is a class or a function: `run_<name>` in a file <name>.py or <name>_benchmark.py, or `run_benchmark`. A
function with a parameter `output_dir`, or with `logger` and `**kwargs`, is a driver that uses a `BenchmarkRunner`
itself; one with another name is found too, if the file has no second one. It is called once while the
benchmarks are listed, when the runner only records the requested benchmarks; it gets the command's values for the
parameters that it has, or all of them as `**kwargs`. Any other function is the timed call: its parameters are fields of
the config, and their defaults form the config.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from benchmarking.benches.model_benchmark import (
    FIELD_ALIASES,
    FIELDS,
    OPTION_ALIASES,
    BenchmarkConfig,
    ModelBenchmark,
    TimedBy,
    configs_of,
    resolve_aliases,
    timed_by,
)
from benchmarking.core.child_process import claimed_stdout, run_module
from benchmarking.core.errors import BenchhouseError, UsageError, first_line
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import from_json, to_json
from benchmarking.core.suggestions import MAX_CANDIDATES
from benchmarking.core.untrusted.redaction import compile_patterns


@dataclass(kw_only=True)
class BenchRequest:
    kind: type[ModelBenchmark]
    configs: Sequence[BenchmarkConfig]
    saved_as: str | None = None
    """The name under which the driver saves the results."""


BenchRequests = list[BenchRequest]
CONFIG_PARAMETERS = (*FIELDS, *FIELD_ALIASES, *OPTION_ALIASES)
"""Parameters whose defaults form a config."""
EXTRA_PARAMETERS = ("config", "torch_device", "logger")
"""Further parameters of a timed function."""
RECORDED: ContextVar[BenchRequests | None] = ContextVar("requests", default=None)
"""The list in which a runner records requests instead of measuring; None if it is to measure."""
IS_LOADING: ContextVar[bool] = ContextVar("is_loading", default=False)
"""Whether a file of benchmarks is being imported, which must not measure."""


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


class NoResults(dict[str, Any]):
    """What a runner returns to a driver while benchmarks are listed: nothing, but not a failure to measure."""

    def __bool__(self) -> bool:
        return True


WHAT_IS_A_BENCHMARK = (
    "a benchmark is a class derived from benchmarking.ModelBenchmark with the methods setup_model and run, in a Python "
    "file of this folder: benchhouse benches --print-example prints one to copy"
)
TIME_LIMIT_S = 300.0
"""Time limit for importing all files: the first import of torch from a slow disk takes a minute."""
EARLY_END = "what it would request after its first benchmarks, as it ended while they were listed: {}"
EXAMPLES = Path(__file__).with_name("examples")
EXAMPLE = EXAMPLES / "mock_benchmark.py"
"""The one to copy, which explains itself and runs everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A discovered user-written benchmark class, with the configs to measure."""

    path: str
    """Its file."""
    class_name: str
    configs: tuple[BenchmarkConfig, ...]
    devices: tuple[str, ...]
    """Kinds of device that it supports; empty for all those that torch runs on."""
    timed_by: TimedBy
    task: str
    is_mock: bool
    saved_as: str | None = None
    """The name under which its driver saves the results."""

    @property
    def label(self) -> str:
        """File and class, for messages."""
        return f"{Path(self.path).stem}.{self.class_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    benches: tuple[Bench, ...]
    """The benchmarks to measure, in the order of their files."""
    left_out: Mapping[str, str]
    """Label -> why it is not measured."""


def discover(
    folder: Path,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    enable_mock: bool = False,
    given: Mapping[str, Any] | None = None,
) -> Discovery:
    """The benchmarks in a folder and its sub-folders, in each `*.py` whose name does not begin with "_" or ".".

    A pattern ("bert*") is matched against the names of the file, the class, "file.Class" and each config. `include`
    keeps what matches one of its patterns, `exclude` drops it; a file whose name is excluded is not imported. Mock
    benchmarks are omitted unless they are enabled. `given` are the command's values for drivers.

    Raises UsageError for a missing folder, for a file that cannot be imported (with the line), and when no benchmark
    remains.
    """
    root = folder.resolve()
    if folder.is_file() and folder.suffix == ".py":
        files = [root]
    elif folder.is_dir():
        every = ((path, path.relative_to(root).parts) for path in sorted(root.rglob("*.py")))
        files = [path for path, parts in every if not any(part[0] in "._" for part in parts)]
    else:
        raise UsageError(f"--benches {folder}: no such folder or Python file: check the path")
    excluded = [path for path in files if _matches(exclude, _names_of_file(path, folder))]
    files = [path for path in files if path not in excluded]
    selected: list[Bench] = []
    left_out: dict[str, str] = {}
    listed = _list_benches(files, {**(given or {}), "enable_mock": enable_mock})
    for bench in listed.benches:
        names = [*_names_of_file(Path(bench.path), folder), bench.class_name, bench.label]
        included = [config for config in bench.configs if not include or _matches(include, [*names, config.name])]
        configs = tuple(config for config in included if not _matches(exclude, [*names, config.name]))
        if bench.is_mock and not enable_mock:
            left_out[bench.label] = "a mock: use --enable-mock to run it"
        elif not configs:
            left_out[bench.label] = "excluded by --include and --exclude"
        else:
            selected.append(replace(bench, configs=configs))
    left_out |= listed.left_out
    if not selected:
        left_out = {**dict.fromkeys((path.name for path in excluded), "excluded by --exclude"), **left_out}
        reasons = "; ".join(f"{label}: {why}" for label, why in left_out.items())
        found = ", ".join(path.name for path in files[:MAX_CANDIDATES]) or "no Python file"
        raise UsageError(
            f"--benches {folder}: no benchmark to run"
            + (f" ({reasons})" if reasons else f" in it ({found}): {WHAT_IS_A_BENCHMARK}")
        )
    return Discovery(benches=tuple(selected), left_out=left_out)


def _names_of_file(path: Path, folder: Path) -> tuple[str, ...]:
    root = folder.resolve()
    is_inside = folder.is_dir() and path.is_relative_to(root)  # a driver may request a class from another file
    return (path.stem, path.name, path.relative_to(root).as_posix() if is_inside else path.as_posix())


def _matches(patterns: Sequence[str], names: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _list_benches(files: Sequence[Path], given: Mapping[str, Any]) -> Discovery:
    """The benchmarks in the files. Raises UsageError for the first file that cannot be imported."""
    if not files:
        return Discovery(benches=(), left_out={})
    question = json.dumps({"files": [str(file) for file in files], "given": given})
    done = run_module("benchmarking.benches.discovery", input_text=question, limit_s=TIME_LIMIT_S)
    if done.exit_code is None:
        end = f"took longer than {TIME_LIMIT_S:g} s"
    else:
        end = f"ended the process with exit code {done.exit_code}" + (f": {done.last_line}" if done.last_line else "")
    listed: list[dict[str, Any]] = []
    errors, importing = [], ""
    for answer in (json.loads(line) for line in done.stdout.splitlines() if line.endswith("}")):
        importing = answer.get("importing", "" if "benches" in answer or "error" in answer else importing)
        listed += answer.get("benches", ())
        errors += [answer["error"]] if "error" in answer else []
    if importing:
        errors.append(f"{importing}: importing it {end}")
    elif not errors and done.exit_code != 0:
        errors.append(f"listing the benchmarks {end}")
    if errors:
        more = f" (and {len(errors) - 1} more such files)" if len(errors) > 1 else ""
        raise UsageError(f"{errors[0]}{more}; use --exclude NAME to skip a file")
    return Discovery(
        benches=tuple(from_json(Bench, entry) for entry in listed if "left_out" not in entry),
        left_out={entry["left_out"]: entry["why"] for entry in listed if "left_out" in entry},
    )


def main() -> int:
    """List the benchmarks of each file on stdin. The output of the files themselves goes to stderr."""
    answer_line = partial(print, file=claimed_stdout(), flush=True)
    question = json.load(sys.stdin)
    for path in map(Path, question["files"]):
        answer_line(json.dumps({"importing": str(path)}))
        try:
            answer: dict[str, Any] = {"benches": list(_benches_in(path, question["given"]))}
        except BenchhouseError as error:
            answer = {"error": str(error)}
        answer_line(json.dumps(answer))
    return 0


def _benches_in(path: Path, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The benchmarks of a file as JSON: those requested by its driver, else its classes, else its timed function.

    A driver requests them from its runner, without measuring. Its error is that of the file if it has not requested
    anything yet; later it is usually about results, which do not exist here. `given` are the command's values.
    """
    module = load_module(path)
    function = entry_point(module, path)
    if function is not None and is_driver(function):
        given = {**given, "logger": logging.getLogger(function.__module__), "output_dir": "."}
        parameters = inspect.signature(function).parameters
        takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
        requests, early_end = BenchRequests(), None
        token = RECORDED.set(requests)
        try:
            function(**{name: value for name, value in given.items() if takes_all or name in parameters})
        except Exception as error:
            if not requests and isinstance(error, BenchhouseError):
                raise
            if not requests:
                why = f"{function.__name__}: {type(error).__name__}: {error}"
                raise BenchhouseError(f"{error_location(path, error)}: {why}") from error
            early_end = f"{type(error).__name__}: {first_line(error)}"
        finally:
            RECORDED.reset(token)
        for request in requests:
            yield {**_bench_json(path, request.kind, request.configs), "saved_as": request.saved_as}
        if early_end is not None:
            yield {"left_out": f"{path.stem}.{function.__name__}", "why": EARLY_END.format(early_end)}
        return
    benches = classes(module)
    yield from (_bench_json(path, bench) for bench in benches)
    for bench in _defined(module):
        if inspect.isabstract(bench) and not bench.__subclasses__():
            missing = " and ".join(sorted(bench.__abstractmethods__))
            yield {"left_out": f"{path.stem}.{bench.__name__}", "why": f"it has no {missing}, which a benchmark needs"}
    if function is not None and not benches:
        yield _bench_json(path, function_benchmark(function))


def describe(bench: type[ModelBenchmark], configs: Sequence[BenchmarkConfig] | None = None) -> Bench:
    """A class as a benchmark, with its own configs or these. Raises UsageError for a class that is not in a file."""
    try:
        path = Path(inspect.getfile(bench)).resolve()
    except (TypeError, OSError) as error:
        raise UsageError(
            f"{bench.__name__} is not in a file: define it in one, so that other processes can load it"
        ) from error
    return from_json(Bench, _bench_json(path, bench, configs))


def _bench_json(
    path: Path, bench: type[ModelBenchmark], configs: Sequence[BenchmarkConfig] | None = None
) -> dict[str, Any]:
    """A benchmark as JSON of a `Bench`. Errors of the class name its line in the file."""
    source: Any = bench.function if issubclass(bench, FunctionBenchmark) else bench
    line = inspect.getsourcelines(source)[1]
    try:
        return {
            "path": str(path if issubclass(bench, FunctionBenchmark) else Path(inspect.getfile(bench)).resolve()),
            "class_name": bench.__name__,
            "configs": to_json(configs_of(bench) if configs is None else tuple(configs)),
            "devices": list(bench.devices),
            "timed_by": timed_by(bench),
            "task": bench.task,
            "is_mock": bench.is_mock,
        }
    except BenchhouseError as error:
        raise type(error)(f"{path}, line {line}: {error}") from error
    except Exception as error:
        raise BenchhouseError(
            f"{error_location(path, error)}: {bench.__name__}: {type(error).__name__}: {error}"
        ) from error


def load_module(path: Path) -> ModuleType:
    """The file as a module, with its folder first on the module path, so that it can import modules next to it, and
    with benchmark_v2's `framework`.

    Raises UsageError with the file and line at which the import failed.
    """
    from benchmarking.benches.framework import provide  # it imports this module

    name = f"benchhouse_bench_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: not a Python file")
    compile_patterns()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    provide(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look up a class's module by name
    token = IS_LOADING.set(True)
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except Exception as error:
        raise UsageError(f"{error_location(path, error)}: {type(error).__name__}: {error}") from error
    finally:
        IS_LOADING.reset(token)
    return module


def classes(module: ModuleType) -> tuple[type[ModelBenchmark], ...]:
    """The benchmarks defined in a file, in order, without base classes (abstract or with a name starting with "_")."""
    return tuple(bench for bench in _defined(module) if not inspect.isabstract(bench))


def _defined(module: ModuleType) -> tuple[type[ModelBenchmark], ...]:
    benches = (value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, ModelBenchmark))
    own = (bench for bench in benches if bench.__module__ == module.__name__ and not bench.__name__.startswith("_"))
    return tuple(dict.fromkeys(own))


def load_class(path: Path, name: str) -> type[ModelBenchmark]:
    """A benchmark by its file and class. Raises BenchhouseError when it no longer exists."""
    module = load_module(path)
    for bench in classes(module):
        if bench.__name__ == name:
            return bench
    function = entry_point(module, path)
    if function is not None and function.__name__ == name:
        return function_benchmark(function)
    raise BenchhouseError(f"{path} has no ModelBenchmark {name}")


def error_location(path: Path, error: BaseException) -> str:
    """The file, and the line if the error has one."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}, line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)


if __name__ == "__main__":
    # As the module that a file of benchmarks imports, whose requests it reads.
    from benchmarking.benches import discovery

    sys.exit(discovery.main())
