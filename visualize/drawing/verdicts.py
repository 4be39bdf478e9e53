"""Which of several results is the best, by the judge of every comparison (`core.verdicts`).

Results of one command ran in turns: launches with the same number are a round, and the rounds are judged. Results of
different commands are described and never judged here, since no interval of a result covers what the machine did
meanwhile; `benchhouse compare` judges them by the history of their series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarking.core.metrics import DEFAULT_METRIC, METRICS, Direction
from benchmarking.core.verdicts.judging import Pair, judge
from benchmarking.core.verdicts.words import Judgement
from visualize.drawing.rows import Row, measured_apart, trust

if TYPE_CHECKING:
    from db.warehouse import Warehouse

LAUNCHES = "launch_medians_ms"
"""Key of a row: number of a launch -> its median latency in ms, or what else a chart is about."""
JUDGED: Mapping[Direction, str] = {"lower": DEFAULT_METRIC, "higher": "throughput_samples_per_sec"}
"""Better direction of the rows' values -> the metric whose words are used."""


def with_launches(warehouse: Warehouse, rows: Sequence[Row], metric: str = DEFAULT_METRIC) -> list[Row]:
    """The rows, each with the metric of its launches."""
    from db.analysis.compare.stored_results import launch_values

    found = launch_values(warehouse, sorted({row["result_id"] for row in rows}), METRICS[metric])
    return [{**row, LAUNCHES: found.get(row["result_id"], {})} for row in rows]


def judgements(rival: Row, others: Sequence[Row], better: Direction = "lower") -> tuple[Judgement, ...]:
    """The judgements of a row against each other row, as one comparison; "faster" if the row is faster than that one.

    `value` of the rows is their median latency, or with "higher" a throughput, which is inversely proportional to it.
    """
    return judged_pairs([(other, rival) for other in others], better)


def judged_pairs(pairs: Sequence[tuple[Row, Row]], better: Direction = "lower") -> tuple[Judgement, ...]:
    """The judgement of each second row against the first, as one comparison. There are no rounds of rows of different
    commands."""
    judged = []
    for pair in pairs:
        sides: list[dict[int, float]] = []
        for row in () if measured_apart(pair) else pair:
            launches = {number: value for number, value in row.get(LAUNCHES, {}).items() if value > 0}
            if better == "higher":
                work = row["value"] * row["latency_median_ms"] if launches else 0.0
                launches = {number: work / value for number, value in launches.items()}
            sides.append(launches)
        shared = sorted(sides[0].keys() & sides[1].keys()) if sides else ()
        judged.append(Pair(rounds=tuple((sides[0][number], sides[1][number]) for number in shared)))
    return judge(judged, METRICS[JUDGED[better]])


def clear_winner(rows: Sequence[Row], better: Direction) -> Row | None:
    """The row that is faster than each other one by the judge, and valid; None without one."""
    if len(rows) < 2:
        return None
    best = (max if better == "higher" else min)(rows, key=lambda row: row["value"])
    if trust(best) != "valid":
        return None
    found = judgements(best, [row for row in rows if row is not best], better)
    return best if all(one.verdict == "faster" for one in found) else None
