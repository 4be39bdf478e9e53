"""Prints false alarms and detections of the change point detector, and of three other rules.

    python tests/perf/detector.py [--histories 2000] [--replays 100]

False alarms: histories of 100 runs without any change, of each noise of tests/helpers at cv 2 %; reported places a
history, with the standard error. The detector reports changes either way, the others regressions only. "Asked after
each run" is what people do: it counts every place that was ever suspected, and ever confirmed.
Days: the same for several runs a day, of a machine that varies from day to day, with the times of the runs and
without.
Power: 60 runs of normal noise, then a step; the share of histories in which it is reported not more than 5 runs off.
All from fixed seeds: the same numbers everywhere.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from rivals import RIVALS, Floats

from db.analysis.history.detector import NAME, PARAMETERS, VERSION, detect, find_trend
from tests.helpers.noise import CV, NOISES

SEED = 20260101
RUNS = 100
BEFORE = 60
OFF = 5
"""Runs a report may be away from the step: a shift of a few commits still leads to the cause."""
STEPS = ((0.10, 2), (0.10, 3), (0.05, 2), (0.05, 3), (0.05, 5), (0.05, 10))
REPAIRED = ((0.20, 12), (0.10, 20), (0.10, 5))
"""Steps that are put right after so many runs, in the middle of 60 others."""
SLOW = ("asv",)
"""Judged on a tenth of the histories."""

Rule = Callable[[Floats], list[int]]


def own(values: Floats) -> list[int]:
    return [change.index for change in detect(values)]


RULES: dict[str, Rule] = {NAME: own, **RIVALS}


def false_alarms(rule: Rule, noise: str, histories: int) -> tuple[float, float]:
    """Mean and standard error of the places a history."""
    rng = np.random.default_rng([SEED, list(NOISES).index(noise)])
    counts = [len(rule(NOISES[noise](RUNS, rng, CV))) for _ in range(histories)]
    return float(np.mean(counts)), float(np.std(counts)) / histories**0.5


def power(rule: Rule, step: float, after: int, histories: int) -> float:
    """Share of the histories in which the step is reported."""
    rng = np.random.default_rng([SEED, int(100 * step), after])
    seen = 0
    for _ in range(histories):
        values = NOISES["normal"](BEFORE + after, rng, CV)
        values[BEFORE:] *= 1 + step
        seen += any(abs(place - BEFORE) <= OFF for place in rule(values))
    return seen / histories


def repaired(rule: Rule, step: float, length: int, histories: int) -> float:
    """Share of the histories in which the first run of a step is reported although it was put right."""
    rng = np.random.default_rng([SEED, 7, int(100 * step), length])
    seen = 0
    for _ in range(histories):
        values = NOISES["normal"](BEFORE + length, rng, CV)
        values[BEFORE // 2 : BEFORE // 2 + length] *= 1 + step
        seen += any(abs(place - BEFORE // 2) <= OFF for place in rule(values))
    return seen / histories


def run_by_run(noise: str, histories: int) -> tuple[float, float]:
    """Places a history that were ever suspected, and ever confirmed, when asked after each of 100 runs."""
    rng = np.random.default_rng([SEED, 99, list(NOISES).index(noise)])
    suspected, confirmed = 0, 0
    for _ in range(histories):
        values = NOISES[noise](RUNS, rng, CV)
        found = [change for count in range(4, RUNS + 1) for change in detect(values[:count])]
        suspected += _apart(change.index for change in found)
        confirmed += _apart(change.index for change in found if change.state == "confirmed")
    return suspected / histories, confirmed / histories


SHAPED = 80


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A history of 80 runs, in logarithms: what moves it, where its true steps are, and its noise."""

    sd: float
    correlation: float = 0.0
    leak: float = 0.0
    """Rise a run."""
    step: float = 0.0
    places: tuple[int, ...] = ()

    def histories(self, count: int) -> Floats:
        """That many, from a fixed seed."""
        shocks = np.random.default_rng([SEED, 5]).normal(0, self.sd, (count, 3 * SHAPED))
        shocks *= (1 - self.correlation**2) ** 0.5
        values = np.zeros_like(shocks)
        for run in range(1, shocks.shape[1]):
            values[:, run] = self.correlation * values[:, run - 1] + shocks[:, run]
        return values[:, -SHAPED:] + self.leak * np.arange(SHAPED) + sum(self.step * _after(at) for at in self.places)

    def known(self, count: int) -> float:
        """Share of the true steps that a test finds which is told level, slope, deviation and correlation, and calls
        one place in 1 of 100 histories without a change: at the place of the largest standardised difference."""
        limit = float(np.quantile(np.abs(self._known_t(replace(self, step=0.0).histories(4000))).max(axis=1), 0.99))
        found = 0.0
        for at in self.places:  # several steps are judged each without the others, which it is told
            others = sum(self.step * _after(other) for other in self.places if other != at)
            t = np.abs(self._known_t(self.histories(count) - others))
            best = 1 + t.argmax(axis=1)
            found += float(((np.abs(best - at) <= OFF) & (t.max(axis=1) > limit)).mean())
        return found / len(self.places)

    def _known_t(self, histories: Floats) -> Floats:
        """[history, place]: the whitened step's coefficient over its standard error."""
        whiten = np.eye(SHAPED) - self.correlation * np.eye(SHAPED, k=-1)
        whiten[0, 0] = (1 - self.correlation**2) ** 0.5
        steps = whiten @ np.column_stack([_after(place) for place in range(1, SHAPED)])
        rest = (histories - self.leak * np.arange(SHAPED)) @ whiten.T
        deviation = self.sd * (1 - self.correlation**2) ** 0.5
        return rest @ steps / np.sqrt((steps**2).sum(axis=0)) / deviation


WANDERING = {
    "normal, 2 %": Shape(sd=0.02),
    "AR(.7), 1.5 %": Shape(sd=0.015, correlation=0.7),
    "AR(.9), 2 %": Shape(sd=0.02, correlation=0.9),
    "AR(.98), 3 %": Shape(sd=0.03, correlation=0.98),
    "a walk of 0.5 % a run": Shape(sd=0.005 / (1 - 0.999**2) ** 0.5, correlation=0.999),
}
LEAKS = {
    "leak of 0.2 % a run, sd 1 %": Shape(sd=0.01, leak=0.002),
    "leak of 0.2 % a run, sd 2 %": Shape(sd=0.02, leak=0.002),
    "leak of 0.2 % a run in AR(.5), 1 %": Shape(sd=0.01, correlation=0.5, leak=0.002),
    "leak of 0.5 % a run in AR(.9), 1 %": Shape(sd=0.01, correlation=0.9, leak=0.005),
}


def trends(shape: Shape, count: int) -> tuple[float, float, float]:
    """The share of histories that are a trend after 30 and after 80 runs, and, of an eighth of them, after any of 20 to
    80 runs."""
    logs = np.exp(shape.histories(count))
    at_30, at_80 = (np.mean([find_trend(one[:runs].tolist()) is not None for one in logs]) for runs in (30, SHAPED))
    ever = [any(find_trend(one[:runs].tolist()) for runs in range(20, SHAPED + 1)) for one in logs[: count // 8]]
    return float(at_30), float(at_80), float(np.mean(ever))


def _after(place: int) -> Floats:
    return (np.arange(SHAPED) >= place).astype(float)


def quiet(name: str, count: int) -> Floats:
    """Histories of 80 runs, in logarithms, of a kind of noise without any step to a new level."""
    rng, runs = np.random.default_rng([SEED, 8]), np.arange(SHAPED)
    drawn = rng.normal(0, 0.01, (count, SHAPED))
    if name == "heavy tail (t2), scale 1 %":
        drawn = 0.01 * rng.standard_t(2, (count, SHAPED))
    elif name == "every seventh run 4 % slower":
        drawn += 0.04 * (runs % 7 == 0)
    elif name == "4 % on and off with a deploy every 3 runs":
        drawn += 0.04 * (runs // 3 % 2)
    elif name == "1 run in 4 10 % slower, sd .3 %":
        drawn = 0.3 * drawn + np.log(1.1) * (rng.random((count, SHAPED)) < 0.25)
    elif name == "two levels 20 % apart by chance, sd .3 %":
        drawn = 0.3 * drawn + np.log(1.2) * (rng.random((count, SHAPED)) < 0.5)
    elif name == "20 ms in steps of 1 ms":
        drawn = np.log((20 * (1 + rng.uniform(0, 0.1, (count, 1))) * np.exp(drawn)).round())
    elif name == "variation grows from 1 to 4 %":
        drawn *= np.linspace(1, 4, SHAPED)
    elif name == "daily sine of 3 %, 3 runs a day at any hours":
        hours = np.sort(rng.uniform(0, 24, (count, SHAPED // 3 + 1, 3)), axis=2).reshape(count, -1)[:, :SHAPED]
        drawn += 0.03 * np.sin(2 * np.pi * hours / 24)
    elif name == "every run stored twice, sd 2 %":
        drawn = 2 * drawn[:, runs // 2]
    elif name == "AR(.9), 2 %, 14 runs missing after every 20":
        places = runs + 14 * (runs // 20)
        shocks = rng.normal(0, 0.02 * 0.19**0.5, (count, 3 * SHAPED))
        for run in range(1, shocks.shape[1]):
            shocks[:, run] += 0.9 * shocks[:, run - 1]
        drawn = shocks[:, places + 40]
    return drawn


@dataclass(frozen=True, kw_only=True)
class Days:
    """Histories of 80 runs, in logarithms, with several runs a day, a quarter of an hour apart."""

    runs: int
    day_sd: float
    """Of what the runs of a day share."""
    run_sd: float

    @property
    def name(self) -> str:
        return f"{self.runs} a day: days {self.day_sd:.1%}, their runs {self.run_sd:.1%}"

    @property
    def times(self) -> list[datetime]:
        places = [divmod(run, self.runs) for run in range(SHAPED)]
        return [datetime(2026, 1, 5, 9) + timedelta(days=day, minutes=15 * number) for day, number in places]

    def histories(self, count: int) -> Floats:
        rng = np.random.default_rng([SEED, 10, self.runs])
        of_days = rng.normal(0, self.day_sd, (count, SHAPED))[:, np.arange(SHAPED) // self.runs]
        return of_days + rng.normal(0, self.run_sd, (count, SHAPED))

    def rates(self, count: int) -> tuple[float, float, float, float]:
        """Changes a history by the values alone, and with the times of the runs; and how often a step of 10 % at the
        first run of a day and inside one is found with them."""
        logs, first = self.histories(count), SHAPED // 2 // self.runs * self.runs
        alone, with_times = (sum(len(detect(np.exp(one), times)) for one in logs) / count for times in ((), self.times))
        first_of_day, inside = (
            np.mean(
                [
                    any(abs(change.index - at) <= OFF for change in detect(np.exp(one), self.times))
                    for one in logs + 0.1 * _after(at)
                ]
            )
            for at in (first, first + self.runs // 2)
        )
        return alone, with_times, float(first_of_day), float(inside)


DAYS = (
    *(Days(runs=8, day_sd=0.02, run_sd=0.002), Days(runs=8, day_sd=0.02, run_sd=0.01)),
    *(Days(runs=5, day_sd=0.02, run_sd=0.005), Days(runs=3, day_sd=0.02, run_sd=0.002)),
    *(Days(runs=2, day_sd=0.02, run_sd=0.005), Days(runs=8, day_sd=0.005, run_sd=0.01)),
    Days(runs=8, day_sd=0.0, run_sd=0.02),
)
QUIET = (
    *("heavy tail (t2), scale 1 %", "every seventh run 4 % slower", "4 % on and off with a deploy every 3 runs"),
    *("1 run in 4 10 % slower, sd .3 %", "two levels 20 % apart by chance, sd .3 %"),
    *("20 ms in steps of 1 ms", "variation grows from 1 to 4 %", "daily sine of 3 %, 3 runs a day at any hours"),
    *("every run stored twice, sd 2 %", "AR(.9), 2 %, 14 runs missing after every 20"),
)
SHAPES = {
    "AR(.9), 2 %": Shape(sd=0.02, correlation=0.9),
    "step of 10 % in AR(.9), 2 %": Shape(sd=0.02, correlation=0.9, step=0.1, places=(40,)),
    "the same, ten runs before the end": Shape(sd=0.02, correlation=0.9, step=0.1, places=(70,)),
    "step of 5 % in AR(.9), 2 %": Shape(sd=0.02, correlation=0.9, step=0.05, places=(40,)),
    "leak of 0.2 % a run, sd 1 %": Shape(sd=0.01, leak=0.002),
    "the same, and a step of 10 %": Shape(sd=0.01, leak=0.002, step=0.1, places=(40,)),
    "the same, and a step of 5 %": Shape(sd=0.01, leak=0.002, step=0.05, places=(40,)),
    "leak of -0.2 % a run, and a step of 10 %": Shape(sd=0.01, leak=-0.002, step=0.1, places=(40,)),
    "four steps of 5 %, 16 runs apart, sd 1 %": Shape(sd=0.01, step=0.05, places=(16, 32, 48, 64)),
    "step of 5 %, sd 2 %": Shape(sd=0.02, step=0.05, places=(40,)),
}


def shaped(shape: Shape, histories: int) -> tuple[float, float | None]:
    """False changes a history, and the share of the true steps that is found; None without steps."""
    wrong = right = 0
    for logs in shape.histories(histories):
        found = own(np.exp(logs))
        wrong += sum(all(abs(place - step) > OFF for step in shape.places) for place in found)
        right += sum(any(abs(place - step) <= OFF for place in found) for step in shape.places)
    return wrong / histories, right / histories / len(shape.places) if shape.places else None


def _apart(places: Iterable[int]) -> int:
    """Places further from the one before than a change may shift."""
    ordered = sorted(set(places))
    return sum(place - before > PARAMETERS.shift for before, place in zip([-99, *ordered], ordered, strict=False))


def share(rule: str, histories: int) -> int:
    return max(1, histories // 10) if rule in SLOW else histories


def table(title: str, columns: Iterable[str], rows: Iterable[tuple[str, list[str]]]) -> None:
    print(f"\n{title}\n\n| | {' | '.join(columns)} |\n|---|{'---:|' * len(list(columns))}")
    for name, cells in rows:
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=2000, help="histories a cell (asv: a tenth)")
    parser.add_argument("--replays", type=int, default=100, help="histories judged run by run")
    arguments = parser.parse_args()
    print(f"{NAME} {VERSION}: {PARAMETERS}\n{arguments.histories} histories a cell, cv {CV:.0%}, seed {SEED}")

    def alarms(noise: str) -> list[str]:
        found = (false_alarms(rule, noise, share(name, arguments.histories)) for name, rule in RULES.items())
        return [f"{mean:.3f} ± {error:.3f}" for mean, error in found]

    def seen(step: float, after: int) -> list[str]:
        return [f"{power(rule, step, after, share(name, arguments.histories)):.2f}" for name, rule in RULES.items()]

    table(f"False alarms per history of {RUNS} runs", RULES, ((noise, alarms(noise)) for noise in NOISES))
    table(
        f"Power after {BEFORE} runs, normal noise",
        RULES,
        ((f"{step:.0%} step, {after} runs after", seen(step, after)) for step, after in STEPS),
    )

    def still_seen(step: float, length: int) -> list[str]:
        return [f"{repaired(rule, step, length, share(name, arguments.histories)):.2f}" for name, rule in RULES.items()]

    table(
        "Steps that were put right: reported afterwards all the same (asv means to tell only what still holds)",
        RULES,
        ((f"{step:.0%} step for {length} runs", still_seen(step, length)) for step, length in REPAIRED),
    )
    replayed = ((noise, [f"{rate:.2f}" for rate in run_by_run(noise, arguments.replays)]) for noise in NOISES)
    table(f"{NAME}, asked after each of {RUNS} runs: places a history", ("ever suspected", "ever confirmed"), replayed)
    print("\nHistories of 80 runs: false changes, true steps found within five runs of their place, and the same of a")
    print("test that knows the noise\n")
    for name, shape in SHAPES.items():
        wrong, right = shaped(shape, arguments.histories // 20)
        cells = ("", "") if right is None else (f"{right:.0%}", f"{shape.known(1000):.0%}")
        print(f"| {name} | {wrong:.2f} | {' | '.join(cells)} |", flush=True)
    for name in QUIET:
        logs = quiet(name, arguments.histories // 20)
        wrong = sum(len(own(np.exp(one))) for one in logs) / len(logs)
        stepped = logs + 0.1 * _after(40)
        right = np.mean([any(abs(place - 40) <= OFF for place in own(np.exp(one))) for one in stepped])
        print(f"| {name} | {wrong:.2f} | {right:.0%} | |", flush=True)
    print("\nHistories of 80 runs, a step at run 40: where it is found, runs off at most 0, 1, 2, 5\n")
    for sd, step in ((0.02, 0.03), (0.02, 0.05), (0.02, 0.1), (0.01, 0.03)):
        shape = Shape(sd=sd, step=step, places=(40,))
        off = [min((abs(place - 40) for place in own(np.exp(one))), default=SHAPED) for one in shape.histories(400)]
        found = np.array([one for one in off if one <= 2 * OFF])
        print(f"| {step:.0%}, sd {sd:.0%} | {' | '.join(f'{np.mean(found <= most):.0%}' for most in (0, 1, 2, 5))} |")
    print("\nHistories that are a trend: after 30 runs, after 80, and ever if asked after each of 20 to 80\n")
    for name, shape in {**WANDERING, **LEAKS}.items():
        found_at = trends(shape, arguments.histories // 10)
        print(f"| {name} | {' | '.join(f'{share:.1%}' for share in found_at)} |", flush=True)
    print(
        "\nHistories of 80 runs, several a day: changes by the values alone, with the times of the runs, and steps of"
    )
    print("10 % found at the first run of a day and inside a day\n")
    for days in DAYS:
        alone, with_times, first, inside = days.rates(arguments.histories // 20)
        print(f"| {days.name} | {alone:.2f} | {with_times:.2f} | {first:.0%} | {inside:.0%} |", flush=True)
    started = time.perf_counter()
    rng = np.random.default_rng(SEED)
    for _ in range(200):
        detect(NOISES["normal"](RUNS, rng, CV))
    print(f"\n{(time.perf_counter() - started) / 200 * 1000:.2f} ms a history of {RUNS} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
