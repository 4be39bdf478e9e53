"""Server recommendations as text for a terminal: the best one and why, then all of them, best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarking.core.doubts import doubt_notes
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import number, wrapped
from db.analysis.recommend.serving import Demand, Limit, Server, Traffic
from db.analysis.recommend.text import device_words, runtime_words
from db.values import optional_number

WORDS: Mapping[Limit, str] = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "latency": "latency",
}
COUNTED = (
    "a rate holds if that share of its requests succeeded and met every limit, counted from the intended start; up to: "
    "the highest measured rate that holds together with all lower ones; several machines share the requests evenly"
)


def servers_text(
    traffic: Traffic, servers: Sequence[Server], demand: Demand, currency: str | None, page: Page = PLAIN
) -> str:
    """The recommended server for a kind of traffic and why, and the table of all."""
    table = table_of(_columns(servers, demand, currency), servers, page)
    above = [_title(traffic, servers, demand), _advice(servers, demand, currency)]
    above += [", ".join(table.shared)] if table.shared else []
    doubted = [(kind, name(one, servers)) for one in servers for level in one.levels for kind in level.doubts]
    below = [COUNTED, *doubt_notes(doubted)]
    below += [f"not shown: {', '.join(table.left_out)} (--json prints all)"] if table.left_out else []
    head, notes = (wrapped("\n".join(lines), page.text_width) for lines in (above, below))
    return "\n\n".join((head, table_text(table, page), notes))


def demand_words(demand: Demand) -> str:
    """ "5 requests/s with 99 % of them within time to first token <= 500 ms" """
    rate = f"{number(demand.request_rate)} request{'' if demand.request_rate == 1 else 's'}/s"
    limits = ", ".join(f"{WORDS[name]} <= {number(limit)} ms" for name, limit in demand.limits.items())
    return f"{rate} with {demand.share:.4g} of them {'within ' + limits if limits else 'answered'}"


def _title(traffic: Traffic, servers: Sequence[Server], demand: Demand) -> str:
    fitting = sum(one.best is not None for one in servers)
    return f"{traffic.text}: {fitting} of {len(servers)} can serve {demand_words(demand)}"


def _advice(servers: Sequence[Server], demand: Demand, currency: str | None) -> str:
    first, rate = servers[0], demand.request_rate
    count, best = first.machines(rate), first.best
    if count is None or best is None:
        return f"no measured rate holds; the closest: {name(first, servers)}: {_miss(first)}"
    cost = first.cost_per_hour(rate)
    price = "" if cost is None else f", {number(cost)} {currency} an hour"
    each = f"holds up to {number(best.request_rate)}/s"
    machines = "one machine" if count == 1 else f"{count} machines"
    doubts = f"; {best.validity}, see below" if best.validity != "valid" else ""
    return f"recommended: {machines}: {name(first, servers)}: {each}{price}{doubts}"


def _miss(server: Server) -> str:
    """How far the lowest rate is from holding."""
    lowest = server.levels[0]
    if lowest.holds is None:
        return f"at {number(lowest.request_rate)}/s the share of requests within the limits is unknown"
    share = "too few" if lowest.share is None else f"{lowest.share:.1%}"
    return f"at {number(lowest.request_rate)}/s {share} of the requests met the limits"


def name(server: Server, servers: Sequence[Server]) -> str:
    """Device, runtime and precision, with what distinguishes servers of the same name."""
    return ", ".join((device_words(server, servers), runtime_words(server, servers), server.precision))


def _columns(servers: Sequence[Server], demand: Demand, currency: str | None) -> list[Column[Server]]:
    words, numbers = Column[Server], partial(Column[Server], is_number=True)
    rate = demand.request_rate

    def best(attribute: str, one: Server) -> float | None:
        return None if one.best is None else getattr(one.best, attribute)

    def shown(one: Server) -> str | None:
        level = one.best or one.levels[0]
        return None if level.share is None else f"{level.share:.1%}"

    return [
        words(heading="device", text=lambda one: device_words(one, servers), is_key=True),
        words(heading="engine", text=lambda one: runtime_words(one, servers), is_key=True),
        words(heading="precision", text=lambda one: one.precision, is_key=True),
        numbers(heading="up to /s", text=lambda one: optional_number(best("request_rate", one)) or "none"),
        numbers(heading="fails at /s", text=lambda one: _first_failing(one), spare=2),
        numbers(heading="machines", text=lambda one: None if one.best is None else str(one.machines(rate))),
        numbers(heading="in limits", text=shown),
        numbers(heading="TTFT p99 ms", text=lambda one: optional_number(best("ttft_p99_ms", one)), spare=3),
        numbers(heading="TPOT p99 ms", text=lambda one: optional_number(best("tpot_p99_ms", one)), spare=4),
        numbers(heading="tokens/s", text=lambda one: optional_number(best("tokens_per_sec", one)), spare=5),
        numbers(heading=f"{currency}/h", text=lambda one: optional_number(one.cost_per_hour(rate))),
        numbers(
            heading=f"{currency}/M requests", text=lambda one: optional_number(one.cost_per_million(rate)), spare=1
        ),
        words(heading="doubts", text=_doubts, is_state=True),
    ]


def _first_failing(one: Server) -> str | None:
    failing = one.first_failing
    return None if failing is None else number(failing.request_rate)


def _doubts(one: Server) -> str | None:
    level = one.best or one.levels[0]
    return None if level.validity == "valid" else level.validity
