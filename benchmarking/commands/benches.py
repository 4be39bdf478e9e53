"""Runs your own benchmarks in ./benches, or with --model an exported ONNX model. Takes the flags of benchhouse batch;
results are stored, and written in the layout of benchmark_v2 too. Without a folder ./benches our examples are run,
and stored only with --save, --output-dir or --db-path, or beside a MODEL.

benchhouse benches [--include PATTERN ...] [--model-id MODEL] [--measurement-iterations N] ...
    also writes each benchmark's results to OUTPUT_DIR/MODEL/MODEL_benchmark_TIME.json, in the layout of benchmark_v2;
    also takes --num-tokens-to-generate, --enable-mock and --log-level

benchhouse benches --print-example
    prints a file to copy: two benchmarks that need no torch, with what each method is for

benchhouse benches --model MODEL [--num-iterations N] [--batch-size N] [--seq-length N] [--output FILE] ...
    measures an exported model in ONNX Runtime: a file or folder, or a name in ./models; a name that is not exported yet
    is exported to the cache. Takes the flags of benchhouse run too. Defaults: 100 iterations, 5 for warm-up,
    batch size 1, sequence length 128, device cpu. Run files go to ./results/raw if there is a folder ./results

benchhouse benches --list-models
    lists the exported models that --model finds
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from benchmarking.batch.cell_plans import DEFAULT_BENCHES, FLAGS_OF_MODELS
from benchmarking.batch.summary import BatchSummary
from benchmarking.commands import batch, run
from benchmarking.core.command_line import command, note
from benchmarking.core.command_names import as_typed
from benchmarking.core.errors import EXIT_OK, UsageError
from benchmarking.core.plugins import export_runtimes, processor
from benchmarking.core.records import Result, Run, to_json
from benchmarking.core.run_file import read_run
from benchmarking.core.scenario_file import scenario_file
from benchmarking.core.shared_settings import DEFAULT_OUTPUT_DIR
from benchmarking.core.suggestions import BENCH_WORDS, flags_in, in_our_words, repeated, taken, with_defaults
from benchmarking.sweep.run import spool

NAME = "run_benchmarks"
PATTERNS = ("--include", "--exclude")
"""Flags that take several patterns, in benchmark_v2 separated by spaces."""
MODEL_WORDS = {"--num-iterations": "--iterations", "--seq-length": "--sequence-lengths"}
"""Flags of the two tools with a script of this name -> ours."""
USAGE = "%(prog)s [--benches DIR | --model MODEL] [flags]"
EXAMPLES = """\
a benchmark is a class in ./benches/ANY_NAME.py (--print-example prints some):
  from benchmarking import BenchmarkConfig, ModelBenchmark
  class Mine(ModelBenchmark):
      configs = (BenchmarkConfig(name="mine", batch_size=1),)
      def setup_model(self): self.model = load_it()
      def run(self): return self.model()  # what is timed

examples:
  benchhouse benches --include 'mine*' --iterations 20
  benchhouse benches --benches other/bench.py --device cpu --enable-mock
  benchhouse benches --model models/bert.onnx --iterations 50
"""
FIRST_WORDS = {
    "run start measure all test": "without a word, all benchmarks in ./benches are run",
    "list ls show": "--dry-run lists what would be measured",
    "init new create add example template": "--print-example prints a file to copy to ./benches",
}
"""Actions of other tools -> what does that here."""
ASKING = ("--save", "--no-save", "--output-dir", "--db-path", "--dry-run", "--models", "--model-list")
"""Flags that say what to do with results, or whose results are the user's: our examples are then stored like them."""
MODELS = "models"
ENDING = ".onnx"
RAW = Path(spool.RESULTS_DIR) / "raw"
MODEL_DEFAULTS = ("--device", processor().name, "--iterations", "100", "--warmup-iterations", "5")
MODEL_SIZES = {"batch_size": 1, "sequence_length": 128}


@command(NAME)
def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    model, words = taken(argv, "--model")
    if model is not None:
        return _measure_exported(model, in_our_words(words, MODEL_WORDS))
    if "--list-models" in [word.replace("_", "-") for word in argv]:
        paths = _exported()
        for path, name in sorted({path: name for name, path in reversed(paths.items())}.items()):
            print(f"{name}  {path}")
        if not paths:
            note(
                f"no exported model in ./{MODELS} or this folder: make one with {as_typed('export-model')} MODEL, or "
                f"see the models that can be exported with {as_typed('run')} --list-models"
            )
        return EXIT_OK
    if "--print-example" in argv:
        from benchmarking.benches.discovery import EXAMPLE

        print(EXAMPLE.read_text(encoding="utf-8"), end="")
        return EXIT_OK
    if "--seq-length" in flags_in(argv):
        raise UsageError("--seq-length requires --model MODEL: benchmarks set it in their configurations")
    _check_first_word(argv)
    words = repeated(in_our_words(argv, BENCH_WORDS), PATTERNS)
    remark = None
    if not {"--benches", "--resume", "-h", "--help", "--help-all", "--help-options"}.intersection(flags_in(words)):
        folder = DEFAULT_BENCHES
        if not Path(folder).is_dir():
            from benchmarking.benches.discovery import EXAMPLES as SHIPPED

            folder = str(SHIPPED)
            is_asked = bool({*ASKING} & {*flags_in(words)}) or not next(iter(words), "-").startswith("-")
            stored = "" if is_asked else "; nothing is stored without --save"
            remark = (
                f"there is no folder ./{DEFAULT_BENCHES}: the examples in {folder} are run{stored} (--benches DIR runs "
                "your own, --print-example prints one to copy)"
            )
            words = words if is_asked else ["--no-save", *words]
        words = ["--benches", folder, *words]
    return batch.run(
        words,
        NAME,
        __doc__,
        _write_scenarios,
        remark,
        usage=USAGE,
        examples=EXAMPLES,
        rare={"model_ids", "model_list", *FLAGS_OF_MODELS},
    )


def _check_first_word(argv: Sequence[str]) -> None:
    """Raise UsageError for a first word that is neither a flag nor a model, but an action or the name of a benchmark in
    other tools."""
    word = next(iter(argv), "-")
    if not word.startswith("-") and word.endswith(".py"):
        how = f"--benches {shlex.quote(word)}"
        raise UsageError(f"unexpected argument {word!r}: benchmarks of your own in a file are {how}")
    if word.startswith("-") or "/" in word or Path(word).exists():
        return
    from benchmarking.workloads.support.families import catalog_entry

    if catalog_entry(word) is None:
        answer = next((answer for words, answer in FIRST_WORDS.items() if word.lower() in words.split()), None)
        name = shlex.quote(word)
        answer = answer or f"a benchmark is chosen by --include {name}, a model by --model-id {name}"
        raise UsageError(f"unexpected argument {word!r}: {answer}")


def _write_scenarios(folder: Path, batch: BatchSummary) -> None:
    """Write a file in the layout of benchmark_v2 for each name under which benchmarks save their results."""
    from benchmarking.benches.runner import write_scenarios

    found: dict[str, list[tuple[Run, Result]]] = {}
    for cell in batch.cells:
        if cell.run_file is None or not (path := folder / cell.run_file).is_file():
            continue
        run = read_run(path).run
        config = run.cell.workload.config
        name = config.get("saved_as") or config.get("model_id") or run.cell.workload.model_id
        found.setdefault(Path(str(name)).name, []).extend((run, result) for result in run.results)
    for name, results in found.items():
        note(f"results: {write_scenarios(folder, scenario_file(name, results))}")


def _measure_exported(model: str, words: Sequence[str]) -> int:
    """Measure a model in the runtime of ONNX files."""
    output, rest = taken(words, "--output")
    path = _path_of(model)
    file = None if output is None else spool.checked(os.path.expanduser(output), "benchmark", model)
    if path is None and not model.endswith(ENDING):
        how = as_typed("export-model")
        note(f"{model} is not exported to ./{MODELS} or this folder: exporting it to the cache (see {how})")
    folder = RAW if RAW.parent.is_dir() else Path(DEFAULT_OUTPUT_DIR)
    saving = () if "--no-save" in rest or "--dry-run" in rest else ("--save",)
    given = [word for word in rest if word != "--no-save"]
    defaults = ("--runtime", export_runtimes()["onnx"], "--output-dir", str(folder), *MODEL_DEFAULTS)
    runs: list[Run] = []
    words = ["--model-id", path or model, *saving, *with_defaults(defaults, given)]
    code = run.run(words, finished=runs.append, name=NAME, sizes=MODEL_SIZES)
    if file is not None and runs:
        spool.write(file, to_json(runs[0]) if len(runs) == 1 else [to_json(run) for run in runs])
        note(f"results: {file}")
    return code


def _path_of(model: str) -> str | None:
    """The exported model of this name, or with this path; None without one. A folder of the last part of an
    organisation's name is that model only if it says so."""
    exported = _exported()
    if model in exported or Path(model).exists():
        return exported.get(model, model)
    if Path(model).name == model:
        return exported.get(model.removesuffix(ENDING))
    if Path(model + ENDING).is_file():
        return model + ENDING
    from benchmarking.workloads.support.exported_folder import bundle_in

    folder = exported.get(Path(model).name)
    bundle = None if folder is None else bundle_in(Path(folder))
    return None if bundle is None or bundle.exported is None or bundle.exported.model_id != model else folder


def _exported() -> dict[str, str]:
    """The exported models in ./models and this folder: name -> path."""
    found: dict[str, str] = {}
    for place in (Path(MODELS), Path()):
        for path in sorted(place.glob(f"*{ENDING}")):
            found.setdefault(path.stem, str(path))
        for manifest in sorted(place.glob("*/bundle.json")):
            folder = manifest.parent
            found.setdefault(folder.name.removesuffix("-onnx"), str(folder))
            found.setdefault(folder.name, str(folder))
    return found
