"""Recommended servers as text: for a rate of requests, the machines that serve it and why, then all, best first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarking.core.doubts import doubt_notes
from benchmarking.core.load_doubts import POOLED
from benchmarking.core.tables import Column, table_of
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import counted, listed, number, share_text
from db.analysis.recommend.recommendation_text import RecommendationWords, device_words, precision_of, runtime_words
from db.analysis.recommend.servers import Demand, Limit, Server, Traffic
from db.values import is_of_server, optional_number

MOST_RATES = 4
"""Maximum rates named that were not judged."""
LIMIT_WORDS: Mapping[Limit, str] = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "latency": "latency",
}


def servers_words(
    traffic: Traffic,
    servers: Sequence[Server],
    demand: Demand,
    currency: str | None = None,
    page: Page = PLAIN,
    above: Sequence[Server] = (),
) -> RecommendationWords:
    """The recommended server for a kind of traffic and why, and the table of all, in the order of `servers`. What the
    doubts about those of the tables above mean is said there."""
    fitting, unknown = (
        sum(each) for each in zip(*((server.best is not None, server.is_unknown) for server in servers), strict=True)
    )
    alone = sum(server.machines(demand.request_rate) == 1 for server in servers)
    how = "" if alone == fitting else f" ({alone or 'none'} of them with one machine)"
    rest = f"; of {unknown} it is unknown" if unknown else ""
    if late := sum(server.best is not None and server.best.validity == "invalid" for server in servers):
        rest += f"; {late} of them by a load test whose requests were sent late"
    start = "the intended start" if traffic.definition is None else "the start that the other tool counts from"
    doubted = [
        (kind, _server_name(server, servers, " "))
        for server in servers
        for level in server.levels
        for kind in level.doubts
    ]
    told = {kind for server in above for level in server.levels for kind in level.doubts}
    return RecommendationWords(
        title=f"{traffic.text}: {fitting} of {len(servers)}{how} can serve {demand_words(demand)}{rest}",
        advice=_servers_advice(servers, demand, currency),
        table=table_of(_server_columns(servers, demand, currency), servers, page),
        notes=(
            f"a rate holds if that share of its requests succeeded and met every limit, counted from {start}; up to: "
            "the highest measured rate that holds together with all lower ones, in load tests that can tell, or what a "
            "search with the same limits found (--find-rate); of several load tests of one level only the newest valid "
            "one counts; several machines share the requests evenly",
            *(
                [
                    "sent late: such a load test is invalid, but latencies count from the schedule, so requests that "
                    "met the limits all the same did meet them"
                ]
                if late
                else []
            ),
            *(
                f"not known at {number(level.request_rate)}/s: {_server_name(server, servers, ' ')}: "
                f"{level.why_unknown}"
                for server in servers
                if (level := server.first_failing) is not None and level.why_unknown is not None
            ),
            *(
                f"{POOLED}: {_server_name(server, servers, ' ')}: {share_text(level.share, demand.share)} at "
                f"{number(level.request_rate)}/s, pooled {share_text(level.pooled, demand.share)}"
                for server in servers
                for level in server.levels
                if level.pooled is not None and level.share is not None
            ),
            *(
                f"not the newest: {_server_name(server, servers, ' ')} at {number(level.request_rate)}/s: "
                f"{level.newer.text}; the newest valid result is shown"
                for server in servers
                for level in server.levels
                if level.newer is not None
            ),
            *(
                f"contradicted: {_server_name(server, servers, ' ')}: {level.contradicted}; the newest valid one counts"
                for server in servers
                for level in server.levels
                if level.contradicted is not None
            ),
            *doubt_notes(doubted, told),
        ),
    )


def demand_words(demand: Demand) -> str:
    """ "5 requests/s with 99 % of them within time to first token <= 500 ms" """
    rate = f"{number(demand.request_rate)} request{'' if demand.request_rate == 1 else 's'}/s"
    limits = ", ".join(f"{LIMIT_WORDS[name]} <= {number(limit)} ms" for name, limit in demand.limits.items())
    return f"{rate} with {100 * demand.share:g} % of them {'within ' + limits if limits else 'answered'}"


def _servers_advice(servers: Sequence[Server], demand: Demand, currency: str | None) -> str:
    first, rate = servers[0], demand.request_rate
    # What it was started with, as far as its name does not say it already
    name = _server_name(first, servers)
    facts = [f"{setting} {value}" for setting, value in first.runtime_mode.items() if is_of_server(setting)]
    if started := ", ".join(fact for fact in facts if fact not in name):
        name += f" ({started})"
    count, best = first.machines(rate), first.best
    if count is None or best is None:
        known = (
            "no measured rate is known to hold"
            if any(server.is_unknown for server in servers)
            else "no measured rate holds"
        )
        lowest = first.levels[0]  # how far the lowest rate is from holding
        if lowest.holds is None:
            why = f": {lowest.why_unknown}" if lowest.why_unknown else ""
            missed = f"the share of requests within the limits is unknown{why}"
        else:
            share = "too few" if lowest.share is None else share_text(lowest.share, demand.share)
            missed = f"{share} of the requests met the limits"
            if first.unjudged:
                lower = listed([f"{number(rate)}/s" for rate in first.unjudged], MOST_RATES)
                missed += f"; not judged, since the load tests were invalid: {lower}"
        return f"{known}; the closest: {name}: at {number(lowest.request_rate)}/s {missed}"
    cost = first.cost_per_hour(rate)
    price = "" if cost is None else f", {number(cost)} {currency} an hour"
    each = f"holds up to {number(best.request_rate)}/s"
    if best.requests and best.share is not None:  # few of them tell little of the server
        each += f" ({share_text(best.share, demand.share)} of {counted(best.requests, 'request')})"
    if (searched := first.searched) is not None:
        each = f"a search found {searched.text}"
        if 0 < count * searched.low < rate:
            sure = math.ceil(rate / searched.low - 1e-9)
            each += f", so at {number(rate / count)} chance decides, and {sure} machines are sure"
    machines = "one machine" if count == 1 else f"{count} machines"
    doubts = "" if best.doubted is None else f"; {best.doubted}, see below"
    doubts += "".join(f"; but {level.contradicted}" for level in first.levels if level is best and level.contradicted)
    return f"recommended: {machines}: {name}: {each}{price}{doubts}"


def _server_name(server: Server, servers: Sequence[Server], separator: str = ", ") -> str:
    """Device, runtime and precision, with what distinguishes servers of the same name."""
    precision = "unknown precision" if server.precision == "unknown" else precision_of(server)
    # Of a server at a URL, device and engine may both be called "server".
    return separator.join(
        dict.fromkeys((device_words(server, servers), runtime_words(server, servers), precision)),
    )


def _server_columns(servers: Sequence[Server], demand: Demand, currency: str | None) -> list[Column[Server]]:
    words, numbers = Column[Server], partial(Column[Server], is_number=True)
    rate = demand.request_rate

    def best(attribute: str, one: Server) -> float | None:
        return None if one.best is None else getattr(one.best, attribute)

    def doubts(one: Server) -> str | None:
        return (one.best or one.levels[0]).doubted

    def shown(one: Server) -> str | None:
        level = one.best or one.levels[0]
        return None if level.share is None else share_text(level.share, demand.share)

    return [
        words(heading="device", text=lambda one: device_words(one, servers), is_key=True),
        words(heading="engine", text=lambda one: runtime_words(one, servers), is_key=True),
        words(heading="precision", text=precision_of, is_key=True),
        numbers(
            heading="up to /s",
            text=lambda one: (
                "unknown" if one.is_unknown else "none" if one.best is None else number(one.best.request_rate)
            ),
        ),
        numbers(heading="fails at /s", text=_first_failing, spare=2),
        numbers(heading="machines", text=lambda one: None if one.best is None else str(one.machines(rate))),
        numbers(heading="in limits", text=shown),
        numbers(heading="TTFT p99 ms", text=lambda one: optional_number(best("ttft_p99_ms", one)), spare=3),
        numbers(heading="TPOT p99 ms", text=lambda one: optional_number(best("tpot_p99_ms", one)), spare=4),
        numbers(heading="tokens/s", text=lambda one: optional_number(best("tokens_per_sec", one)), spare=5),
        numbers(heading=f"{currency}/h", text=lambda one: optional_number(one.cost_per_hour(rate))),
        numbers(
            heading=f"{currency}/M requests", text=lambda one: optional_number(one.cost_per_million(rate)), spare=1
        ),
        words(heading="doubts", text=doubts, is_state=True),
    ]


def _first_failing(one: Server) -> str | None:
    failing = one.first_failing
    if failing is None:
        return None
    return number(failing.request_rate) if failing.holds is False else f"not known at {number(failing.request_rate)}"
