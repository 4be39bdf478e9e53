"""Load-tests an OpenAI-compatible server, or a model on this machine. With --request-rates, requests start on a
schedule (open loop), and latency counts from then; with --concurrency, a fixed number is in flight (closed loop).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, product
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from benchmarking.commands import load_model
from benchmarking.core.child_process import run_tasks
from benchmarking.core.command_line import Parser, add_model_id, command, note, notes
from benchmarking.core.errors import (
    EXIT_FAILED,
    EXIT_NOT_ENOUGH_DATA,
    EXIT_OK,
    StorageError,
    UsageError,
    storage_errors,
)
from benchmarking.core.load_doubts import LIMIT_WORDS
from benchmarking.core.plugins import check_installed
from benchmarking.core.provenance import provenance, require_running_clock, utc_now
from benchmarking.core.quality import QualitySettings, without_quality
from benchmarking.core.records import MAX_REQUESTS, NOT_RUN, Json, Result, Run, to_json
from benchmarking.core.settings import add_settings, check_given
from benchmarking.core.shared_settings import parse_limits
from benchmarking.core.text import counted, duration, flag_of, number, visible
from benchmarking.core.untrusted.redaction import compile_patterns, know_secret, redacted, redacted_record
from benchmarking.devices.support.binding import bind
from benchmarking.load import load_table, server_plan
from benchmarking.load.connections import Target, allow_connections, client_of
from benchmarking.load.curve import (
    MOST_DURATIONS,
    SearchInterrupted,
    is_search,
    limits_outcome,
    offered,
    search,
    with_knee,
)
from benchmarking.load.generator import Level, capacity_per_s
from benchmarking.load.load_settings import DURATION_S, LOAD, OWN_SETTINGS
from benchmarking.load.load_statistics import LEAST_ALLOWED
from benchmarking.load.observer import PATH, device_use, metrics_at, why_unread
from benchmarking.load.served import NEEDS_KEY, models_at
from benchmarking.load.server_load import (
    MOST_NAMED,
    Measured,
    ServerLoad,
    check_listening,
    measurements_of_own,
    own_processors,
    processors_of,
    server_processes,
    tokenizer,
)
from benchmarking.load.server_quality import OF_TEXT, server_quality
from benchmarking.load.traces import digest_of
from benchmarking.load.traffic import ITS_SUCCESSOR, MAX_TOKENS, MAX_WORDS, Lengths, Pauses, Traffic
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.measuring_settings import QUALITY, measured_by, options_in
from benchmarking.sweep.run import journal, spool
from benchmarking.sweep.run.command_session import saving, store_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarking.load.model import ModelLoad

NAME = "benchhouse load"
BARE = re.compile(r"[\w.-]+(:\d+)?(/[\w./-]*)?")
"""An address without its scheme."""
ADDRESSES = re.compile(r"[,;\s]https?://")
"""Where a further address begins."""
BURSTINESS = {"burst": "burst", "gamma": "variation"}
"""Arrivals in bursts -> the flag by which these are smaller."""
MOST_PAIRS = 256
"""Pairs of lengths in a grid."""
EXAMPLES = """\
examples:
  benchhouse load NAME --url URL --request-rates 1,9 --find-rate --limit e2e:2s
  benchhouse load --serve "vllm serve X --port {port}" --concurrency 1,2,4,8
  benchhouse load gpt2 --runtime onnxruntime --concurrency 1,4 --batch-size 4

exit codes: 0 measured; 1 failed, or --fail-on; 2 usage; 3 no rate fits, unknown
"""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    limits, traffics, levels = _asked(arguments)
    is_server = _is_server(arguments)
    require_running_clock()
    say, command = notes(quiet=arguments.quiet), (*NAME.split(), *argv)
    quality = measured_by({name: getattr(arguments, name, None) for name in QUALITY}).quality
    servers = (
        [] if arguments.serve is None else server_plan.servers(arguments.serve, arguments.sweep, arguments.model_id)
    )

    def measured(load: ServerLoad | ModelLoad, traffic: Traffic) -> Measured:
        """The run of a load, and the Ctrl-C or the error that ended it early."""
        if len(traffics) > 1:
            say(f"requests of {traffic.lengths} tokens")
        started_at = utc_now()
        results, interruption = _results(load, levels, arguments)
        if isinstance(load, ServerLoad) and quality is not None and interruption is None:
            try:
                _measure_quality(load, quality, results, arguments.tokenizer)
            except KeyboardInterrupt as pressed:
                interruption = pressed
        return replace(recorded(load, results), started_at=started_at), interruption

    def recorded(load: ServerLoad | ModelLoad, results: Sequence[Result]) -> Run:
        if not isinstance(load, ServerLoad):
            return load.run(results, load_model.settings_of(arguments))
        settings: dict[str, Json] = {"duration_s": arguments.duration, "num_requests": arguments.num_requests}
        about = provenance(command, dict(arguments.tag), arguments.description)
        return load.run(results, settings, about, utc_now(), is_open=levels[0].is_open)

    measurements: Iterator[Measured]
    if is_server:
        counts = None if arguments.tokenizer is None else tokenizer(arguments.tokenizer)
        target = _named_target(arguments, say)
        own_cpus, other_cpus, capacities = _generator(arguments, traffics, say, is_open=levels[0].is_open)
        load = _server_load(arguments, limits, traffics[0], target, say)
        load.own_cpus, load.capacities_per_s, load.tokenizer = own_cpus, capacities, counts
        if servers:
            cpus = other_cpus or None
            measurements = measurements_of_own(arguments, load, servers, cpus, levels, traffics, measured, recorded)
        else:
            measurements = load.measurements(traffics, measured)
    else:
        measurements = map(measured, load_model.loads(arguments, limits, levels, traffics, command, say), traffics)
    _, ingest = saving(arguments)
    is_several = bool(servers) or len(traffics) > 1
    runs: list[Run] = []
    code = EXIT_OK
    try:
        for record, interruption in measurements:
            runs.append(run := redacted_record(record, anonymous=arguments.anonymous))
            if not all(result.status == "ok" for result in run.results if not is_search(result)):
                code = EXIT_FAILED
            try:
                why = store_run(_written(run, Path(arguments.output_dir)), ingest) if arguments.save else None
            except StorageError as error:  # takes neither the other loads nor the verdict with it
                why = str(error)
            if why is not None:
                note(f"not stored: {why}")
                code = EXIT_FAILED
            if not is_several:
                load_table.print_run(run, as_json=arguments.json)
            if interruption is not None:
                if isinstance(interruption, SearchInterrupted):
                    note(interruption.so_far)
                raise interruption
    except KeyboardInterrupt:
        done = sum(len(run.results) for run in runs)
        if not arguments.find_rate:
            in_all = len(levels) * len(traffics) * max(1, len(servers))
            unfinished = "; the unfinished one is not kept" * (done < in_all)
            saved = " and saved" * (arguments.save and done > 0)
            note(f"{done} of {counted(in_all, 'level')} measured{saved}{unfinished}")
        raise
    finally:
        if is_several and runs:
            load_table.print_all(runs, as_json=arguments.json)
    if arguments.fail_on is not None:
        outcome = limits_outcome([result for run in runs for result in run.results], arguments.fail_on)
        note(f"{NAME}: {outcome.text}")
        return code or outcome.exit_code
    found_nothing = any(is_search(result) and result.status != "ok" for run in runs for result in run.results)
    return EXIT_NOT_ENOUGH_DATA if code == EXIT_OK and found_nothing else code


def _asked(arguments: argparse.Namespace) -> tuple[dict[str, float], list[Traffic], Sequence[Level]]:
    """The limits, the traffics and the levels that the words ask for. Raises UsageError where they contradict each
    other, before anything is measured."""
    limits = parse_limits(",".join(arguments.limit), LIMIT_WORDS) if arguments.limit else {}
    _check_subject(arguments)
    traffics = _traffics(arguments)
    if not (is_server := _is_server(arguments)):
        load_model.check(arguments, limits, traffics)
    levels = _levels(arguments) if arguments.scenario is None else load_model.scenario_levels(arguments)
    for traffic in traffics:
        _check_levels(levels, traffic, has_prompts=is_server or not traffic.has_one_size)
    if arguments.find_rate and (len(levels) < 2 or not levels[0].is_open or not limits):
        raise UsageError("--find-rate requires --limit and two rates to search between, such as --request-rate 1,32")
    if not 0 < arguments.share <= 1 - arguments.find_rate * LEAST_ALLOWED:
        most = f" and at most {1 - LEAST_ALLOWED:g} with --find-rate" if arguments.find_rate else ""
        raise UsageError(f"--share: takes a share above 0{most}, such as 0.95 or 95%")
    return limits, traffics, levels


def _results(
    load: ServerLoad | ModelLoad, levels: Sequence[Level], arguments: argparse.Namespace
) -> tuple[list[Result], BaseException | None]:
    """The levels in order with the knee marked, and the Ctrl-C or the error that ended the load early, which leaves
    what was measured before. The result of a search for the highest rate comes last."""
    done: list[Result] = []

    def measured(level: Level) -> Result:
        done.append(load.measured(level))
        return done[-1]

    try:
        if not arguments.find_rate:
            return with_knee([measured(level) for level in levels]), None
        lowest, *_, highest = sorted(levels, key=lambda one: one.rate or 0.0)
        if arguments.num_requests is None:
            most_s = MOST_DURATIONS * arguments.duration * arguments.repetitions
            load.say(f"the search takes about {duration(most_s)} at most")
        *found, outcome = search(measured, lowest, float(highest.rate or 0), load.say, arguments.share)
        return [*with_knee(found), outcome], None
    except (KeyboardInterrupt, Exception) as interruption:
        if not done:
            raise
        found = with_knee(list({offered(result): result for result in done}.values()))
        if isinstance(interruption, SearchInterrupted) and interruption.outcome is not None:
            found = [*found, interruption.outcome]
        return found, interruption


def _measure_quality(
    load: ServerLoad, settings: QualitySettings, results: Sequence[Result], folder: Path | None
) -> None:
    """Measure the quality of the server's model, once for all lengths of its requests: after the first of which it
    answered any."""
    if load.quality is not None and not all(why.startswith(NOT_RUN) for why in load.quality.missing.values()):
        return
    if all(result.status != "ok" for result in results):
        load.quality = without_quality(f"{NOT_RUN}: no level was measured", OF_TEXT)
        return
    load.say("measuring the quality")
    load.quality = server_quality(load.target, settings, folder)


def _check_subject(arguments: argparse.Namespace) -> None:
    """Raise UsageError unless there is a model, here or on a server, with flags that apply to it."""
    if arguments.model_id is None and arguments.serve is None and arguments.url is None:
        raise UsageError("nothing to load: give a MODEL on this machine, or --url URL of a server")
    if "://" in (arguments.model_id or ""):
        raise UsageError(f"MODEL {arguments.model_id} is an address: give it with --url, and MODEL as the name there")
    for ending, endpoint in (("/chat/completions", "chat"), ("/completions", "completions")):
        url, *query = (arguments.url or "").partition("?")
        if url.rstrip("/").endswith(ending):
            base = url.rstrip("/").removesuffix(ending) + "".join(query)
            raise UsageError(f"--url takes the address before the endpoint: {base}, with --endpoint {endpoint}")
    is_server = _is_server(arguments)
    check_given(
        arguments,
        LOAD,
        subject="server" if is_server else "model",
        instead="MODEL without --url" if is_server else "--url",
    )
    if arguments.duration is None:
        arguments.duration = DURATION_S
    if is_server and (options := options_in(vars(arguments))):
        raise UsageError(f"{flag_of(next(iter(options)))} requires MODEL without --url: {OWN_SETTINGS}")


def _is_server(arguments: argparse.Namespace) -> bool:
    return arguments.url is not None or arguments.serve is not None


def _check_levels(levels: Sequence[Level], traffic: Traffic, *, has_prompts: bool) -> None:
    """Raise UsageError for a level at a rate with less than one request in its duration, or whose requests would all
    start at one time, and for one with more requests, or in an open loop more prompt words, than may be held in memory;
    note a trace that is too short. `has_prompts`: each request has a prompt of its own."""
    for level in levels:
        if level.rate is not None and level.number is None and level.rate * level.duration_s < 1:
            raise UsageError(
                f"{level.words} for {level.duration_s:g} s are less than one request: use a longer --duration (or "
                "--num-requests)"
            )
        if level.is_open and not level.is_at_once and traffic.is_one_burst(level.requests):
            has_times = traffic.arrivals == "trace"
            what = f"have one time in {traffic.file}" if has_times else "are one burst"
            smaller = "another trace" if has_times else f"a smaller --{BURSTINESS[traffic.arrivals]}"
            raise UsageError(
                f"{level.words}: its {level.requests} requests {what}, so they would start at once and at no rate: use "
                f"a longer --duration (or --num-requests), or {smaller}"
            )
        total = traffic.total(level.requests if level.is_open else level.number or 0)
        total = total if level.is_open else max(total, level.concurrency or 0)
        words = traffic.words(level.requests) if level.is_open and has_prompts else 0
        if total > MAX_REQUESTS:
            what, most = f"{total} requests", MAX_REQUESTS
        elif words > MAX_WORDS:
            what, most = f"prompts of {words} words", MAX_WORDS
        else:
            continue
        raise UsageError(
            f"{level.words}: {what} exceed the limit of {most} per level: use more --repetitions of fewer requests"
        )
    longest = max(levels, key=lambda level: level.requests)
    if (trace := traffic.trace) is not None and longest.rate is not None and len(trace.sessions) < longest.requests:
        held = len(trace.sessions)
        note(
            f"{traffic.file} ends after {counted(held, 'start')}, of which {longest.words} would take "
            f"{longest.requests}: such a level takes about {number(held / longest.rate)} s"
        )


def _named_target(arguments: argparse.Namespace, say: Callable[[str], None]) -> Target:
    """The server with its model, or one that has not been started yet. Raises UsageError without a MODEL unless the
    server names exactly one, and BenchhouseError if no request could be sent."""
    target = _target(arguments)
    needed = ("httptools", "numpy", *(("h2",) if target.http2 else ()))
    check_installed("load on a server", needed, 'pip install "benchhouse[load]"')
    client_of(target)  # reports unreadable certificates before anything is sent
    if arguments.serve is not None:
        return target
    check_listening(target)
    at_v1 = replace(target, url=target.below("v1"))
    if not urlsplit(target.url).path.strip("/") and models_at(at_v1)[0]:
        raise UsageError(f"--url {target.url}: its API is at {at_v1.url}: give that")
    named, why = models_at(target)
    shown = visible(", ".join(named[:MOST_NAMED]))
    if arguments.model_id is None:
        if len(named) != 1:
            which = f"one of {shown}" if named else "its name on the server"
            found = f"lists {len(named) or 'none'}" if why is None else f"cannot be read ({why})"
            raise UsageError(f"MODEL is missing: give {which}: {target.below('models')} {found}")
        say(f"the server has one model: {named[0]}")
        return replace(target, model=named[0])
    if named and target.model not in named:
        note(f"the server lists {shown}, not {visible(target.model)}: what it serves by that name is stored under it")
    elif why is not None and why.endswith(NEEDS_KEY):
        note(f"{target.below('models')} cannot be read ({why})")
    return target


def _generator(
    arguments: argparse.Namespace, traffics: Sequence[Traffic], say: Callable[[str], None], *, is_open: bool
) -> tuple[list[int] | None, list[int], dict[str, float]]:
    """Bind this process, which sends the requests. Returns its processors (None if unknown), the others that it could
    use before, and how many requests it can send per second by the lengths of prompts (none if that is not
    measured)."""
    allow_connections()
    compile_patterns()  # which the first failed request needs, when no file may be left to open
    before = own_processors() or []
    if arguments.cpu_list is not None:
        bind(arguments.cpu_list)
    own = own_processors()
    others = sorted(set(before) - set(own or []))
    found = dict[str, float]()
    by_lengths = (
        {traffic.prompt_lengths.text: traffic for traffic in traffics} if arguments.capacity_seconds > 0 else {}
    )
    for lengths, traffic in by_lengths.items():  # against a server on other processors if the generator is bound
        found[lengths] = run_tasks(
            capacity_per_s(arguments.capacity_seconds, traffic, is_open=is_open, http2=arguments.http2, cpus=others)
        )
        say(f"the generator can send {found[lengths]:,.0f} requests/s with prompts of {lengths}")
    return own, others, found


def _server_load(
    arguments: argparse.Namespace,
    limits: Mapping[str, float],
    traffic: Traffic,
    target: Target,
    say: Callable[[str], None],
) -> ServerLoad:
    """The load on the server at --url, or on one that has not been started yet."""
    if arguments.engine == LOAD["engine"].default:
        say("the server's engine has no name: --engine NAME, such as vllm, tells its results from other servers'")
    pids = server_processes(target) if arguments.serve is None else []
    return ServerLoad(
        target=target,
        engine=arguments.engine,
        precision=arguments.precision or "unknown",
        hardware=arguments.hardware,
        traffic=traffic,
        limits=limits,
        repetitions=arguments.repetitions,
        warmup=arguments.warmup_requests,
        server_cpus=processors_of(pids),
        server_pids=pids,
        say=say,
        is_anonymous=arguments.anonymous,
        exporter=_exporter(arguments.device_metrics, target.ca_file),
    )


def _exporter(url: str | None, ca_file: str | None = None) -> Target | None:
    """The device exporter at --device-metrics, which the certificates of --ca-file are trusted for too. Raises
    UsageError for no address, and for one that cannot be read or shows nothing of a device."""
    if url is None:
        return None
    exporter = Target(url=_address("--device-metrics", url), model="", ca_file=ca_file)
    try:
        if device_use(metrics_at(exporter)).values:
            return exporter
        why = "shows no metrics of a DCGM exporter or node exporter"
    except (OSError, ValueError) as error:
        why = f"cannot be read ({why_unread(error)})"
    raise UsageError(f"--device-metrics {url}: {PATH} there {why}: start an exporter, or correct the address")


def _levels(arguments: argparse.Namespace) -> list[Level]:
    shared = {"number": arguments.num_requests, "duration_s": arguments.duration}
    if arguments.request_rates == (math.inf,) and arguments.num_requests is None:
        raise UsageError("--request-rate inf requires --num-requests: the requests that start at once")
    if arguments.request_rates:
        return [Level(rate=float(rate), **shared) for rate in arguments.request_rates]
    return [Level(concurrency=one, **shared) for one in arguments.concurrency or (1,)]


def _traffics(arguments: argparse.Namespace) -> list[Traffic]:
    """The traffic with each pair of lengths, in the order in which they are given."""
    if arguments.trace is not None and arguments.request_rates == (math.inf,):
        raise UsageError("--trace requires a rate such as --request-rate 2: inf starts all requests at once")
    pairs = [tuple(pair.split("/")) for pair in arguments.lengths or ()]
    if wrong := [pair for pair in pairs if len(pair) != 2]:
        raise UsageError(f"--lengths takes pairs such as 128/128,1024/128: got {'/'.join(wrong[0])!r}")
    file = arguments.trace or arguments.sharegpt
    both = pairs or product(arguments.input_length, arguments.output_length)
    traffics = [
        Traffic(
            arrivals="at_once"
            if arguments.request_rates == (math.inf,)
            else "trace"
            if arguments.trace is not None
            else arguments.arrivals,
            variation=arguments.variation,
            burst=arguments.burst,
            lengths_in=Lengths(lengths_in),
            lengths_out=Lengths(lengths_out),
            shared_prefix=arguments.shared_prefix,
            turns=arguments.turns,
            think_time=None if arguments.think_time is None else Pauses(arguments.think_time),
            tool_calls=arguments.tool_calls,
            tool_pause=None if arguments.tool_pause is None else Pauses(arguments.tool_pause),
            vocabulary=arguments.prompt_ids,
            seed=arguments.seed,
            required_share=arguments.share,
            file=file,
            file_digest="" if file is None else digest_of(file),
        )
        for lengths_in, lengths_out in dict.fromkeys(both)
    ]
    if len(traffics) > MOST_PAIRS:
        raise UsageError(f"{len(traffics)} pairs of lengths exceed the limit of {MOST_PAIRS}: give fewer")
    next(traffics[0].conversations())  # reports an unreadable file before anything is sent
    return traffics


def _target(arguments: argparse.Namespace) -> Target:
    """The server at --url, or one whose address is not known yet."""
    url = _address("--url", "http://127.0.0.1/v1" if arguments.url is None else arguments.url)
    if MAX_TOKENS in arguments.omit_fields and arguments.endpoint != "chat":
        raise UsageError(
            f"--omit-fields {MAX_TOKENS} requires --endpoint chat, where {ITS_SUCCESSOR} takes its place: answers of "
            "completions would have no limit"
        )
    key = os.environ.get("OPENAI_API_KEY")
    if key:
        know_secret(key)
    return Target(
        url=url,
        model=arguments.model_id or "",
        endpoint=arguments.endpoint,
        timeout_s=arguments.timeout,
        ca_file=arguments.ca_file,
        http2=arguments.http2,
        omitted=arguments.omit_fields,
        headers={"Authorization": f"Bearer {key}"} if key else {},
    )


def _address(flag: str, url: str) -> str:
    """The address that a flag takes. Raises UsageError for anything else, and for one with a password."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of an IPv6 address or a port
        is_address = False
    if ADDRESSES.search(url):
        raise UsageError(
            f"{flag} takes one server: got {url!r}: load each by a command of its own, named by --tag deployment=NAME, "
            "and then benchhouse compare tag.deployment=NAME tag.deployment=OTHER"
        )
    if not is_address:
        bare = url.rstrip("/")
        hint = f": write http://{bare}{'' if '/' in bare else '/v1'}" if BARE.fullmatch(bare) else ""
        raise UsageError(f"{flag} takes an address such as http://127.0.0.1:8000/v1: got {url!r}{hint}")
    if parts.username or parts.password:
        why = ", since it is stored: use $OPENAI_API_KEY" if flag == "--url" else ": use an exporter without"
        raise UsageError(f"{flag} must not contain a user name or password{why}")
    return url


def _written(run: Run, folder: Path) -> Path:
    """The run file, which replaces none: servers that do not start are several runs in one second. Raises
    StorageError."""
    spool.prepare(folder)
    name = f"load_{spool.file_name(run.cell, run.started_at)}"
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    path = next(path for name in names if not (path := folder / f"{name}.json").exists())
    text = json.dumps(redacted(to_json(run)), ensure_ascii=False, allow_nan=False) + "\n"
    with storage_errors(f"cannot write {path}", "choose another --output-dir"):
        journal.replace(path, text)
    return path


def _parser() -> Parser:
    parser = Parser(
        prog=NAME, usage="%(prog)s [MODEL] [--url URL | --serve COMMAND] [flags]", description=__doc__, epilog=EXAMPLES
    )
    group = parser.add_argument_group("server or model")
    what = "model to load on this machine; with --url, its name there"
    add_model_id(group, what, is_needed=False)
    add_settings(
        group,
        LOAD,
        *("url", "serve", "sweep", "start_timeout", "device_metrics", "endpoint", "engine", "precision", "hardware"),
        *("tokenizer", "quality", "quality_text", "ca_file", "http2", "omit_fields"),
        lists=("omit_fields",),
    )
    load_model.add_flags(parser)
    add_settings(
        parser.add_argument_group("levels"),
        LOAD,
        *("concurrency", "request_rate", "find_rate", "limit", "share", "fail_on", "duration", "num_requests"),
        *("repetitions", "warmup_requests", "timeout"),
        lists=("concurrency", "request_rate"),
    )
    add_settings(
        parser.add_argument_group("traffic"),
        LOAD,
        *("arrivals", "variation", "burst", "input_length", "output_length", "lengths", "prompt_ids", "shared_prefix"),
        *("turns", "think_time", "tool_calls", "tool_pause", "trace", "sharegpt", "seed"),
        lists=("input_length", "output_length", "lengths"),
    )
    add_settings(parser.add_argument_group("generator"), LOAD, "cpu_list", "capacity_seconds")
    group = parser.add_argument_group("output")
    flags.add_saved(group)
    flags.add_keeping(group)
    flags.add_output_format(group)
    return parser
