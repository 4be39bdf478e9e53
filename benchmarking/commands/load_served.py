"""Load tests of servers that the command starts itself (`benchhouse load --serve`): one run for each combination."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.provenance import utc_now, uuid7
from benchmarking.core.records import Result, Run
from benchmarking.core.temporary import temporary_folder
from benchmarking.load.generator import Level
from benchmarking.load.load_settings import LOAD
from benchmarking.load.served import NotStartedError, Own, Server, log_end, served
from benchmarking.load.server import Measured, ServerLoad, processors_of, server_processes
from benchmarking.load.server_plan import Combination
from benchmarking.load.traffic import Traffic

UNKNOWN_MODEL = "unknown"
"""The model of a server that did not start, if no other one of the command named its own."""

MOST_NAMED = 5


def measurements(
    arguments: argparse.Namespace,
    template: ServerLoad,
    combinations: Sequence[Combination],
    server_cpus: Sequence[int] | None,
    levels: Sequence[Level],
    traffics: Sequence[Traffic],
    measured: Callable[[ServerLoad, Traffic], Measured],
    recorded: Callable[[ServerLoad, Sequence[Result]], Run],
) -> Iterator[Measured]:
    """What `measured` returns for each combination and traffic in turn. Its server is gone by then. A server that did
    not start is a failed run, in which every level has failed.

    `template` is the load without the server. The servers may use `server_cpus` (None: the generator's, too).
    `recorded` is the run of a load with these results.
    """
    session_id, models = uuid7(), set[str]()
    is_unnamed = arguments.engine == LOAD["engine"].default
    with nullcontext(Path(arguments.output_dir)) if arguments.save else temporary_folder("benchhouse-server") as folder:
        for number, combination in enumerate(combinations):
            log = folder / f"server_{session_id}_{number}.log"
            own = Own(combination=combination, is_cold=number == 0)
            engine = template.engine if combination.engine is None or not is_unnamed else combination.engine
            load = replace(template, session_id=session_id, own=own, engine=engine)
            load.say(f"starting the server {combination.words}".rstrip() + f", with its log in {log}")
            found = list[Measured]()
            started_at = utc_now()
            try:
                with served(
                    combination, load.target, log=log, limit_s=arguments.start_timeout, cpus=server_cpus
                ) as server:
                    _direct(load, server, combination.model)
                    models.add(load.target.model)
                    for one in load.measurements(traffics, measured):
                        found.append(one)
                        if one[1] is not None:
                            break
            except NotStartedError as error:
                load.say(f"the server did not start: {error}")
                load.own = replace(own, log_end=log_end(log))
                known = next(iter(models)) if len(models) == 1 else UNKNOWN_MODEL
                load.target = replace(load.target, model=combination.model or known)
                for load.traffic in traffics:
                    failed = [load.failed(level, f"the server did not start: {error}") for level in levels]
                    found.append((replace(recorded(load, failed), started_at=started_at), None))
            except (BenchhouseError, KeyboardInterrupt) as error:
                if isinstance(error, KeyboardInterrupt) or len(found) < len(traffics):  # not only the server's end
                    yield from found
                    raise
                load.say(str(error))
            yield from found


def _direct(load: ServerLoad, server: Server, model: str | None) -> None:
    """Direct a load to a server that is up. Raises NotStartedError if `model` is None and the server does not name
    exactly one."""
    if model is None:
        if len(server.models) != 1:
            named = ", ".join(server.models[:MOST_NAMED]) or "none"
            raise NotStartedError(f"the server names more or less than one model ({named}): give MODEL, its name there")
        (model,) = server.models
    assert load.own is not None
    load.say(f"it is up after {server.start_s:.2f} s, by {server.health}")
    load.own = replace(load.own, server=server)
    load.target = replace(server.target, model=model)
    load.server_pids = server_processes(load.target)
    load.server_cpus = processors_of(load.server_pids)
