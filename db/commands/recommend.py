"""Says which of what was measured of a model meets your limits, what of it nothing else beats, and which to take.

Only valid and noisy results count, never invalid, throttled or simulated ones, and only what had the same to do is
compared: a table for each task, length and so on. Batch sizes stand beside each other, since they are yours to choose.

  benchhouse recommend bert-base-uncased --latency-ms 20 --memory-mb 2000 --sequence-length 128
  benchhouse recommend gpt2 --ttft-ms 200 --price prices.yaml

prices.yaml, by type, name or hardware_id of the device:

  currency: EUR
  per_hour:
    cpu: 0.40
    NVIDIA H100 80GB HBM3: 3.90

exit codes: 0 something meets the limits; 1 nothing does: the nearest is told, with what it misses; 2 usage;
            3 nothing of the model can be compared
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # run as a file: its folder is on the path, that of the packages is wanted
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import (
    Parser,
    add_database_flags,
    choice,
    non_negative_number,
    note,
    positive_int,
    run_command,
)
from benchmarking.core.errors import EXIT_FAILED, EXIT_NOT_ENOUGH_DATA, EXIT_OK
from benchmarking.core.terminal import stdout_page
from db.analysis.selection import Selection

if TYPE_CHECKING:
    from db.analysis.recommend.options import Workload
    from db.analysis.recommend.prices import Prices
    from db.analysis.recommend.recommendation import Option, Quantity, Recommendation

NAME = "benchhouse recommend"
LIMITS: Mapping[str, tuple[Quantity, str, str]] = {
    "--latency-ms": ("latency", "MS", "median latency of a call, at most"),
    "--latency-p99-ms": ("latency_p99", "MS", "99th percentile of latency, at most"),
    "--ttft-ms": ("ttft", "MS", "time to the first token, at most"),
    "--memory-mb": ("memory", "MB", "peak memory (10^6 bytes), of the device where it was read, at most"),
    "--energy-j": ("energy", "J", "energy an item (sequence, image, ...), at most"),
    "--throughput": ("throughput", "RATE", "tokens a second (items, of models without tokens), at least"),
}
"""Flag -> what it limits, its unit, its help."""
AIMS = ("latency", "throughput", "memory", "energy", "cost")
POINT = {"--batch": "batch", "--sequence-length": "sequence", "--new-tokens": "new_tokens"}
"""Flag -> the field of a selection that it is."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return run_command(NAME, _run, argv)


def _run(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    selection = Selection.parse(_selected(arguments))
    limits = {
        quantity: value for flag, (quantity, *_) in LIMITS.items() if (value := _given(arguments, flag)) is not None
    }
    prices = _prices(arguments)
    options = _options(arguments, selection)
    if not options:
        return EXIT_NOT_ENOUGH_DATA

    from db.analysis.recommend.recommendation import recommend, with_prices

    found = {
        workload: recommend([with_prices(one, prices) for one in members], limits, arguments.prefer)
        for workload, members in options.items()
    }
    _tell(arguments, found, limits, prices)
    return EXIT_OK if any(one.best is not None for one in found.values()) else EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="the model, as it was measured")
    limits = parser.add_argument_group("limits")
    for flag, (_, unit, text) in LIMITS.items():
        limits.add_argument(flag, type=non_negative_number, metavar=unit, help=text)
    which = parser.add_argument_group("what is compared")
    for flag, field in POINT.items():
        which.add_argument(flag, type=positive_int, metavar="N", help=f"only this {field.replace('_', ' ')}")
    which.add_argument(
        "--among", default="", metavar="SELECTION", help="only these results: device=cpu,since=2026-01-01, ..."
    )
    which.add_argument(
        "--prefer",
        choices=AIMS,
        help="what the recommended one is best in; without it cost (with prices), else throughput, or latency where "
        "only a throughput is asked for",
    )
    which.add_argument("--price", type=Path, metavar="FILE", help="YAML: what an hour of a device costs")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    add_database_flags(parser)
    return parser


def _given(arguments: argparse.Namespace, flag: str) -> Any:
    return getattr(arguments, flag.removeprefix("--").replace("-", "_"))


def _selected(arguments: argparse.Namespace) -> str:
    """The words of the flags and of --among as one selection; SQL comes last in one."""
    words = [f"{field}={_given(arguments, flag)}" for flag, field in POINT.items() if _given(arguments, flag)]
    return ",".join([*words, *([arguments.among] if arguments.among else [])])


def _prices(arguments: argparse.Namespace) -> Prices | None:
    if arguments.price is None:
        return None
    from db.analysis.recommend.prices import read_prices

    return read_prices(arguments.price)


def _options(arguments: argparse.Namespace, selection: Selection) -> dict[Workload, tuple[Option, ...]]:
    """The options by workload; empty, and it was said why, where there are none. Raises UsageError for a model that
    nothing is stored of."""
    from db.analysis.recommend.options import models, options_by_workload, why_no_options
    from db.warehouse import Warehouse

    with Warehouse.open(arguments.db_path, read_only=True, lock_timeout_s=arguments.lock_timeout) as warehouse:
        found = options_by_workload(warehouse, arguments.model, selection)
        if not found:
            known = models(warehouse)
            if not known:
                note(f"{NAME}: not enough data: {arguments.db_path} has no results")
                return {}
            choice(arguments.model, known, "model")
            why = why_no_options(warehouse, arguments.model, selection)
            note(f"{NAME}: not enough data: nothing measured of {arguments.model} can be compared: {why}")
    return found


def _tell(
    arguments: argparse.Namespace,
    found: Mapping[Workload, Recommendation],
    limits: Mapping[Quantity, float],
    prices: Prices | None,
) -> None:
    if arguments.json:
        print(json.dumps(_document(arguments.model, found, limits, prices), indent=2, ensure_ascii=False))
    else:
        from db.analysis.recommend.text import recommendation_text

        currency = None if prices is None else prices.currency
        texts = [recommendation_text(workload, one, limits, currency, stdout_page()) for workload, one in found.items()]
        print(f"{arguments.model}\n\n" + "\n\n".join(texts))
    unpriced = {one.option.device for each in found.values() for one in each.rated if one.option.cost is None}
    if prices is not None and unpriced:
        note(f"{NAME}: no price for {', '.join(sorted(unpriced))}: costs are shown, but not ranked by")


def _document(
    model_id: str, found: Mapping[Workload, Recommendation], limits: Mapping[Quantity, float], prices: Prices | None
) -> dict[str, Any]:
    """All of it, as JSON has it."""
    from benchmarking.core.records import to_json

    return {
        "model_id": model_id,
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
            for workload, one in found.items()
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
