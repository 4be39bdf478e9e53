"""Findings as sentences: the fastest, smallest and most efficient setup, and next steps.

A setup is called the fastest only if the judge of every comparison calls it faster than each other setup at the same
point. Setups that different commands measured are described, not judged, since intervals do not cover changes of the
machine between commands. Memory and energy have no intervals, so the lowest is named as a reading. Invalid and
simulated results never win.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace

from benchmarking.core.axes import POINT_COLUMNS
from benchmarking.core.metrics import ENERGY, METRICS, PEAK_MEMORY, peak_memory_column
from benchmarking.core.sample_statistics import MIN_LAUNCHES_FOR_BETWEEN
from benchmarking.core.text import counted, first_few, listed, number, visible
from db.analysis.recommend.measured_options import why_no_energy
from db.values import reason_words
from visualize.drawing import words
from visualize.drawing.configurations import clear_winner, judgements, speedup
from visualize.drawing.loads import NO_RATE, as_level, is_load, rates_text
from visualize.drawing.rows import Row, grouped, measured_apart, trust
from visualize.pages.elements import number_text

MODEL = ("model_id", "task", "weights", "model_revision", "config_hash", "origin_definition")
"""Columns that all results of a table share."""
POINT = tuple(POINT_COLUMNS)
"""Further columns that ranked results share."""
MOST_POINTS = 3
"""Maximum points named in a sentence; others are counted."""
LEAST_ROUND = 1.01
"""Ratios closer to 1 get one more digit, so they do not read "1"."""
APART = "; not judged: different commands measured the setups"
CLOSE = 0.02
"""Relative difference up to which memory and energy readings count as equal, since runs vary as much."""


Reading = tuple[str, float]
"""A kind of reading, and a value without an interval. Only readings of the same kind are compared."""


def is_ranked(row: Row) -> bool:
    """Whether the result is ranked: simulated and invalid ones never win."""
    return row["status"] == "ok" and bool(row["value"]) and row["state"] in ("valid", "doubtful")


def summary(rows: Sequence[Row]) -> tuple[SimpleNamespace, ...]:
    """The sections of the summary, each with a title and sentences: fastest, smallest and most efficient calls, and the
    highest rates of load tests. The rows have `newer` (`with_newer`)."""
    loads = [row for row in rows if is_load(row)]
    rates: list[str] = []  # a sentence per model and server (`loads.rates_text`), those without a known rate last
    unknown: list[str] = []
    for key, members in grouped(loads, ("model_id", "setup")):
        text = rates_text([as_level(row) for row in members])
        chosen = unknown if text.startswith(NO_RATE) else rates
        chosen.append(visible(f"{key['model_id']}: {key['setup']}: {text}."))
    under_load = (SimpleNamespace(title="Under load", sentences=(*rates, *unknown)),) if loads else ()
    rows = [row for row in rows if not is_load(row)]
    if not rows:
        return under_load
    bare = [row for row in rows if is_ranked(row) and _memory(row) is None]
    no_memory = Counter(row["missing"][name] for row in bare for name in PEAK_MEMORY if name in row["missing"])
    bare = [row for row in rows if is_ranked(row) and any(name in row["missing"] for name in ENERGY)]
    no_energy = Counter(why_no_energy(row["missing"]) for row in bare)
    smallest = _lowest(rows, _memory, "peak memory", "MB", _because(no_memory))
    older = words.not_newest(rows)
    most_efficient = _lowest(rows, _energy, "energy", "J per item", _because(no_energy))
    return (
        SimpleNamespace(title="Fastest", sentences=(*_fastest(rows), *([f"{older}."] if older else []))),
        SimpleNamespace(title="Smallest", sentences=tuple(smallest)),
        SimpleNamespace(title="Most efficient", sentences=tuple(most_efficient)),
        *under_load,
    )


def _fastest(rows: Sequence[Row]) -> Iterable[str]:
    """One sentence per model and winner or lowest median, and one per reason without a winner."""
    won: dict[tuple[str, str, bool], list[str]] = {}
    undecided: dict[tuple[str, str], list[str]] = {}
    unranked: dict[str, list[Counter[str]]] = {}  # why -> what is left out at each point
    for key, members in grouped(rows, (*MODEL, *POINT)):
        model, ranked = str(key["model_id"]), [row for row in members if is_ranked(row)]
        if len(ranked) < 2:
            why = "only one setup was measured"
            if left_out := [row for row in members if not is_ranked(row)]:
                why = "only one setup has a result to rank" if ranked else "no setup has a result to rank"
            unranked.setdefault(why, []).append(Counter(map(_why_unranked, left_out)))
            continue
        winner = _named(ranked)
        if winner is None:
            lowest = min(row["value"] for row in ranked)
            undecided.setdefault((model, _why_undecided(ranked)), []).append(
                f"{words.point(key)} ({number_text(lowest)} ms)"
            )
        else:
            won.setdefault((model, winner["setup"], measured_apart(ranked)), []).append(_lead(winner, ranked))
    for (model, setup, is_apart), leads in won.items():
        verb, ending = ("has the lowest median", APART) if is_apart else ("is the fastest", "")
        yield visible(f"{model}: {setup} {verb} {first_few(leads, MOST_POINTS, '; ')}{ending}.")
    for (model, reason), points in undecided.items():
        yield visible(f"{model}: undecided at {first_few(points, MOST_POINTS, '; ')}: {reason}.")
    for reason, of_points in unranked.items():
        kinds = words.counts(sum(of_points, Counter()).elements())
        without = f" ({kinds} left out)" if kinds else ""
        yield f"{counted(len(of_points), 'point')} cannot be ranked: {reason}{without}."


def _why_unranked(row: Row) -> str:
    if row["status"] != "ok":
        return str(row["status"])
    return str(row["state"]) if row["state"] in ("invalid", "simulated") else "without a latency"


def _named(ranked: Sequence[Row]) -> Row | None:
    """The fastest of two or more results, or the lowest if different commands measured them; only a valid result with
    an interval is named, and none of several that read the same."""
    if not measured_apart(ranked):
        return clear_winner(ranked, "lower")
    lowest = min(ranked, key=lambda row: row["value"])
    is_sound = trust(lowest) == "valid" and all(row["low"] is not None for row in ranked)
    return lowest if is_sound and len(_of_lowest(ranked)) == 1 else None


def _of_lowest(ranked: Sequence[Row]) -> list[str]:
    """The setups of the lowest median as it is shown."""
    shown = number(min(row["value"] for row in ranked))
    return [row["setup"] for row in ranked if number(row["value"]) == shown]


def _lead(winner: Row, ranked: Sequence[Row]) -> str:
    """ "at batch 1, with 8 ms: 1.9 times as fast as eager (95 % interval 1.8 to 2)"; without judging, the readings."""
    second = min((row for row in ranked if row is not winner), key=lambda row: row["value"])
    ratio = speedup(second, winner)
    if measured_apart(ranked) or ratio.low is None or ratio.high is None:
        place, values = words.point(winner), [number_text(row["value"]) for row in (winner, second)]
        return f"at {place}, with {values[0]} ms, against {values[1]} ms of {second['setup']}"
    digits = 3 if ratio.low > LEAST_ROUND else 4
    value, low, high = (number(one, digits) for one in (ratio.ratio, ratio.low, ratio.high))
    return (
        f"at {words.point(winner)}, with {number_text(winner['value'])} ms: {value} times as fast as {second['setup']} "
        f"(95 % interval {low} to {high})"
    )


def _why_undecided(ranked: Sequence[Row]) -> str:
    """Why none of two or more results is the fastest."""
    if len(equal := _of_lowest(ranked)) > 1:
        return f"{' and '.join(equal) if len(equal) == 2 else first_few(equal, 2)} have the same lowest median"
    best = min(ranked, key=lambda row: row["value"])
    lowest = f"{best['setup']} has the lowest median"
    bare = [row for row in ranked if row["low"] is None or row["high"] is None]
    if bare:
        names = "it" if bare == [best] else listed([row["setup"] for row in bare], 2)
        return f"{lowest}, but {names} {_has(bare)} no interval over at least {MIN_LAUNCHES_FOR_BETWEEN} launches"
    if trust(best) != "valid":
        return f"{lowest}, but that result is {best['validity']}"
    others = [row for row in ranked if row is not best]
    if measured_apart(ranked):
        return f"{lowest}, but different commands measured the setups"
    near = [(row, one) for row, one in zip(others, judgements(best, others), strict=True) if one.verdict != "faster"]
    names = listed([row["setup"] for row, _ in near], 2)
    if all(one.verdict == "equivalent" for _, one in near):
        return f"{lowest}, but is equivalent to {names}"
    reason = next((one.reason for _, one in near if one.reason), None)
    return f"{lowest}, but is not judged against {names}" + (f" ({reason})" if reason else "")


def _lowest(
    rows: Sequence[Row], reading: Callable[[Row], Reading | None], what: str, unit: str, why_none: str
) -> Iterable[str]:
    """One sentence per model and setup with the lowest reading at a point."""
    lowest: dict[tuple[str, str, str], list[str]] = {}
    tied: dict[tuple[str, str], list[str]] = {}
    has_any = False
    for key, members in grouped(rows, (*MODEL, *POINT)):
        read = [(row, found) for row in members if is_ranked(row) for found in [reading(row)] if found is not None]
        has_any = has_any or bool(read)
        for of in dict.fromkeys(kind for _, (kind, _) in read):
            same = sorted(((value, row) for row, (kind, value) in read if kind == of), key=lambda one: one[0])
            if len(same) < 2:
                continue
            (value, first), (next_value, second) = same[:2]
            place, model = words.point(key), str(key["model_id"])
            if next_value <= value * (1 + CLOSE):
                tied.setdefault((model, of), []).append(f"{place} ({number_text(value)} {unit})")
            else:
                least, following = number_text(value), number_text(next_value)
                text = f"{least} {unit} at {place}, against {following} {unit} for {second['setup']}"
                lowest.setdefault((model, str(first["setup"]), of), []).append(text)
    for (model, setup, of), texts in lowest.items():
        yield visible(f"{model}: {setup} has the lowest reading of {of}: {first_few(texts, MOST_POINTS, '; ')}.")
    for (model, of), places in tied.items():
        yield visible(
            f"{model}: the two lowest readings of {of} are within 2 % at {first_few(places, MOST_POINTS, '; ')}."
        )
    if lowest or tied:
        yield f"Readings of {what} have no interval; they describe only these runs."
    elif has_any:
        yield f"No two setups have {what} readings of the same kind at the same point."
    elif any(map(is_ranked, rows)):
        yield f"No ranked result has {what} readings{why_none}."
    else:
        yield f"No result can be ranked, so no reading of {what} is the lowest."


def _memory(row: Row) -> Reading | None:
    column = peak_memory_column(row)
    if column is None:
        return None
    title = METRICS[column].title.removesuffix(" (MB)")
    return title[:1].lower() + title[1:], row[column]


def _energy(row: Row) -> Reading | None:
    value, parts = row["energy"]
    return None if value is None else (f"energy of the {parts}", value)


def _because(reasons: Counter[str]) -> str:
    named = dict.fromkeys(visible(reason_words(name)) for name, _ in reasons.most_common(2))
    kept = [one for one in named if not any(one != other and other.startswith(one) for other in named)]
    return f": {'; '.join(kept)}" if kept else ""


def next_steps(rows: Sequence[Row], ranking: Sequence[Row]) -> tuple[str, ...]:
    """Advice on missing and doubtful results, and on undecided ones of a ranking; only on those measured here."""
    rows = [row for row in rows if row["origin_format"] is None]
    if not rows:
        return ("No action here: all results are imported.",)
    steps = []
    failed = words.counts(str(row["status"]) for row in rows if row["status"] != "ok")
    if failed:
        steps.append(f"Not measured: {failed}. Fix the causes, which are listed with the results, and measure again.")
    doubtful = [row for row in rows if row["status"] == "ok" and row["validity"] not in ("valid", None)]
    if doubtful:
        counts = words.counts(str(row["validity"]) for row in doubtful)
        steps.append(
            f"Doubtful: {counts}, of {counted(len(rows), 'result')}. Follow the advice on each doubt, then measure "
            "again."
        )
    calls = [row for row in rows if not is_load(row)]  # a load test has no launches
    bare = [row for row in calls if is_ranked(row) and (row["low"] is None or row["high"] is None)]
    if bare:
        steps.append(
            f"{counted(len(bare), 'result')} {_has(bare)} no interval over launches: measure with --profile standard, "
            f"or with --launches {MIN_LAUNCHES_FOR_BETWEEN} or more."
        )
    # Points where setups are close or were measured by different commands.
    close = apart = 0
    calls_here = [row for row in ranking if row["origin_format"] is None and not is_load(row)]
    for _, members in grouped(calls_here, (*MODEL, *POINT)):
        ranked = [row for row in members if is_ranked(row)]
        if len(ranked) < 2:
            continue
        winner = _named(ranked)
        close += winner is None and all(row["low"] is not None for row in ranked)
        apart += winner is not None and measured_apart(ranked)
    turns = "benchhouse ab measures two setups in turns"
    steps += [f"{counted(close, 'point')} undecided: {turns} until the difference is clear."] if close else []
    if apart:
        steps.append(
            f"At {counted(apart, 'point')} the setups were measured by different commands, and intervals do not cover "
            f"changes of the machine in between: {turns}."
        )
    if any(row["simulated"] for row in rows):
        steps.append("Simulated results come from a script or an emulator: measure on a real device.")
    has_all = len(calls) == len(rows) and all(row["low"] is not None and row["high"] is not None for row in calls)
    fine = "every result is valid" + (" and has an interval over launches" if has_all else "")
    return tuple(steps) or (f"No action needed: {fine}.",)


def _has(things: Sequence[object]) -> str:
    return "has" if len(things) == 1 else "have"
