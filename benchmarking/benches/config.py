"""The configs of user-written benchmarks, under our names and those of benchmark_v2."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from benchmarking.core.command_line import choice
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import PRECISIONS, Json, Point, Precision, Scalar, available

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
JSON_KINDS = (type(None), bool, int, float, str, list, dict)
MAPPINGS: Mapping[str, tuple[type, ...]] = {
    "axes": (int, float),
    "options": (bool, int, float, str),
    "tags": (str,),
    "generation_config": JSON_KINDS,
    "compile_options": JSON_KINDS,
}
"""Fields that map names to values -> the types of these."""


def resolve_aliases(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a config by field. Raises UsageError for a field that is given under two names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        field = FIELD_ALIASES.get(name, name)
        if field in found:
            raise UsageError(f"BenchmarkConfig: {name} is an alias of {field}: give only one of them")
        found[field] = value
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
    """Tags of the run."""

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
            if not is_default and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise UsageError(f"{name} of {config_name} takes a whole number from {least}: got {value!r}")
        elif name in MAPPINGS:
            if not isinstance(value, Mapping):
                raise UsageError(f"{name} of {config_name} takes a mapping: got {value!r}")
            kinds = MAPPINGS[name]
            for key, content in value.items():
                if not isinstance(key, str) or not isinstance(content, kinds):
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
        """The point of the grid."""
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

    Raises UsageError for an unknown field, with similar names, and for values that are not a list.
    """
    listed_by_field = {FIELD_ALIASES.get(name, name): listed for name, listed in values.items()}
    for name, listed in listed_by_field.items():
        choice(name, (*FIELDS, *OPTION_ALIASES), "field of BenchmarkConfig")
        if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Sequence) or not listed:
            raise UsageError(f"create_config_variants: {name} takes a list of values: got {listed!r}")
    combinations = itertools.product(*listed_by_field.values())
    return tuple(dataclasses.replace(base, **dict(zip(listed_by_field, each, strict=True))) for each in combinations)
