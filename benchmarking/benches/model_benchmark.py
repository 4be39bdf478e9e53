"""The class that people derive their own benchmarks from.

What one measurement of somebody's benchmark is of, and every combination of such things.
"""

from __future__ import annotations

import dataclasses
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from benchmarking.core.command_line import choice
from benchmarking.core.errors import UsageError
from benchmarking.core.records import PRECISIONS, Point, Precision, Scalar

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


COUNTS = ("batch_size", "sequence_length", "new_tokens", "iterations")

"""Fields that are whole numbers from 1, or None where that is their default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkConfig:
    """One thing to measure. Raises UsageError for a value that cannot be."""

    name: str
    """What the results are found by: their model_id."""
    variant: str | None = None
    """Which way of doing it ("compiled", "static cache"): variants are different series of results."""
    batch_size: int = 1
    """Items a call, which throughput counts."""
    sequence_length: int | None = None
    """Tokens of each item's input."""
    new_tokens: int | None = None
    """Tokens generated for each item."""
    axes: Mapping[str, int | float] = field(default_factory=dict)
    """Further places on the grid by name, such as image_size."""
    device: str = "auto"
    """As `--device` takes it."""
    precision: Precision = "float32"
    iterations: int | None = None
    """Exactly this many timed calls a launch; None: until the interval is narrow enough, as the profile says."""
    warmup_iterations: int | None = None
    """Exactly this many calls before them; None: until steady."""
    options: Mapping[str, Scalar] = field(default_factory=dict)
    """Whatever else the benchmark wants to know; other options make another series of results."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Labels of the run."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise UsageError(f"a benchmark's name is a text: got {self.name!r}")
        choice(self.precision, PRECISIONS, f"precision of {self.name}")
        for count in COUNTS:
            _check_count(self, count, least=1)
        _check_count(self, "warmup_iterations", least=0)
        for mapping, kinds in (("axes", (int, float)), ("options", (bool, int, float, str)), ("tags", (str,))):
            _check_mapping(self, mapping, kinds)

    @property
    def point(self) -> Point:
        """The place on the grid."""
        return Point(
            batch_size=self.batch_size,
            sequence_length=self.sequence_length,
            new_tokens=self.new_tokens,
            axes=dict(self.axes),
        )


def create_config_variants(base: BenchmarkConfig, values: Mapping[str, Sequence[Any]]) -> tuple[BenchmarkConfig, ...]:
    """Every combination of the values by field, all else as in `base`; the last field varies fastest.

    Raises UsageError for a field that there is not, with near names, and for values that are no list.
    """
    known = tuple(f.name for f in dataclasses.fields(BenchmarkConfig))
    for name, listed in values.items():
        choice(name, known, "field of BenchmarkConfig")
        if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Sequence) or not listed:
            raise UsageError(f"create_config_variants: {name} takes a list of values: got {listed!r}")
    combinations = itertools.product(*values.values())
    return tuple(dataclasses.replace(base, **dict(zip(values, each, strict=True))) for each in combinations)


def _check_count(config: BenchmarkConfig, name: str, *, least: int) -> None:
    value = getattr(config, name)
    if value is None and name != "batch_size":
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name} of {config.name} takes a whole number from {least}: got {value!r}")


def _check_mapping(config: BenchmarkConfig, name: str, kinds: tuple[type, ...]) -> None:
    mapping = getattr(config, name)
    if not isinstance(mapping, Mapping):
        raise UsageError(f"{name} of {config.name} takes a mapping: got {mapping!r}")
    for key, value in mapping.items():
        if not isinstance(key, str) or not isinstance(value, kinds):
            what = " or ".join(kind.__name__ for kind in kinds)
            raise UsageError(f"{name} of {config.name} maps names to {what}: got {key!r}: {value!r}")
