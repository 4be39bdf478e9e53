"""Prints false alarms and detections of the change point detector, and of three other rules.

    python tests/perf/detector.py [--histories 2000] [--replays 100]

False alarms: histories of 100 runs without any change, of each noise of tests/helpers at cv 2 %; reported places a
history, with the standard error. The detector reports changes either way, the others regressions only. "Asked after
each run" is what people do: it counts every place that was ever suspected, and ever confirmed.
Power: 60 runs of normal noise, then a step; the share of histories in which it is reported not more than 5 runs off.
All from fixed seeds: the same numbers everywhere.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from rivals import RIVALS, Floats

from db.analysis.history.detector import DEFAULT, NAME, VERSION, detect
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


def correlated(rng: np.random.Generator) -> Floats:
    """An AR(.9) process of 2 %."""
    walk = np.zeros(3 * SHAPED)
    for place, shock in enumerate(rng.normal(0, 0.02 * 0.19**0.5, len(walk) - 1)):
        walk[place + 1] = 0.9 * walk[place] + shock
    return walk[-SHAPED:]


def steady(sd: float) -> Callable[[np.random.Generator], Floats]:
    return lambda rng: rng.normal(0, sd, SHAPED)


def _steps(size: float, *places: int) -> Floats:
    """The sum of steps of one size."""
    return size * sum((np.arange(SHAPED) >= place).astype(float) for place in places)


SHAPED = 80
LEAK = 0.002 * np.arange(SHAPED)
SHAPES: dict[str, tuple[Callable[[np.random.Generator], Floats], tuple[int, ...]]] = {
    "AR(.9), 2 %": (correlated, ()),
    "leak of 0.2 % a run, sd 1 %": (lambda rng: steady(0.01)(rng) + LEAK, ()),
    "the same, and a step of 10 %": (lambda rng: steady(0.01)(rng) + LEAK + _steps(0.1, 40), (40,)),
    "the same, and a step of 5 %": (lambda rng: steady(0.01)(rng) + LEAK + _steps(0.05, 40), (40,)),
    "four steps of 5 %, sd 1 %": (lambda rng: steady(0.01)(rng) + _steps(0.05, 16, 32, 48, 64), (16, 32, 48, 64)),
    "step of 5 %, sd 2 %": (lambda rng: steady(0.02)(rng) + _steps(0.05, 40), (40,)),
    "step of 10 % in AR(.9), 2 %": (lambda rng: correlated(rng) + _steps(0.1, 40), (40,)),
}
"""Histories in logarithms, and where their true steps are."""


def shaped(
    history: Callable[[np.random.Generator], Floats], steps: tuple[int, ...], histories: int
) -> tuple[float, float | None]:
    """False changes a history, and the share of the true steps that is found; None without steps."""
    rng = np.random.default_rng([SEED, 5])
    wrong = right = 0
    for _ in range(histories):
        found = own(np.exp(history(rng)))
        wrong += sum(all(abs(place - step) > OFF for step in steps) for place in found)
        right += sum(any(abs(place - step) <= OFF for place in found) for step in steps)
    return wrong / histories, right / histories / len(steps) if steps else None


def _apart(places: Iterable[int]) -> int:
    """Places further from the one before than a change may shift."""
    ordered = sorted(set(places))
    return sum(place - before > DEFAULT.shift for before, place in zip([-99, *ordered], ordered, strict=False))


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
    print(f"{NAME} {VERSION}: {DEFAULT}\n{arguments.histories} histories a cell, cv {CV:.0%}, seed {SEED}")

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
    print("\nHistories of 80 runs: false changes, and true steps found within five runs of their place\n")
    for name, (history, steps) in SHAPES.items():
        wrong, right = shaped(history, steps, arguments.histories // 20)
        print(f"| {name} | {wrong:.2f} | {'' if right is None else f'{right:.0%}'} |", flush=True)
    started = time.perf_counter()
    rng = np.random.default_rng(SEED)
    for _ in range(200):
        detect(NOISES["normal"](RUNS, rng, CV))
    print(f"\n{(time.perf_counter() - started) / 200 * 1000:.2f} ms a history of {RUNS} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
