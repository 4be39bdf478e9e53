"""Recommends a device, runtime and batch size for a model by its stored results.

With --request-rate, recommends an engine and machine that serves that many requests per second within the limits, with
the number of machines and their price, from open-loop load tests.

Only valid and noisy results count, and load tests that are invalid only because requests were sent late: limits that
were met all the same are met. Each workload (task, sequence length, ...) has its own table; batch sizes share one.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.argument_types import non_negative_number, percent, positive_int, positive_rate, share
from benchmarking.core.command_line import (
    Parser,
    add_model_id,
    choice,
    command,
    note,
)
from benchmarking.core.errors import EXIT_FAILED, EXIT_NOT_ENOUGH_DATA, EXIT_OK, UsageError
from benchmarking.core.help_texts import few_need
from benchmarking.core.load_doubts import LEAST_GOOD, LEAST_TO_TELL, least_to_tell
from benchmarking.core.settings import add_flags, add_settings
from benchmarking.core.shared_settings import COMMON, parse_limits
from benchmarking.core.terminal import stdout_page
from benchmarking.core.text import counted, flag_of
from benchmarking.core.untrusted.redaction import redacted_folder, redacted_path
from db.analysis.selection import Selection
from db.commands.arguments import (
    SELECTION,
    add_database,
    add_shared,
    command_parser,
    open_to_read,
    print_json,
    selection_in,
)

if TYPE_CHECKING:
    from db.analysis.recommend.measured_options import Workload
    from db.analysis.recommend.recommendation import Prices, Quantity, Recommendation
    from db.analysis.recommend.servers import Limit
    from db.warehouse import Warehouse

NAME = "benchhouse recommend"
EXAMPLES = """
examples:
  benchhouse recommend bert-base-uncased --limit latency:20ms,memory:2GB
  benchhouse recommend gpt2 --limit ttft:200ms --price prices.yaml
  benchhouse recommend gpt2 --request-rate 5 --limit ttft:500ms,tpot:50ms
  benchhouse recommend gpt2 --among device=cpu --prefer energy
"""
PRICES = """
prices.yaml, by type or name of one device, or by hardware_id of all together:
  currency: EUR
  per_hour:
    cpu: 0.40
    NVIDIA H100 80GB HBM3: 3.90
"""
EXIT_CODES = """
exit codes: 0 something meets the limits; 1 nothing does (the nearest is shown); 2 usage; 3 no comparable results, or
unknown whether any rate holds
"""
LIMITS: tuple[Quantity, ...] = (
    *("latency", "latency_p90", "latency_p95", "latency_p99", "ttft", "memory", "energy", "throughput"),
    *("kl", "agreement", "perplexity_increase", "exact_match", "choice_accuracy", "accuracy"),
)
"""What a limit of a single caller can be on."""
REQUEST_LIMITS: Mapping[str, Limit] = {"ttft": "ttft", "tpot": "tpot", "e2e": "latency", "latency": "latency"}
"""Name of a limit with --request-rate -> the time of each request that it is on."""
OLD_LIMITS = {
    "latency_ms": "latency",
    "latency_p99_ms": "latency_p99",
    "ttft_ms": "ttft",
    "tpot_ms": "tpot",
    "memory_mb": "memory",
    "energy_j": "energy",
    "throughput": "throughput",
}
"""Earlier flags, each for one limit -> its name in --limit."""
QUALITY_LIMITS = {
    "max_kl": ("kl", non_negative_number, "largest mean KL divergence from eager float32, in nats"),
    "min_agreement": ("agreement", share, "least share of tokens on which its first choice is that of eager float32"),
    "max_perplexity_increase": (
        "perplexity_increase",
        percent,
        "largest increase of the perplexity over eager float32, in %%",
    ),
    "min_accuracy": ("accuracy", share, "least mean score of the tasks of an imported evaluation, as a share"),
}
"""Flags of limits on quality -> the name in --limit, type, help."""
CALL_FLAGS = ("--prefer", "--batch")
"""Flags that do not apply to load tests."""
AIMS = ("latency", "throughput", "memory", "energy", "cost")
POINT_FLAGS = {
    "--batch": ("batch", "batch size"),
    "--sequence-length": ("sequence", "sequence length, in tokens"),
    "--new-tokens": ("new_tokens", "tokens to generate"),
}
"""Flag -> field of a selection, help."""


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.request_rate is None:
        if arguments.share is not None:
            raise UsageError("--share applies to requests under load only: add --request-rate")
        limits = _limits(arguments, LIMITS)
    else:
        if unsuitable := [flag for flag in CALL_FLAGS if _flag_value(arguments, flag) is not None]:
            raise UsageError(f"{' and '.join(unsuitable)} does not apply with --request-rate: remove it")
        limits = _limits(arguments, tuple(REQUEST_LIMITS))
        if arguments.share == 0:
            raise UsageError("--share: takes a share above 0, such as 0.95 or 95%")
    words = [
        f"{field}={_flag_value(arguments, flag)}"
        for flag, (field, _) in POINT_FLAGS.items()
        if _flag_value(arguments, flag)
    ]
    if arguments.prefer == "cost" and arguments.price is None:
        raise UsageError("--prefer cost requires --price FILE, with the price per hour of the device")
    selection = selection_in(arguments, ",".join([*words, *([arguments.among] if arguments.among else [])]))
    prices = None
    if arguments.price is not None:
        from db.analysis.recommend.recommendation import read_prices

        prices = read_prices(arguments.price)
    if arguments.request_rate is not None:
        return _servers(arguments, selection, limits, prices)

    from db.analysis.recommend.measured_options import judged, options_by_workload, simulated_results, why_no_options
    from db.analysis.recommend.recommendation import recommend, with_prices

    with open_to_read(arguments) as warehouse:
        if not (found := _models(arguments, warehouse)):
            return EXIT_NOT_ENOUGH_DATA
        options = options_by_workload(warehouse, found, selection)
        simulated = simulated_results(warehouse, found, selection)
        if not options:
            reason = why_no_options(warehouse, found, selection)
            note(f"{NAME}: not enough data: no result of {arguments.model_id} can be compared: {reason}")
            return EXIT_NOT_ENOUGH_DATA
        recommendations = {}
        for workload, members in options.items():
            ranked = recommend([with_prices(member, prices) for member in members], limits, arguments.prefer)
            recommendations[workload] = judged(warehouse, ranked, limits, has_tokens=workload.has_tokens)
    _print(arguments, recommendations, limits, prices)
    if simulated:
        says = "says" if simulated == 1 else "say"
        note(f"{NAME}: left out: {counted(simulated, 'simulated result')}, which {says} nothing of a device")
    return (
        EXIT_OK if any(recommendation.best is not None for recommendation in recommendations.values()) else EXIT_FAILED
    )


def _limits(arguments: argparse.Namespace, known: Sequence[str]) -> dict[Any, float]:
    """The limits of --limit and of its earlier flags. Raises UsageError for one that is not known here."""
    given: dict[Any, float] = parse_limits(",".join(arguments.limit), known) if arguments.limit else {}
    for flag, name in {**OLD_LIMITS, **{flag: name for flag, (name, *_) in QUALITY_LIMITS.items()}}.items():
        value = getattr(arguments, flag)
        if value is None:
            continue
        if name not in known:
            needed = "requires" if arguments.request_rate is None else "does not apply with"
            raise UsageError(f"{flag_of(flag)} {needed} --request-rate: limits here: {', '.join(known)}")
        given[name] = value
    return given


def _parser() -> Parser:
    parser = command_parser(NAME, __doc__, EXAMPLES, EXIT_CODES)
    parser.details = PRICES
    add_model_id(parser, "model id of the results")
    limits = parser.add_argument_group("limits")
    what = (
        "such as latency:20ms,memory:2GB,kl:0.02: at most this latency (median), latency_p90, latency_p95, "
        "latency_p99, ttft, memory, energy (per item), kl or perplexity_increase, at least this throughput (per "
        "second), agreement, exact_match, choice_accuracy or accuracy"
    )
    add_flags(limits, COMMON["limit"].here(help=what, default_words="none"))
    for flag in OLD_LIMITS:
        limits.add_argument(flag_of(flag), type=non_negative_number, help=argparse.SUPPRESS)
    for flag, (_, kind, text) in QUALITY_LIMITS.items():
        action = limits.add_argument(
            flag_of(flag),
            type=kind,
            metavar="X",
            help=f"{text}; unknown is not met (default: none)",
        )
        few_need(action)
    load = parser.add_argument_group("servers under load")
    load.add_argument(
        "--request-rate",
        type=positive_rate,
        metavar="RATE",
        help="requests per second to serve; --limit is then on ttft, tpot and e2e of each request (default: none: "
        "calls of a single caller are compared)",
    )
    load.add_argument(
        "--share",
        type=share,
        metavar="SHARE",
        help=f"share of requests that must succeed within every limit, such as 0.95 or 95%% (default: {LEAST_GOOD})",
    )
    results = parser.add_argument_group("results to compare")
    for flag, (_, text) in POINT_FLAGS.items():
        results.add_argument(flag, type=positive_int, metavar="N", help=f"{text} (default: all)")
    results.add_argument("--among", default="", metavar="SELECTION", help=f"results: {SELECTION} (default: all)")
    results.add_argument(
        "--prefer",
        choices=AIMS,
        help="what to optimize (default: cost with --price, latency with a throughput, else throughput)",
    )
    add_settings(results, COMMON, "price")
    add_shared(parser, json="the recommendation as JSON")
    add_database(parser)
    return parser


def _flag_value(arguments: argparse.Namespace, flag: str) -> Any:
    return getattr(arguments, flag.removeprefix("--").replace("-", "_"))


def _servers(
    arguments: argparse.Namespace, selection: Selection, given: Mapping[str, float], prices: Prices | None
) -> int:
    """The recommendation for a rate of requests, within the given limits; returns the exit code."""
    from db.analysis.recommend.servers import Demand, Server, servers_by_traffic, smaller_shares, why_no_servers

    limits = {REQUEST_LIMITS[name]: value for name, value in given.items()}
    demand = Demand(request_rate=arguments.request_rate, limits=limits, share=arguments.share or LEAST_GOOD)
    with open_to_read(arguments) as warehouse:
        if not (found := _models(arguments, warehouse)):
            return EXIT_NOT_ENOUGH_DATA
        by_traffic = servers_by_traffic(warehouse, found, selection, demand, prices)
        searched = [] if arguments.share or not limits else smaller_shares(warehouse, found, selection, demand)
        if not by_traffic:
            reason = why_no_servers(warehouse, found, selection)
            enough = max(LEAST_TO_TELL, least_to_tell(demand.share))
            asked, requests = f"--request-rate {demand.request_rate:g}", f"--num-requests {enough}"
            note(
                f"{NAME}: not enough data: no open-loop load test of {arguments.model_id} can be compared: {reason}; "
                f"measure one: benchhouse load {shlex.quote(arguments.model_id)} {asked} {requests}, with --url or "
                "--serve of the server"
            )
            return EXIT_NOT_ENOUGH_DATA
    currency = None if prices is None else prices.currency
    if arguments.json:
        from benchmarking.core.records import to_json

        rate = demand.request_rate
        document = {
            "model_id": arguments.model_id,
            "request_rate": rate,
            "limits_ms": dict(demand.limits),
            "share": demand.share,
            "currency": currency,
            "traffic": [
                {
                    "traffic": {**to_json(traffic), "axes": dict(traffic.axes)},
                    "servers": [
                        {
                            **to_json(server),
                            "holds_up_to": None if server.best is None else server.best.request_rate,
                            "machines": server.machines(rate),
                            "cost_per_hour": server.cost_per_hour(rate),
                            "cost_per_million_requests": server.cost_per_million(rate),
                        }
                        for server in servers
                    ],
                }
                for traffic, servers in by_traffic.items()
            ],
        }
        print_json(document)
    else:
        from db.analysis.recommend.recommendation_text import recommendation_text
        from db.analysis.recommend.servers_text import servers_words

        page = stdout_page()
        texts, above = list[str](), list[Server]()
        for traffic, servers in by_traffic.items():
            texts.append(recommendation_text(servers_words(traffic, servers, demand, currency, page, above), page))
            above += servers
        print(f"{arguments.model_id}\n\n" + "\n\n".join(texts))
    if searched:
        shares = " or ".join(f"--share {100 * share:g}%" for share in searched)
        note(f"{NAME}: a search with these limits found a rate for a smaller share of the requests: {shares}")
    unpriced = {server.device for servers in by_traffic.values() for server in servers if server.price_per_hour is None}
    if prices is not None and unpriced:
        note(f"{NAME}: no price for {', '.join(sorted(unpriced))}: servers are ranked by the number of machines")
    ranked = [server for servers in by_traffic.values() for server in servers]
    if any(server.best is not None for server in ranked):
        return EXIT_OK
    return EXIT_NOT_ENOUGH_DATA if any(server.is_unknown for server in ranked) else EXIT_FAILED


def _models(arguments: argparse.Namespace, warehouse: Warehouse) -> tuple[str, ...]:
    """The stored models that are compared: the named one, or the quantizations of one, whose common name becomes the
    `model_id`. Without results none, which is noted. Raises UsageError for an unknown model."""
    from benchmarking.workloads.support.families import catalog_names
    from db.analysis.recommend.measured_options import found_name, models, models_by_name

    arguments.model_id = redacted_path(arguments.model_id)
    by_name = models_by_name(known := models(warehouse))
    if not known:
        note(f"{NAME}: not enough data: {arguments.db_path} has no results")
        return ()
    name = found_name(by_name, arguments.model_id) or found_name(by_name, redacted_folder(arguments.model_id))
    if name is None and arguments.model_id in catalog_names():  # of the built-in catalog, which any machine can measure
        how = f"benchhouse run {shlex.quote(arguments.model_id)} --save"
        note(f"{NAME}: not enough data: no result of {arguments.model_id} is stored: measure it with {how}")
        return ()
    arguments.model_id = choice(arguments.model_id, known, "model") if name is None else name
    return by_name[arguments.model_id]


def _print(
    arguments: argparse.Namespace,
    recommendations: Mapping[Workload, Recommendation],
    limits: Mapping[Quantity, float],
    prices: Prices | None,
) -> None:
    if arguments.json:
        from benchmarking.core.records import to_json

        print_json(
            {
                "model_id": arguments.model_id,
                "limits": dict(limits),
                "currency": None if prices is None else prices.currency,
                "workloads": [
                    {
                        "workload": {**to_json(workload), "axes": dict(workload.axes)},
                        "aim": one.aim,
                        "front_axes": list(one.axes),
                        "recommended": None if one.best is None else one.best.option.result_id,
                        "options": [
                            {
                                **to_json(rated.option),
                                "cost_per_million": rated.option.cost,
                                "fits": rated.fits,
                                "is_on_front": rated.is_on_front,
                                "misses": to_json(rated.misses),
                            }
                            for rated in one.rated
                        ],
                    }
                    for workload, one in recommendations.items()
                ],
            }
        )
    else:
        from db.analysis.recommend.measured_options import workload_titles
        from db.analysis.recommend.recommendation_text import recommendation_text, recommendation_words

        currency, page = None if prices is None else prices.currency, stdout_page()
        texts = [
            recommendation_text(recommendation_words(workload, one, limits, currency, page, title=title), page)
            for title, (workload, one) in zip(workload_titles([*recommendations]), recommendations.items(), strict=True)
        ]
        print(f"{arguments.model_id}\n\n" + "\n\n".join(texts))
    unpriced = {
        option.option.device
        for recommendation in recommendations.values()
        for option in recommendation.rated
        if option.option.cost is None
    }
    if prices is not None and unpriced:
        is_asked = arguments.prefer == "cost"
        of_others = "these come last" if is_asked else "costs are shown, but options are not ranked by cost"
        note(f"{NAME}: no price for {', '.join(sorted(unpriced))}: {of_others}")


if __name__ == "__main__":
    sys.exit(main())
