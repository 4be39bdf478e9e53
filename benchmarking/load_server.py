"""Load-tests an OpenAI-compatible server, or a model on this machine.

With --request-rate, requests start on a schedule whether or not the server keeps up (open loop), and latency counts
from the scheduled start. With --concurrency, a fixed number of requests is in flight (closed loop). Open and closed
loops are separate series and are never compared. The warehouse gets a result per level and a row per request.

A MODEL instead of --url is loaded on this machine, in a fresh process per repetition. It makes one call after another,
each with up to --batch-size waiting requests; an engine with continuous batching adds requests to its running batch.
With --scenario, MLPerf's loadgen issues the queries and decides whether the test is valid.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if __package__ in (None, ""):  # run as a file: the module path starts at the repository, not at the folder of this file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarking import load_model
from benchmarking.core.command_line import (
    Parser,
    non_negative_int,
    non_negative_number,
    notes,
    positive_int,
    positive_ints,
    positive_number,
    positive_rates,
    positive_seconds,
    run_command,
)
from benchmarking.core.doubts import doubt_notes
from benchmarking.core.errors import EXIT_FAILED, EXIT_NOT_ENOUGH_DATA, EXIT_OK, UsageError
from benchmarking.core.plugins import check_installed
from benchmarking.core.provenance import provenance, utc_now
from benchmarking.core.records import MAX_REQUESTS, PRECISIONS, Json, Result, Run, to_json
from benchmarking.core.settings import add_settings
from benchmarking.core.shared_settings import SHARED
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import number
from benchmarking.core.untrusted.redaction import redacted, redacted_record
from benchmarking.core.untrusted.secret_texts import know_secret
from benchmarking.devices.support.binding import bind
from benchmarking.load.connections import Target, client_of
from benchmarking.load.curve import HIGHEST_RATE, RATE_HIGH, RATE_LOW, facts_of, is_search, offered, search, with_knee
from benchmarking.load.generator import Level
from benchmarking.load.limits import parse_limits
from benchmarking.load.server import (
    ServerLoad,
    check_listening,
    own_processors,
    processors_of,
    server_processes,
    tokenizer,
)
from benchmarking.load.traffic import ARRIVALS, MAX_WORDS, Lengths, Traffic
from benchmarking.sweep.plan import flags
from benchmarking.sweep.run import journal, spool
from benchmarking.sweep.run.session import store_run
from benchmarking.sweep.run.warehouse import database

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarking.load.model import ModelLoad

NAME = "benchhouse load"
EXAMPLES = """\
examples:
  benchhouse load --url http://127.0.0.1:8000/v1 --model NAME --concurrency 1,2,4,8
  benchhouse load --url http://127.0.0.1:8000/v1 --model NAME --request-rate 1,2,4 --slo ttft:500ms,tpot:50ms --save
  benchhouse load --url http://127.0.0.1:8000/v1 --model NAME --request-rate 1,32 --find-rate --slo ttft:500ms
  benchhouse load --url http://127.0.0.1:8000/v1 --model NAME --request-rate 2 --trace mooncake_trace.jsonl
  benchhouse load gpt2 --runtime onnxruntime --concurrency 1,4 --batch-size 4 --output-length 16
  benchhouse load gpt2 --scenario single-stream --output-length 16 --duration 60
  benchhouse load bert-base-uncased --runtime onnxruntime --scenario server --request-rate 5,10 --slo e2e:200ms --save

The API key of the server is read from $OPENAI_API_KEY.

exit codes: 0 measured; 1 no request of a level succeeded, or storing failed; 2 usage; 3 no rate met the limits
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    limits = parse_limits(arguments.slo) if arguments.slo else {}
    _check_subject(arguments, limits)
    levels = _levels(arguments) if arguments.scenario is None else load_model.scenario_levels(arguments)
    _check_size(levels, arguments.turns)
    if arguments.find_rate and (len(levels) < 2 or not levels[0].is_open or not limits):
        raise UsageError("--find-rate requires --slo and two rates to search between, such as --request-rate 1,32")
    say, command = notes(quiet=arguments.quiet), (*NAME.split(), *argv)
    traffic = _traffic(arguments)
    if arguments.model_id is None or not traffic.has_one_size:
        _check_prompts(traffic, levels)
    load: ServerLoad | ModelLoad = (
        _server_load(arguments, limits, traffic, say)
        if arguments.model_id is None
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
    """Raise UsageError unless either a server or a model is given, with flags that apply to it."""
    if arguments.model_id is not None:
        if arguments.url is not None:
            raise UsageError(f"MODEL {arguments.model_id} and --url {arguments.url} exclude each other: remove one")
        load_model.check(arguments, limits)
    elif arguments.url is None or arguments.model is None:
        raise UsageError("nothing to load: give a server (--url URL --model NAME), or a MODEL on this machine")
    elif arguments.scenario is not None:
        raise UsageError("--scenario requires MODEL instead of --url: loadgen tests a model on this machine")
    else:
        load_model.check_server(arguments)


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
    if arguments.request_rate == (math.inf,) and arguments.num_requests is None:
        raise UsageError("--request-rate inf requires --num-requests: the requests that start at once")
    if arguments.request_rate:
        return [Level(rate=float(rate), **shared) for rate in arguments.request_rate]
    if arguments.trace is not None:
        raise UsageError("--trace requires --request-rate: the mean rate to which the trace is scaled")
    if arguments.arrivals != "poisson":
        raise UsageError(
            "--arrivals requires --request-rate: in a closed loop, a request starts when another one has ended"
        )
    return [Level(concurrency=one, **shared) for one in arguments.concurrency or (1,)]


def _traffic(arguments: argparse.Namespace) -> Traffic:
    if not 0 <= arguments.shared_prefix <= 1:
        raise UsageError(f"--shared-prefix takes a share from 0 to 1: got {arguments.shared_prefix:g}")
    if arguments.prompt_ids is not None and (arguments.endpoint != "completions" or arguments.turns > 1):
        raise UsageError("--prompt-ids requires --endpoint completions and no --turns: chat messages are text")
    for name, default in (("variation", 1.0), ("burst", 8)):
        arrivals = "gamma" if name == "variation" else name
        if getattr(arguments, name) != default and arguments.arrivals != arrivals:
            raise UsageError(f"--{name} requires --arrivals {arrivals}")
    is_at_once = arguments.request_rate == (math.inf,)
    traffic = Traffic(
        arrivals="at_once" if is_at_once else "trace" if arguments.trace is not None else arguments.arrivals,
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
        model=arguments.model,
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


COLUMNS = (
    Column[Result](heading="level", text=lambda one: _level_text(one), is_key=True),
    Column[Result](heading="requests", text=_value("requests_sent"), is_number=True),
    Column[Result](heading="failed", text=lambda one: _value("requests_failed")(one) or None, is_number=True, spare=1),
    Column[Result](heading="requests/s", text=_value("throughput_samples_per_sec"), is_number=True),
    Column[Result](heading="tokens/s", text=_value("throughput_tokens_per_sec"), is_number=True),
    Column[Result](heading="goodput/s", text=_value("goodput_requests_per_sec"), is_number=True),
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
        usage="%(prog)s --url URL --model NAME [flags]\n       %(prog)s MODEL [flags]",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_server(parser)
    load_model.add_flags(parser)
    _add_levels(parser)
    _add_traffic(parser)
    _add_generator(parser)
    group = parser.add_argument_group("output")
    add_settings(group, SHARED, "save")
    flags.add_keeping(group)
    flags.add_output_format(group)
    return parser


def _add_server(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument("--url", metavar="URL", help="address of the server, with /v1")
    group.add_argument("--model", metavar="NAME", help="name of the model on the server")
    group.add_argument(
        "--endpoint", choices=("completions", "chat"), default="completions", help="API endpoint (default: %(default)s)"
    )
    group.add_argument(
        "--engine",
        default="server",
        metavar="NAME",
        help="engine of the server, stored in the column runtime (default: server)",
    )
    group.add_argument(
        "--precision",
        choices=(*PRECISIONS, "other", "unknown"),
        help="precision of the weights (default: unknown for a server, float32 for MODEL)",
    )
    group.add_argument("--hardware", metavar="NAME", help="name of the server's device, such as 'NVIDIA H100'")
    group.add_argument(
        "--tokenizer",
        type=Path,
        metavar="DIR",
        help="local folder of a tokenizer, to count tokens that the server does not report (default: chunks count)",
    )
    group.add_argument("--ca-file", metavar="FILE", help="file of trusted CA certificates, PEM (default: the system's)")
    group.add_argument(
        "--http2",
        action="store_true",
        help="use HTTP/2: negotiated over https, with prior knowledge over http (default: HTTP/1.1)",
    )
    group.add_argument(
        "--timeout",
        type=positive_seconds,
        default=120.0,
        metavar="S",
        help="time limit per request in seconds (default: %(default)g)",
    )


def _add_levels(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("levels")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--concurrency", type=positive_ints, metavar="N,...", help="closed loop: requests in flight (default: 1)"
    )
    which.add_argument(
        "--request-rate",
        type=positive_rates,
        metavar="R,...",
        help="open loop: mean requests per second; inf starts all --num-requests at once",
    )
    group.add_argument(
        "--find-rate",
        action="store_true",
        help="search between the first and the last rate for the highest that meets --slo, in up to 44 durations",
    )
    group.add_argument(
        "--slo",
        metavar="LIMITS",
        help="latency limits for goodput, such as ttft:500ms,tpot:50ms,e2e:2s (default: none)",
    )
    group.add_argument(
        "--duration",
        type=positive_seconds,
        default=30.0,
        metavar="S",
        help="seconds per level during which requests start (default: %(default)g)",
    )
    group.add_argument(
        "--num-requests", type=positive_int, metavar="N", help="requests per level, instead of --duration"
    )
    group.add_argument(
        "--repetitions",
        "--repeat",
        "--launches",
        type=positive_int,
        default=1,
        metavar="N",
        help="repetitions per level, each with fresh arrivals; for MODEL in a fresh process (default: %(default)s)",
    )
    group.add_argument(
        "--warmup-requests",
        type=non_negative_int,
        default=2,
        metavar="N",
        help="requests to warm up before each level (default: %(default)s)",
    )


def _add_traffic(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("traffic")
    group.add_argument(
        "--arrivals", choices=ARRIVALS, default="poisson", help="arrival process of an open loop (default: %(default)s)"
    )
    group.add_argument(
        "--variation",
        type=positive_number,
        default=1.0,
        metavar="CV",
        help="coefficient of variation of gamma arrivals (default: %(default)g)",
    )
    group.add_argument(
        "--burst", type=positive_int, default=8, metavar="N", help="requests per burst (default: %(default)s)"
    )
    group.add_argument(
        "--input-length",
        default="128",
        metavar="N",
        help="words per prompt: 128, uniform:64-256 or normal:128+-32 (default: %(default)s)",
    )
    group.add_argument(
        "--prompt-ids",
        type=positive_int,
        metavar="N",
        help="send prompts of exact length as token ids below N, the vocabulary size (default: text)",
    )
    group.add_argument(
        "--output-length",
        default="64",
        metavar="N",
        help="tokens to generate per request, in the same notation (default: %(default)s)",
    )
    group.add_argument(
        "--shared-prefix",
        type=non_negative_number,
        default=0.0,
        metavar="SHARE",
        help="share of each prompt that all prompts have in common, 0 to 1 (default: 0)",
    )
    group.add_argument("--turns", type=positive_int, default=1, metavar="N", help="turns per conversation (default: 1)")
    files = group.add_mutually_exclusive_group()
    files.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="trace file with arrivals and lengths, in Mooncake's or Azure's format",
    )
    files.add_argument(
        "--sharegpt",
        type=Path,
        metavar="FILE",
        help="file with conversations to take prompts and lengths from (ShareGPT JSON)",
    )
    group.add_argument(
        "--seed",
        type=non_negative_int,
        default=0,
        metavar="N",
        help="random seed of arrivals, lengths and prompts (default: 0)",
    )


def _add_generator(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("generator")
    group.add_argument(
        "--cpu-list",
        metavar="CPUS",
        help="logical CPUs of the generator (not the server's), or of MODEL, such as 0-1 (default: all)",
    )
    group.add_argument(
        "--capacity-seconds",
        type=non_negative_number,
        default=1.0,
        metavar="S",
        help="seconds for measuring the generator's own maximum rate; 0 skips it (default: %(default)g)",
    )


if __name__ == "__main__":
    sys.exit(main())
