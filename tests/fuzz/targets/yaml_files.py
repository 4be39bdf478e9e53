"""YAML: lists of models and prices of devices."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.fuzz.base import copied, database
from tests.fuzz.mutations import bytes_mutated, text_mutated
from tests.fuzz.sandbox import Command, Scratch

LISTS = (
    "profile: quick\nbatch_sizes: [1, 4]\nmodels:\n  - {id: tiny-bert, sequence_lengths: [32]}\n  - tiny-gpt2\n",
    "defaults: {profile: quick, tags: {suite: nightly}}\nmodels: [tiny-bert]\n"
    'overrides:\n  - {match: "tiny-*", launches: 2, tags: {who: me}}\n',
    "models:\n  - &one {id: tiny-bert, launches: 2, batch_sizes: [1]}\n  - {<<: *one, id: tiny-gpt2}\n",
    "models: [tiny-bert]\ndevices: ['null']\nprecisions: [float32]\n"
    "grids:\n  - {batch_sizes: [1], sequence_lengths: [8]}\n",
    "tiny-bert\n# remark\ntiny-gpt2  # remark\n",
)
PRICES = ("currency: EUR\nper_hour:\n  cpu: 0.40\n  NVIDIA H100 80GB HBM3: 3.90\n",)
BOMBS = (
    "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)),
    "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 9)),
    "x: 1" + ":59" * 5000 + "\n",
    "x: " + "9" * 5000 + "\n",
    "x: !!int 0x\n",
    "x: 2026-02-30\n",
    "x: !!python/object/apply:os.system ['touch ../outside/pwned']\n",
    "x: &x [*x]\n",
    "? " * 2000 + "x\n",
    "[" * 5000 + "]" * 5000 + "\n",
    "{a: " * 3000 + "\n",
    "- " * 5000 + "x\n",
    "x: !!binary " + "A" * 100_000 + "\n",
    "%YAML 9.9\n---\nx: 1\n",
    "x: |\n" + "  y\n" * 50_000,
    "x: !!timestamp 99999-99-99\n",
    "x: .inf\ny: .nan\nz: 1e999\n",
    "<<: 1\n",
    '"\\uD800": 1\n',
    "!!set {a, b}\n",
    "!!omap [a: 1]\n",
    "---\na: 1\n---\nb: 2\n",
)


def make(random: Random, scratch: Scratch, base: Path) -> tuple[Command, ...]:
    """Write the input of a case; its commands."""
    is_list = random.random() < 0.7
    text = random.choice(LISTS if is_list else PRICES)
    if random.random() < 0.3:
        lines = text.splitlines(keepends=True)
        lines.insert(random.randrange(len(lines) + 1), random.choice(BOMBS))
        text = "".join(lines)
    if random.random() < 0.8:
        text = text_mutated(random, text)
    content = text.encode("utf-8", "surrogatepass")
    if random.random() < 0.15:
        content = bytes_mutated(random, content)
    name = random.choice(("given.yaml", "given.yaml", "given.yml", "given.txt"))
    (scratch.work / name).write_bytes(content)
    if is_list:
        words = ("batch_benchmark", "--model-list", name, "--dry-run", "--devices", "null", "--output-dir", "made")
        return (Command(words=words, writes=("work/made",)),)
    copied(database(base), scratch.work / "mine.duckdb")
    words = ("recommend", "bert-base-uncased", "--price", name, "--db-path", "mine.duckdb")
    return (Command(words=words),)
