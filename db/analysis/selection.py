"""Selections of results: command-line words as a condition on the view all_results.

    SELECTION  = PART ("," PART)*        all parts must hold
    PART       = FIELD "=" VALUE ("|" VALUE)*
               | SETTING "=" VALUE ("|" VALUE)*      of a runtime, server or benchmark: attention, serve_slots
               | "tag." NAME "=" VALUE
               | "since=" DATE | "until=" DATE       of history_time; until includes the whole day
               | "since=" AGE | "until=" AGE         such as 12h, 7d or 2w: that long ago
               | a run or session id, or its first 8 characters or more
               | a git commit, or its first 7 characters or more
               | "latest"                            the newest session: the runs of one command
               | "sql:" CONDITION                    the rest of the text: SQL on the columns of all_results

The value that a result is judged by is an expression on that view too (`judged_value`).

Values are bound, never inserted into the SQL. The user's own SQL runs only in `db.query.questions`: its results are
found first (`Selection.resolved`), and only their ids reach another statement.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from benchmarking.core import plugins
from benchmarking.core.axes import AXES
from benchmarking.core.command_line import choice
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import (
    CUSTOM_METRICS,
    JUDGED,
    METRICS,
    SERVICE_TIMES,
    Direction,
    Metric,
    custom_metric,
    metric_by_ending,
)
from benchmarking.core.provenance import naive_now, naive_utc
from benchmarking.core.records import BENCH_FIELDS, PRECISIONS
from benchmarking.core.suggestions import SIMILAR, meant_by, named_by, nearest
from benchmarking.core.untrusted.redaction import readable, redacted_folder, redacted_path
from db.connection import literal

if TYPE_CHECKING:
    from db.warehouse import Warehouse

AXIS_FIELDS = {axis.selected_as: name for name, axis in AXES.items() if axis.selected_as is not None}
FIELDS = {
    "run": "run_id",
    "session": "session_id",
    "commit": "git_commit",
    "branch": "git_branch",
    "model": "model_id",
    "family": "architecture_type",
    **{name: name for name in ("task", "device", "device_type", "device_name")},
    "hardware": "hardware_id",
    **{name: name for name in ("runtime", "precision", "weights")},
    "threads": "num_threads",
    **AXIS_FIELDS,
    "validity": "validity",
    "host": "host",
    "format": "origin_format",
    "series": "series_id",
}
"""Word -> column."""
WORDS = {column: word for word, column in FIELDS.items()}
"""Column -> word: a field may be named as its column, too."""
OTHER_FIELDS = ("tag.NAME", "since", "until")
"""Words that are no column."""
RUN_COLUMNS = (
    *("run_id", "session_id", "hardware_id", "git_commit", "git_branch", "model_id", "architecture_type", "task"),
    *("device", "runtime", "precision", "weights", "num_threads", "host", "origin_format"),
)
"""Columns of the view that are those of benchmark_runs."""
PREFIXED = ("run", "session", "commit", "hardware", "series")
"""Fields whose value may be a prefix of the column's."""
NUMBERS = ("threads", *AXIS_FIELDS)
NEWEST = "session_id = (SELECT session_id FROM all_results ORDER BY started_at DESC, run_id DESC LIMIT 1)"
TIME_LIMIT_S = 30.0
"""Time limit for the user's own SQL, in seconds."""
ERROR_POSITION = re.compile(r"^line \d+, column \d+: ")
"""Position of an error, which refers to our statement instead of the user's text."""
OPTION_OF_BENCH = "run_id IN (SELECT run_id FROM benchmark_runs WHERE config->'options'->>{key} = {value})"
AGE = re.compile(r"(\d{1,6})(h|d|w)")
HOURS = {"h": 1, "d": 24, "w": 168}
COMPARISON = re.compile(r"(\w+)\s*(!=|~|<=|>=|<|>)\s*(.+)")
"""A comparison that only SQL has."""
DAYS = {"today": "24h", "yesterday": "2d", "week": "7d", "month": "30d", "year": "365d"}
"""Words for a time -> an age."""
OTHER_NEWEST = ("last", "newest", "recent", "current", "now", "head")
EVERY_RESULT = ("all", "*", "any", "everything")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f-]*)?")
COMMIT = re.compile(r"[0-9a-f]{7,40}")

POOLED = "too few samples per launch, and percentiles pooled over launches are not judged: raise --iterations"
"""Why a percentile over the samples of all launches has no verdict: there is no value per launch, and its level differs
from that of percentiles within launches."""


def judged_value(metric: Metric) -> str:
    """SQL of the value that a result is judged by: the metric's column or entry in other_metrics; NULL for a pooled
    percentile (`POOLED`). A latency that an imported load has only from sending is judged as that: its series contains
    no others."""
    if metric.source == "custom":
        return f"other_metrics[{literal(metric.column)}]"
    found = metric.column
    if metric.is_percentile:
        found = f"CASE WHEN NOT list_contains(pooled_quantiles, {literal(metric.column)}) THEN {metric.column} END"
    if (from_sending := SERVICE_TIMES.get(metric.column)) is None:
        return found
    return f"CASE WHEN latency_median_ms IS NULL THEN other_metrics[{literal(from_sending)}] ELSE {found} END"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A condition on the view all_results."""

    text: str
    """As typed."""
    words: str
    """SQL for the words, with a `?` for each of `values`."""
    values: tuple[str | int | datetime | list[str], ...] = ()
    sql: str | None = None
    """The user's own SQL, not run yet; None without any."""
    named: frozenset[str] = frozenset()
    """The columns in the selection. Two selections that name the same column are meant to differ in it."""
    run_condition: str | None = None
    """The part that is a condition on benchmark_runs alone; None without any."""
    run_values: tuple[str | int, ...] = ()
    is_whole_runs: bool = False
    """Whether that part is the whole selection."""
    stated: tuple[tuple[str, str], ...] = ()
    """The names in it, each with its field: ("model", "gpt2"), ("tag.version", "1.0")."""

    @classmethod
    def parse(cls, text: str) -> Selection:
        """Parse the words. Raises UsageError for an invalid one."""
        text = readable(text)
        before, has_sql, sql = text.partition("sql:")
        parts = [_part(word.strip()) for word in before.split(",") if word.strip()]
        if has_sql and not sql.strip():
            raise UsageError("sql: is empty: expected a condition on the columns of all_results")
        # Beside a condition on results, only ids and commits, which select few runs: a device may have thousands.
        is_of_runs = not has_sql and all(part.run_condition for part in parts)
        of_runs = [part for part in parts if part.run_condition and (is_of_runs or part.is_whole_runs)]
        return cls(
            text=text,
            sql=sql if has_sql else None,
            words=" AND ".join(part.condition for part in parts) or "TRUE",
            values=tuple(value for part in parts for value in part.values),
            named=frozenset(name for part in parts for name in part.named),
            run_condition=" AND ".join(part.run_condition or "" for part in of_runs) or None,
            run_values=tuple(value for part in of_runs for value in part.run_values),
            is_whole_runs=bool(parts) and not has_sql and all(part.is_whole_runs for part in parts),
            stated=tuple(pair for part in parts for pair in part.stated),
        )

    @property
    def models(self) -> tuple[str, ...]:
        """The models named in it."""
        return tuple(name for field, name in self.stated if field == "model")

    @property
    def condition(self) -> str:
        """SQL with a `?` for each of `values`. Raises UsageError if it has unresolved SQL of the user."""
        if self.sql is not None:
            raise UsageError(f"sql:{self.sql} is not resolved: use Selection.resolved with the path of the database")
        return self.words

    def within(self, dates: Selection) -> Selection:
        """The selected results that the other selection has, too."""
        words, values = f"({self.condition}) AND ({dates.condition})", (*self.values, *dates.values)
        return replace(self, words=words, values=values, is_whole_runs=False)

    def resolved(self, database: str | Path, *, lock_timeout_s: float = 30.0) -> Selection:
        """Run the user's SQL; returns the selection with the ids of the results in its place.

        Raises UsageError for invalid SQL, and what `db.query.questions.answering` raises.
        """
        if self.sql is None:
            return self
        from db.query.questions import TimeLimitError, answering

        question = f"SELECT result_id FROM all_results WHERE ({self.sql}\n)"
        try:
            with answering(database, question, timeout_s=TIME_LIMIT_S, lock_timeout_s=lock_timeout_s) as answer:
                ids = [str(result_id) for (result_id,) in answer.rows]
        except TimeLimitError as error:
            raise TimeLimitError(
                f"sql:{self.sql}: not answered within {TIME_LIMIT_S:g} s: narrow the condition"
            ) from error
        except UsageError as error:
            raise UsageError(f"sql:{self.sql}: {ERROR_POSITION.sub('', str(error))}") from error
        condition = f"{self.words} AND result_id IN (SELECT unnest(?::VARCHAR[]))"
        return replace(self, sql=None, words=condition, values=(*self.values, ids))


EVERYTHING = Selection(text="", words="TRUE")


def _part(word: str) -> Selection:
    field, equals, text = word.partition("=")
    if not equals or COMPARISON.fullmatch(word):
        return _id_condition(word)
    if field in ("tag", "tags") or field.startswith("tags."):
        raise UsageError(f"{word!r}: a label is selected by its name: tag.{field[5:] or 'NAME'}={text or 'VALUE'}")
    field, values = field_word(field.strip()), [value.strip() for value in text.split("|")]
    if not all(values):
        raise UsageError(f"{word!r}: expected a value after =, such as runtime=eager")
    if field.startswith("tag.") and field != "tag.":
        return _membership(word, f"tags[{literal(field[4:])}]", values, named=field, stated=field)
    if field in ("since", "until"):
        text = text.strip()
        is_day = len(text) == len("2026-01-01")
        try:
            if age := AGE.fullmatch(text):
                time = naive_now() - timedelta(hours=int(age[1]) * HOURS[age[2]])
            else:
                time = (
                    datetime.combine(date.fromisoformat(text), datetime.min.time())
                    if is_day
                    else datetime.fromisoformat(text)
                )
                time = naive_utc(time)
        except (ValueError, OverflowError):
            raise UsageError(
                f"{word!r}: expected a date or time in ISO 8601, such as {field}=2026-01-01, or an age, such as "
                f"{field}=7d"
            ) from None
        if field == "since":
            return Selection(text=word, words="history_time >= ?", values=(time,), named=frozenset({"history_time"}))
        is_last = time.date() == date.max  # after which Python has no day
        end = datetime.max if is_day and is_last else time + timedelta(days=is_day)
        return Selection(text=word, words="history_time < ?", values=(end,), named=frozenset({"history_time"}))
    if is_setting(field):
        found = _membership(word, setting(field), values, named=f"runtime_mode {field}", stated=field)
        runs = found.words
        words = f"run_id IN (SELECT run_id FROM benchmark_runs WHERE {runs})"
        return replace(found, words=words, run_condition=runs, run_values=tuple(values))
    try:
        column = FIELDS[choice(field, (*FIELDS, *OTHER_FIELDS), "selection")]
    except UsageError as error:
        if not re.fullmatch(r"\w+", field) or "did you mean" in str(error):
            raise
        of_sweep, of_setting = f"serve_{field}={text}", f"sql:runtime_mode->>{literal(field)} = {literal(values[0])}"
        of_bench = OPTION_OF_BENCH.format(key=literal(field), value=literal(values[0]))
        raise UsageError(
            f"{error}; a value of --sweep is {of_sweep}, another setting {of_setting}, an option of your own benchmark "
            f"sql:{of_bench}"
        ) from None
    if field in NUMBERS:
        for value in values:
            if not re.fullmatch(r"\d{1,9}", value):
                raise UsageError(f"{word!r}: expected a whole number, found {value!r}")
        return _membership(word, column, [int(value) for value in values], named=column)
    if column == "series_id":  # also of the series that it is an alias of
        by_id = " OR ".join(
            f"starts_with({name}, ?)" for _ in values for name in ("s.series_id", "canonical_series_id")
        )
        condition = f"""series_id IN (
            SELECT coalesce(canonical_series_id, s.series_id)
            FROM series s LEFT JOIN series_alias alias ON alias.series_id = s.series_id WHERE {by_id}
        )"""
        doubled = tuple(value for value in values for _ in range(2))
        return Selection(text=word, words=condition, values=doubled, named=frozenset({"series_id"}))
    if field == "commit" and (names := [one for one in values if not re.fullmatch("[0-9a-f]+", one)]):
        raise UsageError(f"{word!r}: a commit is selected by its hash: git rev-parse {names[0]} prints it")
    if field in PREFIXED:
        condition = " OR ".join(f"starts_with({column}, ?)" for _ in values)
        return _of_column(word, column, f"({condition})", tuple(values), named=column)
    if column == "model_id":  # the path of a folder is stored in another form
        stored = list(dict.fromkeys([*values, *map(redacted_path, values), *map(redacted_folder, values)]))
        return replace(
            _membership(word, column, stored, named=column), stated=tuple((field, value) for value in values)
        )
    return _membership(word, column, values, named=column, stated=field)


def field_word(name: str) -> str:
    """The word of a field that is named as its column, as in the tables and in SQL: batch_size is batch."""
    return WORDS.get(name, name)


OF_SERVERS = re.compile(r"serve(_\w+)?")
"""Settings of servers that a load test started: their command, and the values of --sweep."""


def is_setting(word: str) -> bool:
    """Whether a word is a setting of a runtime or server, a key of runtime_mode, or a field of a benchmark's config."""
    if field_word(word) in FIELDS or not re.fullmatch(r"\w+", word):
        return False
    if OF_SERVERS.fullmatch(word) or word in BENCH_FIELDS:
        return True
    return any(word == option.name for runtime in plugins.runtimes() for option in runtime.declared_options)


def setting(name: str) -> str:
    """SQL of a setting in benchmark_runs, as tables show it (`bench_settings`)."""
    of_bench = f"config->'options'->>{literal(name)}"
    if name in BENCH_FIELDS:
        of_bench = f"coalesce(config->>{literal(name)}, {of_bench})"
    return f"coalesce(CASE WHEN model_source = 'bench' THEN {of_bench} END, runtime_mode->>{literal(name)})"


OF_RUNS = "SELECT count(DISTINCT run_id) AS n FROM benchmark_runs WHERE starts_with(run_id, $1)"
OF_SESSIONS = "SELECT count(DISTINCT session_id) AS n FROM benchmark_runs WHERE starts_with(session_id, $1)"
OF_EITHER = f"{OF_SESSIONS} OR starts_with(run_id, $1)"


def id_prefixes(selection: Selection) -> list[tuple[str, str, str]]:
    """Beginnings of ids in a selection: the prefix, what has such an id, and a statement that counts these."""
    found = list[tuple[str, str, str]]()
    for word in map(str.strip, selection.text.partition("sql:")[0].split(",")):
        field, equals, value = word.partition("=")
        if not equals and UUID.fullmatch(word):
            found.append((word, "sessions", OF_EITHER))
        elif equals and field in ("run", "session"):
            sql = OF_RUNS if field == "run" else OF_SESSIONS
            found += [(prefix, f"{field}s", sql) for prefix in value.split("|")]
    return found


def shared_prefixes(warehouse: Warehouse, prefixes: Iterable[tuple[str, str, str]]) -> list[str]:
    """Those that several share: "01a21ee7: the ids of 7 runs begin so"."""
    counted = ((prefix, warehouse.query(sql, (prefix,)).dicts()[0]["n"], what) for prefix, what, sql in prefixes)
    return [f"{prefix}: the ids of {n} {what} begin so" for prefix, n, what in counted if n > 1]


def unstored(warehouse: Warehouse, *selections: Selection) -> str:
    """What an empty selection says of names that are not stored: "; no model 'gtp2' is stored: did you mean gpt2?",
    "; no branch 'main' is stored: there are dev, master", and of runtimes by other names: "; runtime=onnx: did you mean
    runtime=onnxruntime?"; nothing if all are stored."""
    texts, runtimes = list[str](), plugins.names(plugins.RUNTIMES)
    for field, name in dict.fromkeys(pair for selection in selections for pair in selection.stated):
        known = _stored_names(warehouse, field)
        if {name, redacted_path(name), redacted_folder(name)} & {*known} or (field == "model" and not known):
            continue
        if field == "runtime" and name not in runtimes and (meant := meant_by(name, runtimes)):
            texts.append(f"; runtime={name}: did you mean runtime={' or '.join(meant)}?")
            continue
        similar = nearest(name, known, number=3, similar=SIMILAR) if field == "model" else []
        similar = similar or [one for one in known if field == "model" and name.lower() in one.lower()][:3]
        near = similar or nearest(name, known, number=3)
        others = f" and {len(known) - len(near)} more" if len(known) > len(near) else ""
        listed = f"there are {', '.join(sorted(near))}{others}"
        instead = f"did you mean {' or '.join(similar)}?" if similar else listed
        texts.append(f"; no {field} {name!r} is stored{f': {instead}' if near else ': none is'}")
    return "".join(texts)


STORED = "SELECT DISTINCT {column} AS name FROM {table} WHERE ({column}) IS NOT NULL ORDER BY name"


def _stored_names(warehouse: Warehouse, field: str) -> list[str]:
    """The values of a field that are stored."""
    if field == "model":
        sql = "SELECT model_id AS name FROM benchmark_runs UNION SELECT model_id FROM profiles"
    else:
        column = f"tags[{literal(field[4:])}]" if field.startswith("tag.") else FIELDS.get(field)
        table = "all_results" if column else "benchmark_runs"
        sql = STORED.format(column=column or setting(field), table=table)
    return [str(row["name"]) for row in warehouse.query(sql).dicts()]


def _id_condition(word: str) -> Selection:
    """A word without "=": latest, an id or a commit."""
    if word == "latest":
        return Selection(text=word, words=NEWEST, named=frozenset({"session_id"}))
    columns = [*(("run_id", "session_id") if UUID.fullmatch(word) else ())]
    columns += ["git_commit"] if COMMIT.fullmatch(word) else []
    if not columns and word.lower().endswith((".duckdb", ".db")):
        how = f"select in it with --db-path {shlex.quote(word)}"
        raise UsageError(f"{word} is a warehouse: {how}; benchhouse merge joins several")
    if not columns and word.lower().endswith((".json", ".jsonl", ".csv")):
        raise UsageError(
            f"{word} is a file: store it with benchhouse import {shlex.quote(word)}, then select its run, tag or "
            f"model; what goes to stdout is written by > {shlex.quote(word)}"
        )
    if not columns and word.lower() in EVERY_RESULT:
        raise UsageError(f"{word!r} is not a selection: leave it out to take all results, where a command allows it")
    if not columns:
        raise UsageError(
            f"{word!r} is not a selection: did you mean {probable_part(word)}? Expected FIELD=VALUE (fields: "
            f"{', '.join((*FIELDS, *OTHER_FIELDS))}), a run id (at least its first 8 characters), a commit, latest, or "
            "sql:CONDITION"
        )
    # A condition on the runs alone: on several columns of the view it would read all results.
    runs = f"({' OR '.join(f'starts_with({column}, ?)' for column in columns)})"
    values = (word,) * len(columns)
    return Selection(
        text=word,
        words=f"run_id IN (SELECT run_id FROM benchmark_runs WHERE {runs})",
        values=values,
        named=frozenset(columns),
        run_condition=runs,
        run_values=values,
        is_whole_runs=True,
    )


def probable_part(word: str) -> str:
    """What a word without "=" probably meant: a metric, a device, a runtime or a precision by its name, else a
    model."""
    if word in METRICS:
        return f"--metric {word}, of history, show, compare, check, regressions and charts"
    compared = COMPARISON.fullmatch(word)
    if compared and compared[1] in ("since", "until"):
        return f"{compared[1]}={compared[3]}"
    if compared and (compared[1] in FIELDS or compared[2] != "~"):  # else HEAD~1
        column, operator, value = FIELDS.get(compared[1], compared[1]), compared[2], compared[3]
        if operator == "~":
            return f"sql:{column} LIKE {literal(f'%{value}%')}"
        return f"sql:{column} {operator} {value if value.isdigit() else literal(value)}"
    if AGE.fullmatch(word) or re.fullmatch(r"\d{4}-\d\d(-\d\d)?", word):
        return f"since={word}-01" if len(word) == len("2026-01") and "-" in word else f"since={word}"
    if word.isdecimal():
        return f"run={word}"
    if word.lower().removeprefix("last-") in DAYS:
        return f"since={DAYS[word.lower().removeprefix('last-')]}"
    if ".." in word and not word.startswith("."):
        first, _, second = word.partition("..")
        return f"two selections, commit={first} and commit={second.removeprefix('.')}"
    if word.startswith("tag."):
        return f"{word}=VALUE"
    if word.lower() in OTHER_NEWEST and word.lower() != "head":
        return "latest"
    base, colon, value = word.partition(":")
    if colon and (base in FIELDS or base in OTHER_FIELDS or base.startswith("tag.")):
        return f"{base}={value}"
    base = base.lower()
    if base in ("main", "master", "develop"):
        return f"branch={word}"
    if re.match(r"head([~^@]|$)", base):
        return f"commit=HASH (git rev-parse {word} prints it), or latest"
    if re.match(r"(latest|last)[~^@-]", base) or base in ("previous", "before", "baseline", "base"):
        return "run=ID, or benchhouse check, which judges the newest by those before"
    for field, known in (
        ("device", plugins.names(plugins.DEVICES)),
        ("runtime", plugins.names(plugins.RUNTIMES)),
        ("precision", PRECISIONS),
    ):
        if base in known:
            return f"{field}={word}"
    if meant := named_by(base, tuple(METRICS)):
        return f"--metric {meant[0]}, of history, show, compare, check, regressions and charts"
    return f"model={word}"


def _membership(
    word: str, column: str, values: list[str] | list[int], *, named: str, stated: str | None = None
) -> Selection:
    marks = ", ".join("?" for _ in values)
    found = _of_column(word, column, f"({column}) IN ({marks})", tuple(values), named=named)
    return found if stated is None else replace(found, stated=tuple((stated, str(value)) for value in values))


def _of_column(word: str, column: str, condition: str, values: tuple[str | int, ...], *, named: str) -> Selection:
    """A condition on a column, which the runs are looked up by if it is theirs: they are far fewer than results."""
    found = Selection(text=word, words=condition, values=values, named=frozenset({named}))
    return replace(found, run_condition=condition, run_values=values) if column in RUN_COLUMNS else found


CUSTOM_NAMES = """
SELECT DISTINCT unnest(map_keys(other_metrics)) AS name FROM benchmark_results
WHERE cardinality(other_metrics) > 0 ORDER BY name
"""
METRIC_DEFINITIONS = """
SELECT DISTINCT extra->$about AS about FROM benchmark_results WHERE cardinality(other_metrics) > 0 AND about IS NOT NULL
"""


def _definitions(warehouse: Warehouse) -> dict[str, set[tuple[str | None, Direction | None]]]:
    """Unit and direction of each metric without a column, as results define them; None for what they do not state."""
    definitions: dict[str, set[tuple[str | None, Direction | None]]] = {}
    for row in warehouse.query(METRIC_DEFINITIONS, {"about": f"$.{CUSTOM_METRICS}"}).dicts():
        stated = json.loads(row["about"])
        for name, definition in stated.items() if isinstance(stated, dict) else ():
            fields = definition if isinstance(definition, dict) else {}
            unit = None if fields.get("unit") is None else str(fields["unit"])
            better = fields.get("better") if fields.get("better") in get_args(Direction) else None
            definitions.setdefault(name, set()).add((unit, better))
    return definitions


def custom_metrics(warehouse: Warehouse) -> dict[str, Metric]:
    """By name, the metrics without a column that results define with unit and direction. A metric with several units or
    directions has neither, and is not judged."""
    stated = {name: {(unit or "", better) for unit, better in found} for name, found in _definitions(warehouse).items()}
    unique = {name: found.pop() if len(found) == 1 else ("", None) for name, found in stated.items()}
    return {name: custom_metric(name, *unique[name]) for name in sorted(unique)}


def judged_metrics(warehouse: Warehouse, names: Iterable[str]) -> list[Metric]:
    """The names that are metrics results can be judged by, in the form of `judged_metric`."""
    wanted = list(names)
    custom = custom_metrics(warehouse) if any(name not in JUDGED for name in wanted) else {}
    metrics = (JUDGED.get(name) or custom.get(name) or metric_by_ending(name) for name in wanted)
    return [metric for metric in metrics if metric is not None and metric.is_judged]


def judged_metric(warehouse: Warehouse, name: str) -> Metric:
    """The metric with a name: a column, or a metric that results in the warehouse define with unit and direction.

    Metrics of other tools define neither; their unit and direction come from the suffix of the name ("_ms"). Raises
    UsageError for an unknown name, and for a metric with two units or directions or without a direction.
    """
    if name in JUDGED:
        return JUDGED[name]
    choice(name, (*JUDGED, *(row["name"] for row in warehouse.query(CUSTOM_NAMES).dicts())), "metric")
    defined = _definitions(warehouse).get(name, set()) - {(None, None)}
    stated = sorted({(unit or "", better) for unit, better in defined}, key=str)
    if len(stated) > 1:
        words = " and ".join(f"{better or 'no direction'} in {unit or 'no unit'}" for unit, better in stated)
        raise UsageError(f"metric {name} is stored as {words}: rename one of them")
    metric = custom_metric(name, *stated[0]) if stated else metric_by_ending(name)
    if metric is None or metric.better is None:
        raise UsageError(
            f"metric {name} is stored without a direction, so it is not judged: define better='lower' or 'higher'"
        )
    return metric
