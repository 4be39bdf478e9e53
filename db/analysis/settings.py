"""Describes what distinguishes series of the same subject: the kind of load, and the settings that differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarking.core.records import LOOP, SCENARIO
from db.values import heading

SETTINGS = "settings"
"""Heading of the description, and its key in a row."""
ARRIVALS = "arrivals"
SUBJECT = ("model_id", "device", "runtime", "precision")
"""Columns that every table shows anyway."""
KIND_SETTINGS = (LOOP, SCENARIO, ARRIVALS)
"""Settings that the kind of load already names."""
SETTING_COLUMNS = ("weights", "num_threads", "cpu_list")
"""Columns that count as settings too."""


def settings_words(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = SETTING_COLUMNS) -> list[str | None]:
    """For each row (with the subject, runtime_mode as JSON, and the `columns`): its kind of load and the settings in
    which rows of its subject differ, such as "open loop, poisson arrivals, slo ttft:500ms"; None without any."""
    modes = [
        {**json.loads(row["runtime_mode"]), **{heading(name): row[name] for name in columns if row[name] is not None}}
        for row in rows
    ]
    subjects = [tuple(str(row[name]) for name in SUBJECT) for row in rows]
    by_subject: dict[tuple[str, ...], list[Mapping[str, object]]] = {}
    for subject, mode in zip(subjects, modes, strict=True):
        by_subject.setdefault(subject, []).append(mode)
    names = {subject: differing_names(subject_modes) for subject, subject_modes in by_subject.items()}
    return [_words(mode, names[subject]) for subject, mode in zip(subjects, modes, strict=True)]


def differing_names(modes: Sequence[Mapping[str, object]]) -> list[str]:
    """The names of the settings that are not equal in all, sorted."""
    names = sorted({name for mode in modes for name in mode})
    return [name for name in names if len({json.dumps(mode.get(name)) for mode in modes}) > 1]


def _words(mode: Mapping[str, object], names: Sequence[str]) -> str | None:
    # The kind of load; empty for our own loop of calls.
    if LOOP not in mode:
        parts = []
    else:
        kind = f"MLPerf {mode[SCENARIO]}" if SCENARIO in mode else f"{mode[LOOP]} loop"
        parts = [kind, *([f"{mode[ARRIVALS]} arrivals"] if ARRIVALS in mode and SCENARIO not in mode else [])]
    parts += [f"{name} {mode[name]}" for name in names if name in mode and name not in KIND_SETTINGS]
    return ", ".join(parts) or None
