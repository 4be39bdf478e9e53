"""The settings of load tests, beside those of a model (`benchmarking.sweep.plan.measuring_settings`)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarking.core.argument_types import names, positive_rates
from benchmarking.core.load_doubts import LEAST_GOOD
from benchmarking.core.records import PRECISIONS
from benchmarking.core.settings import (
    COUNT,
    NUMBER,
    NUMBER_FROM_0,
    PATH,
    SECONDS,
    SHARE,
    SWEEP,
    SWITCH,
    TEXT,
    WHOLE,
    WORD,
    Setting,
    one_of,
    table,
)
from benchmarking.core.shared_settings import COMMON
from benchmarking.load.traffic import ARRIVALS, OMITTABLE
from benchmarking.measure.request_loop import SCENARIOS
from benchmarking.sweep.plan.measuring_settings import MEASURING

SERVERS, MODELS = frozenset({"server"}), frozenset({"model"})
DURATION_S = 30.0
"""How long a level is without --duration and --num-requests."""
NOTHING_SHARED = "calls on this machine share no text and no connection"
OWN_SETTINGS = "the server has its own settings"
WITHOUT_LOAD = "quality does not depend on the load: benchhouse run --quality"

RATES, TEXTS = replace(NUMBER, parse_list=positive_rates), replace(TEXT, parse_list=names)


def _scenario(text: str) -> str:
    """A scenario in MLPerf's spelling too, such as SingleStream."""
    return next((name for name in SCENARIOS if name.replace("-", "") == text.lower().replace("-", "")), text)


_in_series = partial(Setting, in_series=True)
_of_server = partial(_in_series, is_rare=True, applies=SERVERS, why_not=NOTHING_SHARED)
_of_connection = partial(_of_server, in_series=False)
_of_scenario = partial(Setting, is_rare=True, applies=MODELS, why_not=OWN_SETTINGS, needs=(("scenario", None),))


def _of_model(name: str, **changes: object) -> Setting:
    """A setting of measuring commands, for MODEL only."""
    return replace(MEASURING[name], applies=MODELS, why_not=OWN_SETTINGS, **changes)  # type: ignore[arg-type]


def _of_quality(name: str, what: str) -> Setting:
    """A setting of the quality, for the model of a server, which no load changes."""
    return replace(MEASURING[name], help=what, applies=SERVERS, why_not=WITHOUT_LOAD, is_rare=True)


LOAD = table(
    # The server.
    # The host of the address is the hardware, unless that is named.
    _in_series("url", TEXT, "address with /v1; the API key is in $OPENAI_API_KEY", metavar="URL"),
    _in_series(
        "serve", TEXT, "server to start: a command with {port}, or vllm, ...", metavar="COMMAND", excludes=("url",)
    ),
    _in_series(
        "sweep", SWEEP, "values of {NAME}, or of an engine's flag; repeatable", default=[], needs=(("serve", None),)
    ),
    Setting(
        "start_timeout",
        SECONDS,
        "time limit of the server's start in seconds",
        default=600.0,
        needs=(("serve", None),),
        is_rare=True,
    ),
    _of_connection("device_metrics", TEXT, "address of a DCGM or node exporter on the server's machine", metavar="URL"),
    _of_server("endpoint", one_of(("completions", "chat"), "endpoint"), "API endpoint", default="completions"),
    _of_server("engine", WORD, "engine of the server, or its name", default="server", is_rare=False),
    replace(
        MEASURING["precision"],
        kind=one_of((*PRECISIONS, "other", "unknown"), "precision"),
        help="precision of the weights",
        default=None,
        default_words="unknown, or float32 for MODEL",
        is_rare=True,
    ),
    _of_server("hardware", WORD, "name of the server's device, such as 'NVIDIA H100'"),
    _of_connection(
        "tokenizer",
        PATH,
        "local folder of a tokenizer, for tokens that the server does not count or make",
        metavar="DIR",
        default_words="chunks count",
    ),
    _of_connection(
        "ca_file", WORD, "file of trusted CA certificates, PEM", metavar="FILE", default_words="the system's"
    ),
    _of_server(
        "http2",
        SWITCH,
        "use HTTP/2: negotiated over https, with prior knowledge over http (default: HTTP/1.1)",
        default=False,
    ),
    _of_server(
        "omit_fields",
        one_of(OMITTABLE, "field"),
        "fields of requests that the server refuses, to be left out",
        takes_list=True,
        metavar="FIELDS",
        default=(),
        default_words="none",
    ),
    _of_quality("quality", "also measure how well the server's model predicts a text, after the levels"),
    _of_quality("quality_text", "text file by which to measure it; implies --quality"),
    replace(MEASURING["timeout"], help="time limit per request in seconds", default=120.0),
    # The model on this machine.
    _in_series(
        "scenario",
        one_of(SCENARIOS, "scenario", read=_scenario),
        "MLPerf scenario, whose queries MLPerf's loadgen issues",
        is_rare=True,
        default_words="a loop",
        applies=MODELS,
        why_not="loadgen tests a model on this machine",
    ),
    _of_scenario("samples_per_query", WHOLE, "samples per query of multi-stream", default=8, in_series=True),
    _of_scenario("loadgen_logs", WORD, "folder for loadgen's logs", metavar="DIR", default_words="not kept"),
    _of_model("batch_size", default=1, help="maximum requests per batch"),
    replace(MEASURING["runtime"], applies=MODELS, why_not="use --engine for the server's"),
    _of_model("device"),
    _of_model("task"),
    _of_model("weights"),
    _of_model("num_threads"),
    # The levels.
    replace(
        MEASURING["concurrency"],
        help="closed loop: requests in flight",
        applies=frozenset(),
        excludes=("scenario", "request_rate"),
        why_apart="each is a load of its own, so give one a command; an open loop has no cap, which would hide waiting",
    ),
    _in_series(
        "request_rate",
        RATES,
        "open loop: requests per second; inf: all at once",
        plural="request_rates",
        takes_list=True,
        metavar="R",
    ),
    Setting(
        "find_rate",
        SWITCH,
        "highest rate within --limit between two --request-rates, in 24-60 times --duration",
        default=False,
    ),
    replace(COMMON["limit"], in_series=True, help="latency limits: ttft:500ms,tpot:50ms,e2e:2s"),
    _in_series(
        "share",
        SHARE,
        "share of requests that meets it",
        metavar="SHARE",
        default=LEAST_GOOD,
        needs=(("limit", None),),
        excludes=("scenario",),
        why_apart="loadgen judges by its own percentile",
    ),
    Setting(
        "fail_on",
        one_of(("missed", "all-missed"), "condition"),
        "exit code 1 if a level misses --limit, or if all do; 3 if unknown",
        metavar="WORD",
        needs=(("limit", None),),
        excludes=("find_rate",),
        why_apart="a search ends with 3 if no rate holds; gate the lower end of the rate that it found with "
        "--request-rate LOW --fail-on missed",
    ),
    Setting(
        "duration",
        SECONDS,
        "seconds of arrivals per level",
        default_words=f"{DURATION_S:g}",
        excludes=("num_requests",),
        why_apart="each is the length of a level, so give one",
    ),
    Setting("num_requests", WHOLE, "requests per level, instead of --duration"),
    Setting("repetitions", WHOLE, "fresh repetitions per level", default=1, other_flags=("--repeat", "--launches")),
    Setting("warmup_requests", COUNT, "requests to warm up before each level", default=2, is_rare=True),
    # The traffic.
    _in_series(
        "arrivals",
        one_of(ARRIVALS, "arrival process"),
        "arrival process of an open loop",
        default="poisson",
        needs=(("request_rate", None),),
        excludes=("scenario",),
    ),
    _in_series(
        "variation",
        NUMBER,
        "coefficient of variation of gamma arrivals",
        metavar="CV",
        default=1.0,
        needs=(("arrivals", "gamma"),),
        is_rare=True,
    ),
    _in_series("burst", WHOLE, "requests per burst", default=8, needs=(("arrivals", "burst"),), is_rare=True),
    _in_series(
        "input_length", TEXTS, "words per prompt: 128 or uniform:64-256", takes_list=True, metavar="N", default="128"
    ),
    _of_server(
        "prompt_ids",
        WHOLE,
        "send prompts of exact length as token ids below N, the vocabulary size",
        default_words="text",
        needs=(("endpoint", "completions"),),
        excludes=("turns",),
    ),
    _in_series(
        "output_length", TEXTS, "tokens per reply, in the same notation", takes_list=True, metavar="N", default="64"
    ),
    _in_series(
        "lengths",
        TEXTS,
        "or pairs of both: 128/128,1024/128",
        takes_list=True,
        metavar="PAIR",
        excludes=("input_length", "output_length", "trace", "sharegpt"),
    ),
    _of_server(
        "shared_prefix",
        SHARE,
        "share of each prompt that all prompts have in common, 0 to 1",
        metavar="SHARE",
        default=0.0,
    ),
    _of_server("turns", WHOLE, "messages of the user per conversation", default=1),
    _of_server(
        "think_time",
        TEXT,
        "seconds from a reply to the next message: 5, exponential:5, uniform:1-9, normal:5+-2",
        metavar="S",
        default_words="0",
        needs=(("turns", None),),
    ),
    _of_server(
        "tool_calls",
        COUNT,
        "further requests after each message, as of an agent that uses tools",
        default=0,
        excludes=("prompt_ids", "trace"),
    ),
    _of_server(
        "tool_pause",
        TEXT,
        "seconds that a tool runs before each of them, in the notation of --think-time",
        metavar="S",
        default_words="0",
        needs=(("tool_calls", None),),
    ),
    _in_series(
        "trace",
        PATH,
        "trace with arrivals, lengths and sessions: Mooncake, Azure, BurstGPT, Bailian",
        is_rare=True,
        needs=(("request_rate", None),),
        excludes=("scenario", "sharegpt", "turns", "input_length", "output_length", "arrivals"),
    ),
    _in_series(
        "sharegpt",
        PATH,
        "file with conversations to take prompts and lengths from (ShareGPT JSON)",
        excludes=("scenario", "input_length", "output_length", "prompt_ids", "shared_prefix"),
        is_rare=True,
    ),
    Setting("seed", COUNT, "random seed of arrivals, lengths and prompts", default=0, is_rare=True),
    # The generator.
    replace(
        MEASURING["cpu_list"],
        help="logical CPUs of the generator (not the server's), or of MODEL, such as 0-1",
        applies=frozenset(),
    ),
    Setting(
        "capacity_seconds",
        NUMBER_FROM_0,
        "seconds for measuring the generator's own maximum rate; 0 skips it",
        metavar="S",
        default=1.0,
        is_rare=True,
    ),
    base=MEASURING,
)
"""The settings of `benchhouse load`, with those of measuring commands, of which it uses some."""
