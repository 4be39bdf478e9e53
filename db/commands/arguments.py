"""Shared by the commands of the warehouse: help layout, common arguments, opening the database."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarking.core.command_line import (
    Parser,
    choice,
    note,
)
from benchmarking.core.errors import UsageError
from benchmarking.core.metrics import JUDGED
from benchmarking.core.records import PRECISIONS
from benchmarking.core.settings import TEXT, Setting, add_flags, add_settings, one_of, table
from benchmarking.core.shared_settings import COMMON, SHARED
from benchmarking.core.storage_paths import database_exists

if TYPE_CHECKING:
    from benchmarking.core.metrics import Metric
    from db.analysis.selection import Selection
    from db.warehouse import Warehouse

SELECTION = "FIELD=VALUE,... (model, device, runtime, precision, since, tag.NAME, ...), or sql:CONDITION"


def command_parser(name: str, about: str | None, *endings: str) -> Parser:
    """A parser whose help ends with examples and exit codes, laid out as written."""
    epilog = "\n\n".join(ending.strip("\n") for ending in endings)
    formatter = argparse.RawDescriptionHelpFormatter
    return Parser(prog=name, description=about, epilog=epilog or None, formatter_class=formatter)


def add_selection(parser: argparse._ActionsContainer) -> None:
    """The results that a command works on; all of them by default."""
    help_text = f"results: {SELECTION} (default: all)"
    parser.add_argument("selection", nargs="?", default="", metavar="SELECTION", help=help_text)


def add_rows(parser: argparse._ActionsContainer, default: int) -> None:
    """How many series are shown."""
    add_flags(parser, COMMON["rows"].here(help="maximum number of series", default=default))


def add_metrics(parser: argparse._ActionsContainer) -> None:
    """`--metric` with a list of columns."""
    add_flags(parser, COMMON["metric"].here(help="metrics"), lists=("metric",))


def add_shared(parser: argparse._ActionsContainer, **helps: str) -> None:
    """Settings that several commands have, with what they are in this one: json="the findings as JSON"."""
    add_flags(parser, *(COMMON[name].here(help=what) for name, what in helps.items()))


LABELS = table(
    Setting("model_id", TEXT, "model", metavar="ID", other_flags=("--model",)),
    Setting("device", TEXT, "device: cpu, cuda, cuda:1, rocm, mps, openvino:GPU, ...", metavar="DEVICE"),
    Setting(
        "hardware",
        TEXT,
        'device name as the vendor gives it, such as "NVIDIA H100 80GB HBM3"',
        metavar="NAME",
        other_flags=("--device-name",),
    ),
    Setting("runtime", TEXT, "engine or runtime: vllm, sglang, llama.cpp, ...", metavar="NAME"),
    Setting("precision", replace(one_of(PRECISIONS, "precision"), metavar="P"), "precision of the computation"),
)
"""What imported runs can be labelled with, in place of what their file says or lacks."""


def add_labels(group: argparse._ActionsContainer) -> None:
    """The flags of `LABELS`."""
    add_settings(group, LABELS, *LABELS)


def add_database(parser: argparse.ArgumentParser, what: str = SHARED["db_path"].help) -> None:
    """The database, and how long to wait for its lock."""
    group = parser.add_argument_group("database")
    add_flags(group, SHARED["db_path"].here(help=what), SHARED["lock_timeout"])


def chosen_metrics(arguments: argparse.Namespace, columns: Sequence[str]) -> list[Metric]:
    """The named metrics, without duplicates: columns, or metrics that imported results define. Raises UsageError, with
    similar names, for an unknown metric."""
    columns_once = list(dict.fromkeys(columns))
    if all(name in JUDGED for name in columns_once) or not database_exists(arguments.db_path):
        return [JUDGED[choice(name, tuple(JUDGED), "metric")] for name in columns_once]
    from db.analysis.selection import judged_metric

    with open_to_read(arguments) as warehouse:
        return [judged_metric(warehouse, name) for name in columns_once]


def selection_in(arguments: argparse.Namespace, text: str) -> Selection:
    """The selection, with a note if the beginning of an id in it is that of several runs or sessions. SQL in it is
    tried on the database first, before anything else opens the database."""
    from db.analysis.selection import Selection, id_prefixes, shared_prefixes

    selection = Selection.parse(text).resolved(arguments.db_path, lock_timeout_s=arguments.lock_timeout)
    if (prefixes := id_prefixes(selection)) and database_exists(arguments.db_path):
        with open_to_read(arguments) as warehouse:
            for shared in shared_prefixes(warehouse, prefixes):
                note(f"{shared}, and all of them are selected")
    return selection


def unstored_in(arguments: argparse.Namespace, *texts: str) -> str:
    """What is said of names in selections without results that are not stored: see `unstored`."""
    from db.analysis.selection import Selection, unstored

    with open_to_read(arguments) as warehouse:
        return unstored(warehouse, *map(Selection.parse, texts))


def open_to_read(arguments: argparse.Namespace, *, for_questions: bool = False) -> Warehouse:
    """The database, read-only; `for_questions` to run the user's SQL on it, or to show the data dictionary."""
    from db.warehouse import Warehouse

    return Warehouse.open(
        arguments.db_path, read_only=True, for_questions=for_questions, lock_timeout_s=arguments.lock_timeout
    )


def open_to_write(arguments: argparse.Namespace) -> Warehouse:
    """The database, which must exist."""
    from db.warehouse import Warehouse

    return Warehouse.open(arguments.db_path, create=False, lock_timeout_s=arguments.lock_timeout)


DELETED = "is deleted: no result has the values now that it was about"


def note_lost_alerts(name: str, alerts: Iterable[Mapping[str, Any]], outcome: str = DELETED) -> None:
    """Say which alerts are deleted with replaced runs."""
    for alert in alerts:
        said = "" if alert["note"] is None else f": {alert['note']}"
        what = f"alert {alert['alert_id']} ({alert['metric']}, {alert['triage']}{said})"
        note(f"{name}: {what} {outcome}")


def confirm(question: str, database: str) -> None:
    """Ask on the terminal. Raises UsageError for an answer other than yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
        raise UsageError(f"{database} was left unchanged: there is nobody to answer: --yes skips the question")
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError(f"{database} was left unchanged")


def print_json(document: object) -> None:
    """Print a result on stdout as JSON."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def plain_values(row: Mapping[str, Any], kind_of: Callable[[str], str] = lambda name: "") -> dict[str, Any]:
    """A row with values that JSON can hold; `kind_of` gives the type of a column."""
    from db.values import plain

    return {name: plain(value, kind_of(name)) for name, value in row.items()}
