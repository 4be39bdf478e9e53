"""The class that people derive their own benchmarks from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal

from benchmarking.benches.config import BenchmarkConfig
from benchmarking.errors import UsageError

TimedBy = Literal["benchhouse", "bench"]


class ModelBenchmark(ABC):
    """A benchmark of one's own. For each of its configs, in a fresh process a launch:

    `setup_model()`, then calls until the profile is content, then `cleanup_model()`, which runs however that ended,
    unless the process itself was ended (by a time limit, a crash, a kill).

    What a call is, one of:
      - `run()`: it is timed from outside, with the device waited for on both sides, as everything else is;
      - `measure_latency()` and/or `measure_time_to_first_token()`: they take the time themselves and return it in
        milliseconds. These are stored as they are, with the mark that the benchmark timed itself. With the latter alone
        a call ends at its first token, and that is its latency too.

    What any of them raises is a failed result with its reason, and the other results go on.
    """

    configs: ClassVar[Iterable[BenchmarkConfig] | Callable[[], Iterable[BenchmarkConfig]]] = ()
    """What to measure: a list, or a class method that gives one. Without any: one config with the class's name."""
    devices: ClassVar[tuple[str, ...]] = ()
    """Kinds of device it runs on ("cpu", "cuda", ...); empty for any."""
    marks_tokens: ClassVar[bool] = False
    """`run()` calls `self.mark("token")` for each of `config.new_tokens` tokens as it reaches the host."""
    is_mock: ClassVar[bool] = False
    """An example that measures nothing real, left out unless asked for."""
    task: ClassVar[str] = "benchmark"
    """The task its results are stored under."""

    def __init__(self, config: BenchmarkConfig) -> None:
        self.config = config
        """What is to be measured now: the fields of its point, name, variant, precision, axes and options. How often it
        is called, and its tags, are not the benchmark's business and not in it."""
        self.torch_device: str | None = None
        """The device as torch calls it ("cpu", "cuda:0"), set before `setup_model`; None where torch cannot use it."""
        self.synchronize: Callable[[], None] = _nothing
        """Waits for the device."""
        self.mark: Callable[[str], None] = _no_mark
        """Inside `run()`: mark("token") for a token that has reached the host, mark("encode") at the end of a phase."""

    @abstractmethod
    def setup_model(self) -> None:
        """Make ready whatever a call needs, for `self.config` on `self.torch_device`. Not timed."""

    def cleanup_model(self) -> None:  # noqa: B027 - many have nothing to let go
        """Let it go again. Runs also after `setup_model` or a call raised, so take nothing for granted."""

    def run(self) -> Any:
        """The call to time. May return before the device is done."""
        raise NotImplementedError

    def measure_latency(self) -> float:
        """Milliseconds of one call, by the benchmark's own clock."""
        raise NotImplementedError

    def measure_time_to_first_token(self) -> float:
        """Milliseconds from the start of a call to its first token, by the benchmark's own clock."""
        raise NotImplementedError

    def problem(self, output: Any) -> str | None:
        """What is wrong with what `run()` returned, or None. Such a result is invalid. Asked once, not timed."""
        return None

    def work(self) -> Mapping[str, float]:
        """What a call computes and moves, if known: `flops`, `bytes_accessed`. What is not named is counted, if
        the benchmark is timed from outside and uses torch."""
        return {}


def _nothing() -> None:
    """Before there is a device there is nothing to wait for."""


def _no_mark(name: str) -> None:
    """Outside a timed call a mark means nothing."""


def overrides(bench: type[ModelBenchmark], method: str) -> bool:
    """Whether a benchmark has its own version of a method."""
    return getattr(bench, method) is not getattr(ModelBenchmark, method)


def timed_by(bench: type[ModelBenchmark]) -> TimedBy:
    """Who takes the time of a benchmark's calls. Raises UsageError for one that leaves it open."""
    own = [name for name in ("measure_latency", "measure_time_to_first_token") if overrides(bench, name)]
    if overrides(bench, "run"):
        if own:
            raise UsageError(f"{bench.__name__} has both run and {own[0]}: leave one out, only one can be the call")
        return "benchhouse"
    if not own:
        raise UsageError(
            f"{bench.__name__} has nothing to time: give it run, measure_latency or measure_time_to_first_token"
        )
    return "bench"


def configs_of(bench: type[ModelBenchmark]) -> tuple[BenchmarkConfig, ...]:
    """What a benchmark is to be measured on. Raises UsageError for what are no configs, or two of the same."""
    given = bench.configs() if callable(bench.configs) else bench.configs
    if not isinstance(given, Iterable):
        raise UsageError(f"{bench.__name__}.configs is a list of BenchmarkConfig: got {given!r}")
    configs = tuple(given) or (BenchmarkConfig(name=bench.__name__),)
    for index, config in enumerate(configs):
        if not isinstance(config, BenchmarkConfig):
            raise UsageError(f"{bench.__name__}.configs is a list of BenchmarkConfig: it holds {config!r}")
        if config in configs[:index]:
            raise UsageError(f"{bench.__name__}.configs holds the same config twice: {config}")
    return configs
