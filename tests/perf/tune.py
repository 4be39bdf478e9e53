"""Prints how good the answers of `benchhouse tune` are, and how soon they come, against measuring everything.

    python tests/perf/tune.py [SPACES]

Each row is a kind of noise from docs/judging.md, replayed over random spaces: cells (runtime, precision, threads) with
a time to load, and batch sizes in each, some of them nearly as good as the best; half of the spaces have a limit on
latency. The race of the command decides; only its launches are simulated. Everything measured means eight launches of
full length of each cell. The race gets a quarter of that time.

The columns: the share of spaces in which the choice costs at most 3 % more than the best one that truly meets the
limit; the regret that 95 % do not exceed; the choices that truly miss the limit by more than 1 %; and the time, as a
share of measuring everything, on average and at most.

A second table says how soon the screening comes to a cell that costs at most 3 % more than the best, over random
spaces of runtimes, precisions and settings that have effects in common, with builds of 0, 10 or 30 s for each runtime:
the share of the time of one launch of all cells, and the spaces where a quarter and where 45 % of that time are enough.
Last, how often configurations that are equal leave the race as behind.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

import numpy as np

from benchmarking.core.tables import Table, table_text
from benchmarking.core.verdicts.launches import ROUNDS_TO_PROVE, random_order
from benchmarking.core.verdicts.standing import standing
from benchmarking.tuning.race import Entrant, Launch, Race, Traits, Tried, improvement, traits
from tests.helpers.verdict_replay import TURN_CASES

SPACES = 200
NOISES = (
    *("launch sd 1 %", "launch sd 2 %", "launch sd 3 %", "heavy tail (t3), 2 %", "skewed, mean 3 %"),
    *("two levels, 1 in 4 10 % slower", "neighbour, 1 in 10 20 % slower", "AR(.8), 1 %", "AR(.95), 3 %"),
    *("drift of 10 %", "one switch by 10 %", "sine of 4 launches, 5 %", "sine of 10 launches, 5 %"),
)
GOOD = 0.03
"""Regret that counts as right."""
BUDGET = 0.25
"""Time of a search, as a share of measuring everything."""
FULL_S, SHORT_S = 3.0, 1.0
"""Time of a point in a launch."""
WITHIN_SD = 0.003
"""Of the points of one launch."""
SHORT_SD = 0.01
"""What the few calls of a short launch add."""
UNSEEN = 0.10
"""How far other launches may be below a launch's value: the bound of a limited quantity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The truth about a space."""

    costs: dict[str, float]
    """Configuration -> time per item."""
    excess: dict[str, float]
    """Configuration -> its latency as a share of the limit; empty without a limit."""
    cells: dict[str, list[str]]
    load_s: dict[str, float]

    @property
    def exhaustive_s(self) -> float:
        """The time to measure everything."""
        return ROUNDS_TO_PROVE * sum(self.load_s[cell] + FULL_S * len(keys) for cell, keys in self.cells.items())


def random_space(rng: np.random.Generator) -> Space:
    """A space: cells differ by up to a few times, batch sizes gain less and less."""
    cells: dict[str, list[str]] = {}
    costs: dict[str, float] = {}
    latency: dict[str, float] = {}
    load_s: dict[str, float] = {}
    spread = rng.choice([0.1, 0.25, 0.5])
    for number in range(rng.integers(6, 37)):
        cell, gain = f"c{number}", rng.uniform(0.0, 0.4)
        base = math.exp(rng.normal(0.0, spread))
        load_s[cell] = rng.uniform(1.0, 8.0)
        batches = [2**power for power in range(rng.integers(1, 7))]
        cells[cell] = [f"{cell} b{batch}" for batch in batches]
        for key, batch in zip(cells[cell], batches, strict=True):
            costs[key] = base * batch**-gain * math.exp(rng.normal(0.0, 0.05))
            latency[key] = costs[key] * batch
    limit = float(np.quantile(list(latency.values()), rng.uniform(0.2, 0.9))) if rng.random() < 0.5 else None
    excess = {} if limit is None else {key: value / limit for key, value in latency.items()}
    return Space(costs=costs, excess=excess, cells=cells, load_s=load_s)


def search(space: Space, effects: np.ndarray, rng: np.random.Generator, seed: str) -> tuple[str | None, float]:
    """The choice of a race with simulated launches, and the time that it took."""
    cell_of = {key: cell for cell, keys in space.cells.items() for key in keys}
    race = Race([Entrant(key=key, cell=cell) for key, cell in cell_of.items()])
    budget_s, spent_s, launch = BUDGET * space.exhaustive_s, 0.0, 0

    def cost_s(cell: str, keys: Collection[str]) -> float:
        return space.load_s[cell] + (SHORT_S if race.round == 0 else FULL_S) * len(keys) if keys else 0.0

    while race.readmit(budget_s - spent_s, cost_s) or not race.is_over():
        if race.round:
            race.narrow(budget_s - spent_s, cost_s)
        for cell in random_order(seed, race.round, race.cells):
            needed_s = cost_s(cell, race.keys_of(cell))
            if spent_s + needed_s > budget_s:
                continue
            spent_s += needed_s
            shared, launch = effects[launch % len(effects)], launch + 1
            for key in race.keys_of(cell):
                own = rng.normal(0.0, math.hypot(WITHIN_SD, SHORT_SD if race.round == 0 else 0.0))
                factor = math.exp(shared + own)
                excess = {"latency": space.excess[key] * factor} if space.excess else {}
                bound = {name: value / (1 + UNSEEN) for name, value in excess.items()}
                race.record(key, Launch(cost=space.costs[key] * factor, excess=excess, least_excess=bound))
        race.settle()
    fitting = [key for key, one in race.entrants.items() if (excess := one.excess) is not None and excess <= 1]
    costs = {key: race.entrants[key].costs for key in fitting if race.entrants[key].out in (None, "no room")}
    answer = standing(costs, cell_of.__getitem__)
    return (None if answer is None else answer.best), spent_s / space.exhaustive_s


def replay(noise: str, spaces: int) -> tuple[str, ...]:
    """A row of the table."""
    rng = np.random.default_rng([NOISES.index(noise), spaces])
    regrets, missed, times = [], 0, []
    for number in range(spaces):
        space = random_space(rng)
        effects = TURN_CASES[noise](rng, 400)
        chosen, time = search(space, effects, rng, f"{noise} {number}")
        times.append(time)
        fitting = {key: cost for key, cost in space.costs.items() if space.excess.get(key, 0.0) <= 1}
        if chosen is None:
            regrets.append(0.0 if not fitting else math.inf)
            continue
        missed += space.excess.get(chosen, 0.0) > 1.01
        regrets.append(space.costs[chosen] / min(fitting.values()) - 1 if fitting else math.inf)
    right = sum(regret <= GOOD for regret in regrets) / spaces
    worst = sorted(regrets)[math.ceil(0.95 * spaces) - 1]
    return (
        noise,
        f"{right:.1%}",
        f"{worst:.1%}",
        f"{missed / spaces:.1%}",
        f"{np.mean(times):.0%}",
        f"{max(times):.0%}",
    )


ORDERS = ("random", "defaults first, the rest by their base", "by promise")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedCell:
    """The truth about a cell of a space of runtimes, precisions and settings."""

    base: tuple[str, str]
    settings: Mapping[str, object]
    log_cost: float
    launch_s: float
    build_s: float

    @property
    def traits(self) -> Traits:
        return traits(*self.base, self.settings)


def screened_space(rng: np.random.Generator) -> list[ScreenedCell]:
    """A random space: each runtime, precision, setting, and each combination has an effect of its own."""
    precisions = {"float32": 0.0, "bfloat16": 0.2, "float16": 0.3, "int8": -0.3, "int4": -0.5}
    effects = {name: rng.normal(mean, 0.3) for name, mean in precisions.items()}
    cells = []
    for runtime in range(rng.integers(3, 10)):
        build_s, launch_s, own = rng.choice([0, 10, 30]), rng.uniform(3, 8), rng.normal(0, 0.5)
        options = [f"option {number}" for number in range(rng.integers(0, 4))]
        settings: list[dict[str, object]] = [{}, {"threads": 1}, *({option: "on"} for option in options)]
        settings += [{option: "on", "threads": 1} for option in options]
        gains = {"threads": rng.normal(0.2, 0.4)} | {option: rng.normal(0.05, 0.15) for option in options}
        for precision in [name for name in precisions if rng.random() > 0.25]:
            base = own + effects[precision] + rng.normal(0, 0.3)
            for one in settings:
                gain = sum(gains[name] for name in one)
                cost = base + gain + (rng.normal(0, 0.15) if one else 0.0)
                cells.append(
                    ScreenedCell(
                        base=(f"r{runtime}", precision),
                        settings=one,
                        log_cost=float(cost),
                        launch_s=float(launch_s),
                        build_s=float(build_s),
                    )
                )
    return cells


def time_to_the_best(cells: Sequence[ScreenedCell], order: str, rng: np.random.Generator) -> float:
    """The share of the time of all cells after which one within 3 % of the best has been tried."""
    waiting = [cells[place] for place in rng.permutation(len(cells))]
    best, spent_s, found_s = min(cell.log_cost for cell in cells), 0.0, math.inf
    tried: list[ScreenedCell] = []
    while waiting:
        built = {cell.base for cell in tried}
        if order == "by promise":
            improves = improvement(
                [cell.traits for cell in waiting],
                [
                    Tried(traits=cell.traits, log_cost=cell.log_cost + rng.normal(0, WITHIN_SD + SHORT_SD))
                    for cell in tried
                ],
            )

            def place(at: int, improves: Sequence[float] = improves, built: set[tuple[str, str]] = built) -> float:
                cell = waiting[at]
                if cell.settings and cell.base not in built:
                    return math.inf
                return -improves[at] / (cell.launch_s + cell.build_s * (cell.base not in built))

            cell = waiting.pop(min(range(len(waiting)), key=place))
        elif order == "random":
            cell = waiting.pop()
        else:
            costs = {base: min(cell.log_cost for cell in tried if cell.base == base) for base in built}
            cell = min(waiting, key=lambda one: (bool(one.settings), costs.get(one.base, 0.0), len(one.settings)))
            waiting.remove(cell)
        spent_s += cell.launch_s + cell.build_s * (cell.base not in built)
        tried.append(cell)
        if cell.log_cost <= best + math.log1p(GOOD):
            found_s = min(found_s, spent_s)
    return found_s / spent_s


def order_row(order: str, spaces: int) -> tuple[str, ...]:
    """A row of the second table."""
    shares = []
    for number in range(spaces):
        rng = np.random.default_rng([number, spaces])
        shares.append(time_to_the_best(screened_space(rng), order, rng))
    middle, most = np.quantile(shares, [0.5, 0.9])
    enough = [np.mean(np.array(shares) <= share) for share in (0.25, 0.45)]
    return (order, f"{middle:.0%}", f"{most:.0%}", *(f"{share:.0%}" for share in enough))


def left_though_equal(count: int, sd: float, races: int) -> tuple[float, float]:
    """Of so many equal configurations, the share that leaves the race as behind the best, and how far behind 95 % of
    these are measured."""
    rng, behind = np.random.default_rng([count, round(1000 * sd)]), list[float]()
    for _ in range(races):
        race = Race([Entrant(key=str(number), cell=str(number)) for number in range(count)])
        while not race.is_over():
            for key in race.cells:
                race.record(key, Launch(cost=math.exp(sd * rng.standard_normal())))
            race.settle()
        reasons = [str(one.reason) for one in race.entrants.values() if one.out == "behind"]
        behind += [float(reason.partition("%")[0]) / 100 for reason in reasons]
    return len(behind) / races / (count - 1), float(np.quantile(behind, 0.95)) if behind else 0.0


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; the only argument is the number of spaces behind each row."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    spaces = int(arguments[0]) if arguments else SPACES
    orders = [order_row(order, spaces) for order in ORDERS]
    words = ("order of the screening", "median", "90 % within", "a quarter is enough", "45 % are enough")
    print(table_text(Table(headings=words, rows=tuple(orders), numbers=tuple(range(1, len(words))))), flush=True)
    print()
    rows = [replay(noise, spaces) for noise in NOISES]
    headings = ("noise of launches", "within 3 %", "95 % within", "misses limit", "time", "most")
    print(table_text(Table(headings=headings, rows=tuple(rows), numbers=tuple(range(1, len(headings))))), flush=True)
    print("\nequal configurations that leave as behind the best, and how far behind 95 % of these are measured")
    for sd in (0.01, 0.02, 0.03):
        found = [(count, *left_though_equal(count, sd, spaces)) for count in (2, 5, 10, 20)]
        print(f"launch sd {sd:.0%}: {', '.join(f'of {count} {share:.0%}, {far:.0%}' for count, share, far in found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
