"""What a user-written benchmark is made of: its base class, its configs under our names and those of benchmark_v2, and
the times that it measures itself.

A class may be written in either of two ways, which can be mixed method by method:
  - `setup_model(self)`, `measure_latency(self)` in milliseconds: the config is `self.config`;
  - `setup_model(self, config)`, `measure_latency(self, config)` in seconds, as in benchmark_v2, whose classes take a
    logger: `def __init__(self, logger)`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from benchmarking.core.codec import is_whole
from benchmarking.core.command_line import choice
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import LATENCY_WALL, MS_PER_S, CustomMetric
from benchmarking.core.records import INT32_MOST, PRECISIONS, Json, Point, Precision, Result, Scalar, available
from benchmarking.core.sample_statistics import Statistics, describe, quantile, tail_min_samples

FIELD_ALIASES: Mapping[str, str] = {
    "measurement_iterations": "iterations",
    "num_tokens_to_generate": "new_tokens",
    "torch_dtype": "precision",
}
"""Name in older benchmark scripts -> field of a config."""
OPTION_ALIASES: Mapping[str, Scalar | None] = {
    "attn_implementation": "sdpa",
    "sdpa_backend": None,
    "use_cache": True,
}
"""Settings of older scripts that become options of the same name -> what they read as when they are not set."""
POSITIONAL = (
    *("name", "model_id", "variant", "warmup_iterations", "measurement_iterations", "num_tokens_to_generate"),
    *("device", "torch_dtype", "compile_mode", "compile_options", "use_cache", "batch_size", "sequence_length"),
    *("generation_config", "attn_implementation", "sdpa_backend", "custom_params"),
)
"""The order of a config's values that are given without names: that of benchmark_v2."""
COUNTS: Mapping[str, int] = {
    "batch_size": 1,
    "sequence_length": 1,
    "new_tokens": 1,
    "iterations": 1,
    "warmup_iterations": 0,
}
"""Fields that are whole numbers -> the least one; None if that is their default."""
PERCENT = 100
TAIL = 0.9
"""Percentiles this far out, on either side, need enough calls beyond them."""
JSON_KINDS = (type(None), bool, int, float, str, list, dict)
MAPPINGS: Mapping[str, tuple[type, ...]] = {
    "axes": (int, float),
    "options": (bool, int, float, str),
    "tags": (str,),
    "generation_config": JSON_KINDS,
    "compile_options": JSON_KINDS,
}
"""Fields that map names to values -> the types of these."""


def by_field(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values by field. Raises UsageError for a field that is given under two names."""
    found = {FIELD_ALIASES.get(name, name): value for name, value in values.items()}
    if len(found) < len(values):
        alias = next(name for name in values if FIELD_ALIASES.get(name) in values)
        raise UsageError(f"{where}: {alias} is an alias of {FIELD_ALIASES[alias]}: give only one of them")
    return found


def resolve_aliases(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a config by field, with options in their place. Raises UsageError as `by_field` does."""
    found = by_field(values, "BenchmarkConfig")
    options = {name: found.pop(name) for name in OPTION_ALIASES if name in found}
    if options or found.get("custom_params") is not None:
        merged = {**found.get("options", {}), **(found.get("custom_params") or {}), **options}
        found["options"] = {name: value for name, value in merged.items() if value is not None}
    found.pop("custom_params", None)
    if found.get("model_id") is not None:
        found.setdefault("name", found["model_id"])
    return found


def _accept_aliases(config: type[BenchmarkConfig]) -> type[BenchmarkConfig]:
    """The class with a constructor that also accepts the aliases, and values without names. They are not fields, since
    copies would then contain both names."""
    plain = config.__init__

    @functools.wraps(plain)
    def init(self: BenchmarkConfig, *unnamed: Any, **values: Any) -> None:
        if len(unnamed) > len(POSITIONAL):
            raise UsageError(f"BenchmarkConfig takes up to {len(POSITIONAL)} values without names: got {len(unnamed)}")
        named = dict(zip(POSITIONAL, unnamed, strict=False))
        if twice := sorted(set(named) & set(values)):
            raise UsageError(f"BenchmarkConfig: {twice[0]} is given twice: give it once")
        plain(self, **resolve_aliases({**named, **values}))

    config.__init__ = init  # type: ignore[method-assign]
    return config


@_accept_aliases
@dataclass(kw_only=True)
class BenchmarkConfig:
    """A configuration to measure. Raises UsageError for an invalid value, also when a field is set later.

    Fields may also be given by the names in `FIELD_ALIASES` and `OPTION_ALIASES`, which other benchmark scripts use,
    and without names in the order of `POSITIONAL`.
    """

    name: str
    """The model_id of the results; by default `model_id`."""
    model_id: str | None = None
    """The model for the benchmark to load; `--model-id` replaces it."""
    variant: str | None = None
    """The implementation ("compiled", "static cache"); each variant is a separate series."""
    batch_size: int = 1
    """Items per call, which throughput counts."""
    sequence_length: int | None = None
    """Input tokens per item."""
    new_tokens: int | None = None
    """Generated tokens per item."""
    axes: Mapping[str, int | float] = field(default_factory=dict)
    """Further axes of the grid by name, such as image_size."""
    device: str = "auto"
    """A value of `--device`."""
    precision: Precision = "float32"
    compile_mode: str | None = None
    """How the benchmark compiles its model ("default", "reduce-overhead"); None: not at all."""
    compile_options: Mapping[str, Json] = field(default_factory=dict)
    """Further arguments of its compiler."""
    generation_config: Mapping[str, Json] = field(default_factory=dict)
    """How the benchmark generates (do_sample, temperature, ...)."""
    iterations: int | None = None
    """Exactly this many timed calls per launch; None: as the profile requires."""
    warmup_iterations: int | None = None
    """Exactly this many warm-up calls; None: until steady."""
    options: Mapping[str, Scalar] = field(default_factory=dict)
    """Further parameters of the benchmark; different options are different series."""
    tags: Mapping[str, str] = field(default_factory=dict)

    if TYPE_CHECKING:

        def __init__(self, *unnamed: Any, **values: Any) -> None:
            """Values by any of their names, or in the order of `POSITIONAL`."""

    def __setattr__(self, name: str, value: Any) -> None:
        name = FIELD_ALIASES.get(name, name)
        if name in OPTION_ALIASES:
            others = {key: option for key, option in self.options.items() if key != name}
            name, value = "options", others if value is None else {**others, name: value}
        choice(name, FIELDS, "field of BenchmarkConfig")
        config_name = value if name == "name" else self.name
        if name == "name" and not (isinstance(value, str) and value.strip()):
            raise UsageError(f"a benchmark's name must be a non-empty string: got {value!r}")
        if name == "precision":
            choice(available(value), PRECISIONS, f"precision of {config_name}")
        if name in ("model_id", "compile_mode", "variant"):
            if value is not None and not (isinstance(value, str) and value.strip()):
                raise UsageError(f"{name} of {config_name} takes a name: got {value!r}")
        elif name in COUNTS:
            least = COUNTS[name]
            is_default = value is None and name != "batch_size"
            if not is_default and (not is_whole(value) or value < least):
                raise UsageError(f"{name} of {config_name} takes a whole number from {least}: got {value!r}")
            if not is_default and value > INT32_MOST:
                raise UsageError(f"{name} of {config_name} takes a whole number up to {INT32_MOST}: got {value}")
        elif name in MAPPINGS:
            if not isinstance(value, Mapping):
                raise UsageError(f"{name} of {config_name} takes a mapping: got {value!r}")
            kinds = MAPPINGS[name]
            for key, content in value.items():
                is_wrong = not isinstance(content, kinds) or (isinstance(content, bool) and bool not in kinds)
                if is_wrong or not isinstance(key, str):
                    what = (
                        "values that JSON has" if kinds is JSON_KINDS else " or ".join(kind.__name__ for kind in kinds)
                    )
                    raise UsageError(f"{name} of {config_name} maps names to {what}: got {key!r}: {content!r}")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """The other names of fields and options; options that are not set have benchmark_v2's defaults."""
        if name in FIELD_ALIASES:
            return getattr(self, FIELD_ALIASES[name])
        if name in OPTION_ALIASES:
            return self.options.get(name, OPTION_ALIASES[name])
        if name == "custom_params":
            return {key: value for key, value in self.options.items() if key not in OPTION_ALIASES}
        raise AttributeError(f"BenchmarkConfig has no field {name!r}")

    @property
    def point(self) -> Point:
        return Point(
            batch_size=self.batch_size,
            sequence_length=self.sequence_length,
            new_tokens=self.new_tokens,
            axes=dict(self.axes),
        )


FIELDS = tuple(field.name for field in dataclasses.fields(BenchmarkConfig))


def create_config_variants(base: BenchmarkConfig, values: Mapping[str, Sequence[Any]]) -> tuple[BenchmarkConfig, ...]:
    """A config for each combination of values (field -> list), otherwise equal to `base`; the last field varies
    fastest.

    Raises UsageError for an unknown field, with similar names, for one that is given under two names, and for values
    that are not a list.
    """
    listed_by_field = by_field(values, "create_config_variants")
    for name, listed in listed_by_field.items():
        choice(name, (*FIELDS, *OPTION_ALIASES), "field of BenchmarkConfig")
        if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Sequence) or not listed:
            raise UsageError(f"create_config_variants: {name} takes a list of values: got {listed!r}")
    combinations = itertools.product(*listed_by_field.values())
    return tuple(
        dataclasses.replace(base, **dict(zip(listed_by_field, combination, strict=True)))
        for combination in combinations
    )


@dataclass(frozen=True, slots=True)
class TimingResult:
    """Times of calls, or of the one call that a benchmark measured (`latency`), in seconds. Raises UsageError if there
    are none, or if one is not a time."""

    values_s: tuple[float, ...]
    """Seconds of each call, in call order."""
    tokens_per_second: float | None = None
    """The generation rate that a benchmark reports for its call."""
    time_to_first_token: float | None = None
    """Seconds to the first token of its call."""
    total_tokens_generated: int | None = None
    """Tokens that its call generated, over all sequences."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Further facts for the benchmark's own use."""

    def __init__(
        self,
        values_s: Iterable[float] = (),
        *,
        latency: float | None = None,
        tokens_per_second: float | None = None,
        time_to_first_token: float | None = None,
        total_tokens_generated: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        values = tuple(map(float, values_s)) or (() if latency is None else (float(latency),))
        if not values:
            raise UsageError("TimingResult needs the seconds of each call, or latency=SECONDS: got none")
        times = (*values, *(() if time_to_first_token is None else (float(time_to_first_token),)))
        if not all(math.isfinite(value) and value >= 0 for value in times):
            raise UsageError("TimingResult takes seconds from 0: got " + repr(times)[:60])
        object.__setattr__(self, "values_s", values)
        object.__setattr__(self, "tokens_per_second", tokens_per_second)
        object.__setattr__(self, "time_to_first_token", time_to_first_token)
        object.__setattr__(self, "total_tokens_generated", total_tokens_generated or None)
        object.__setattr__(self, "metadata", dict(metadata or {}))

    @classmethod
    def of(cls, result: Result, metric: str = LATENCY_WALL) -> TimingResult:
        """The timed calls of a result over all launches, from a raw metric in ms. Raises UsageError if there are none,
        or if calls were timed in blocks, where only means are known."""
        of_metric = [
            samples
            for samples in result.samples
            if (samples.metric, samples.unit, samples.phase) == (metric, "ms", "measure")
        ]
        if not of_metric:
            known = ", ".join(sorted({samples.metric for samples in result.samples})) or "none"
            raise UsageError(f"{result.point.label}: no samples of {metric}. Found: {known}")
        if any(samples.inner_loops > 1 for samples in of_metric):
            raise UsageError(f"{result.point.label}: the calls were timed in blocks, so only means are known")
        return cls(value / MS_PER_S for samples in of_metric for value in samples.values)

    @property
    def statistics(self) -> Statistics:
        """All statistics in seconds, with the 95 % interval of the median."""
        return describe(self.values_s)

    @property
    def latency(self) -> float:
        """The mean in seconds, under its name in benchmark_v2: with a single call, its time."""
        return self.mean_s

    @property
    def mean_s(self) -> float:
        return math.fsum(self.values_s) / len(self.values_s)

    @property
    def median_s(self) -> float:
        return quantile(self.values_s, 0.5)

    def percentile_s(self, percent: float) -> float | None:
        """A percentile in seconds, by linear interpolation; None for p90 and above (or p10 and below) if there are too
        few calls (`tail_min_samples`). Raises UsageError."""
        share = percent / PERCENT
        if not 0 < share < 1:
            raise UsageError(f"percentile_s takes a number between 0 and 100: got {percent!r}")
        if max(share, 1 - share) >= TAIL and len(self.values_s) < tail_min_samples(share):
            return None
        return quantile(self.values_s, share)


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
