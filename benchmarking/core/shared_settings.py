"""The settings of all parts (database, labels, files, output), and those of several commands that measure nothing.

`parse_limits` reads limits, in one grammar for all commands: "ttft:500ms,tpot:50ms,e2e:2s,latency_p95:50ms,memory:2GB".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from benchmarking.core.command_line import DEFAULT_DATABASE, default_database
from benchmarking.core.errors import UsageError
from benchmarking.core.settings import (
    DATABASE,
    FOLDER,
    LIMITS,
    NEW_FILE,
    PATH,
    SECONDS,
    SECONDS_FROM_0,
    SWITCH,
    TAGS,
    TEXT,
    WHOLE,
    WORD,
    Setting,
    one_of,
    table,
)
from benchmarking.core.suggestions import unknown_name

LOG_LEVELS = ("debug", "info", "warning", "error")
DEFAULT_OUTPUT_DIR = "benchmark_results"
DATABASE_WAIT_S = 600.0
"""How long commands wait for a database that another process uses."""
DEVICE_WAIT_S = 3600.0
"""How long they wait for a device: a launch of another command may load and measure a large model."""

SHARED = table(
    Setting(
        "db_path",
        DATABASE,
        "warehouse: DuckDB file or ducklake:...",
        default=default_database,
        default_words=f"$BENCHMARK_DB_PATH, else {DEFAULT_DATABASE}",
    ),
    Setting(
        "lock_timeout",
        SECONDS_FROM_0,
        "seconds to wait for a database that another process uses",
        is_rare=True,
        default=DATABASE_WAIT_S,
    ),
    Setting("output_dir", FOLDER, "folder of run files", default=DEFAULT_OUTPUT_DIR),
    Setting("tag", TAGS, "label of the run; repeatable", plural="tags", default={}, is_key=True),
    Setting("description", TEXT, "description of the run", is_rare=True, is_key=True),
    Setting("anonymous", SWITCH, "omit host and user names from everything saved", is_rare=True, default=False),
    Setting("save", SWITCH, "write run files and store them (default: print only)", default=False),
    Setting("no_save", SWITCH, "no run files, nothing stored (default: save both)", default=False),
    Setting("json", SWITCH, "results on stdout as JSON (default: tables)", default=False),
    Setting("quiet", SWITCH, "no progress on stderr", default=False),
    Setting(
        "log_level",
        one_of(LOG_LEVELS, "log level", read=str.lower),
        "minimum severity of log messages on stderr; debug includes the output of the measuring processes",
        is_rare=True,
        default_words="no log",
    ),
    Setting("dry_run", SWITCH, "print the plan and measure nothing", default=False),
)


def _default_metric() -> str:
    from benchmarking.core.metrics import DEFAULT_METRIC  # a large table, which most measuring commands do not need

    return DEFAULT_METRIC


COMMON = table(
    Setting(
        "metric", WORD, "metric", metavar="COLUMN", takes_list=True, default=_default_metric, other_flags=("--metrics",)
    ),
    Setting(
        "across",
        WORD,
        "fields that may differ between the sides: hardware, runtime, precision, threads, ...; all for every "
        "field but the point",
        metavar="FIELD",
        takes_list=True,
        default=(),
    ),
    Setting("since", WORD, "earliest date of the change, YYYY-MM-DD", metavar="DATE", default_words="any"),
    Setting("until", WORD, "latest date of the change, YYYY-MM-DD", metavar="DATE", default_words="any"),
    Setting("timeout", SECONDS, "time limit in seconds", metavar="SECONDS"),
    Setting("limit", LIMITS, "limits", plural="limits", other_flags=("--slo",)),
    Setting("rows", WHOLE, "maximum number of rows", other_flags=("--limit",)),
    Setting("only_changes", SWITCH, "hide rows without a change", default=False),
    Setting("markdown", SWITCH, "results as Markdown", default=False),
    Setting("junit", NEW_FILE, "JUnit XML, one test case per point", default_words="none"),
    Setting("format", WORD, "format of the answer"),
    Setting("output", TEXT, "file of the results", metavar="FILE", default_words="none"),
    Setting("report", TEXT, "report to write: FILE.html or FILE.md", metavar="FILE"),
    Setting("price", PATH, "YAML file of prices per hour of devices"),
    Setting("yes", SWITCH, "skip the confirmation", default=False),
    Setting("resume", SWITCH, "finish and store what is unfinished in --output-dir", default=False),
    base=SHARED,
)
"""The settings of commands that look, judge and exchange, some of which a few measuring commands have too."""


PART = re.compile(r"([a-z0-9_]+)\s*:\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z/%]*)")
TIMES: Mapping[str, float] = {"us": 0.001, "ms": 1.0, "s": 1000.0, "min": 60_000.0}
"""Units of times, in ms."""
SIZES: Mapping[str, float] = {"MB": 1.0, "GB": 1000.0, "TB": 1_000_000.0}
"""Units of memory, in MB of 10^6 bytes."""
SHARES: Mapping[str, float] = {"%": 0.01, "": 1.0}
"""Units of shares."""
UNITS: Mapping[str, Mapping[str, float]] = {
    **dict.fromkeys(("ttft", "tpot", "e2e", "latency", "latency_p90", "latency_p95", "latency_p99"), TIMES),
    "memory": SIZES,
    "energy": {"J": 1.0, "kJ": 1000.0},
    "throughput": {"/s": 1.0, "": 1.0},
    "kl": {"nats": 1.0, "": 1.0},
    "perplexity_increase": {"%": 1.0, "": 1.0},
    **dict.fromkeys(("exact_match", "choice_accuracy", "accuracy", "agreement"), SHARES),
}
"""What can be limited -> its units, in the one that values are returned in."""

EXAMPLES = (
    *("ttft:500ms", "tpot:50ms", "e2e:2s", "latency:20ms", "latency_p95:50ms", "memory:2GB", "throughput:100/s"),
    *("energy:5J", "kl:0.02", "perplexity_increase:1%", "agreement:99%", "exact_match:90%", "choice_accuracy:90%"),
    *("accuracy:90%", "latency_p90:40ms", "latency_p99:80ms"),
)
"""A limit of each kind, those that most people set first."""
LIMITED_ELSEWHERE: Mapping[str, str] = {
    "tpot itl e2e": "it is a time of requests under load: benchhouse load MODEL --request-rate RATE --limit e2e:2s "
    "measures it, benchhouse recommend MODEL --request-rate RATE --limit e2e:2s ranks what is stored",
    "accuracy exact_match choice_accuracy": "it is of evaluations that are imported: benchhouse recommend MODEL "
    "--limit accuracy:90% ranks by them",
    "throughput rps qps tps": "a rate of requests is --request-rate; benchhouse load --find-rate finds the "
    "highest within the limits",
    "error_rate errors error failures failure_rate success_rate": "a request that fails is outside each limit, "
    "which 99 % must meet",
    "cost price": "it is optimized: benchhouse tune --objective cost, recommend --prefer cost, with --price FILE",
    "goodput": "99 % of the requests must meet each limit of benchhouse load, as in --limit ttft:500ms,e2e:2s",
    "agreement kl perplexity_increase memory energy": "it is of calls: benchhouse tune MODEL --limit "
    "memory:2GB, and benchhouse recommend without --request-rate",
}
"""Limits that only some commands know -> which."""
MOST_EXAMPLES = 5

WORD_AT_START = re.compile(r"\w+")
COMPARISON = re.compile(r"\s*:?\s*[=<>]+\s*")
LIMITED_BELOW = ("throughput", *(name for name, units in UNITS.items() if units is SHARES))
"""What a limit is the least value of; of all others it is the largest."""
RATE_WORDS = re.compile(r"(tokens?|samples?|items?|requests?)/s(ec)?")
OF_REQUESTS = ", which 99 % of the requests must meet, or another share by --share 95%"
OF_THROUGHPUT = " (tokens/s if its calls have tokens, else samples/s)"
AND = re.compile(r"\s+and\s+|\s*&+\s*")
"""Between two limits in one text."""
PERCENTILE_OF = re.compile(r"(\w+):([\w.]+)[@/]p?(\d+)%?")
"""A limit with the share of the requests that must meet it, as in ttft:100ms@p90."""
SEVERAL = re.compile(r"(\w+:[\d.]+\s*[A-Za-z/%]*)[:;](\w+:.*)")
"""Two limits with another separator than a comma."""
OF_SHARE = re.compile(r"(?:p\d+_)?(ttft|tpot|itl|e2e|latency|time_to_first_token|time_per_output_token)(?:_p\d+)?")
"""A limit of a load with its percentile, as in ttft_p99."""
PERCENTILE = re.compile(r"(latency_?)?p\d+")
OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("itl", "tbt", "inter_token_latency", "time_per_output_token"), "tpot"),
    **dict.fromkeys(("p50", "latency_p50", "latency_median", "median", "e2e"), "latency"),
    "time_to_first_token": "ttft",
    **dict.fromkeys(("quality", "top1", "match"), "agreement"),
    **dict.fromkeys(("mean", "avg", "latency_mean", "latency_avg", "mean_latency", "avg_latency"), "latency"),
    **{f"p{percent}_latency": f"latency_p{percent}" for percent in (90, 95, 99)},
    **dict.fromkeys(("rps", "qps", "tps", "tokens_per_second"), "throughput"),
    "rss": "memory",
    "peak_memory_mb": "memory",
}
"""Names in other tools -> ours. Those of percentiles lack only the word latency."""


def parse_limits(text: str, names: Collection[str]) -> dict[str, float]:
    """The limits by name, in ms, MB, J or per second; of quality in nats, as a share, and in %. `names` are those that
    the command knows. Raises UsageError."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = PART.fullmatch(part)
        if match is None and (of_share := PERCENTILE_OF.fullmatch(part)) is not None:
            name, value, percentile = of_share.groups()
            own = f"{name}_p{percentile}"
            of_requests = f" with --share {percentile}%" if "e2e" in names else ""
            instead = f"{own}:{value}" if own in names else f"{name}:{value}{of_requests}"
            raise UsageError(f"--limit takes limits such as {_example(names)}: got {part!r}: write {instead}")
        if match is None and (several := SEVERAL.fullmatch(part)) is not None:
            raise UsageError(
                f"--limit takes limits separated by commas: got {part!r}: write {','.join(several.groups())}"
            )
        if match is None and len(several_parts := AND.split(part)) > 1:
            written = ",".join(COMPARISON.sub(":", one, count=1) for one in several_parts)
            only = _only_side(part, written, names)
            raise UsageError(f"--limit takes limits separated by commas: got {part!r}: write {written}{only}")
        if match is None:
            lowered = part.lower() if part.isupper() else WORD_AT_START.sub(lambda word: word[0].lower(), part, count=1)
            rate = RATE_WORDS.sub("throughput", lowered)
            per_second = OF_THROUGHPUT if rate != lowered and "throughput" in names else ""
            lowered = rate if per_second else lowered
            colon = COMPARISON.sub(":", lowered, count=1)
            named = PART.fullmatch(colon)
            hint = ""
            if named is not None:
                hint = f": write {_known_name(named[1], names) or named[1]}{colon[named.end(1) :]}{per_second}"
                hint += _only_side(lowered, colon, names)
            if lowered.isidentifier():  # without a value
                ours = _known_name(lowered, names)
                hint = _elsewhere(lowered, names) if ours is None else f": write {_example([ours])}"
            if part[:1].isdigit():
                unit = part.lstrip("0123456789.")
                fitting = [one for one in ("e2e", "latency", *names) if one in names and unit in UNITS[one]]
                hint = (
                    f": write what it limits, such as {fitting[0]}:{part}"
                    if fitting
                    else f": nothing that is limited here is in {unit}"
                )
            raise UsageError(f"--limit takes limits such as {_example(names)}: got {part!r}{hint}")
        name, value, unit = match.groups()
        if name not in names:
            ours = _known_name(name, names)
            problem = unknown_name(name, tuple(names), "limit") if ours is None else f"unknown limit {name!r}"
            percentile_in = re.search(r"p(\d{2})(?!\d)", name)
            of_requests = OF_REQUESTS if percentile_in is None else f" with --share {percentile_in[1]}%"
            share = of_requests if "e2e" in names else ""
            share = OF_THROUGHPUT if ours == "throughput" else share
            shown = unit or ("ms" if ours is not None and UNITS[ours] is TIMES else "")
            meant = "" if ours is None else f": did you mean {ours}? Write {ours}:{value}{shown}{share}"
            raise UsageError(f"--limit {part}: {problem}{meant}{_elsewhere(name, names)}")
        if name in found:
            raise UsageError(f"--limit: {name} is limited twice: remove one")
        if unit not in UNITS[name]:
            units = ", ".join(filter(None, UNITS[name]))
            first = "ms" if UNITS[name] is TIMES else next(filter(None, UNITS[name]))
            written = _example([name]) if unit else f"{name}:{value}{first}"
            raise UsageError(f"--limit {part}: {name} takes a unit of {units}, such as {written}")
        limit = float(value) * UNITS[name][unit]
        if not 0 < limit < float("inf"):
            raise UsageError(f"--limit {part}: takes a number above 0")
        if UNITS[name] is SHARES and not unit and limit > 1:
            raise UsageError(f"--limit {part}: {name} is a share, of 1 at most: write {name}:{value}%")
        found[name] = limit
    if not found:
        raise UsageError(f"--limit takes limits such as {_example(names)}: got nothing")
    return found


def _only_side(typed: str, written: str, names: Collection[str]) -> str:
    """What limits mean, after a comparison of which they are the opposite: latency>20ms; empty after another."""
    for one, limit in zip(re.split(AND, typed), written.split(","), strict=True):
        name = _known_name(limit.partition(":")[0], names)
        if name is not None and (">" if name not in LIMITED_BELOW else "<") in one:
            least = "least" if name in LIMITED_BELOW else "most"
            return f", which is at {least} that: {name} has no limit on the other side"
    return ""


def _elsewhere(name: str, names: Collection[str]) -> str:
    """Where a limit is known that this command does not have; empty if nowhere."""
    known = ((words.split(), f"; {text}") for words, text in LIMITED_ELSEWHERE.items())
    return next((text for words, text in known if name in words and not {*names} & {*words}), "")


def _known_name(name: str, names: Collection[str]) -> str | None:
    """The name of the limit that another tool, or a metric of ours, calls so; None if no known one is meant."""
    name = name.lower().removesuffix("_ms")
    if "e2e" in names and (of_share := OF_SHARE.fullmatch(name)) is not None:
        name = of_share[1]
    ours = name if name in names else OTHER_NAMES.get(name, f"latency_{name}")
    if ours not in names and (PERCENTILE.fullmatch(name) or name == "latency"):
        ours = "e2e"  # of a load, where 99 % of the requests must meet it
    return ours if ours in names else None


def _example(names: Collection[str]) -> str:
    return ",".join([limit for limit in EXAMPLES if limit.partition(":")[0] in names][:MOST_EXAMPLES])
