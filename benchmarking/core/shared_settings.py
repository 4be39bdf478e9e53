"""The settings of all parts: database, labels, files, output."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from benchmarking.core.command_line import DEFAULT_DATABASE, default_database
from benchmarking.core.settings import (
    DATABASE,
    FOLDER,
    SECONDS_FROM_0,
    SWITCH,
    TAGS,
    TEXT,
    Setting,
    one_of,
    table,
)

LOG_LEVELS = ("debug", "info", "warning", "error")
DEFAULT_OUTPUT_DIR = "benchmark_results"
DATABASE_WAIT_S = 600.0
"""How long commands wait for a database that another process uses."""

SHARED: Mapping[str, Setting] = MappingProxyType(
    table(
        Setting(
            name="db_path",
            kind=DATABASE,
            help="DuckDB file of the warehouse, or ducklake:...",
            default=default_database,
            default_words=f"$BENCHMARK_DB_PATH, else {DEFAULT_DATABASE}",
        ),
        Setting(
            name="lock_timeout",
            is_rare=True,
            kind=SECONDS_FROM_0,
            help="seconds to wait for a database that another process uses",
            default=DATABASE_WAIT_S,
        ),
        Setting(name="output_dir", kind=FOLDER, help="folder of run files", default=DEFAULT_OUTPUT_DIR),
        Setting(name="tag", plural="tags", kind=TAGS, help="label of the run; repeatable", default={}, is_key=True),
        Setting(name="description", is_rare=True, kind=TEXT, help="description of the run", is_key=True),
        Setting(
            name="anonymous",
            is_rare=True,
            kind=SWITCH,
            default=False,
            help="omit host and user names from everything saved",
        ),
        Setting(
            name="save",
            kind=SWITCH,
            default=False,
            help="write run files and store them (default: print only)",
        ),
        Setting(
            name="no_save",
            kind=SWITCH,
            default=False,
            help="write no run files and store nothing (default: save both)",
        ),
        Setting(name="json", kind=SWITCH, default=False, help="results on stdout as JSON (default: tables)"),
        Setting(name="quiet", kind=SWITCH, default=False, help="no progress on stderr"),
        Setting(
            name="log_level",
            is_rare=True,
            kind=one_of(LOG_LEVELS, "log level", read=str.lower),
            help="minimum severity of log messages on stderr; debug includes the output of the measuring processes",
            default_words="no log",
        ),
        Setting(name="dry_run", kind=SWITCH, default=False, help="print the plan and measure nothing"),
    )
)
