"""Formats values as JSON, as CSV and for people; words and notations that reports share."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarking.core.doubts import KINDS, SEVERITIES
from benchmarking.core.records import LOOP, SCENARIO, Scalar, bench_settings
from benchmarking.core.tables import NOTHING
from benchmarking.core.text import distinct_names, grouped, listed, number, visible

if TYPE_CHECKING:
    from db.warehouse import Warehouse

Item = TypeVar("Item")
DIGITS = 6
"""Significant digits of numbers for people."""
HEADINGS = {"model_id": "model", "device_name": "hardware", "num_threads": "threads"}
"""Column -> heading, where they differ."""
MAX_KINDS = 2
"""Maximum kinds of doubt that are listed; the rest are counted."""


def plain(value: Any, kind: str = "") -> Any:
    """The value as JSON; `kind` is its column's type.

    Maps become objects, JSON stays itself, times are ISO 8601 (UTC in the warehouse), bytes are hexadecimal. Numbers
    that JSON does not have become text: NaN, the infinities, and decimals that no 64-bit float equals.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return json.loads(value) if kind == "JSON" else value
    if isinstance(value, float):
        return value if math.isfinite(value) else NOT_FINITE.get(value, "NaN")
    if isinstance(value, Decimal):
        if not value.is_finite():
            return str(value)
        if value == value.to_integral_value():
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def unique_prefixes(ids: Sequence[str]) -> dict[str, str]:
    """Each id -> its shortest prefix of at least 8 characters that no other id has: a table does not fold it."""
    ordered = sorted(ids)
    shared = [
        next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
        for one, other in pairwise(ordered)
    ]
    least = [max(before, after, 7) + 1 for before, after in zip([0, *shared], [*shared, 0], strict=True)]
    return {one: one[:length] for one, length in zip(ordered, least, strict=False)}


NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def exact(value: Any) -> str:
    """The value as a CSV cell: floats in the fewest digits that give the same float, NULL as an empty cell."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    simple = plain(value)
    if isinstance(simple, str):
        return simple
    return "" if simple is None else json.dumps(simple, ensure_ascii=False, separators=(",", ":"))


def readable(value: Any) -> str:
    """The value for people: numbers with six digits, NULL as "-", control characters made visible."""
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return number(value, DIGITS)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return visible(exact(value))


def heading(column: str) -> str:
    """The heading of a column, and its name in a sentence."""
    return HEADINGS.get(column, column)


def subjects_of(
    names: Iterable[str], items: Sequence[Item], value: Callable[[Item, str], object]
) -> tuple[list[str], list[str]]:
    """The columns in which the items of a table differ, and what all of them share, in words: "device cpu"."""
    differing, shared = list[str](), list[str]()
    for name in names:
        first, *others = dict.fromkeys(value(item, name) for item in items)
        if others:
            differing.append(name)
        elif first:
            shared.append(f"{heading(name)} {first}")
    return differing, shared


def percent_change(change: float) -> str:
    """A relative change: "+10.2%"; "from 0" for an infinite one."""
    return "from 0" if change == math.inf else f"{change:+.1%}"


def optional_number(value: float | None) -> str | None:
    """A number in significant digits; None without one."""
    return None if value is None else number(value)


def doubt_word(kinds: Sequence[str]) -> str:
    """The worst severity among kinds of doubt; empty without a kind, "see below" for kinds that only importers
    have."""
    severities = [KINDS[kind].severity for kind in kinds if kind in KINDS]
    return max(severities, key=SEVERITIES.index) if severities else "see below" if kinds else ""


def serious_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    """The kinds of doubt without those of severity info. Kinds that only importers have count."""
    return tuple(kind for kind in kinds if kind not in KINDS or KINDS[kind].severity != "info")


def listed_doubts(kinds: Sequence[str]) -> str:
    """The first kinds of doubt, and the number of the rest."""
    return listed(kinds, MAX_KINDS)


SERVE = "serve"
"""Setting of a load test: the command of a server that it started; `serve_NAME` are its swept values."""
SETTINGS = "settings"
"""Heading of the description, and its key in a row."""
ARRIVALS = "arrivals"
SUBJECT = ("model_id", "device", "runtime", "precision")
"""Columns that every table shows anyway."""
KIND_SETTINGS = (LOOP, SCENARIO, ARRIVALS)
"""Settings that the kind of load already names."""
FURTHER_SETTINGS = ("task", "weights", "model_revision", "config_hash", "cpu_list")
"""Columns that count as settings where the threads have a column of their own."""
SETTING_COLUMNS = (*FURTHER_SETTINGS, "num_threads")
"""Columns that count as settings too."""
CONFIGURATION = "configuration"
"""The setting for a model's configuration, a digest: told only of rows that nothing else tells apart."""
DIGESTS = {"model_revision": "revision", "config_hash": CONFIGURATION}
"""Column with a digest, of which the first letters are told -> its name in a sentence."""
DIGEST = re.compile("[0-9a-f]{16,}")
HARDWARE = "hardware_id"
"""Column that counts as a setting where several machines have one name."""
DIGEST_LETTERS = 8
SIMULATED = "simulated"
"""Column that is always told where it is true."""
OF_DATA = re.compile(
    r"(random_mm|random|sonnet|sharegpt|custom|prefix_repetition|hf(?!_(?:overrides|max_|enable_))|asr|bfcl|blazedit|"
    r"spec_bench|speed_bench|timed_trace|gsp|image|mooncake|agentic)_"
)
"""The beginning of an argument that is of one kind of data: vLLM's and SGLang's clients state those of every kind."""
OF_CLIENT = re.compile(
    OF_DATA.pattern + r"\w+|dataset_name|lora_modules|temperature|top_[pk]|ignore_eos|use_beam_search|extra_body"
)
"""Names by which a user's own metadata, or the arguments of an engine, state settings of these clients' requests."""
OF_REQUESTS = re.compile(
    rf"(?:{OF_CLIENT.pattern})|(?:data\d*|input|extras?|extra_inputs|api|load|warmup|cooldown)\..+|load|streaming|"
    r"ramp_up|phases|adapter|max_tokens|\w+_tokens_(?:stdev|min|max)|(?:first_(?:prompt|output)|prefix)_tokens|"
    r"tool_response_tokens|stddev_(?:in|out)put_tokens|additional_sampling_params\w*"
)
"""Settings of an imported load that are of its requests, not of the server, in the words of the tools."""
BENCH_CONFIGS = """
SELECT run_id, config FROM benchmark_runs WHERE run_id IN (SELECT unnest($runs)) AND model_source = 'bench'
"""
NO_FURTHER: Mapping[str, Mapping[str, object]] = {}


def shortened(digest: str) -> str:
    """The first letters of a digest. What is none, such as a tag as a model's revision, is whole: step1000 and
    step10000 begin alike."""
    return digest[:DIGEST_LETTERS] if DIGEST.fullmatch(digest) else digest


def settings_words(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str] = (*SETTING_COLUMNS, HARDWARE, SIMULATED),
    sides: Sequence[int] = (),
    further: Mapping[str, Mapping[str, object]] = NO_FURTHER,
    *,
    is_hardware_shown: bool = True,
) -> list[str | None]:
    """For each row (with the subject, runtime_mode as JSON, and the `columns`): whether it is simulated, if the row has
    that column, its kind of load, what the server of a load test was started with, and the settings in which rows of
    its subject differ, such as "open loop, poisson arrivals, slo ttft:500ms"; None without any. `sides`: only rows of
    the same side are told apart. `further`: settings by run id that are not in runtime_mode (`bench_settings_of`).
    `is_hardware_shown`: whether the hardware has a column with its name; if not, the name is a setting too."""
    machines: dict[tuple[str, str | None], dict[str, str]] = {}  # by what is shown of them, their ids and names
    for row in rows if HARDWARE in columns else ():
        if (machine := row.get(HARDWARE)) is not None:
            name = row.get("device_name")
            shown, more = (name, "") if is_hardware_shown else (None, name or shortened(machine))
            machines.setdefault((row["device"], shown), {})[machine] = more
    told: dict[tuple[str, str | None], str] = {}  # device and machine -> its name, where several are shown alike
    for (device, _), several in machines.items():
        if len(several) > 1:
            distinct = distinct_names([*several.values()], [[shortened(one)] for one in several], " ")
            told |= zip([(device, one) for one in several], distinct, strict=True)
    own_modes: list[dict[str, object]] = [json.loads(row["runtime_mode"]) for row in rows]
    modes: list[dict[str, object]] = [
        {
            **own_mode,
            **(further.get(row["run_id"], {}) if further else {}),  # other rows may have no run id
            **{
                DIGESTS.get(name, heading(name)): shortened(row[name]) if name in DIGESTS else row[name]
                for name in columns
                if name not in (HARDWARE, SIMULATED) and row[name] is not None
            },
            **({"hardware": name} if (name := told.get((row["device"], row.get(HARDWARE)))) else {}),
        }
        for row, own_mode in zip(rows, own_modes, strict=True)
    ]
    subjects = [
        tuple(map(str, (*(row[name] for name in SUBJECT), precision_words(row["precision"], row["runtime_mode"]))))
        for row in rows
    ]
    groups = grouped(zip(zip(subjects, sides or [0] * len(modes), strict=True), modes, strict=True))
    names: dict[tuple[str, ...], set[str]] = {}
    for (subject, _), group in groups.items():
        differing = {*differing_names(group)}
        if CONFIGURATION in differing:
            others = sorted(differing - {CONFIGURATION})
            alike = grouped((json.dumps([mode.get(name) for name in others]), mode) for mode in group)
            for equal in alike.values():
                if len({mode.get(CONFIGURATION) for mode in equal}) == 1:
                    for mode in equal:
                        mode.pop(CONFIGURATION, None)
        names.setdefault(subject, set()).update(differing, filter(is_of_server, set().union(*group)))
    described: list[str | None] = []
    for row, subject, mode, own_mode in zip(rows, subjects, modes, own_modes, strict=True):
        parts = [SIMULATED] if SIMULATED in columns and row.get(SIMULATED) else []
        # The kind of load before the others; our own loop of calls has none. An option of a user's may have its name.
        kind = {name: own_mode[name] for name in KIND_SETTINGS if name in own_mode}
        if SCENARIO in kind:  # also of imports, which have no loop
            parts.append(f"MLPerf {kind[SCENARIO]}")
        elif LOOP in kind:
            parts.append("loop not stated" if kind[LOOP] == "not stated" else f"{kind[LOOP]} loop")
            parts += [arrivals_words(kind[ARRIVALS])] if ARRIVALS in kind else []
        own = [name for name in sorted(names[subject]) if name in mode and name not in kind]
        described.append(", ".join([*parts, *(f"{name} {mode[name]}" for name in own)]) or None)
    return described


def bench_settings_of(warehouse: Warehouse, rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Scalar]]:
    """By run id, the settings of user-written benchmarks, which are in their workload's config."""
    runs = sorted({row["run_id"] for row in rows if row["runtime"] == "bench"})
    configs = warehouse.query(BENCH_CONFIGS, {"runs": runs}).dicts() if runs else []
    return {row["run_id"]: bench_settings(json.loads(row["config"])) for row in configs}


def with_words(
    rows: Sequence[Mapping[str, Any]], warehouse: Warehouse, *, is_hardware_shown: bool = True
) -> list[dict[str, Any]]:
    """The rows, each with the settings that distinguish it (`settings_words`) and its precision in words."""
    further = bench_settings_of(warehouse, rows)
    words = settings_words(rows, further=further, is_hardware_shown=is_hardware_shown)
    return [
        {**row, SETTINGS: settings, "precision": precision_words(row["precision"], row["runtime_mode"])}
        for row, settings in zip(rows, words, strict=True)
    ]


def arrivals_words(arrivals: object) -> str:
    """How the requests of an open loop arrive: "poisson arrivals", "all at once"."""
    return "all at once" if arrivals == "at_once" else f"{arrivals} arrivals"


def is_of_server(name: str) -> bool:
    """Whether a setting is the command of a server that the load test started, or a swept value of it. Nothing else
    tells such servers apart."""
    return name == SERVE or name.startswith(f"{SERVE}_")


def reason_words(missing: str) -> str:
    """Why a value is missing, in words: "not_applicable: no /sys/class/power_supply" has a kind and a text, which may
    name files."""
    kind, colon, text = missing.partition(": ")
    return f"{kind.replace('_', ' ')}{colon}{text}"


def precision_words(precision: str, runtime_mode: str | Mapping[str, object]) -> str:
    """The precision; the quantization of the settings (a mapping, or JSON) if that is what the weights have instead:
    "Q4_K - Medium"."""
    if precision != "other":
        return precision
    settings = json.loads(runtime_mode) if isinstance(runtime_mode, str) else runtime_mode
    return str(settings.get("quantization") or precision)


def differing_names(modes: Sequence[Mapping[str, object]]) -> list[str]:
    """The names of the settings that are not equal in all, sorted."""
    names = sorted({name for mode in modes for name in mode})
    return [name for name in names if len({json.dumps(mode.get(name)) for mode in modes}) > 1]
