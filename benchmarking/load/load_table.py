"""What `benchhouse load` prints: the levels, what is unknown, which levels hold, the highest rate, and doubts."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from statistics import median

from benchmarking.core.doubts import MAX_PLACES
from benchmarking.core.load_doubts import (
    LEAST_GOOD,
    LIMIT_WORDS,
    NOT_MET,
    POOLED,
    HighestRate,
    invalid_levels_words,
    least_to_tell,
)
from benchmarking.core.quality import quality_lines
from benchmarking.core.records import Json, Result, Run, to_json
from benchmarking.core.shared_settings import parse_limits
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import counted, grouped, listed, number, share_text, why_text, wrapped
from benchmarking.core.untrusted.redaction import redacted
from benchmarking.core.verdicts.words import SIMULATED
from benchmarking.load.curve import (
    disturbances,
    facts_of,
    holds,
    is_search,
    offered,
    pooled,
    requests_of,
    required,
    surely_hold,
)
from benchmarking.load.results import LEAST
from benchmarking.load.traffic import COUNTED_BY_CHUNKS, limits_text

GOODPUT = "goodput_requests_per_sec"
FEW_OUTSIDE = 2
"""Requests outside the limits up to which a level that misses them is shown with their number."""
MOST_FAILED = 3
"""Levels that are named of those that failed for the same reason; the rest are counted."""
UNEXPLAINED = 0.1
"""Share of the median latency by which the medians of its parts may differ from it without a word."""
TIMES = {
    "ttft": ("TTFT", "time_to_first_token_ms", "time_to_first_token"),
    "tpot": ("TPOT", "time_per_output_token_ms", "time_per_output_token"),
    "e2e": ("latency", "latency_median_ms", "latency"),
}
"""Name in `--limit` -> heading, metric of the median, begin of those of the percentiles."""
KNEE = "knee: the last level before the throughput nearly stops growing with the load"
AT_ONCE = "is_at_once"
"""Fact of a level without a rate: all of its requests were sent at once."""
LENGTHS, OF_CURVES = ("lengths_in", "lengths_out"), ("server", "lengths")
"""The lengths among what distinguishes a series, and the facts that distinguish the curves of a table."""


def print_all(runs: Sequence[Run], *, as_json: bool) -> None:
    """Print the levels of several runs in one table, with the lengths of their requests where they differ; as JSON, a
    list of runs."""
    if as_json:
        print(json.dumps([_shown(run) for run in runs], indent=1))
        return
    lengths = [
        "/".join(str(run.cell.runtime_mode[name]) for name in LENGTHS if name in run.cell.runtime_mode) for run in runs
    ]
    several = len(set(lengths)) > 1
    results = [
        replace(result, extra={**result.extra, "load": {**facts_of(result), **({"lengths": text} if several else {})}})
        for run, text in zip(runs, lengths, strict=True)
        for result in run.results
    ]
    quality = {  # of a server, which all its runs have
        line.replace("quality", f"quality of {facts_of(run.results[0]).get('server') or run.cell.runtime}", 1): None
        for run in runs
        if run.quality is not None
        for line in quality_lines(run.quality)
    }
    print_run(replace(runs[0], results=tuple(results), quality=None), as_json=False, further=list(quality))


def _shown(run: Run) -> Json:
    bare = [replace(result, requests=(), samples=()) for result in run.results]
    shown: Json = redacted(to_json(replace(run, results=tuple(bare))))
    return shown


def print_run(run: Run, *, as_json: bool, further: Sequence[str] = ()) -> None:
    """Print the levels of a run in a table, or as JSON; `further` lines come before its doubts."""
    if as_json:
        print(json.dumps(_shown(run), indent=1))
        return
    from benchmarking.sweep.show.report import doubt_remarks  # not before the levels are measured

    page, slo = stdout_page(), run.cell.runtime_mode.get("slo")
    limits = parse_limits(str(slo), LIMIT_WORDS) if slo else {}
    levels = [result for result in run.results if not is_search(result)]
    table = table_of(_columns(levels, limits), levels, page)
    by_error = grouped((f"{one.status}: {one.error}", _level_text(one)) for one in levels if one.error is not None)
    answers, lines = list[str](), [f"{listed(names, MOST_FAILED)}: {error}" for error, names in by_error.items()]
    for level in levels:
        kinds = Counter(kind for requests in level.requests for kind in requests.error if kind is not None)
        if level.error is None and kinds:
            words = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            lines.append(f"{_level_text(level)}: failed requests: {words}")
    dropped = [name for name in table.left_out if name != "failed"]
    lines += ["no request failed"] if "failed" in table.left_out else []
    lines += [f"not shown: {', '.join(dropped)} (--json prints all)"] if dropped else []
    lines += [SIMULATED] if run.is_simulated else []
    lines += [KNEE] if any(facts_of(level).get("is_knee") for level in levels) else []
    lines += [*_unknown(levels, limits), *_not_added_up(levels)]
    searches, found_rates = [result for result in run.results if is_search(result)], list[HighestRate]()
    for search in searches:
        found = HighestRate.of(search.metrics, facts_of(search))
        answer = str(search.error) if found is None else found.advice
        if found is not None and (invalid := sum(level.validity == "invalid" for level in levels)):
            answer += f"; but {invalid_levels_words(invalid, len(levels), [facts_of(search)])}"
        answers.append(f"{own}: {answer}" if (own := _own(search)) else answer)
        found_rates += [] if found is None else [found]
    if found_rates:
        rate, named = f"{min(one.low for one in found_rates):g}", shlex.quote(run.cell.workload.model_id)
        share = required(searches[0])
        of_share = "" if share == LEAST_GOOD else f" --share {100 * share:g}%"
        answers.append(
            "gate it in CI: the same command with --fail-on missed in place of --find-rate, and --request-rate "
            f"{rate} or less; for other limits, of what is stored: benchhouse recommend {named} --request-rate {rate} "
            f"--limit LIMITS{of_share}"
        )
    lines += [_holding(levels, limits)] if limits and not searches else []
    lines += [*further, *([] if run.quality is None else quality_lines(run.quality))]
    doubted = [(_level_text(level), doubt) for level in levels for doubt in level.doubts]
    of_levels = {doubt.kind for _, doubt in doubted}  # which a search has, too: it is no level
    doubted += [(_level_text(one), doubt) for one in searches for doubt in one.doubts if doubt.kind not in of_levels]
    lines += doubt_remarks(doubted)
    print("\n".join([table_text(table, page), *(wrapped(line, page.text_width) for line in (*answers, *lines))]))


def _value(name: str) -> Callable[[Result], str | None]:
    def text(result: Result) -> str | None:
        value = result.metrics.get(name)
        return None if value is None else number(value)

    return text


def _columns(levels: Sequence[Result], limits: Collection[str]) -> list[Column[Result]]:
    """The columns of the table. Limits apply to a share of the requests, so that percentile of a limited time (p99
    without limits) is shown before other times. Failures are left out only where there are none."""
    tail = _percentile(levels)
    has_failures = any(level.metrics.get("requests_failed") for level in levels)
    decimals = _decimals(levels)
    of_times = [
        Column[Result](
            f"{heading} {word} ms",
            _value(name),
            is_number=True,
            spare=(0 if is_tail else 2) if time in limits else (5 if is_tail else 3) + (time == "e2e"),
        )
        for time, (heading, middle, begin) in TIMES.items()
        for is_tail, word, name in ((False, "p50", middle), (True, f"p{tail}", f"{begin}_p{tail}_ms"))
    ]
    return [
        Column[Result]("server", lambda one: _fact(one, "server"), is_key=True),
        Column[Result]("lengths", lambda one: _fact(one, "lengths"), is_key=True),
        Column[Result]("level", lambda one: _level_text(one, decimals, is_cell=True), is_key=True),
        Column[Result]("requests", _value("requests_sent"), is_number=True),
        Column[Result]("failed", _value("requests_failed"), is_number=True, spare=0 if has_failures else 7),
        Column[Result]("requests/s", _value("throughput_samples_per_sec"), is_number=True),
        Column[Result]("tokens/s", _value("throughput_tokens_per_sec"), is_number=True, spare=1),
        Column[Result]("goodput/s", _value(GOODPUT), is_number=True),
        *of_times,
        Column[Result]("validity", lambda one: one.validity or one.status, is_state=True),
    ]


def _percentile(levels: Sequence[Result]) -> int:
    """The lowest percentile that covers the share of the requests which must meet the limits."""
    shares = [100 * required(level) - 1e-9 for level in levels[:1]]
    return next((one for one in (90, 95) if shares and one >= shares[0]), 99)


def _decimals(levels: Sequence[Result]) -> int:
    """With how many decimals all rates are exact."""
    return max((len(f"{offered(level):g}".partition(".")[2]) for level in levels), default=0)


def _fact(result: Result, name: str) -> str | None:
    """The swept values of a server that the command started, or the lengths where they differ; None without any."""
    value = facts_of(result).get(name)
    return value if isinstance(value, str) and value else None


def _own(result: Result) -> str:
    """What distinguishes the curve of a level from the others of the table; empty for a single curve."""
    return " ".join(filter(None, (_fact(result, name) for name in OF_CURVES)))


def _unmarked(result: Result) -> Result:
    """The result without what marks its level in the table."""
    facts = facts_of(result)
    return replace(result, extra={"load": {name: facts[name] for name in (*OF_CURVES, AT_ONCE) if name in facts}})


def _level_text(result: Result, decimals: int | None = None, *, is_cell: bool = False) -> str:
    """A level, its rate with this many decimals; outside the cells of the table after its curve."""
    if not is_cell and (own := _own(result)):
        return f"{own} {_level_text(result, decimals, is_cell=True)}"
    if is_search(result):
        return "highest rate"
    rate, scenario = result.point.axes.get("request_rate"), facts_of(result).get("scenario")
    per_s = "" if rate is None else f"{rate:g}/s" if decimals is None else f"{rate:.{decimals}f}/s"
    level = per_s or f"{result.point.concurrency} in flight"
    level = "all at once" if facts_of(result).get(AT_ONCE) else level
    level = f"{scenario} {level}" if scenario == "server" else str(scenario or level)
    return f"{level} (knee)" if facts_of(result).get("is_knee") else level


def _unknown(levels: Sequence[Result], limits: Collection[str]) -> list[str]:
    """What is unknown at which levels, and why: goodput, medians, and the percentile of limited times."""
    tail = _percentile(levels)
    names = {GOODPUT: "goodput", "throughput_tokens_per_sec": "tokens/s"}
    for time, (heading, typical, begin) in TIMES.items():
        of_share = {f"{begin}_p{tail}_ms": f"{heading} p{tail} ms"} if time in limits else {}
        names |= {typical: f"{heading} p50 ms", **of_share}
    found: dict[tuple[str, str], list[str]] = {}
    decimals = _decimals(levels)
    for result in (level for level in levels if level.status == "ok"):
        why = grouped(
            (why_text(result.missing[name]), words)
            for name, words in names.items()
            if name not in result.metrics and name in result.missing and (name != GOODPUT or limits)
        )
        for reason, unknown in why.items():
            if reason == "too few samples" and any(f" p{tail} " in words for words in unknown):
                share = required(result)
                least = LEAST[tail / 100]
                reason += (
                    f": p{tail} takes {least}, and {least_to_tell(share)} tell whether {100 * share:g}% met the limits"
                )
            found.setdefault((", ".join(unknown), reason), []).append(_level_text(_unmarked(result), decimals))
    return [f"{words} unknown at {listed(at, MAX_PLACES)}: {why}" for (words, why), at in found.items()]


def _not_added_up(levels: Sequence[Result]) -> list[str]:
    """Why the medians of a table do not add up to that of the latency: TTFT + (tokens - 1) TPOT + the rest."""
    apart, later = list[str](), list[str]()
    for level in levels:
        tokens, latency = level.point.new_tokens, level.metrics.get("latency_median_ms")
        parts = [level.metrics.get(TIMES[time][1]) for time in ("ttft", "tpot")]
        counters = {counter for requests in level.requests for counter in requests.tokens_counted_by}
        if tokens is None or latency is None or None in parts or counters.intersection(COUNTED_BY_CHUNKS):
            continue
        first, each = (float(part or 0) for part in parts)
        if abs(latency - first - (tokens - 1) * each) <= UNEXPLAINED * latency:
            continue
        rests = [
            end - last
            for requests in level.requests
            for last, end in zip(requests.last_token_ms, requests.end_ms, strict=True)
            if last is not None and end is not None
        ]
        name = _level_text(_unmarked(level))
        if rests and median(rests) > UNEXPLAINED / 2 * latency:
            later.append(f"{name} ({number(median(rests))} ms)")
        else:
            apart.append(name)
    return [
        *([f"responses end long after their last token: {listed(later, MAX_PLACES)}"] if later else []),
        *([f"times add up in each request, but their medians do not: {listed(apart, MAX_PLACES)}"] if apart else []),
    ]


def _holding(levels: Sequence[Result], limits: Mapping[str, float]) -> str:
    """The levels at which enough requests met the limits, those at which too few did, and those that do not tell."""
    held, missed, untold, decimals = list[str](), list[str](), list[str](), _decimals(levels)
    has_shares, needed_share = False, required(levels[0])
    wanted, to_tell = f"{100 * needed_share:g}%", least_to_tell(needed_share)
    shares = pooled(levels)
    for level, together, is_sure in zip(levels, shares, surely_hold(levels), strict=True):
        name, share = _level_text(_unmarked(level), decimals), level.metrics.get("goodput_share")
        count = requests_of(level)
        if share is not None and together is not None:
            held.append(f"{name} ({share_text(share, needed_share)}, pooled {share_text(together, needed_share)})")
        elif is_sure:
            held.append(name)
        elif level.status != "ok":
            (untold if is_sure is None else missed).append(
                f"{name} ({level.status}{', no request was sent' * (is_sure is None)})"
            )
        elif is_sure is None and holds(level) is not None:
            untold.append(f"{name} ({counted(count, 'request')} cannot tell {wanted}, {to_tell} can)")
        elif is_sure is None:
            untold.append(f"{name} ({', '.join(disturbances(level)) or 'unknown'})")
        else:
            kinds = ", ".join(doubt.kind for doubt in level.doubts if doubt.kind in NOT_MET)
            if share is not None and share < needed_share:
                outside = round((1 - share) * count)
                few = f": {outside} of {count}" * (0 < outside <= FEW_OUTSIDE)
                kinds, has_shares = f"{share_text(share, needed_share)}{few}", True
            missed.append(f"{name} ({kinds})")
    rule = f"{wanted} of the requests met {limits_text(limits)}"
    if held:
        parts = [
            f"{'at least ' * (needed_share < 1)}{rule} at {', '.join(held)}",
            f"not at {', '.join(missed)}" if missed else "",
        ]
    else:
        none = "no level is known to hold" if untold else "no level holds"
        parts = [f"{none}: fewer than {rule} at {', '.join(missed)}" if missed else ""]
    what = "shares are of all requests, goodput/s is of the steady state" if has_shares else ""
    told = POOLED if any(share is not None for share in shares) else ""
    return "; ".join(filter(None, (*parts, f"not judged: {', '.join(untold)}" if untold else "", what, told)))
