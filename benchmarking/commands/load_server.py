"""Load-tests an OpenAI-compatible server, or a model on this machine.

With --request-rate, requests start on a schedule whether or not the server keeps up (open loop), and latency counts
from the scheduled start. With --concurrency, a fixed number is in flight (closed loop). The two are never compared.

A MODEL without --url is loaded on this machine, and makes one call after another with up to --batch-size waiting
requests; an engine with continuous batching adds them to its running batch.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from benchmarking.commands import load_model
from benchmarking.core.command_line import (
    Parser,
    add_model_id,
    notes,
    run_command,
)
from benchmarking.core.doubts import doubt_notes
from benchmarking.core.errors import EXIT_FAILED, EXIT_NOT_ENOUGH_DATA, EXIT_OK, UsageError
from benchmarking.core.limits import parse_limits
from benchmarking.core.plugins import check_installed
from benchmarking.core.provenance import provenance, require_running_clock, utc_now
from benchmarking.core.records import MAX_REQUESTS, Json, Result, Run, to_json
from benchmarking.core.settings import add_settings, check_given
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import number
from benchmarking.core.untrusted.redaction import redacted, redacted_record
from benchmarking.core.untrusted.secret_texts import know_secret
from benchmarking.devices.support.binding import bind
from benchmarking.load.connections import Target, client_of
from benchmarking.load.curve import HIGHEST_RATE, RATE_HIGH, RATE_LOW, facts_of, is_search, offered, search, with_knee
from benchmarking.load.generator import Level
from benchmarking.load.limits import WORDS
from benchmarking.load.load_settings import LOAD, OWN_SETTINGS
from benchmarking.load.server import (
    ServerLoad,
    check_listening,
    own_processors,
    processors_of,
    server_processes,
    tokenizer,
)
from benchmarking.load.traffic import MAX_WORDS, Lengths, Traffic
from benchmarking.sweep.plan import flags
from benchmarking.sweep.plan.options import options_in
from benchmarking.sweep.run import journal, spool
from benchmarking.sweep.run.session import store_run
from benchmarking.sweep.run.warehouse import database

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarking.load.model import ModelLoad

NAME = "benchhouse load"
EXAMPLES = """\
examples:
  benchhouse load NAME --url http://127.0.0.1:8000/v1 --concurrency 1,2,4,8
  benchhouse load NAME --url http://127.0.0.1:8000/v1 --request-rate 1,2,4 --limit ttft:500ms,tpot:50ms
  benchhouse load NAME --url http://127.0.0.1:8000/v1 --request-rate 1,32 --find-rate --limit ttft:500ms
  benchhouse load gpt2 --runtime onnxruntime --concurrency 1,4 --batch-size 4 --output-length 16

The API key of the server is read from $OPENAI_API_KEY.
exit codes: 0 measured; 1 no request of a level succeeded, or storing failed; 2 usage; 3 no rate met the limits
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    limits = parse_limits(arguments.limit, WORDS) if arguments.limit else {}
    _check_subject(arguments, limits)
    levels = _levels(arguments) if arguments.scenario is None else load_model.scenario_levels(arguments)
    _check_size(levels, arguments.turns)
    if arguments.find_rate and (len(levels) < 2 or not levels[0].is_open or not limits):
        raise UsageError("--find-rate requires --limit and two rates to search between, such as --request-rate 1,32")
    require_running_clock()
    say, command = notes(quiet=arguments.quiet), (*NAME.split(), *argv)
    traffic = _traffic(arguments)
    if arguments.url is not None or not traffic.has_one_size:
        _check_prompts(traffic, levels)
    load: ServerLoad | ModelLoad = (
        _server_load(arguments, limits, traffic, say)
        if arguments.url is not None
        else load_model.load_of(arguments, limits, levels, traffic, command, say)
    )
    ingest = None
    if arguments.save:
        spool.prepare(Path(arguments.output_dir))
        ingest = database(arguments.db_path, arguments.lock_timeout, quiet=arguments.quiet)
    started_at = utc_now()
    results, is_interrupted = _results(load, levels, arguments)
    if isinstance(load, ServerLoad):
        settings: dict[str, Json] = {"duration_s": arguments.duration, "num_requests": arguments.num_requests}
        about = provenance(command, dict(arguments.tag), arguments.description)
        record = load.run(results, settings, about, started_at, is_open=levels[0].is_open)
    else:
        record = replace(load.run(results, load_model.settings_of(arguments)), started_at=started_at)
    run = redacted_record(record, anonymous=arguments.anonymous)
    _print(run, as_json=arguments.json)
    code = EXIT_OK if all(one.status == "ok" for one in results if not is_search(one)) else EXIT_FAILED
    if arguments.save:
        problem = store_run(_written(run, Path(arguments.output_dir)), ingest)
        if problem is not None:
            notes(quiet=False)(f"not stored: {problem}")
            code = EXIT_FAILED
    if is_interrupted:
        raise KeyboardInterrupt
    return EXIT_NOT_ENOUGH_DATA if code == EXIT_OK and any(map(_has_found_nothing, results)) else code


def _results(
    load: ServerLoad | ModelLoad, levels: Sequence[Level], arguments: argparse.Namespace
) -> tuple[list[Result], bool]:
    """The levels in order with the knee marked, and whether Ctrl-C ended the load early. The result of a search for the
    highest rate comes last."""
    done: list[Result] = []

    def measured(level: Level) -> Result:
        done.append(load.measured(level))
        return done[-1]

    try:
        if not arguments.find_rate:
            return with_knee([measured(level) for level in levels]), False
        *found, outcome = search(measured, levels[0], float(levels[-1].rate or 0), load.say)
        return [*with_knee(found), outcome], False
    except KeyboardInterrupt:
        if not done:
            raise
        return with_knee(list({offered(one): one for one in done}.values())), True


def _has_found_nothing(result: Result) -> bool:
    return is_search(result) and result.status != "ok"


def _check_subject(arguments: argparse.Namespace, limits: Mapping[str, float]) -> None:
    """Raise UsageError unless there is a model, here or on a server, with flags that apply to it."""
    if arguments.model_id is None:
        what = "its name on the server" if arguments.url else "a MODEL on this machine, or with --url its name there"
        raise UsageError(f"nothing to load: give {what}")
    if "://" in arguments.model_id:
        raise UsageError(f"MODEL {arguments.model_id} is an address: give it with --url, and MODEL as the name there")
    is_server = arguments.url is not None
    check_given(
        arguments,
        LOAD,
        subject="server" if is_server else "model",
        instead="MODEL without --url" if is_server else "--url",
    )
    if not is_server:
        load_model.check(arguments, limits)
    elif options := options_in(vars(arguments)):
        raise UsageError(f"--{next(iter(options)).replace('_', '-')} requires MODEL without --url: {OWN_SETTINGS}")


def _check_size(levels: Sequence[Level], turns: int) -> None:
    """Raise UsageError for a level with more requests than may be held in memory."""
    for one in levels:
        number = one.requests * turns if one.is_open else max((one.number or 0) * turns, one.concurrency or 0)
        if number > MAX_REQUESTS:
            raise UsageError(
                f"{one.words}: {number} requests exceed the limit of {MAX_REQUESTS} per level: use more --repetitions "
                "of fewer requests"
            )


def _check_prompts(traffic: Traffic, levels: Sequence[Level]) -> None:
    """Raise UsageError for an open-loop level with more prompt words than may be held in memory."""
    for one in (level for level in levels if level.is_open):
        if (words := traffic.words(one.requests)) > MAX_WORDS:
            raise UsageError(
                f"{one.words}: prompts of {words} words exceed the limit of {MAX_WORDS} per level: use more "
                "--repetitions of fewer requests"
            )


def _server_load(
    arguments: argparse.Namespace, limits: Mapping[str, float], traffic: Traffic, say: Callable[[str], None]
) -> ServerLoad:
    """The load on a server, with the generator bound to its processors and its capacity measured. Raises UsageError
    and BenchhouseError if no request could be sent."""
    target = _target(arguments)
    needed = ("httptools", "numpy", *(("h2",) if target.http2 else ()))
    check_installed("load on a server", needed, 'pip install "benchhouse[load]"')
    client_of(target)  # reports unreadable certificates before anything is sent
    counts = None if arguments.tokenizer is None else tokenizer(arguments.tokenizer)
    check_listening(target)
    before = own_processors() or []
    if arguments.cpu_list is not None:
        bind(arguments.cpu_list)
    own, server_pids = own_processors(), server_processes(target)
    return ServerLoad(
        target=target,
        engine=arguments.engine,
        precision=arguments.precision or "unknown",
        hardware=arguments.hardware,
        traffic=traffic,
        limits=limits,
        repetitions=arguments.repetitions,
        warmup=arguments.warmup_requests,
        capacity_per_s=_capacity(arguments, sorted(set(before) - set(own or [])), say),
        own_cpus=own,
        server_cpus=processors_of(server_pids),
        server_pids=server_pids,
        say=say,
        tokenizer=counts,
        is_anonymous=arguments.anonymous,
    )


def _levels(arguments: argparse.Namespace) -> list[Level]:
    shared = {"number": arguments.num_requests, "duration_s": arguments.duration}
    if arguments.request_rates == (math.inf,) and arguments.num_requests is None:
        raise UsageError("--request-rate inf requires --num-requests: the requests that start at once")
    if arguments.request_rates:
        return [Level(rate=float(rate), **shared) for rate in arguments.request_rates]
    return [Level(concurrency=one, **shared) for one in arguments.concurrency or (1,)]


def _traffic(arguments: argparse.Namespace) -> Traffic:
    if not 0 <= arguments.shared_prefix <= 1:
        raise UsageError(f"--shared-prefix takes a share from 0 to 1: got {arguments.shared_prefix:g}")
    traffic = Traffic(
        arrivals="at_once"
        if arguments.request_rates == (math.inf,)
        else "trace"
        if arguments.trace is not None
        else arguments.arrivals,
        variation=arguments.variation,
        burst=arguments.burst,
        lengths_in=Lengths(arguments.input_length),
        lengths_out=Lengths(arguments.output_length),
        shared_prefix=arguments.shared_prefix,
        turns=arguments.turns,
        vocabulary=arguments.prompt_ids,
        seed=arguments.seed,
        file=arguments.trace or arguments.sharegpt,
    )
    next(traffic.requests())  # reports an unreadable file before anything is sent
    return traffic


def _target(arguments: argparse.Namespace) -> Target:
    try:
        parts = urlsplit(arguments.url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of an IPv6 address or a port
        is_address = False
    if not is_address:
        raise UsageError(f"--url takes an address such as http://127.0.0.1:8000/v1: got {arguments.url!r}")
    if parts.username or parts.password:
        raise UsageError("--url must not contain a user name or password, since it is stored: use $OPENAI_API_KEY")
    key = os.environ.get("OPENAI_API_KEY")
    if key:
        know_secret(key)
    return Target(
        url=arguments.url,
        model=arguments.model_id,
        endpoint=arguments.endpoint,
        timeout_s=arguments.timeout,
        ca_file=arguments.ca_file,
        http2=arguments.http2,
        headers={"Authorization": f"Bearer {key}"} if key else {},
    )


def _capacity(arguments: argparse.Namespace, others: Sequence[int], say: Callable[[str], None]) -> float | None:
    """The maximum request rate of the generator, measured against a server on other processors if it is bound."""
    from benchmarking.load.capacity import capacity_per_s

    if arguments.capacity_seconds <= 0:
        return None
    found = asyncio.run(capacity_per_s(arguments.capacity_seconds, http2=arguments.http2, cpus=others))
    say(f"the generator can send {found:,.0f} requests/s")
    return found


def _written(run: Run, folder: Path) -> Path:
    """The run file. Raises StorageError."""
    from benchmarking.core.errors import StorageError

    spool.prepare(folder)
    path = folder / f"load_{spool.file_name(run.cell, run.started_at)}.json"
    text = json.dumps(redacted(to_json(run)), ensure_ascii=False, allow_nan=False) + "\n"
    try:
        journal.replace(path, text)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}: choose another --output-dir") from error
    return path


def _value(name: str) -> Callable[[Result], str | None]:
    def text(result: Result) -> str | None:
        value = result.metrics.get(name)
        return None if value is None else number(value)

    return text


GOODPUT = "goodput_requests_per_sec"
COLUMNS = (
    Column[Result](heading="level", text=lambda one: _level_text(one), is_key=True),
    Column[Result](heading="requests", text=_value("requests_sent"), is_number=True),
    Column[Result](heading="failed", text=lambda one: _value("requests_failed")(one) or None, is_number=True, spare=1),
    Column[Result](heading="requests/s", text=_value("throughput_samples_per_sec"), is_number=True),
    Column[Result](heading="tokens/s", text=_value("throughput_tokens_per_sec"), is_number=True),
    Column[Result](heading="goodput/s", text=_value(GOODPUT), is_number=True),
    Column[Result](heading="TTFT p50 ms", text=_value("time_to_first_token_ms"), is_number=True),
    Column[Result](heading="p99", text=_value("time_to_first_token_p99_ms"), is_number=True, spare=2),
    Column[Result](heading="TPOT p50 ms", text=_value("time_per_output_token_ms"), is_number=True),
    Column[Result](heading="p99", text=_value("time_per_output_token_p99_ms"), is_number=True, spare=3),
    Column[Result](heading="latency p50 ms", text=_value("latency_median_ms"), is_number=True, spare=1),
    Column[Result](heading="p99", text=_value("latency_p99_ms"), is_number=True, spare=2),
    Column[Result](heading="validity", text=lambda one: one.validity or one.status, is_state=True),
)


def _level_text(result: Result) -> str:
    if is_search(result):
        return "highest rate"
    rate, scenario = result.point.axes.get("request_rate"), facts_of(result).get("scenario")
    level = f"{result.point.concurrency} in flight" if rate is None else f"{rate:g}/s"
    level = "all at once" if facts_of(result).get("is_at_once") else level
    level = f"{scenario} {level}" if scenario == "server" else str(scenario or level)
    marks = [word for key, word in (("is_knee", "knee"), ("is_highest_rate", "highest")) if facts_of(result).get(key)]
    return f"{level} ({', '.join(marks)})" if marks else level


def _print(run: Run, *, as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                redacted(to_json(replace(run, results=tuple(_without_raw(one) for one in run.results)))), indent=1
            )
        )
        return
    page = stdout_page()
    levels = [one for one in run.results if not is_search(one)]
    print(table_text(table_of(COLUMNS, levels, page), page))
    for one in levels:
        if one.error is not None:
            print(f"{_level_text(one)}: {one.status}: {one.error}")
    unknown = {one.missing[GOODPUT]: _level_text(one) for one in reversed(levels) if GOODPUT in one.missing}
    for why, level in unknown.items():
        print(f"goodput unknown (first at {level}): {why.partition(': ')[2]}")
    for found in filter(is_search, run.results):
        print(_search_text(found))
    for line in doubt_notes((each.kind, _level_text(one)) for one in run.results for each in one.doubts):
        print(line)


def _search_text(found: Result) -> str:
    """The outcome of a search in one sentence."""
    rate, low, high = (found.metrics.get(name) for name in (HIGHEST_RATE, RATE_LOW, RATE_HIGH))
    if rate is None or low is None:
        return str(found.error)
    invalid = facts_of(found).get("invalid_levels")
    if high is not None:
        rest = f"95 % interval {low:.4g} to {high:.4g}"
    elif isinstance(invalid, dict) and invalid:
        kinds = ", ".join(sorted(set(map(str, invalid.values()))))
        rest = f"{low:.4g} or more with 97.5 % confidence; higher levels were invalid: {kinds}"
    else:
        rest = f"{low:.4g} or more with 97.5 % confidence; the highest tried is {rate:g}: search higher"
    return f"highest rate within the limits: {rate:g} requests/s ({rest})"


def _without_raw(result: Result) -> Result:
    return replace(result, requests=(), samples=())


def _parser() -> Parser:
    parser = Parser(
        prog=NAME,
        usage="%(prog)s MODEL [--url URL] [flags]",
        description=__doc__,
        epilog=EXAMPLES,
    )
    group = parser.add_argument_group("server or model")
    what = "model to load here, named as in benchhouse run; with --url, its name on the server"
    add_model_id(group, what, is_needed=False)
    add_settings(group, LOAD, *("url", "endpoint", "engine", "precision", "hardware", "tokenizer", "ca_file", "http2"))
    load_model.add_flags(parser)
    add_settings(
        parser.add_argument_group("levels"),
        LOAD,
        *("concurrency", "request_rate", "find_rate", "limit", "duration", "num_requests", "repetitions"),
        *("warmup_requests", "timeout"),
        lists=("concurrency", "request_rate"),
    )
    add_settings(
        parser.add_argument_group("traffic"),
        LOAD,
        *("arrivals", "variation", "burst", "input_length", "output_length", "prompt_ids", "shared_prefix", "turns"),
        *("trace", "sharegpt", "seed"),
    )
    add_settings(parser.add_argument_group("generator"), LOAD, "cpu_list", "capacity_seconds")
    group = parser.add_argument_group("output")
    flags.add_saved(group)
    flags.add_keeping(group)
    flags.add_output_format(group)
    return parser
