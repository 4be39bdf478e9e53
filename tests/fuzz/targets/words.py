"""Words of command lines, selections and SQL of the user, tags, and variables of the environment."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.fuzz.base import copied, database
from tests.fuzz.mutations import CONDITIONS, WORDS, text_mutated
from tests.fuzz.sandbox import Command, Scratch

FIELDS = ("run", "session", "commit", "model", "family", "task", "device", "runtime", "batch", "sequence", "series")
FURTHER = ("tag.suite", "tag.", "since", "until", "validity", "format", "x", "concurrency", "threads")
QUERIES = (
    "SELECT * FROM all_results",
    "SELECT model_id, count(*) FROM all_results GROUP BY ALL ORDER BY 2 DESC LIMIT 3",
    "WITH a AS (SELECT * FROM series) SELECT * FROM a JOIN benchmark_results USING (series_id)",
    "DESCRIBE benchmark_runs",
    "EXPLAIN ANALYZE SELECT 1",
    "PIVOT benchmark_results ON status USING count(*)",
    "SELECT $a, $b",
    "SELECT now(), 'x'::BLOB, {'a': [1]}, MAP {'a': 1}, INTERVAL 1 DAY, 'a\x1b[31m'",
    "SELECT 1e308::DOUBLE * 10, 'nan'::DOUBLE, 170141183460469231731687303715884105727::HUGEINT, DATE '9999-12-31'",
)
VARIABLES = ("BENCHMARK_DB_PATH", "COLUMNS", "LINES", "TERM", "NO_COLOR", "FORCE_COLOR", "HOME", "TMPDIR", "TZ", "LANG")
MORE_VARIABLES = ("BENCHHOUSE_CACHE_DIR", "BENCHHOUSE_LOCK_DIR", "XDG_CACHE_HOME", "PATH", "HF_ENDPOINT", "USER")
DRY = ("run_hardware_benchmark", "--device", "null", "--dry-run", "--weights", "random")


def make(random: Random, scratch: Scratch, base: Path) -> tuple[Command, ...]:
    """Write the input of a case; its commands."""
    copied(database(base), scratch.work / "mine.duckdb")
    words = [word.replace("\0", "") for word in _words(random)]
    environment = {}
    if random.random() < 0.2:
        name = random.choice((*VARIABLES, *MORE_VARIABLES))
        environment[name] = random.choice(WORDS).replace("\0", "")[:100_000]
    writes = ("work/mine.duckdb", "work/made")
    return (Command(words=tuple(words), writes=writes, limit_s=60, environment=environment),)


def _words(random: Random) -> list[str]:
    selection = _selection(random)
    hostile = random.choice(WORDS)
    words = random.choice(
        (
            ["query", _query(random), "--timeout", "3"],
            ["query", random.choice(QUERIES), "--param", f"a={hostile}", "--param", f"b={hostile}", "--timeout", "3"],
            ["compare", selection, _selection(random)],
            ["compare", selection, "--by", random.choice(("runtime", "device", hostile))],
            ["history", selection, "--metric", random.choice(("latency_median_ms", hostile))],
            ["regressions", selection, "--since", random.choice(("2026-01-01", hostile)), "--no-update"],
            ["series", "list", selection],
            ["series", "alias", hostile, random.choice(WORDS), "--reason", random.choice(WORDS)],
            ["check", selection, "--metric", random.choice(("latency_median_ms", hostile)), "--no-alerts"],
            ["alert", random.choice(("list", "raise", "set")), hostile],
            ["annotate", "add", hostile, hostile],
            ["recommend", random.choice(("gpt2", hostile)), "--among", selection],
            ["export", selection, "--format", random.choice(("csv", "json", "markdown", "openmetrics", hostile))],
            ["compact", selection, "--raw-older-than", random.choice(("1d", hostile)), "--dry-run"],
            ["visualize_benchmarks", "--model-id", hostile, "--output-dir", "made", "--formats", "svg"],
            [*DRY, "--model-id", random.choice(("tiny-bert", hostile)), "--batch-sizes", hostile],
            [*DRY, "--model-id", "tiny-bert", "--tag", f"{hostile}={random.choice(WORDS)}", "--description", hostile],
            [
                *DRY,
                "--model-id",
                "tiny-bert",
                "--output-dir",
                "made",
                "--sequence-lengths",
                random.choice(("32", hostile)),
            ],
            ["import", hostile, "--date", random.choice(WORDS), "--tag", random.choice(WORDS)],
            ["merge", hostile],
            [hostile, selection],
        )
    )
    if words[0] not in ("run_hardware_benchmark", hostile):
        words += ["--db-path", "mine.duckdb"]
    if random.random() < 0.1:
        words.insert(random.randrange(1, len(words) + 1), random.choice(WORDS))
    return words


def _selection(random: Random) -> str:
    condition = random.choice(CONDITIONS)
    if random.random() < 0.4:
        return f"sql:{condition}"
    pairs = [
        f"{random.choice((*FIELDS, *FURTHER))}={random.choice(('eager', 'bert', '1', *WORDS))}"
        for _ in range(random.choice((1, 1, 2, 4)))
    ]
    return random.choice((",".join(pairs), random.choice(WORDS), "latest", "all", "runtime=eager"))


def _query(random: Random) -> str:
    match random.randrange(3):
        case 0:
            return text_mutated(random, random.choice(QUERIES))
        case 1:
            return f"SELECT {random.choice(CONDITIONS)}"
    return f"SELECT * FROM all_results WHERE {random.choice(CONDITIONS)}"
