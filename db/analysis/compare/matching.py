"""Pairs each result of one side with the comparable results of the other side, key by key. Pure.

The keys are those hashed into series_id and hardware_id, so a refusal can name the key that differs. A null key equals
an absent one. What two results differ in is told in words, the key that decides first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cache
from types import MappingProxyType

from benchmarking.core.axes import AXES, POINT_FIELDS
from benchmarking.core.command_line import choice
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import BENCH_FIELDS, LOOP, SCENARIO, Json, Point, bench_settings, canonical_hash
from benchmarking.core.text import grouped, listed
from db.analysis.selection import FIELDS, field_word, is_setting

Keys = Mapping[str, Json]
MayDiffer = Callable[[str], bool]
"""Whether a key may differ."""
POINT_KEYS = (*POINT_FIELDS, "axes *")
"""Keys of a result's grid point."""
MODEL_KEYS = ("model_id", "model_revision", "config_hash", "weights", "architecture_type", "task")
OF_RUNTIME = "runtime_mode "
"""The beginning of the key of a runtime's setting."""
BENCH_OTHERS = ("options", "saved_as")
"""What the configuration of a user-written benchmark has beside its fields and identity: settings, a file's name."""
ALWAYS_EQUAL = ("metric_definition", "definition", "simulated", f"runtime_mode {LOOP}", f"runtime_mode {SCENARIO}")
"""Keys that must always be equal: numbers with different definitions, from a device and its emulator, from open and
closed loops, or from different MLPerf scenarios are not comparable."""
MAX_RESULTS = 40
ALL = "all"
KEYS_OF_COLUMN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("device", "device_type", "device_name", "hardware_id"), ("hardware *", "runtime_mode provider")
        ),
        "runtime": ("runtime", "runtime_mode *"),
        "runtime_mode": ("runtime_mode *",),
        "precision": ("precision", "runtime_mode quantization"),
        "model_id": (*MODEL_KEYS, "config *", "runtime_mode quantization"),
        "architecture_type": (*MODEL_KEYS, "config *"),
        "model_revision": ("model_revision",),
        "weights": ("weights", "model_revision"),
        "task": ("task",),
        "num_threads": ("num_threads",),
        "cpu_list": ("cpu_list", "num_threads"),
        **{name: (name,) for name in POINT_FIELDS},
        "series_id": ("*",),
        ALL: ("*",),
    }
)
"""Column -> patterns of the keys that may differ if two selections differ in it; "*" is all but the point. Other
columns (run_id, git_commit, tags, ...) do not distinguish series."""
QUANTIZED_NAME = re.compile(
    r"(?P<model>.+?)[-._ ](?P<type>(?:UD-|i1-)?"
    r"(?:I?Q[1-8](?:_[0-9A-Z]+){1,3}|TQ[12]_0|(?:MXFP4|NVFP4)(?:_MOE)?|BF16|FP?(?:16|32)"
    r"|AWQ|(?:AWQ-|GPTQ-)?INT[2348]|GPTQ|FP8(?:-dynamic)?|(?:quantized\.)?W[48]A(?:8|16)|bnb-[48]bit))(?:\.gguf)?",
    re.IGNORECASE,
)
"""A GGUF file's name, or that of the model that llama-bench read from one: the model's name before the type of its
values, such as Q4_K_M; UD- and i1- are publishers' marks of mixtures. Or the name of a quantized model on the hub, by
which servers know it: NAME-AWQ, NAME-GPTQ-Int4."""
ACROSS = (*(word for word, column in FIELDS.items() if column in KEYS_OF_COLUMN), "runtime_mode", "cpu_list", ALL)
"""Values of --across."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A result to compare."""

    result_id: str
    run_id: str
    series_id: str
    session_id: str
    ab: str | None
    """Id of the `benchhouse ab` that measured it."""
    started_at: datetime
    """Start of the run, UTC."""
    finished_at: datetime | None
    """None if the file of an import does not state it."""
    keys: Keys
    """Results with the same keys are comparable."""
    keys_hash: str
    """The hash of the keys."""
    value: float | None
    """In the metric's unit; None if it was not measured."""
    validity: str | None
    unfit: str | None
    """Why it may not be compared; None if it may."""
    disturbed: str | None
    """Why it may be compared only in turns, in which both sides are disturbed alike; None for others."""
    doubts: tuple[str, ...]
    """Kinds of doubt, without those of severity info."""
    clock_step: float
    """Step of the clock relative to the call, from the doubt `coarse_clock`; 0 without it."""
    columns: Mapping[str, str | None]
    """Columns to show: model_id, device, runtime, ..., host, git_commit."""
    versions: Mapping[str, str]

    @property
    def point(self) -> str:
        """Label of the point."""
        return label(self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Representative:
    """The results of one series on one side."""

    result: Measured
    """The newest comparable result, else the newest."""
    comparable: tuple[Measured, ...]
    """The newest comparable results, oldest first, at most 40: machine and code change too much over more."""


RepresentativePair = tuple[Representative, Representative]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """The pairs of a comparison."""

    pairs: tuple[RepresentativePair, ...] = ()
    """Comparable ones."""
    refused: tuple[RepresentativePair, ...] = ()
    """Results at the same point that differ in a key that must be equal."""
    only_before: tuple[Representative, ...] = ()
    only_after: tuple[Representative, ...] = ()


def match(before: Iterable[Measured], after: Iterable[Measured], may_differ: MayDiffer) -> Matched:
    """Pair each series of `after` with the same series of `before`, or with all that differ only in keys that may
    differ. The rest are paired with the nearest series at their point, as refused pairs."""
    earlier, later = representatives(before), representatives(after)
    may_differ = cache(may_differ)  # called with the same few names for each result
    groups = grouped((shared, one) for one in earlier for shared in _shared(one, may_differ))
    pairs: list[RepresentativePair] = []
    for one in later:  # with those that have the same keys, or else with the whole group
        of_groups = (base for shared in _shared(one, may_differ) for base in groups.get(shared, ()))
        group = list({id(base): base for base in of_groups}.values())
        same = [base for base in group if base.result.keys == one.result.keys]
        pairs += [(base, one) for base in same or group]
    used = {id(representative) for pair in pairs for representative in pair}
    left_before, left_after = (
        [representative for representative in side if id(representative) not in used] for side in (earlier, later)
    )
    # Unrelated models are not reported as refused pairs.
    may_be_other_model = all(len({one.result.keys.get("model_id") for one in side}) == 1 for side in (earlier, later))
    refused = _nearest(left_before, left_after, may_be_other_model=may_be_other_model)
    used |= {id(representative) for pair in refused for representative in pair}
    return Matched(
        pairs=tuple(pairs),
        refused=tuple(refused),
        only_before=tuple(representative for representative in left_before if id(representative) not in used),
        only_after=tuple(representative for representative in left_after if id(representative) not in used),
    )


def representatives(results: Iterable[Measured]) -> list[Representative]:
    """One representative per set of keys, in the order of their first results."""
    chosen = []
    for group in grouped((result.keys_hash, result) for result in results).values():
        group.sort(key=lambda one: (one.unfit is None, one.disturbed is None, one.started_at, one.result_id))
        # A session that is stored twice, with the same start and value, counts once.
        newest = group[-1]
        usable = [one for one in group if one.unfit is None and (one.disturbed is None) == (newest.disturbed is None)]
        once = {(result.started_at, result.value): result for result in usable}
        chosen.append(Representative(result=newest, comparable=tuple(once.values())[-MAX_RESULTS:]))
    return chosen


def _shared(one: Representative, may_differ: MayDiffer) -> list[str]:
    """The hash of the keys that must be equal. A file that is named for its quantization has its precision by that
    name: two such files, as different models, may differ in it too, so there is also the hash without it."""
    keys = {name: value for name, value in one.result.keys.items() if not may_differ(name)}
    found = [canonical_hash(keys)]
    if may_differ("model_id") and model_and_quantization(str(one.result.keys.get("model_id")))[1] is not None:
        found.append(canonical_hash({**keys, "precision": "by the name"}))
    return found


def model_and_quantization(model_id: str) -> tuple[str, str | None]:
    """The model's name, and the quantization that it ends with; None for other names."""
    found = QUANTIZED_NAME.fullmatch(model_id)
    return (model_id, None) if found is None else (found["model"], found["type"])


def _nearest(
    before: Sequence[Representative], after: Sequence[Representative], *, may_be_other_model: bool
) -> list[RepresentativePair]:
    """Pairs at the same point that differ in the fewest keys; each result is used once."""
    groups: dict[str, tuple[list[Representative], list[Representative]]] = {}
    for index, side in enumerate((before, after)):
        for representative in side:
            with_model = not may_be_other_model
            keys = representative.result.keys
            point_key = canonical_hash([point_of(keys), keys.get("model_id") if with_model else None])
            groups.setdefault(point_key, ([], []))[index].append(representative)
    pairs: list[RepresentativePair] = []
    for earlier, later in groups.values():
        distances = sorted(
            (len(differences(base.result.keys, candidate.result.keys)), index, other)
            for index, base in enumerate(earlier)
            for other, candidate in enumerate(later)
        )
        used: tuple[set[int], set[int]] = (set(), set())
        for _, index, other in distances:
            if index not in used[0] and other not in used[1]:
                used[0].add(index)
                used[1].add(other)
                pairs.append((earlier[index], later[other]))
    return pairs


def keys_of(
    series_keys: Keys, hardware_keys: Keys, *, is_simulated: bool, bench_config: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """All keys: those of the series without the hardware id, those of the hardware ("hardware cpu_model"), and each
    runtime setting and axis ("runtime_mode attention"). The configuration of a user-written benchmark is given: its
    settings are keys, too ("config compile_mode"), and config_hash is of the rest."""
    keys: dict[str, Json] = {"simulated": is_simulated}
    if bench_config is not None:
        rest = {name: value for name, value in bench_config.items() if name not in (*BENCH_FIELDS, *BENCH_OTHERS)}
        series_keys = {**series_keys, "config_hash": canonical_hash(rest), "config": dict(bench_settings(bench_config))}
    for name, value in series_keys.items():
        if isinstance(value, dict):
            keys |= {f"{name} {subkey}": subvalue for subkey, subvalue in value.items()}
        elif name != "hardware_id":
            keys[name] = value
    keys |= {f"hardware {name}": value for name, value in hardware_keys.items()}
    return {name: value for name, value in sorted(keys.items()) if value is not None}


def allowed_across(columns: Iterable[str]) -> Callable[[str], bool]:
    """A predicate: whether a key may differ if these columns, or settings ("runtime_mode attention"), do."""
    patterns = tuple(
        pattern
        for column in columns
        for pattern in (
            (column, f"config {column.removeprefix(OF_RUNTIME)}")
            if column.startswith(OF_RUNTIME)
            else KEYS_OF_COLUMN.get(column, ())
        )
    )
    specific = tuple(pattern for pattern in patterns if pattern != "*")

    def may_differ(key: str) -> bool:
        if _matches_any(key, ALWAYS_EQUAL):
            return False
        return _matches_any(key, specific) or ("*" in patterns and not _matches_any(key, POINT_KEYS))

    return may_differ


def across_column(word: str) -> str:
    """The column of a word of --across, or the key of a setting. Raises UsageError for an unknown one."""
    word = field_word(word)
    if word not in ACROSS and is_setting(word):
        return f"{OF_RUNTIME}{word}"
    return FIELDS.get(choice(word, ACROSS, "field of --across"), word)


def point_of(keys: Keys) -> Keys:
    """The keys of the grid point."""
    return {name: value for name, value in keys.items() if _matches_any(name, POINT_KEYS)}


def differences(before: Keys, after: Keys) -> dict[str, tuple[Json, Json]]:
    """The differing keys with both values; None for an absent one."""
    names = sorted(before.keys() | after.keys())
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def label(keys: Keys) -> str:
    """The label of the point: "b1 s128 n16"."""
    axes = {name.removeprefix("axes "): value for name, value in keys.items() if name.startswith("axes ")}
    fields = {name: keys.get(name) or AXES[name].implied for name in POINT_FIELDS}
    return Point(**fields, axes=axes).label  # type: ignore[arg-type]


def _matches_any(key: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


Differing = Mapping[str, tuple[Json, Json]]
"""Key -> the values of both sides; None for an absent one."""
SEE_ALONE = "see each alone, as its own curve on the page Loads or in --chart load_latency"
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(
        ("definition", "metric_definition"),
        "numbers of two definitions are never compared: see each alone, with benchhouse show, a load as its own curve "
        "on the page Loads",
    ),
    "simulated": "an emulator's times are not a device's: compare what ran on devices",
    f"runtime_mode {LOOP}": f"requests wait for answers only in a closed loop: compare two of one loop, or {SEE_ALONE}",
    f"runtime_mode {SCENARIO}": "MLPerf's scenarios measure different things: compare two results of one scenario",
}
"""Key that must always be equal -> what to look at instead; the first that differs decides."""
ORDER: Sequence[str] = (
    *(*MODEL_KEYS, "config *", "hardware device_name", "hardware device_type", "hardware *", "runtime"),
    *("precision", "num_threads", "runtime_mode *", "*"),
)
"""Patterns of the other keys, the deciding ones first."""
WORDS = (
    *("model", "hardware", "runtime", "precision", "threads", "weights", "task"),
    *(word for word, column in FIELDS.items() if column in POINT_FIELDS),
    "all",
)
"""Words of --across, the narrowest that allow a key first."""
HASHES = ("config_hash", "hardware_id", "model_revision")
"""Keys whose values mean nothing to people."""
DIGITS = 8
MAX_OTHERS = 4
"""Maximum further differences listed by name; the rest are counted."""


def why_not_compared(differing: Differing, may_differ: MayDiffer) -> str:
    """The deciding difference with both values and what to do, and the names of the others."""
    apart = sorted(differing, key=_rank)
    never = [name for name in apart if name in INSTEAD]
    decides = next((name for name in apart if not may_differ(name)), apart[0])
    ((name, values),) = in_words({decides: differing[decides]}).items()
    if never:
        advice = INSTEAD[never[0]]
    else:
        words: list[str | None] = []  # of --across, which allow all of the keys to differ
        for key in apart:
            if not may_differ(key) and not allowed_across(across_column(word) for word in words if word)(key):
                words.append(next((word for word in WORDS if allowed_across([across_column(word)])(key)), None))
        known = [word for word in words if word is not None]
        points = [word for word in known if FIELDS.get(word) in POINT_FIELDS]
        advice = f"allow it with --across {','.join(['all', *points] if 'all' in known else known)}"
        if None in words:  # a key of the point
            advice = "select results that have one value of it"
    text = f"{name}: {values[0]} / {values[1]} ({advice})"
    others = {word: both for word, both in in_words({one: differing[one] for one in apart}).items() if word != name}
    if len(others) == 1:
        ((other, both),) = others.items()
        return f"{text}; also {other}: {both[0]} / {both[1]}"
    return f"{text}; also {listed(list(others), MAX_OTHERS)}" if others else text


def nearest(matched: Matched) -> RepresentativePair | None:
    """The two results of both sides that differ in the fewest keys, where no two are at the same point."""
    pairs = ((one, other) for one in matched.only_before[:MAX_RESULTS] for other in matched.only_after[:MAX_RESULTS])
    return min(pairs, key=lambda pair: len(differences(*(one.result.keys for one in pair))), default=None)


def _rank(name: str) -> tuple[int, int, str]:
    """A sort key: keys that must always be equal, then those of `ORDER`."""
    if name in INSTEAD:
        return 0, list(INSTEAD).index(name), name
    return 1, next(place for place, pattern in enumerate(ORDER) if fnmatchcase(name, pattern)), name


def in_words(differing: Mapping[str, tuple[object, object]]) -> dict[str, tuple[str, str]]:
    """Differing keys for people: settings by their own name, and hashes shortened, or left out if the name of the model
    differs too."""
    shown = {
        name: values for name, values in differing.items() if not (name == "config_hash" and "model_id" in differing)
    }
    names = {"model_id": "model", "config_hash": "configuration of the model", "num_threads": "threads"}
    names |= {name: name.replace("_", " ") for name in shown if name.startswith("hardware ")}
    return {
        names.get(name, name.removeprefix(OF_RUNTIME).removeprefix("config ")): (_text(name, one), _text(name, other))
        for name, (one, other) in shown.items()
    }


def _text(name: str, value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return str(value)[: DIGITS if name in HASHES else None]
