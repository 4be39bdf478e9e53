"""Measures the load on a server: its levels, its own metrics, its processors, and the record of the run."""

from __future__ import annotations

import argparse
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import field, replace
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarking.core.child_process import run_tasks
from benchmarking.core.errors import BenchhouseError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import psutil
from benchmarking.core.load_doubts import prefix_cache_hit
from benchmarking.core.plugins import check_installed
from benchmarking.core.provenance import utc_now, uuid7
from benchmarking.core.quality import Quality
from benchmarking.core.records import (
    Cell,
    Device,
    Doubt,
    Json,
    Measurement,
    Precision,
    Provenance,
    Readings,
    Requests,
    Result,
    Run,
    Workload,
    canonical_hash,
    from_json,
    to_json,
)
from benchmarking.core.temporary import temporary_folder
from benchmarking.core.untrusted.redaction import pseudonym
from benchmarking.devices.support.binding import allowed_cpus, cpu_list_text
from benchmarking.devices.support.host import hardware, host_facts
from benchmarking.devices.support.system_values import UnreadableError
from benchmarking.load.connections import Target
from benchmarking.load.curve import facts_of
from benchmarking.load.generator import Count, Level, run_level
from benchmarking.load.load_settings import LOAD
from benchmarking.load.observer import Observed, ServerObserver, changes, counted, observed, scraped
from benchmarking.load.results import LEAST_REUSED, point_of, prompt_tokens, result_of
from benchmarking.load.served import NotStartedError, Own, log_end, served
from benchmarking.load.server_plan import Combination
from benchmarking.load.traffic import Traffic
from benchmarking.measure import machine_state
from benchmarking.measure.doubt_rules import about_window
from benchmarking.measure.machine_state import capture
from benchmarking.measure.monitor import Usage

DEFAULT_PORTS = {"http": 80, "https": 443}
CONNECT_S = 10.0
"""Time limit of the first connection to the server."""
Measured = tuple[Run, BaseException | None]
"""The run of a load, and the Ctrl-C or the error that ended it early."""
UNKNOWN_MODEL = "unknown"
"""The model of a server that did not start, if no other one of the command named its own."""
MOST_NAMED = 5
"""Models of a server that are named."""
ACTIVITY = (
    *("cpu_pressure_before", "run_queue_wait_share", "busy_threads", "steal_share", "cpu_ticks"),
    *("clock_step_s", "suspended_s"),
)


@dataclass(slots=True, kw_only=True)
class ServerLoad:
    target: Target
    engine: str
    """The engine of the server, as stated by the user."""
    precision: Precision
    hardware: str | None
    """Name of the server's device, as stated by the user."""
    traffic: Traffic
    limits: Mapping[str, float]
    repetitions: int
    warmup: int
    """Warm-up requests before a level."""
    say: Callable[[str], None]
    capacities_per_s: Mapping[str, float] = field(default_factory=dict)
    """The generator's own maximum rates, by the lengths of prompts; empty if they were not measured."""
    own_cpus: Sequence[int] | None = None
    server_cpus: Sequence[int] | None = None
    """Processors of the generator and of the server; None if unknown."""
    tokenizer: Count | None = None
    """Counts tokens that the server does not report; None: chunks."""
    is_anonymous: bool = False
    """Whether the record must not contain the server's address."""
    measured_levels: int = 0
    server_pids: Sequence[int] = ()
    """The processes of a server on this machine; empty for another one, or if unknown."""
    own: Own | None = None
    """The server that the load test started itself; None for one at --url."""
    quality: Quality | None = None
    """How well the server's model predicts a text; None if that was not measured."""
    exporter: Target | None = None
    """The address at which a device exporter of the server's machine shows metrics."""
    observer: ServerObserver | None = None
    """Samples what the server does; None if it cannot be observed."""
    session_id: str = field(default_factory=uuid7)
    pressure_before: Any = None
    """The CPU pressure before the first level: before later ones, it is that of the load itself."""

    def __post_init__(self) -> None:
        if self.is_anonymous:
            self._name()  # raises StorageError now, rather than after the measurement

    def measurements(
        self, traffics: Sequence[Traffic], measured: Callable[[ServerLoad, Traffic], Measured]
    ) -> Iterator[Measured]:
        """What `measured` returns for each traffic in turn, while the server is observed. If it cannot be, the reason
        is said."""
        own_pid = None if self.own is None or self.own.server is None else self.own.server.keeper.pid
        observer = ServerObserver(
            self.target,
            self.server_pids if own_pid is None else (own_pid,),
            with_children=own_pid is not None,
            exporter=self.exporter,
        )
        with ExitStack() as stack:
            try:
                self.observer = stack.enter_context(observer)
            except BenchhouseError as error:
                self.say(str(error))
            for self.traffic in traffics:
                yield measured(self, self.traffic)

    def measured(self, level: Level) -> Result:
        """Measure a level. The server's metrics are read after the warm-up and at the end of each repetition, so that
        they cover the measured requests. A level in which a server of our own ended has failed, and so have all after
        it."""
        own_server = None if self.own is None else self.own.server
        if own_server is not None and (why := own_server.why_gone()) is not None:
            return self.failed(level, why)
        done: list[Requests] = []
        pages: list[dict[str, float]] = []  # the server's metrics before and after each repetition
        observed_of: dict[int, Observed] = {}
        windows: list[Json] = []
        self.measured_levels += 1  # every level has new prompts, since a server may have cached earlier ones
        for launch in range(self.repetitions):
            self.say(f"{level.words}, repetition {launch + 1} of {self.repetitions}")
            traffic = replace(
                self.traffic,
                repetition=launch,
                salt=f"level {self.measured_levels}",
                look=self.measured_levels,
            )
            is_first = launch == 0
            activity, begin_ns = Activity(self.server_pids), time.monotonic_ns()

            def warmed() -> None:
                nonlocal begin_ns
                pages.append(scraped(self.target))
                begin_ns = time.monotonic_ns()

            done.append(
                run_tasks(
                    run_level(
                        self.target,
                        traffic,
                        level,
                        warmup=self.warmup if is_first else 0,
                        warmed=warmed,
                        launch=launch,
                        limits=self.limits,
                        tokenizer=self.tokenizer,
                    )
                )
            )
            windows.append(window := activity.close())
            end_ns = time.monotonic_ns()
            pages.append(scraped(self.target))
            if self.pressure_before is None:
                self.pressure_before = window.get("cpu_pressure_before")
            seen = {**window, "cpu_pressure_before": self.pressure_before}
            usage = Usage(samples=()) if self.observer is None else self.observer.between(begin_ns, end_ns)
            found = observed(usage, done[-1], changes(*pages[-2:]))
            observed_of[launch] = replace(
                found,
                metrics={**found.metrics, **({} if self.own is None else self.own.readings)},
                doubts=(*about_window(seen, is_accelerator=False), *found.doubts),
            )
        generator_cpus, server_cpus = self.own_cpus, self.server_cpus
        capacity_per_s = self.capacities_per_s.get(self.traffic.prompt_lengths.text)
        metrics = changes(pages[0], pages[-1])
        if own_server is not None and (why := own_server.why_gone()) is not None:
            return replace(self.failed(level, why), requests=tuple(done))
        if cached := self._cached(done, metrics):
            observed_of[0] = replace(observed_of[0], doubts=(*cached, *observed_of[0].doubts))
        return result_of(
            self.traffic,
            level,
            done,
            limits=self.limits,
            observed=observed_of,
            facts={
                **self._facts(),
                "generator_capacity_per_s": capacity_per_s,
                "generator_cpu_list": _listed(generator_cpus),
                "server_cpu_list": _listed(server_cpus),
                "server_metrics": dict[str, Json](metrics),
                "activity": windows,
                "arrival_seeds": [[self.traffic.seed + launch, self.measured_levels] for launch in range(len(done))],
            },
            capacity_per_s=capacity_per_s,
            shares_processors=bool(set(generator_cpus or ()) & set(server_cpus or ())),
        )

    def failed(self, level: Level, error: str) -> Result:
        """The result of a level that could not be measured."""
        now, point = utc_now(), point_of(self.traffic, level)
        why = Measurement(point=point, launch=0, status="failed", error=error, started_at=now, finished_at=now)
        ended = {} if self.own is None or self.own.server is None else {"log_end": log_end(self.own.server.log)}
        return result_of(self.traffic, level, [why], facts={**self._facts(), **ended})

    def _facts(self) -> dict[str, Json]:
        return {"url": self.target.url, **({} if self.own is None else {"server": self.own.combination.words})}

    def _cached(self, done: Sequence[Requests], metrics: Mapping[str, Mapping[str, float]]) -> Sequence[Doubt]:
        """The doubt about prompts from a prefix cache, by the server's counters if its replies do not report it."""
        is_reported = any(cached_token is not None for requests in done for cached_token in requests.cached_tokens)
        if is_reported or self.traffic.may_hit_a_prefix:
            return ()
        cached, total = counted(metrics, "server_prefix_hits"), counted(metrics, "server_prompt_tokens")
        if cached is None or total is None or (self.target.endpoint == "chat" and cached < LEAST_REUSED * total):
            return ()  # unknown, or the template of a chat
        return prefix_cache_hit(cached, total)

    def run(
        self,
        results: Sequence[Result],
        settings: Mapping[str, Json],
        provenance: Provenance,
        started_at: str,
        *,
        is_open: bool,
    ) -> Run:
        """The record of all levels. Raises StorageError if an anonymous name cannot be made."""
        is_local = is_here(urlsplit(self.target.url).hostname or "")
        device = Device(
            type="server", selector="server", found=True, name=self.hardware or (None if is_local else self._name())
        )
        host = host_facts() if is_local else Readings(missing={"cpu_model": "not_applicable: another machine"})
        failed = [result for result in results if result.status != "ok"]
        run = Run(
            run_id=uuid7(),
            session_id=self.session_id,
            status="ok" if len(failed) < len(results) else "failed",
            error=failed[0].error if failed else None,
            started_at=started_at,
            finished_at=utc_now(),
            cell=Cell(
                workload=Workload(
                    model_id=self.target.model,
                    family=None,
                    task="text-generation",
                    source="server",
                    config={},
                    config_hash=canonical_hash({}),
                    weights="given",
                ),
                device=device,
                requested_device="server",
                runtime=self.engine,
                runtime_mode={
                    "endpoint": self.target.endpoint,
                    **({"http": "2"} if self.target.http2 else {}),
                    **({"omitted": ",".join(sorted(self.target.omitted))} if self.target.omitted else {}),
                    **self.traffic.keys(self.limits, is_open=is_open),
                    **({} if self.own is None else self.own.combination.mode),
                },
                precision=self.precision,
            ),
            hardware=hardware(device, host),
            provenance=provenance
            if self.own is None
            else replace(provenance, versions={**provenance.versions, **self.own.versions}),
            settings={
                **settings,
                **({} if self.own is None else {"server": self.own.facts}),
                "repetitions": self.repetitions,
                "warmup_requests": self.warmup,
                "timeout_s": self.target.timeout_s,
                "seed": self.traffic.seed,
                "generator_cpu_list": _listed(self.own_cpus),
            },
            environment=capture(),
            results=tuple(self._with_prompt_length(results)),
            quality=self.quality,
        )
        return without_address(run, self.target.url, self._name()) if self.is_anonymous and self.own is None else run

    def _with_prompt_length(self, results: Sequence[Result]) -> Sequence[Result]:
        """The results with the server's count of prompt tokens, if it states one and all prompts have one length.

        It is the length of token ids, which it counts alike in every run. How many tokens words are depends on the
        words and their number, so their length is the requested one, or runs of one series would differ in it; the
        count stands beside it (`prompt_tokens`)."""
        traffic = self.traffic
        is_fixed = traffic.file is None and traffic.lengths_in.fixed is not None and traffic.most_turns == 1
        tokens = prompt_tokens(requests for result in results for requests in result.requests) if is_fixed else None
        if not tokens:
            return results
        if traffic.vocabulary is not None:
            return [replace(result, point=replace(result.point, sequence_length=tokens)) for result in results]
        return [
            replace(result, extra={**result.extra, "load": {**facts_of(result), "prompt_tokens": tokens}})
            for result in results
        ]

    def _name(self) -> str:
        """The name of a server on another machine: its address, or a pseudonym."""
        address = urlsplit(self.target.url).netloc
        return f"server-{pseudonym(address.lower())}" if self.is_anonymous else address


def without_address(run: Run, url: str, name: str) -> Run:
    """The run with the name in place of a server's address, which errors contain as numbers.

    A host name without dots may also be a word, such as "vllm": it is replaced only in URLs, before a port, in quotes.
    """
    host, netloc = urlsplit(url).hostname or "", urlsplit(url).netloc
    try:
        numbers = {str(one[4][0]) for one in socket.getaddrinfo(host, None)}
    except OSError:  # the name is not known any more
        numbers = set()
    clear = sorted((one for one in {netloc, host, *numbers} if "." in one or ":" in one), key=len, reverse=True)
    words = [rf"(?<![\w.-]){re.escape(one)}(?![\w-])" for one in clear]
    pattern = re.compile("|".join([*words, rf"(?:(?<=//)|(?<=['\"])){re.escape(host)}(?=[/'\"]|$)"]), re.IGNORECASE)

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(name, value)
        if isinstance(value, Mapping):
            return {key: replaced(each) for key, each in value.items()}
        return [replaced(each) for each in value] if isinstance(value, list | tuple) else value

    renamed: Run = from_json(Run, replaced(to_json(run)))
    return renamed


def _listed(cpus: Sequence[int] | None) -> str | None:
    return None if cpus is None else cpu_list_text(cpus)


def tokenizer(folder: Path) -> Count:
    """Counts the tokens of a text with the tokenizer in a local folder, without special tokens. The halves of a
    character that arrived in two events are one again. Raises UsageError for a folder without one, BenchhouseError for
    broken files."""
    from benchmarking.workloads.support import processing

    check_installed("--tokenizer", ("transformers",), 'pip install "benchhouse[measure]"')
    if not folder.is_dir() or not processing.has_processors(folder):
        raise UsageError(f"--tokenizer {folder}: expected a local folder with a tokenizer, such as tokenizer.json")
    loaded = processing.load(folder, "text")

    def count(text: str) -> int:
        joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return len(loaded.encode(joined, add_special_tokens=False))

    return count


def check_listening(target: Target) -> None:
    """Raise BenchhouseError if nothing accepts connections at the server's address."""
    parts = urlsplit(target.url)
    place = parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
    try:
        socket.create_connection(place, timeout=CONNECT_S).close()
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BenchhouseError(
            f"--url {target.url}: cannot connect ({why}): start the server, or correct the address"
        ) from error


def own_processors() -> list[int] | None:
    """The processors of this process; None if unknown."""
    try:
        return allowed_cpus()
    except UnreadableError:
        return None


@cache
def is_here(host: str) -> bool:
    """Whether a host's name or address is this machine's: servers print 0.0.0.0 as theirs, and scripts name the
    machine. Not if the name is unknown, or another machine's too."""
    try:
        found = {str(one[4][0]) for one in socket.getaddrinfo(host, None)}
        own = {one.address for each in psutil.net_if_addrs().values() for one in each}
    except (OSError, UnicodeError):
        return False
    return all(one in own or (ip := ip_address(one)).is_loopback or ip.is_unspecified for one in found)


def server_processes(target: Target) -> list[int]:
    """The processes that listen on the target's port on this machine, with their children; empty for another machine,
    or if unknown."""
    parts = urlsplit(target.url)
    if not is_here(parts.hostname or ""):
        return []
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    try:
        listening = {
            one.pid
            for one in psutil.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port and one.pid
        }
        children = {child.pid for pid in listening for child in psutil.Process(pid).children(recursive=True)}
    except (psutil.Error, OSError):
        return []
    return sorted(listening | children)


def processors_of(pids: Sequence[int]) -> list[int] | None:
    """The processors that processes may use; None if unknown."""
    try:
        found = {cpu for pid in pids for cpu in psutil.Process(pid).cpu_affinity()}
    except (psutil.Error, OSError, AttributeError):
        return None
    return sorted(found) or None


class Activity:
    """What else the processors of this machine did during a level: CPU pressure, waits for a processor, and steal."""

    def __init__(self, server_pids: Sequence[int]) -> None:
        """`server_pids` are the server's processes on this machine, whose waits count, too."""
        self._pids = [pid for pid in server_pids if pid != os.getpid()]
        self._before, self._start_s = machine_state.counters(processes=self._pids), time.monotonic()

    def close(self) -> dict[str, Json]:
        """The counters' changes, with the names of `measure.machine_state`."""
        elapsed_s = time.monotonic() - self._start_s
        values = machine_state.differences(self._before, machine_state.counters(processes=self._pids), elapsed_s).values
        return {"elapsed_s": elapsed_s, **{name: values[name] for name in ACTIVITY if name in values}}


def measurements_of_own(
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
                    model = combination.model
                    if model is None:
                        if len(server.models) != 1:
                            named = ", ".join(server.models[:MOST_NAMED]) or "none"
                            raise NotStartedError(
                                f"the server names more or less than one model ({named}): give MODEL, its name there"
                            )
                        (model,) = server.models
                    assert load.own is not None
                    load.say(f"it is up after {server.start_s:.2f} s, by {server.health}")
                    load.own = replace(load.own, server=server)
                    load.target = replace(server.target, model=model)
                    load.server_pids = server_processes(load.target)
                    load.server_cpus = processors_of(load.server_pids)
                    models.add(load.target.model)
                    for measurement in load.measurements(traffics, measured):
                        found.append(measurement)
                        if measurement[1] is not None:
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
