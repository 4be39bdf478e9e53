"""The settings of load tests, beside those of a model (`benchmarking.sweep.plan.measuring_settings`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

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


_of_server = partial(Setting, applies=SERVERS, why_not=NOTHING_SHARED)


def _of_model(name: str, **changes: object) -> Setting:
    """A setting of measuring commands, for MODEL only."""
    return replace(MEASURING[name], applies=MODELS, why_not=OWN_SETTINGS, **changes)  # type: ignore[arg-type]


LOAD: Mapping[str, Setting] = MappingProxyType(
    {**MEASURING}
    | table(
        # The server.
        Setting(
            name="url",
            in_series=True,  # its host is the hardware, unless that is named
            kind=TEXT,
            metavar="URL",
            help="address with /v1; the API key is in $OPENAI_API_KEY",
        ),
        Setting(
            name="serve",
            in_series=True,
            kind=TEXT,
            metavar="COMMAND",
            help="server to start: a command with {port}, or vllm, ...",
            excludes=("url",),
        ),
        Setting(
            name="sweep",
            in_series=True,
            kind=SWEEP,
            help="values of {NAME}, or of an engine's flag; repeatable",
            default=[],
            needs=(("serve", None),),
        ),
        Setting(
            name="start_timeout",
            kind=SECONDS,
            help="time limit of the server's start in seconds",
            default=600.0,
            needs=(("serve", None),),
            is_rare=True,
        ),
        _of_server(
            name="device_metrics",
            is_rare=True,
            kind=TEXT,
            metavar="URL",
            help="address of a DCGM or node exporter on the server's machine",
        ),
        _of_server(
            name="endpoint",
            in_series=True,
            is_rare=True,
            kind=one_of(("completions", "chat"), "endpoint"),
            help="API endpoint",
            default="completions",
        ),
        _of_server(
            name="engine",
            in_series=True,
            kind=WORD,
            help="engine of the server, or its name",
            default="server",
        ),
        replace(
            MEASURING["precision"],
            kind=one_of((*PRECISIONS, "other", "unknown"), "precision"),
            help="precision of the weights",
            default=None,
            default_words="unknown, or float32 for MODEL",
            is_rare=True,
        ),
        _of_server(
            name="hardware",
            in_series=True,
            is_rare=True,
            kind=WORD,
            help="name of the server's device, such as 'NVIDIA H100'",
        ),
        _of_server(
            name="tokenizer",
            kind=PATH,
            metavar="DIR",
            help="local folder of a tokenizer, for tokens that the server does not count or make",
            default_words="chunks count",
            is_rare=True,
        ),
        _of_server(
            name="ca_file",
            kind=WORD,
            metavar="FILE",
            help="file of trusted CA certificates, PEM",
            default_words="the system's",
            is_rare=True,
        ),
        _of_server(
            name="http2",
            in_series=True,
            kind=SWITCH,
            default=False,
            help="use HTTP/2: negotiated over https, with prior knowledge over http (default: HTTP/1.1)",
            is_rare=True,
        ),
        _of_server(
            name="omit_fields",
            in_series=True,
            takes_list=True,
            kind=one_of(OMITTABLE, "field"),
            metavar="FIELDS",
            help="fields of requests that the server refuses, to be left out",
            default=(),
            default_words="none",
            is_rare=True,
        ),
        replace(
            MEASURING["quality"],
            help="also measure how well the server's model predicts a text, after the levels",
            applies=SERVERS,
            why_not=WITHOUT_LOAD,
            is_rare=True,
        ),
        replace(
            MEASURING["quality_text"],
            help="text file by which to measure it; implies --quality",
            applies=SERVERS,
            why_not=WITHOUT_LOAD,
        ),
        replace(MEASURING["timeout"], help="time limit per request in seconds", default=120.0),
        # The model on this machine.
        Setting(
            name="scenario",
            in_series=True,
            is_rare=True,
            kind=one_of(SCENARIOS, "scenario", read=_scenario),
            help="MLPerf scenario, whose queries MLPerf's loadgen issues",
            default_words="a loop",
            applies=MODELS,
            why_not="loadgen tests a model on this machine",
        ),
        Setting(
            name="samples_per_query",
            in_series=True,
            kind=WHOLE,
            help="samples per query of multi-stream",
            default=8,
            applies=MODELS,
            why_not=OWN_SETTINGS,
            needs=(("scenario", None),),
            is_rare=True,
        ),
        Setting(
            name="loadgen_logs",
            kind=WORD,
            metavar="DIR",
            help="folder for loadgen's logs",
            default_words="not kept",
            applies=MODELS,
            why_not=OWN_SETTINGS,
            needs=(("scenario", None),),
            is_rare=True,
        ),
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
            why_apart="each is a load of its own, so give one a command; an open loop has no cap, which would hide "
            "waiting",
        ),
        Setting(
            name="request_rate",
            in_series=True,
            plural="request_rates",
            takes_list=True,
            kind=RATES,
            metavar="R",
            help="open loop: requests per second; inf: all at once",
        ),
        Setting(
            name="find_rate",
            kind=SWITCH,
            default=False,
            help="highest rate within --limit between two --request-rates, in 24-60 times --duration",
        ),
        replace(
            COMMON["limit"],
            in_series=True,
            help="latency limits: ttft:500ms,tpot:50ms,e2e:2s",
        ),
        Setting(
            name="share",
            in_series=True,
            kind=SHARE,
            metavar="SHARE",
            help="share of requests that meets it",
            default=LEAST_GOOD,
            needs=(("limit", None),),
            excludes=("scenario",),
            why_apart="loadgen judges by its own percentile",
        ),
        Setting(
            name="fail_on",
            kind=one_of(("missed", "all-missed"), "condition"),
            metavar="WORD",
            help="exit code 1 if a level misses --limit, or if all do; 3 if unknown",
            needs=(("limit", None),),
            excludes=("find_rate",),
            why_apart="a search ends with 3 if no rate holds; gate the lower end of the rate that it found with "
            "--request-rate LOW --fail-on missed",
        ),
        Setting(
            name="duration",
            kind=SECONDS,
            help="seconds of arrivals per level",
            default_words=f"{DURATION_S:g}",
            excludes=("num_requests",),
            why_apart="each is the length of a level, so give one",
        ),
        Setting(name="num_requests", kind=WHOLE, help="requests per level, instead of --duration"),
        Setting(
            name="repetitions",
            kind=WHOLE,
            help="fresh repetitions per level",
            default=1,
            other_flags=("--repeat", "--launches"),
        ),
        Setting(
            name="warmup_requests", kind=COUNT, help="requests to warm up before each level", default=2, is_rare=True
        ),
        # The traffic.
        Setting(
            name="arrivals",
            in_series=True,
            kind=one_of(ARRIVALS, "arrival process"),
            help="arrival process of an open loop",
            default="poisson",
            needs=(("request_rate", None),),
            excludes=("scenario",),
        ),
        Setting(
            name="variation",
            in_series=True,
            kind=NUMBER,
            metavar="CV",
            help="coefficient of variation of gamma arrivals",
            default=1.0,
            needs=(("arrivals", "gamma"),),
            is_rare=True,
        ),
        Setting(
            name="burst",
            in_series=True,
            kind=WHOLE,
            help="requests per burst",
            default=8,
            needs=(("arrivals", "burst"),),
            is_rare=True,
        ),
        Setting(
            name="input_length",
            in_series=True,
            takes_list=True,
            kind=TEXTS,
            metavar="N",
            help="words per prompt: 128 or uniform:64-256",
            default="128",
        ),
        _of_server(
            name="prompt_ids",
            in_series=True,
            kind=WHOLE,
            help="send prompts of exact length as token ids below N, the vocabulary size",
            default_words="text",
            needs=(("endpoint", "completions"),),
            excludes=("turns",),
            is_rare=True,
        ),
        Setting(
            name="output_length",
            in_series=True,
            takes_list=True,
            kind=TEXTS,
            metavar="N",
            help="tokens per reply, in the same notation",
            default="64",
        ),
        Setting(
            name="lengths",
            in_series=True,
            takes_list=True,
            kind=TEXTS,
            metavar="PAIR",
            help="or pairs of both: 128/128,1024/128",
            excludes=("input_length", "output_length", "trace", "sharegpt"),
        ),
        _of_server(
            name="shared_prefix",
            in_series=True,
            is_rare=True,
            kind=SHARE,
            metavar="SHARE",
            help="share of each prompt that all prompts have in common, 0 to 1",
            default=0.0,
        ),
        _of_server(
            name="turns",
            in_series=True,
            is_rare=True,
            kind=WHOLE,
            help="messages of the user per conversation",
            default=1,
        ),
        _of_server(
            name="think_time",
            in_series=True,
            is_rare=True,
            kind=TEXT,
            metavar="S",
            help="seconds from a reply to the next message: 5, exponential:5, uniform:1-9, normal:5+-2",
            default_words="0",
            needs=(("turns", None),),
        ),
        _of_server(
            name="tool_calls",
            in_series=True,
            is_rare=True,
            kind=COUNT,
            help="further requests after each message, as of an agent that uses tools",
            default=0,
            excludes=("prompt_ids", "trace"),
        ),
        _of_server(
            name="tool_pause",
            in_series=True,
            is_rare=True,
            kind=TEXT,
            metavar="S",
            help="seconds that a tool runs before each of them, in the notation of --think-time",
            default_words="0",
            needs=(("tool_calls", None),),
        ),
        Setting(
            name="trace",
            in_series=True,
            is_rare=True,
            kind=PATH,
            help="trace with arrivals, lengths and sessions: Mooncake, Azure, BurstGPT, Bailian",
            needs=(("request_rate", None),),
            excludes=("scenario", "sharegpt", "turns", "input_length", "output_length"),
        ),
        Setting(
            name="sharegpt",
            in_series=True,
            kind=PATH,
            help="file with conversations to take prompts and lengths from (ShareGPT JSON)",
            excludes=("scenario", "input_length", "output_length"),
            is_rare=True,
        ),
        Setting(name="seed", kind=COUNT, help="random seed of arrivals, lengths and prompts", default=0, is_rare=True),
        # The generator.
        replace(
            MEASURING["cpu_list"],
            help="logical CPUs of the generator (not the server's), or of MODEL, such as 0-1",
            applies=frozenset(),
        ),
        Setting(
            name="capacity_seconds",
            kind=NUMBER_FROM_0,
            metavar="S",
            help="seconds for measuring the generator's own maximum rate; 0 skips it",
            default=1.0,
            is_rare=True,
        ),
    )
)
"""The settings of `benchhouse load`, with those of measuring commands, of which it uses some."""
