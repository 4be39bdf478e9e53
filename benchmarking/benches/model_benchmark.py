"""The base class of user-written benchmarks, and their configs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from benchmarking.core.command_line import choice
from benchmarking.core.errors import UsageError
from benchmarking.core.metrics import CustomMetric
from benchmarking.core.records import PRECISIONS, Point, Precision, Scalar, available

TimedBy = Literal["benchhouse", "bench"]


class ModelBenchmark(ABC):
    """A user-written benchmark. Each of its configs is measured in fresh processes, one per launch.

    A process runs `setup_model()`, then calls as the profile requires, then `cleanup_model()`; the latter also after a
    failure, but not when the process itself is killed or exceeds its time limit.

    Define one kind of call:
      - `run()`: timed from outside like a model, waiting for the device before and after;
      - `measure_latency()` and/or `measure_time_to_first_token()`: the benchmark measures its own times and returns
        them in milliseconds. Results are marked accordingly (doubt `timed_by_itself`). With only the latter, a call
        ends at its first token, so that its latency is the time to first token.

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

    def __init__(self, config: BenchmarkConfig) -> None:
        self.config = config
        """The current config: name, variant, precision, options and the fields of its point. Numbers of calls and tags
        are not filled in."""
        self.torch_device: str | None = None
        """The device's name in torch ("cpu", "cuda:0"), set before `setup_model`; None when torch cannot use it."""
        self.synchronize: Callable[[], None] = _nothing
        """Waits for the device."""
        self.mark: Callable[[str], None] = _no_mark
        """For use in `run()`: mark("token") when a token has reached the host, mark("encode") at the end of a phase."""

    @abstractmethod
    def setup_model(self) -> None:
        """Prepare everything that a call needs, for `self.config` on `self.torch_device`. Not timed."""

    def cleanup_model(self) -> None:  # noqa: B027 - many have nothing to release
        """Release it. Also called after `setup_model` or a call failed, so do not assume that it is complete."""

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
        """The problem of an output of `run()`, which makes the result invalid; or None. Called once, not timed."""
        return None

    def work(self) -> Mapping[str, float]:
        """`flops` and `bytes_accessed` of a call, if known. Missing ones are counted if `run()` uses torch."""
        return {}

    def metrics(self) -> Iterable[CustomMetric]:
        """Custom metrics of this launch, each with a name, a unit and the better direction, such as accuracy or tokens
        accepted per step. Called once after the timed calls."""
        return ()


def _nothing() -> None:
    """`synchronize` before a device is open."""


def _no_mark(name: str) -> None:
    """`mark` outside a timed call."""


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


FIELD_ALIASES: Mapping[str, str] = {
    "measurement_iterations": "iterations",
    "num_tokens_to_generate": "new_tokens",
    "torch_dtype": "precision",
}
"""Name in older benchmark scripts -> field of a config."""
OPTION_ALIASES = ("attn_implementation", "sdpa_backend", "use_cache")
"""Settings of older scripts that become options of the same name."""


def resolve_aliases(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a config by field. Raises UsageError for a field that is given under two names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        field = FIELD_ALIASES.get(name, name)
        if field in found:
            raise UsageError(f"BenchmarkConfig: {name} is an alias of {field}: give only one of them")
        found[field] = value
    options = {name: found.pop(name) for name in OPTION_ALIASES if name in found}
    options = {name: value for name, value in options.items() if value is not None}
    if options or found.get("custom_params") is not None:
        found["options"] = {**found.get("options", {}), **(found.get("custom_params") or {}), **options}
    found.pop("custom_params", None)
    if found.get("model_id") is not None:
        found.setdefault("name", found["model_id"])
    return found


def _accept_aliases(config: type[BenchmarkConfig]) -> type[BenchmarkConfig]:
    """The class with a constructor that also accepts the aliases. They are not fields, since copies would then contain
    both names."""
    plain = config.__init__

    @functools.wraps(plain)
    def init(self: BenchmarkConfig, **values: Any) -> None:
        plain(self, **resolve_aliases(values))

    config.__init__ = init  # type: ignore[method-assign]
    return config


COUNTS = ("batch_size", "sequence_length", "new_tokens", "iterations")
"""Fields that are whole numbers from 1, or None if that is their default."""


@_accept_aliases
@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkConfig:
    """A configuration to measure. Raises UsageError for an invalid value.

    Fields may also be given by the names in `FIELD_ALIASES`, which other benchmark scripts use.
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
    iterations: int | None = None
    """Exactly this many timed calls per launch; None: as the profile requires."""
    warmup_iterations: int | None = None
    """Exactly this many warm-up calls; None: until steady."""
    options: Mapping[str, Scalar] = field(default_factory=dict)
    """Further parameters of the benchmark; different options are different series."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of the run."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise UsageError(f"a benchmark's name must be a non-empty string: got {self.name!r}")
        choice(available(self.precision), PRECISIONS, f"precision of {self.name}")
        for count in COUNTS:
            _check_count(self, count, least=1)
        _check_count(self, "warmup_iterations", least=0)
        for name in ("model_id", "compile_mode"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value.strip()):
                raise UsageError(f"{name} of {self.name} takes a name: got {value!r}")
        for mapping, kinds in (("axes", (int, float)), ("options", (bool, int, float, str)), ("tags", (str,))):
            _check_mapping(self, mapping, kinds)

    @property
    def measurement_iterations(self) -> int | None:
        """`iterations`, under its name in older scripts."""
        return self.iterations

    @property
    def num_tokens_to_generate(self) -> int | None:
        """`new_tokens`, under its name in older scripts."""
        return self.new_tokens

    @property
    def torch_dtype(self) -> str:
        """`precision`, under its name in older scripts."""
        return self.precision

    @property
    def point(self) -> Point:
        """The point of the grid."""
        return Point(
            batch_size=self.batch_size,
            sequence_length=self.sequence_length,
            new_tokens=self.new_tokens,
            axes=dict(self.axes),
        )


def create_config_variants(base: BenchmarkConfig, values: Mapping[str, Sequence[Any]]) -> tuple[BenchmarkConfig, ...]:
    """A config for each combination of values (field -> list), otherwise equal to `base`; the last field varies
    fastest.

    Raises UsageError for an unknown field, with similar names, and for values that are not a list.
    """
    known = tuple(f.name for f in dataclasses.fields(BenchmarkConfig))
    listed_by_field = {FIELD_ALIASES.get(name, name): listed for name, listed in values.items()}
    for name, listed in listed_by_field.items():
        choice(name, known, "field of BenchmarkConfig")
        if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Sequence) or not listed:
            raise UsageError(f"create_config_variants: {name} takes a list of values: got {listed!r}")
    combinations = itertools.product(*listed_by_field.values())
    return tuple(dataclasses.replace(base, **dict(zip(listed_by_field, each, strict=True))) for each in combinations)


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
