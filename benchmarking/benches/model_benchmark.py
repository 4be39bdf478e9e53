"""The base class of user-written benchmarks.

A class may be written in either of two ways, which can be mixed method by method:
  - `setup_model(self)`, `measure_latency(self)` in milliseconds: the config is `self.config`;
  - `setup_model(self, config)`, `measure_latency(self, config)` in seconds, as in benchmark_v2, whose classes take a
    logger: `def __init__(self, logger)`.
"""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, cast

from benchmarking.benches.config import BenchmarkConfig
from benchmarking.core.errors import UsageError
from benchmarking.core.metrics import CustomMetric

TimedBy = Literal["benchhouse", "bench"]


class ModelBenchmark(ABC):
    """A user-written benchmark. Each of its configs is measured in fresh processes, one per launch.

    A process runs `setup_model()`, then calls as the profile requires, then `cleanup_model()`; the latter also after a
    failure, but not when the process itself is killed or exceeds its time limit.

    Define one kind of call:
      - `run()`: timed from outside like a model, waiting for the device before and after;
      - `measure_latency()` and/or `measure_time_to_first_token()`: the benchmark measures its own times and returns
        them in milliseconds; in seconds if the method takes the config (`measure_latency(self, config)`) or returns a
        `TimingResult(latency=...)`. Results are marked accordingly (doubt `timed_by_itself`), and doubted if a time is
        far from the wall time of the call. With only the latter, a call ends at its first token, so that its latency is
        the time to first token.

    An exception makes the result failed, with the reason; other results are not affected.
    """

    configs: ClassVar[Iterable[BenchmarkConfig] | Callable[[], Iterable[BenchmarkConfig]]] = ()
    """What to measure: a list, or a class method that returns one. Empty: one config named after the class."""
    devices: ClassVar[tuple[str, ...]] = ()
    """Kinds of device that it supports (values of `--device`); empty for all those that torch runs on. Use "openvino"
    or "qnn" for a benchmark that drives them itself."""
    marks_tokens: ClassVar[bool] = False
    """Whether `run()` calls `self.mark("token")` for each of `config.new_tokens` tokens when it reaches the host."""
    is_mock: ClassVar[bool] = False
    """Whether it is an example without real measurements; skipped without --enable-mock."""
    task: ClassVar[str] = "benchmark"
    """The task under which its results are stored."""

    model: Any = None
    tokenizer: Any = None
    device: Any = None
    """For the benchmark's own use, as is `tokenizer`, `model` and `logger`."""
    logger: logging.Logger = logging.getLogger(__name__)

    def __init__(
        self, config: BenchmarkConfig | logging.Logger | None = None, logger: logging.Logger | None = None
    ) -> None:
        """The arguments are optional: `made` sets both. Either may come first."""
        if isinstance(config, logging.Logger):
            config, logger = None, config
        if logger is not None:
            self.logger = logger
        self.config = cast(BenchmarkConfig, config)
        """The current config: name, variant, precision, options and the fields of its point. Numbers of calls and tags
        are not filled in."""
        self.torch_device: str | None = None
        """The device's name in torch ("cpu", "cuda:0"), set before `setup_model`; None when torch cannot use it."""
        self.synchronize: Callable[[], None] = lambda: None
        """Waits for the device; nothing before one is open."""
        self.mark: Callable[[str], None] = lambda name: None
        """For use in `run()`: mark("token") when a token has reached the host, mark("encode") at the end of a phase.
        Nothing outside a timed call."""

    @abstractmethod
    def setup_model(self, *args: Any, **kwargs: Any) -> None:
        """Prepare everything that a call needs, for `self.config` on `self.torch_device`. Not timed. Define it as
        `setup_model(self)` or `setup_model(self, config)`."""

    def cleanup_model(self) -> None:  # noqa: B027 - many have nothing to release
        """Release it. Also called after `setup_model` or a call failed, so do not assume that it is complete."""

    def run(self) -> Any:
        """The call to time. May return before the device is done."""
        raise NotImplementedError

    def measure_latency(self, *args: Any, **kwargs: Any) -> Any:
        """The time of one call, by the benchmark's own clock. `measure_latency(self)` returns milliseconds,
        `measure_latency(self, config)` seconds, and either may return a `TimingResult`."""
        raise NotImplementedError

    def measure_time_to_first_token(self, *args: Any, **kwargs: Any) -> Any:
        """The time from the start of a call to its first token, in the same units."""
        raise NotImplementedError

    def problem(self, output: Any) -> str | None:
        """The problem of an output of `run()`, which makes the result invalid; or None. Called once, not timed."""
        return None

    def work(self) -> Mapping[str, float]:
        """`flops` and `bytes_accessed` of a call, if known. Missing ones are counted if `run()` uses torch."""
        return {}

    def metrics(self) -> Iterable[CustomMetric]:
        """Custom metrics of this launch, each with a name, a unit and the better direction, such as accuracy or tokens
        accepted per step. Called once after the timed calls."""
        return ()


def made(bench: type[ModelBenchmark], config: BenchmarkConfig, logger: logging.Logger) -> ModelBenchmark:
    """A benchmark for a config. Its constructor gets the config or the logger, whichever it names."""
    parameters = inspect.signature(bench).parameters
    given: dict[str, Any] = {"config": config, "logger": logger}
    named = {name: value for name, value in given.items() if name in parameters}
    unnamed: list[Any] = []
    if not named and any(map(_is_required, parameters.values())):
        unnamed = [logger if takes_config(bench.setup_model) else config]
    instance = bench(*unnamed, **named)
    instance.config = config
    return instance


def takes_config(method: Callable[..., Any]) -> bool:
    """Whether a method of a class, unbound, takes the config as an argument."""
    _, *parameters = inspect.signature(method).parameters.values()
    return any(parameter.name == "config" or _is_required(parameter) for parameter in parameters)


def _is_required(parameter: inspect.Parameter) -> bool:
    is_one = parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return is_one and parameter.default is inspect.Parameter.empty


def overrides(bench: type[ModelBenchmark], method: str) -> bool:
    """Whether a benchmark overrides a method."""
    return getattr(bench, method) is not getattr(ModelBenchmark, method)


def timed_by(bench: type[ModelBenchmark]) -> TimedBy:
    """Which side measures the time of a benchmark's calls. Raises UsageError if it defines no call or both kinds."""
    self_timed = [name for name in ("measure_latency", "measure_time_to_first_token") if overrides(bench, name)]
    if overrides(bench, "run"):
        if self_timed:
            raise UsageError(
                f"{bench.__name__} has both run and {self_timed[0]}, but only one can be the timed call: remove one"
            )
        return "benchhouse"
    if not self_timed:
        raise UsageError(
            f"{bench.__name__} has nothing to time: define run, measure_latency or measure_time_to_first_token"
        )
    return "bench"


def configs_of(bench: type[ModelBenchmark]) -> tuple[BenchmarkConfig, ...]:
    """The configs of a benchmark. Raises UsageError for anything other than configs, and for duplicates."""
    given = bench.configs() if callable(bench.configs) else bench.configs
    if not isinstance(given, Iterable):
        raise UsageError(f"{bench.__name__}.configs must be a list of BenchmarkConfig: got {given!r}")
    configs = tuple(given) or (BenchmarkConfig(name=bench.__name__),)
    for index, config in enumerate(configs):
        if not isinstance(config, BenchmarkConfig):
            raise UsageError(f"{bench.__name__}.configs must be a list of BenchmarkConfig: it holds {config!r}")
        if config in configs[:index]:
            raise UsageError(f"{bench.__name__}.configs contains the same config twice: {config}: remove one")
    return configs
