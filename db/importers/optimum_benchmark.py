"""optimum-benchmark: benchmark.json, its halves (benchmark_report.json, benchmark_config.json), the flat CSV of them,
and the keys of its first versions."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarking.core.records import Point, Run
from db.importers.support import optimum as configs
from db.importers.support import optimum as shapes
from db.importers.support import optimum_report as reports
from db.importers.support.building import foreign_run, undated
from db.importers.support.files import ForeignFile
from db.importers.support.reading import Fields

DEFINITION = "optimum-benchmark"
DEFINITIONS = {
    "latency_*": "a call of forward, generate or the pipeline, warmed up; statistics of the raw values, computed here",
    "time_to_first_token_ms": "prefill: from the start of generate to its first logits",
    "time_per_output_token_ms": "decode, which is generate without the prefill, over the new tokens but the first",
    "first_call_ms": "the first forward after loading",
    "load_model_s": "loading the model in a process that has imported the framework",
    "memory_peak_rss_infer_mb": "highest resident memory of the process at readings every 10 ms or so",
    "energy_*": "codecarbon's estimate for one call",
}
NEW_TOKENS = 100
"""What the tool generates when nothing is said."""
TEXT_GENERATION = ("text-generation", "text2text-generation", "image-to-text", "conversational")
DIFFUSION = ("text-to-image", "image-to-image", "inpainting", "stable-diffusion", "stable-diffusion-xl")
DIFFUSION_STEPS = 30
WITHOUT_TOKENS = ("vision", "speech", "diffusion")


class OptimumBenchmark:
    """Reads what optimum-benchmark leaves."""

    name = "optimum_benchmark"
    summary = "optimum-benchmark: benchmark.json, benchmark_report.json, benchmark_config.json, and the flat CSV"

    def recognises(self, file: ForeignFile) -> bool:
        """A configuration, a report, both, or their flat columns."""
        data = file.json
        if data is not None:
            return shapes.is_whole(data) or shapes.is_config(data) or shapes.is_report(data)
        return shapes.is_flat(shapes.csv_header(file))

    def runs(self, file: ForeignFile) -> Iterator[Run]:
        """A run a benchmark. A configuration alone, and what another file beside this one says too, gives none."""
        for key, benchmark in shapes.whole(file):
            report = benchmark.fields("report")
            if report is not None and not shapes.is_in_sibling_file(file, report):
                yield _run(file, key, benchmark, report)


def _run(file: ForeignFile, key: str, benchmark: Fields, report: Fields) -> Run:
    reports.refuse_training(report)
    config = benchmark.fields("config")
    beside = shapes.sibling_config(file) if config is None else None
    if beside is not None:
        config = Fields(file, beside, "config")
    config = config or Fields(file, {}, "config")
    setup = configs.config_arguments(config)
    scenario = config.fields("scenario") or Fields(file, {}, "config.scenario")
    sizes = _sizes(report, scenario, setup["task"], setup["family"])
    result = reports.result(
        file,
        report,
        sizes,
        file.modified_at,
        is_rocm=configs.is_rocm(setup),
        warmup_calls=scenario.whole("warmup_runs") or 0,
        doubts=(undated(file), *configs.doubts(config, setup)),
    )
    return foreign_run(
        file,
        key,
        format_name=OptimumBenchmark.name,
        definition=DEFINITION,
        definitions=DEFINITIONS,
        results=[result],
        started_at=file.modified_at,
        settings={"iterations": scenario.whole("iterations"), "duration_s": scenario.number("duration", low=0)},
        kept={**benchmark.rest(), **({"config": config.rest()} if beside is not None else {})},
        **setup,
    )


def _sizes(report: Fields, scenario: Fields, task: str, family: str | None) -> reports.Sizes:
    """The point: from the configuration, or else from volumes, which are throughputs times latencies."""
    inputs = scenario.fields("input_shapes") or Fields(report.file, {}, "config.scenario.input_shapes")
    generate = scenario.fields("generate_kwargs") or Fields(report.file, {}, "config.scenario.generate_kwargs")
    batch_size, new_tokens = inputs.count("batch_size"), generate.count("max_new_tokens")
    new_tokens = new_tokens or scenario.count("new_tokens")
    if batch_size is None:
        batch_size, derived = reports.sizes_from(report)
        new_tokens = new_tokens or derived
    if batch_size is None:
        report.refuse("", "no batch size: put the benchmark's configuration beside it, or import benchmark.json")
    if task in TEXT_GENERATION:
        new_tokens = new_tokens or NEW_TOKENS
    has_tokens = family not in WITHOUT_TOKENS and task not in DIFFUSION
    point = Point(
        batch_size=batch_size,
        sequence_length=inputs.count("sequence_length") if has_tokens else None,
        new_tokens=new_tokens,
        axes=_axes(inputs, scenario, task),
    )
    return reports.Sizes(point=point, sequences=batch_size * (generate.count("num_beams") or 1))


def _axes(inputs: Fields, scenario: Fields, task: str) -> dict[str, int | float]:
    axes: dict[str, int | float] = {}
    height, width = inputs.count("height"), inputs.count("width")
    if height is not None and height == width:
        axes["image_size"] = height
    elif height is not None and width is not None:
        axes |= {"image_height": height, "image_width": width}
    if task in DIFFUSION:
        call = scenario.fields("call_kwargs")
        axes["steps"] = (call.count("num_inference_steps") if call is not None else None) or DIFFUSION_STEPS
    return axes


PLUGIN = OptimumBenchmark()
