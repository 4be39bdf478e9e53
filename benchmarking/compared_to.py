"""`run_hardware_benchmark --compare-to`: what was just measured beside a stored run, or both again in turns."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarking.core.terminal import Page
from benchmarking.errors import UsageError
from benchmarking.judged import judged, of_runs, stored_runs
from benchmarking.records import Device, Json, Run, to_json
from benchmarking.sweep import session
from benchmarking.sweep.interleaving import COMMAND, Arm, arm

FLAG = "--compare-to"
INTERLEAVE = "--interleave"
HOST_KEYS = ("cpu_model", "cpu_cores", "cpu_threads", "numa_nodes", "memory_class_bytes")
"""Of what hardware ids are made of, those about the machine and not its device."""


def add_flags(group: argparse._ArgumentGroup) -> None:
    """How a run is compared with a stored one."""
    group.add_argument(
        FLAG,
        metavar="RUN",
        help="with --save: end with a comparison with a stored run: its id, latest, a commit, tag.NAME=VALUE, ...",
    )
    group.add_argument(
        INTERLEAVE, action="store_true", help=f"{FLAG}: measure that run's command again too, in turns with this one"
    )


def check(arguments: argparse.Namespace) -> None:
    """See that the stored run can be compared with, before anything is measured. Raises UsageError, StorageError."""
    if arguments.interleave and arguments.compare_to is None:
        raise UsageError(f"{INTERLEAVE} measures what {FLAG} names in turns: add {FLAG}")
    if arguments.compare_to is None:
        return
    if not (arguments.save or arguments.interleave):
        raise UsageError(f"{FLAG} compares what is stored: add --save")
    if not stored_runs(arguments.compare_to, arguments.db_path):
        raise UsageError(f"{FLAG} {arguments.compare_to}: no results of it are in {arguments.db_path}")


def beside(show: session.Show, arguments: argparse.Namespace, run_ids: Sequence[str]) -> session.Show:
    """The runs shown as they were to be shown, and then as they compare with the stored one."""
    # Selected by id: "latest" would be the new run by then.
    before = of_runs([run["run_id"] for run in stored_runs(arguments.compare_to, arguments.db_path)])

    def text(runs: Sequence[Run], page: Page) -> str:
        own = (session.tables if show.text is None else show.text)(runs, page)
        return f"{own}\n\n{judged(before, of_runs(run_ids), arguments.db_path).text}"

    def document(runs: Sequence[Run]) -> Json:
        own = [to_json(run) for run in runs] if show.document is None else show.document(runs)
        return {"measured": own, "comparison": judged(before, of_runs(run_ids), arguments.db_path, "--json").document}

    return replace(show, text=text, document=document)


def arms(arguments: argparse.Namespace, argv: Sequence[str]) -> tuple[Arm, Arm]:
    """The stored run's command and this one, to be measured in turns. Raises UsageError where that cannot be."""
    runs = stored_runs(arguments.compare_to, arguments.db_path)
    commands = {run["command"] for run in runs}
    if len(commands) != 1:
        raise UsageError(f"{FLAG} {arguments.compare_to}: {len(commands)} commands made these runs: name one of them")
    (command,) = commands
    program, *words = shlex.split(command) or [""]
    if program != COMMAND:
        raise UsageError(f"{INTERLEAVE}: only what {COMMAND} measured can be repeated, not {command!r}")
    _check_machine(runs[-1])
    return arm("a", shlex.join(_plain(words))), arm("b", shlex.join(_plain(argv)))


def _plain(words: Sequence[str]) -> list[str]:
    """A command's flags without those of comparing."""
    places = {place for place, word in enumerate(words) if word == FLAG}
    dropped = places | {place + 1 for place in places}
    return [
        word
        for place, word in enumerate(words)
        if place not in dropped and word != INTERLEAVE and not word.startswith(f"{FLAG}=")
    ]


def _check_machine(run: dict[str, Any]) -> None:
    """Raise UsageError for a run of another kind of machine, with what differs."""
    from benchmarking.devices._hardware import hashed_keys
    from benchmarking.devices._host import host_facts

    here = hashed_keys(Device(type="cpu", selector="cpu", found=True), host_facts())
    there = run["hashed_keys"]
    differing = [name for name in HOST_KEYS if name in there and there[name] != here[name]]
    if differing:
        told = "; ".join(f"{name}: {json.dumps(there[name])} / {json.dumps(here[name])}" for name in differing)
        raise UsageError(f"{INTERLEAVE}: the stored run is of another machine ({told}): measure there")
