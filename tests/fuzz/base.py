"""Good input to change: a database, run files, unfinished runs and batches, a model's folder, a cache; made once."""

from __future__ import annotations

import json
import shutil
import struct
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from benchmarking.builds.store import BuildKey, BuildStore
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import to_json
from tests.fuzz.sandbox import CODE, TOKEN, Command
from tests.helpers.records import make_run

FAMILIES = ("encoder-only", "decoder-only", "vision", "speech", "diffusion", "rag", "mixture-of-experts")
MODEL = {
    "model_type": "bert",
    "vocab_size": 100,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 32,
    "architectures": ["BertModel"],
    "auto_map": {"AutoModel": "modeling_own.Own"},
}
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [{"id": 0, "content": "[PAD]", "special": True}],
    "model": {"type": "WordLevel", "vocab": {"[PAD]": 0, "[UNK]": 1, "a": 2}, "unk_token": "[UNK]"},
    "pre_tokenizer": {"type": "Whitespace"},
}
TENSORS = {"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, "__metadata__": {"format": "pt"}}


@cache
def run_files() -> tuple[Any, ...]:
    """Runs as their files hold them."""
    small = {"batch_sizes": (1, 2), "iterations": 3, "launches": 2}
    runs = [
        make_run(family=family, model_id=f"model-{family}", started_at=f"2026-01-{day:02}T03:04:05Z", **small)
        for day, family in enumerate(FAMILIES, start=1)
    ]
    runs += [make_run(with_failed=True, with_doubtful=True, **small)]
    return tuple(json.loads(json.dumps(to_json(run))) for run in runs)


@cache
def database(folder: Path) -> Path:
    """A database with some runs, of several days and runtimes."""
    from db.warehouse import Warehouse

    path = folder / "base.duckdb"
    small = {"batch_sizes": (1, 2), "iterations": 4, "launches": 1}
    with Warehouse.open(path) as warehouse:
        for day in range(1, 13):
            for runtime in ("eager", "compiled"):
                started_at = f"2026-01-{day:02}T03:04:05Z"
                warehouse.ingest(make_run(runtime=runtime, started_at=started_at, slowdown=1 + day / 50, **small))
        warehouse.ingest(make_run(family="decoder-only", model_id="gpt2", with_failed=True, with_doubtful=True))
    return path


@cache
def unfinished(folder: Path) -> tuple[Path, Path]:
    """The files of an unfinished run and of an unfinished batch of it, on the null device."""
    from benchmarking.batch.batch_run import Manifest
    from benchmarking.batch.summary import BatchInfo
    from benchmarking.measure.context import settings
    from benchmarking.sweep.plan.request import Request, plan_cell
    from benchmarking.sweep.run import journal
    from benchmarking.sweep.run.supervisor import Observer, Track, sweep

    session = uuid7()
    quick = settings("quick", iterations=2, warmup_iterations=1, launches=1)
    grid = {"batch_sizes": (1,), "sequence_lengths": (32,), "weights": "random", "settings": quick}
    plan = plan_cell(Request(model_id="tiny-bert", device="null", **grid), session)
    (runs := folder / "unfinished").mkdir()
    track = Track(plan, runs)
    sweep([track], Observer())
    about = BatchInfo(
        session_id=session, command=("batch",), started_at="2026-01-02T03:04:05Z", db_path=None, report="report.md"
    )
    manifest = Manifest.create(runs, about, (plan,)).path
    (partial,) = runs.glob("*.partial.jsonl")
    for path in (partial, manifest):
        journal.append(path, "Owner", json.dumps({"host": "elsewhere", "pid": 1, "created_s": 0.0}))
    return partial, manifest


def write_model(folder: Path, files: dict[str, bytes] | None = None) -> None:
    """A small model's folder with code that must not run; `files` replace its own."""
    folder.mkdir()
    header = json.dumps(TENSORS).encode()
    own = {
        "config.json": json.dumps(MODEL).encode(),
        "tokenizer.json": json.dumps(TOKENIZER).encode(),
        "tokenizer_config.json": json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
        ).encode(),
        "generation_config.json": json.dumps({"max_new_tokens": 4, "eos_token_id": 2}).encode(),
        "model.safetensors": struct.pack("<Q", len(header)) + header + bytes(16),
        **{
            name: CODE.encode() for name in ("modeling_own.py", "numpy.py", "random.py", "types.py", "sitecustomize.py")
        },
    }
    for name, content in {**own, **(files or {})}.items():
        (folder / name).write_bytes(content)


def write_cache(folder: Path) -> list[Path]:
    """A cache with some builds; their folders."""

    def fill(build: Path) -> dict[str, Any]:
        (build / "model.onnx").write_bytes(b"onnx")
        return {"opset": 20}

    store = BuildStore(folder)
    keys = [BuildKey(kind=kind, parts={"model_id": "tiny-bert", "kind": kind}) for kind in ("onnx", "reference")]
    for key in keys:
        store.get(key, fill)
    return [store.folder(key) for key in keys]


def reading(random: Random, database: str) -> Command:
    """A command that reads a database: it writes nothing, or a new file."""
    words = random.choice(
        (
            ("query", "SELECT * FROM all_results"),
            ("query", "SELECT * FROM raw_benchmark_data", "--format", "csv"),
            ("query", "SELECT * FROM benchmark_runs", "--format", "json"),
            ("query", "--describe"),
            ("compare", "runtime=eager", "runtime=compiled"),
            ("compare", "all", "--by", "runtime", "--json"),
            ("history",),
            ("history", "--json"),
            ("regressions", "--no-update"),
            ("series", "list"),
            ("check", "--no-alerts"),
            ("alert", "list"),
            ("annotate", "list"),
            ("recommend", "bert-base-uncased"),
            ("export", "--format", "markdown"),
            ("export", "--format", "csv", "--tables", "all", "--output", "made"),
            ("export", "--format", "json", "--output", "made"),
            ("export", "--format", "llama_bench_sql"),
            ("export", "--format", "openmetrics"),
            ("export", "--format", "parquet", "--output", "made"),
            ("compact", "--raw-older-than", "1d", "--dry-run"),
        )
    )
    writes = ("work/made", f"work/{database}.wal")
    return Command(words=(*words, "--db-path", database), writes=writes, limit_s=90)


def verifying(database: str, *, must_hold: bool) -> Command:
    """The command that verifies a database, which must find nothing where only our commands wrote to it."""
    words = ("setup_benchmark_db", "--verify", "--quiet", "--db-path", database)
    return Command(words=words, codes=(0,) if must_hold else (0, 1), lines=200)


def copied(source: Path, target: Path) -> None:
    """A copy of a file."""
    shutil.copyfile(source, target)


def is_marked(content: bytes) -> bool:
    """Whether the user's own file is in the content."""
    return TOKEN.encode() in content
