"""Replaces raw samples of old results with quantiles per launch; results and their statistics are kept.

Requests of load tests also lose their token arrival times, except the first and the last, unless tokens were hidden:
only the number of arrivals says then over how many the time per output token is.
"""

# 2026-11-21: 20 steps, so 21 quantiles per launch, among them minimum, maximum, quartiles, median, p90 and p95; mean,
# median and p99 are stored anyway. Between two quantiles the distribution is off by less than 1/20, which is below what
# the samples of one launch resolve at 95 % (1.36 / sqrt(n), Kolmogorov) up to n = 739. Finer steps would keep noise,
# coarser ones would lose p95. A launch with fewer than twice as many samples is left unchanged, since it would save
# little.

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the path has its folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarking.core.command_line import command, note
from benchmarking.core.errors import EXIT_OK, UsageError
from benchmarking.core.metrics import bytes_to_mb
from benchmarking.core.provenance import naive_now
from benchmarking.core.run_file import MIN_SAMPLES, QUANTILES
from benchmarking.core.storage_paths import is_lake
from db.commands.arguments import (
    add_database,
    add_selection,
    add_shared,
    command_parser,
    confirm,
    open_to_read,
    print_json,
    selection_in,
)
from db.connection import Connection
from db.file_copy import temporary_sibling
from db.warehouse import Warehouse

NAME = "benchhouse compact"
EXAMPLES = """
examples:
  benchhouse compact --raw-older-than 180d --dry-run
  benchhouse compact --raw-older-than 26w model=gpt2 --yes
"""
DAYS = {"d": 1, "w": 7}
KEPT_NOTE = (
    "kept: every column of benchmark_results; per launch the number of samples, mean, median and p99, "
    "the minimum, the maximum and every 5 % between them (view raw_quantiles); "
    "per request its start, first and last token, end and token counts"
)

OLD_RESULTS = "SELECT result_id FROM all_results WHERE started_at < ? AND ({condition}) ORDER BY result_id"
IS_LONG = f"compacted_at IS NULL AND sample_count >= {MIN_SAMPLES}"
HAS_COMPACTED_GAPS = f"""
len(token_ms) > 0 AND tokens_counted_by IS DISTINCT FROM 'hidden'
AND result_id IN (SELECT unnest($results)) AND EXISTS (
    SELECT 1 FROM raw_benchmark_data gaps
    WHERE gaps.result_id = requests.result_id AND gaps.launch = requests.launch
        AND gaps.metric = 'inter_token_latency'
        AND (gaps.compacted_at IS NOT NULL OR gaps.sample_count >= {MIN_SAMPLES})
)
"""
"""Requests that lose their token arrival times: the gaps between tokens are quantiles already, or become quantiles."""
FORECAST = f"""
SELECT
    count(DISTINCT result_id) FILTER (WHERE {IS_LONG}) AS results,
    count(*) FILTER (WHERE {IS_LONG}) AS rows,
    coalesce(sum(sample_count) FILTER (WHERE {IS_LONG}), 0)::BIGINT AS samples,
    count(*) FILTER (WHERE compacted_at IS NULL AND sample_count < {MIN_SAMPLES}) AS short_rows,
    count(*) FILTER (WHERE compacted_at IS NOT NULL) AS compacted_rows,
    (SELECT coalesce(sum(len(token_ms)), 0)::BIGINT FROM requests WHERE {HAS_COMPACTED_GAPS}) AS arrivals
FROM raw_benchmark_data WHERE result_id IN (SELECT unnest($results))
"""
"""What replacing the samples of results would do. A row is one metric of one launch; of the short ones too few samples
would be replaced. The arrivals of tokens would be dropped: the gaps between them are among the samples."""
# DuckDB interpolates between equal values with an error of the last digit, so quantiles are put in order afterwards.
REPLACE = f"""
UPDATE raw_benchmark_data SET
    sketch = list_sort(list_transform(
        list_aggregate(samples, 'quantile_cont', {list(QUANTILES)}),
        lambda value: least(greatest(value, list_min(samples)), list_max(samples))
    )),
    samples = [], compacted_at = $now
WHERE {IS_LONG} AND result_id IN (SELECT unnest($results))
"""

DROP_ARRIVALS = f"""
UPDATE requests SET token_ms = [], last_token_ms = coalesce(last_token_ms, token_ms[-1]) WHERE {HAS_COMPACTED_GAPS}
"""
"""The last arrival is kept: the time per output token ends there."""

Report = dict[str, Any]


@command(NAME, interrupted="samples are replaced all or none: run the command again")
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser(NAME, __doc__, EXAMPLES)
    add_selection(parser)
    parser.add_argument(
        "--raw-older-than",
        type=_age,
        required=True,
        metavar="AGE",
        help="minimum age of the runs, in days or weeks, such as 180d or 26w",
    )
    add_shared(parser, dry_run="report the effect, measured on a copy; change nothing")
    add_shared(parser, yes="skip the confirmation and the trial on a copy", json="print the outcome as JSON")
    add_database(parser)
    arguments = parser.parse_args(argv)
    selection = selection_in(arguments, arguments.selection)
    before = naive_now().replace(microsecond=0) - arguments.raw_older_than
    with open_to_read(arguments) as warehouse:
        sql = OLD_RESULTS.format(condition=selection.condition)
        results = [str(row["result_id"]) for row in warehouse.query(sql, [before, *selection.values]).dicts()]
        (expected,) = warehouse.query(FORECAST, {"results": results}).dicts()
        report = {
            "database": arguments.db_path,
            "before": before.isoformat(),
            "dry_run": arguments.dry_run,
            **expected,
            "quantiles": len(QUANTILES) * expected["rows"],
            "quantiles_each": len(QUANTILES),
            "least": MIN_SAMPLES,
        }
        if (expected["rows"] or expected["arrivals"]) and not (arguments.yes and not arguments.dry_run):
            if not arguments.dry_run and not sys.stdin.isatty():
                raise UsageError(
                    f"compacting {arguments.db_path} cannot be undone: check with --dry-run, then add --yes"
                )
            report["measured_on_a_copy"] = _sizes_on_a_copy(warehouse, results)
    if not arguments.json:
        print("\n".join(_lines(report)))
    if (report["rows"] or report["arrivals"]) and not arguments.dry_run:
        if not arguments.yes:
            confirm("Replace them?", arguments.db_path)
        # Replace the samples, rewrite the file, and add its sizes to the report.
        path, wait_s = arguments.db_path, arguments.lock_timeout
        old_bytes = new_bytes = 0 if is_lake(path) else os.path.getsize(path)
        with Warehouse.open(path, lock_timeout_s=wait_s) as warehouse:
            replace_samples(warehouse, results)
        if os.name == "nt" and not is_lake(path):
            note(f"{NAME}: Windows cannot rewrite a locked file: its free space is used by later runs")
        else:
            lake_bytes, new_bytes = Warehouse.compact(path, lock_timeout_s=wait_s)
            old_bytes = lake_bytes if is_lake(path) else old_bytes
        report["replaced"] = {"before_bytes": old_bytes, "after_bytes": new_bytes}
        if not arguments.json:
            print(f"replaced: {_change(old_bytes, new_bytes)}")
    if arguments.json:
        print_json(report)
    return EXIT_OK


def _age(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,6})([dw])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected days or weeks such as 180d or 26w: got {text!r}")
    age = timedelta(days=int(match[1]) * DAYS[match[2]])
    if age > datetime.now() - datetime.min:
        raise argparse.ArgumentTypeError(f"expected an age within the calendar: got {text!r}")
    return age


def _lines(report: Report) -> list[str]:
    day = report["before"].replace("T", " ")
    if not report["rows"] and not report["arrivals"]:
        return [f"nothing to replace in runs before {day} UTC", *_unchanged(report)]
    samples, results, rows, quantiles = (_number(report[name]) for name in ("samples", "results", "rows", "quantiles"))
    lines = []
    if report["rows"]:
        lines = [
            f"{samples} raw samples of {results} result{'s' * (report['results'] != 1)} in runs before {day} UTC",
            f"become {quantiles} quantiles: {report['quantiles_each']} per launch and metric ({rows})",
        ]
    if report["arrivals"]:
        lines.append(f"{_number(report['arrivals'])} token arrival times are dropped; their gaps are among the samples")
    lines.append(KEPT_NOTE)
    sizes = report.get("measured_on_a_copy")
    if sizes is not None:
        change = _change(sizes["before_bytes"], sizes["after_bytes"])
        lines.append(f"file: {change}, measured on a copy ({_mb(sizes['rewritten_bytes'])} by rewriting alone)")
    return [*lines, *_unchanged(report)]


def _unchanged(report: Report) -> list[str]:
    """What is left unchanged, as a line or none."""
    parts = []
    if report["short_rows"]:
        parts.append(f"{_number(report['short_rows'])} launches and metrics with fewer than {report['least']} samples")
    if report["compacted_rows"]:
        parts.append(f"{_number(report['compacted_rows'])} compacted already")
    return [f"unchanged: {', '.join(parts)}"] if parts else []


def _change(before_bytes: int, after_bytes: int) -> str:
    return f"{_mb(before_bytes)} -> {_mb(after_bytes)}"


def _mb(size_bytes: int) -> str:
    return f"{bytes_to_mb(size_bytes):.1f} MB"


def _number(value: int) -> str:
    return f"{value:,}".replace(",", " ")


def replace_samples(warehouse: Warehouse, results: Sequence[str]) -> None:
    """Replace the samples of the results with quantiles, all or none. The file shrinks when it is rewritten:
    `Warehouse.compact`."""
    now = naive_now()

    def replace(connection: Connection) -> None:
        connection.execute(REPLACE, {"now": now, "results": list(results)})
        connection.execute(DROP_ARRIVALS, {"results": list(results)})

    warehouse.change(replace)


def _sizes_on_a_copy(warehouse: Warehouse, results: Sequence[str]) -> dict[str, int]:
    """The sizes of the file, or of a lake copied into a file, measured on a temporary copy: as it is, rewritten with
    all samples (freeing unused space is not an effect of compacting), and after replacing them. Raises StorageError."""
    path = Path(tempfile.gettempdir(), "lake.duckdb") if warehouse.is_lake else Path(warehouse.path)
    with temporary_sibling(path) as copy, temporary_sibling(path) as rewritten:
        warehouse.backup(copy)
        before = copy.stat().st_size
        with Warehouse.open(copy) as opened:
            replace_samples(opened, results)
            opened.backup(rewritten)
        return {
            "before_bytes": before if warehouse.is_lake else path.stat().st_size,
            "rewritten_bytes": before,
            "after_bytes": rewritten.stat().st_size,
        }


if __name__ == "__main__":
    sys.exit(main())
