"""The contract of an importer, the records built from what it finds in a file, and other tools' words for models,
tasks, precisions and arguments in the warehouse's terms.

Ids are hashes of the file's content, so reading the same file again gives the same run.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from itertools import cycle, takewhile
from typing import Any, TypeVar, get_args

from benchmarking.core import plugins
from benchmarking.core.axes import FURTHER, POINT_FIELDS
from benchmarking.core.doubts import doubt, validity
from benchmarking.core.errors import FormatError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.quality import Quality
from benchmarking.core.records import (
    Cell,
    Device,
    Doubt,
    Family,
    Hardware,
    Json,
    Origin,
    Point,
    Precision,
    Provenance,
    Readings,
    Result,
    Run,
    Scalar,
    Status,
    WeightsKind,
    Workload,
    canonical_hash,
    to_json,
)
from benchmarking.core.run_file import MAX_RAW, LargeSamples, large_samples
from db.importers.support.files import ForeignFile, LeftOut, NoResultsError
from db.importers.support.measures import NO_NUMBER, RANK, with_reasons, without_numbers
from db.importers.support.reading import (
    INT32_MAX,
    INT64_MAX,
    ROW_ERRORS,
    Fields,
    parsed_number,
    short_name,
    shortened,
    without_zone,
)

Test = TypeVar("Test")

HASH_VERSION = 1
"""Version of the keys that are hashed into an imported hardware_id."""
INDEX = re.compile(r":\d+$")
"""The index in a selector such as cuda:1, which is not part of the hardware; the GPU in openvino:GPU is."""

MODEL_TYPES: dict[Family, str] = {
    "encoder-only": (
        "albert bert camembert deberta deberta-v2 distilbert electra ernie mobilebert modernbert mpnet roberta "
        "roformer xlm-roberta xlm-roberta-xl"
    ),
    "decoder-only": (
        "bloom codegen cohere cohere2 falcon gemma gemma2 gemma3_text gpt2 gpt_bigcode gpt_neo gpt_neox gptj granite "
        "llama mistral mpt olmo olmo2 opt phi phi2 phi3 qwen qwen2 qwen3 smollm3 stablelm starcoder starcoder2 gemma3 "
        "gemma3n baichuan chatglm command-r exaone exaone4 glm4 internlm2 llama4_text minicpm nemotron orion plamo "
        "refact seed-oss xverse hunyuan-dense ernie4-5 smollm apertus"
    ),
    "encoder-decoder": "bart blenderbot blenderbot-small longt5 m2m_100 marian mbart mt5 pegasus plbart t5 umt5",
    "vision": "beit convnext convnextv2 deit dinov2 mobilenet_v2 mobilevit resnet swin swinv2 vit",
    "vision-text": "align altclip blip chinese_clip clip siglip siglip2",
    "speech": "data2vec-audio hubert moonshine sew speech_to_text unispeech wav2vec2 whisper",
    "multimodal": "idefics idefics2 idefics3 llava llava_next paligemma qwen2_vl qwen2_5_vl",
    "diffusion": "flux latent-consistency stable-diffusion stable-diffusion-3 stable-diffusion-xl",
    "mixture-of-experts": (
        "deepseek_v2 deepseek_v3 deepseek2 dbrx gpt_oss granitemoe jamba mixtral olmoe phimoe qwen2_moe qwen3_moe "
        "switch_transformers arctic bailingmoe dots1 ernie4-5-moe glm4moe grok hunyuan-moe llama4 minimax-m2 qwen3next"
    ),
    "state-space": "falcon_mamba mamba mamba2 rwkv rwkv6 rwkv7",
}
"""Model types of transformers, and optimum's of diffusers' pipelines, by family."""
TASKS: dict[str, Family] = {
    "text2text-generation": "encoder-decoder",
    "translation": "encoder-decoder",
    "summarization": "encoder-decoder",
    "fill-mask": "encoder-only",
    "image-classification": "vision",
    "zero-shot-image-classification": "vision-text",
    "automatic-speech-recognition": "speech",
    "audio-classification": "speech",
    "image-text-to-text": "multimodal",
    "text-to-image": "diffusion",
    "image-to-image": "diffusion",
    "inpainting": "diffusion",
}
"""Tasks that only one family has. (Three families generate text, and all extract features.)"""
WORDS_OF_AXES: Mapping[str, str] = {
    **dict.fromkeys(("batch", "batch_size", "batchsize", "bs"), "batch_size"),
    **dict.fromkeys(("seq", "seq_len", "seqlen", "seq_length", "sequence_length", "isl"), "sequence_length"),
    **dict.fromkeys(("input_len", "input_length", "input_tokens", "prompt_len", "prompt_tokens"), "sequence_length"),
    **dict.fromkeys(("output_len", "output_length", "output_tokens", "new_tokens", "max_new_tokens"), "new_tokens"),
    **dict.fromkeys(("tokens", "num_tokens", "n_tokens", "osl"), "new_tokens"),
    **dict.fromkeys(("concurrency", "max_concurrency", "num_concurrent"), "concurrency"),
    **dict.fromkeys(("threads", "num_threads", "n_threads", "nthreads"), "num_threads"),
    **dict.fromkeys(("precision", "dtype"), "precision"),
    **dict.fromkeys(("model", "model_id", "model_name"), "model_id"),
    **dict.fromkeys(("device", "device_type"), "device_selector"),
}
"""Name of a benchmark's parameter -> field of the point or the run that it is stored in."""
GROUP = r"\([^()]{0,200}\)|\[[^\[\]]{0,200}\]"
BRACKETED = re.compile(rf"((?<!=)[\[({{](?:{GROUP}|[^()\[\]{{}}])*[\])}}]?)")
ARGUMENT = r"\b[A-Za-z_][\w-]{0,60}"
IN_NAME = re.compile(rf"[,;:/|\s_-]{{0,20}}({ARGUMENT})=((?:{GROUP}|[^\s,;:/|()\[\]}}])+)")
IN_BRACKETS = re.compile(
    rf"[\[({{,;:/|\s_-]{{0,20}}({ARGUMENT})=((?:{GROUP}|[^\s,;:/|()\[\]{{}}]|[:/](?!{ARGUMENT}=))+)[\])}}]*"
)
"""An argument in a benchmark's name: outside of brackets, where a slash or a colon ends a value, and inside, where it
may be part of one (of a model of the hub, a device)."""
WORDS: dict[str, Precision] = {
    **dict.fromkeys(("float32", "fp32", "f32", "float"), "float32"),
    "tf32": "tf32",
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("float16", "fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("float8_e4m3", "float8_e4m3fn", "fp8_e4m3", "f8e4m3", "e4m3"), "float8_e4m3"),
    **dict.fromkeys(("int8", "i8"), "int8"),
    **dict.fromkeys(("int4", "i4"), "int4"),
}

Argument = int | float | str
Limit = tuple[str, int | None, int, int]
"""Name of a whole number, its value, and the range of its column."""


def content_id(*parts: str) -> str:
    """A UUID version 8 (RFC 9562): 122 bits of the parts' SHA-256.

    It contains no time: the time of an undated file is its modification time, which changes when it is copied.
    """
    value = int.from_bytes(hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()[:16], "big")
    value = value & ~(0xF << 76) | 0x8 << 76  # version
    value = value & ~(0x3 << 62) | 0x2 << 62  # variant
    return str(uuid.UUID(int=value))


def iso(time: datetime) -> str:
    """A naive UTC time in the records' notation."""
    return f"{time.isoformat()}+00:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """One run in another tool's file, as its importer found it."""

    key: str = ""
    """Identifies it among the runs in the file."""
    model_id: str
    results: Sequence[Result]
    started_at: datetime | None = None
    """Naive UTC; None if the file has no date. Then its modification time is used, with a doubt."""
    finished_at: datetime | None = None
    stated_times: Sequence[str | None] = ()
    """The times as written in the file; a time without a zone gives a doubt."""
    doubts: Sequence[Doubt] = ()
    """Doubts about every measured result."""
    family: Family | None = None
    task: str = "benchmark"
    model_config: Mapping[str, Json] = field(default_factory=dict)
    model_revision: str | None = None
    parameter_count: int | None = None
    weights: WeightsKind = "given"
    device_type: str = "unknown"
    device_selector: str | None = None
    device_name: str | None = None
    device_count: int = 1
    device_memory_bytes: int | None = None
    is_simulated: bool = False
    cpu_model: str | None = None
    cpu_cores: int | None = None
    cpu_threads: int | None = None
    memory_bytes: int | None = None
    runtime: str = "unknown"
    runtime_mode: Mapping[str, Scalar | None] = field(default_factory=dict)
    """None for a setting that the file does not state."""
    precision: Precision = "unknown"
    precision_word: str | None = None
    """The precision in the file's own word, instead of `precision`. A word that names none (NVFP4, w4a16) is a
    quantization, and part of the runtime settings."""
    num_threads: int | None = None
    host: str | None = None
    tool_version: str | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict)
    git_commit: str | None = None
    git_branch: str | None = None
    git_dirty: bool | None = None
    git_commit_time: datetime | None = None
    command: Sequence[str | None] = ()
    tags: Mapping[str, str | None] = field(default_factory=dict)
    settings: Mapping[str, Json] = field(default_factory=dict)
    quality: Quality | None = None
    kept: Mapping[str, Json] = field(default_factory=dict)
    """The file's other fields."""
    status: Status | None = None
    """None for the worst status of the results."""
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Format:
    """An importer: a `PLUGIN` of its module.

    It produces the same records as our own measurements, so imported results are stored, queried and drawn like all
    others. It follows four rules.

        Nothing is dropped       a field without a place in a record goes to `kept`, under its name in the file
        Units are converted once in the importer: to ms, s, MB (10^6 bytes) and J
        Nothing is corrected     a number that a tool is known to get wrong is left out with a reason, or gets a doubt
        Definitions are named    the name of the metrics' definition is part of the series: numbers with different
                                 definitions never share a history
    """

    name: str
    """The value of `--format`."""
    summary: str
    """The tool and its files, in one line."""
    definition: str | None = None
    """Name of the definitions that the metrics follow, if it is not the importer's with hyphens."""
    definitions: Mapping[str, str]
    """Metric -> its meaning in the tool."""
    recognises: Callable[[ForeignFile], bool]
    """Whether the content is of this format; never raises."""
    read: Callable[[ForeignFile], Iterable[ForeignRun]]
    """The runs in a file of this format. Raises FormatError with the position of an unexpected value, NoResultsError
    for a file without results of its own."""
    names_benchmarks: bool = False
    """Whether a benchmark's name stands for its model where no argument names one (`arguments_of`)."""
    shares_files: bool = False
    """Whether JSON may have other results beside those of this format, which another one reads; text always may."""
    restates: bool = False
    """Whether the tool's newer files have the results of earlier ones again, such as reports on all builds of a cache:
    a run that says the same as a stored one is that run, whatever its file."""

    def runs(self, file: ForeignFile) -> Iterator[Run]:
        """The records of the runs in the file. If long lists have more than MAX_RAW samples, launches keep only their
        statistics and quantiles.

        What cannot be read or stored is left out (`ForeignFile.left_out`): a value, a row, a run. Raises FormatError
        like `read`, and for a file in which nothing was understood; the error names the fields that were not read.
        """
        large: list[LargeSamples] = []
        errors: list[str | None] = []
        told: set[LeftOut] = set()
        try:
            for found in self.read(file):
                left_out = [*takewhile(lambda one: one not in told, reversed(file.left_out))][::-1]
                told.update(left_out)
                if left_out and not found.results and found.quality is None and found.status is None:
                    continue  # nothing of it was understood
                try:
                    run = with_reasons(self.record(file, found), left_out)
                except ROW_ERRORS as error:
                    file.leave_out_row(error)
                    continue
                run = without_numbers(run)
                errors += [
                    result.error if (result.error or "").startswith(NO_NUMBER) else None for result in run.results
                ]
                large += large_samples([run])
                if sum(map(len, large)) > MAX_RAW:
                    for samples in large:
                        samples.compact()
                yield run
        except NoResultsError:
            raise
        except FormatError as error:
            raise error if str(error).startswith(str(file.path)) else FormatError(f"{file.path}: {error}") from error
        except RecursionError:
            file.refuse("lists and objects are nested too deeply")
        for skipped in file.noise:
            file.leave_out(skipped.place, skipped.problem)
        if all(errors):
            # Refuse a file of a known format in which no number was understood.
            if not file.left_out:
                file.refuse(next(filter(None, errors), NO_NUMBER))
            first = next(iter(file.left_out))
            others = f" (and {len(file.left_out) - 1} more)" if len(file.left_out) > 1 else ""
            file.refuse(f"{first.text}{others}")

    def of_each_document(self) -> Format:
        """The importer for several files in JSON that were joined."""

        def read(file: ForeignFile) -> Iterator[ForeignRun]:
            for number, document in enumerate(file.documents(), 1):
                place, runs = f"document {number}", list[ForeignRun]()
                try:
                    if not self.recognises(document):
                        document.refuse(f"not of format {self.name}")
                    runs.extend(self.read(document))
                except ROW_ERRORS as error:
                    document.leave_out_row(error)
                for one in document.left_out:
                    file.leave_out(f"{place}: {one.place}" if one.place else place, one.problem, is_size=one.is_size)
                for found in runs:
                    model_id = unnamed(number - 1) if found.model_id == UNNAMED else found.model_id
                    yield replace(found, key=f"{place}: {found.key}" if number > 1 else found.key, model_id=model_id)

        return replace(self, read=read)

    def record(self, file: ForeignFile, found: ForeignRun) -> Run:
        """The record of a run. Its ids come from the file's content and the key, its hardware_id from the names of
        device and processor. Raises FormatError for a run that cannot be stored."""
        is_name = self.names_benchmarks and "benchmark" not in found.runtime_mode  # which may be a command
        found = _within_columns(file, found if is_name else _of_path(found))
        ids, started_at = (self.name, file.sha256), found.started_at or file.modified_at
        undated = doubt("undated", "info", file_modified_at=iso(file.modified_at))
        of_time = (*without_zone(found.stated_times),) if found.started_at else (undated,)
        results = tuple(
            _of_run(one, content_id(*ids, found.key, str(index)), iso(started_at), found.doubts, of_time)
            for index, one in enumerate(found.results)
        )
        worst: Status = max((one.status for one in results), key=RANK.index, default="ok")
        mode = {name: value for name, value in found.runtime_mode.items() if value is not None}
        precision = found.precision
        if found.precision_word is not None:
            precision = precision_of(found.precision_word)
            if precision == "other":
                mode.setdefault("quantization", found.precision_word.strip())
        device = Device(
            type=found.device_type,
            selector=found.device_selector or found.device_type,
            found=True,
            name=found.device_name,
            count=found.device_count,
            memory_bytes=found.device_memory_bytes,
            simulated=found.is_simulated,
        )
        run = Run(
            run_id=content_id(*ids, found.key),
            session_id=content_id(*ids),
            status=found.status or worst,
            error=found.error,
            started_at=iso(started_at),
            finished_at=None if found.finished_at in (None, started_at) else iso(found.finished_at),
            cell=Cell(
                workload=Workload(
                    model_id=_model_name(file, found.model_id),
                    family=found.family,
                    task=found.task,
                    source="import",
                    config=dict(found.model_config),
                    config_hash=canonical_hash(dict(found.model_config)),
                    weights=found.weights,
                    revision=found.model_revision,
                    parameter_count=found.parameter_count,
                ),
                device=device,
                requested_device=device.selector,
                runtime=found.runtime,
                runtime_mode=mode,
                precision=precision,
                num_threads=found.num_threads,
            ),
            hardware=foreign_hardware(device, found.cpu_model, found.cpu_cores, found.cpu_threads, found.memory_bytes),
            provenance=Provenance(
                tool_version=f"{self.name} {found.tool_version}" if found.tool_version else self.name,
                command=tuple(word for word in found.command if word),
                host=found.host or "unknown",
                git_commit=_revision(found.git_commit),
                git_branch=_revision(found.git_branch),
                git_dirty=found.git_dirty if _revision(found.git_commit) else None,
                git_commit_time=iso(found.git_commit_time) if found.git_commit_time else None,
                versions=stated(found.versions),
                tags=stated(found.tags),
            ),
            settings=dict(found.settings),
            environment=Readings(),
            results=results,
            quality=found.quality,
            origin=Origin(
                format=self.name,
                tool_version=found.tool_version,
                definition=self.definition or self.name.replace("_", "-"),
                definitions=dict(self.definitions),
                kept=dict(found.kept),
            ),
        )
        check_storable(file, found.key, run)
        return run


def _of_run(
    result: Result, result_id: str, started_at: str, doubts: Sequence[Doubt], of_time: Sequence[Doubt]
) -> Result:
    """The result with its id, the run's doubts (of one that was not measured, only those about the time), and the run's
    start for samples without their own time."""
    samples = tuple(
        sample if sample.started_at else replace(sample, started_at=started_at) for sample in result.samples
    )
    requests = tuple(
        request if request.started_at else replace(request, started_at=started_at) for request in result.requests
    )
    dated = replace(result, result_id=result_id, samples=samples, requests=requests)
    if result.status != "ok":
        return replace(dated, doubts=(*of_time, *result.doubts))
    doubts = (*doubts, *of_time, *result.doubts)
    return replace(dated, doubts=doubts, validity=validity(doubts))


UNNAMED = "unknown"
"""The model of a file that names none, with the beginning of the file's digest: unnamed models of two files may differ,
so they never share a series."""
NO_REVISION = ("", "unknown", "unversioned", "none", "n/a", "head", "(unknown)", "(detached head)")
"""What tools write of a commit or branch that they do not know, and of a checkout that is on no branch."""


def unnamed(number: int) -> str:
    """The name of an unnamed model beside others of its file, such as those of several commands."""
    return f"{UNNAMED} {number}" if number else UNNAMED


OF_HUB = re.compile(r"(?:.*[/\\])?models--([^/\\]+)(?:[/\\]snapshots[/\\]([0-9a-f]{7,64}))?")
"""A model in the cache of the hub: its name, and the revision."""
GGUF_PATH = re.compile(r"(?:[A-Za-z]:[\\/])?[^:]+\.gguf", re.IGNORECASE)
"""A model that is a file, not one of a repository (org/model-GGUF:Q4_0)."""


def _of_path(found: ForeignRun) -> ForeignRun:
    """The run with the name of its model where the file has its place."""
    name = re.sub(r"^(?:\./)+(?=.)|(?<=[^/\\])[/\\]+$", "", found.model_id)
    if GGUF_PATH.fullmatch(name):
        name = model_of_gguf(name) or name
    elif cached := OF_HUB.fullmatch(name):
        revision = found.model_revision or cached[2]
        return replace(found, model_id=cached[1].replace("--", "/"), model_revision=revision)
    return replace(found, model_id=name)


def _model_name(file: ForeignFile, stated: str) -> str:
    is_none = re.fullmatch(rf"(?:{UNNAMED}(?: \d+)?)?", stated) is not None
    return f"{_of_digest(file.sha256)}{stated.removeprefix(UNNAMED).replace(' ', '-')}" if is_none else stated


def _revision(stated: str | None) -> str | None:
    """A commit or branch; None for a word that names none."""
    return None if stated is None or stated.strip().lower() in NO_REVISION else stated


def _of_digest(digest: str) -> str:
    return f"{UNNAMED}-{digest[:8]}"


def with_model_of(run: Run, digest: str, earlier: str) -> Run:
    """The run, whose unnamed model has the name by the digest of an earlier content of its file."""
    workload = run.cell.workload
    model_id = re.sub(f"^{_of_digest(digest)}", _of_digest(earlier), workload.model_id)
    return replace(run, cell=replace(run.cell, workload=replace(workload, model_id=model_id)))


CONVERTED = re.compile(r"(?:(?:ggml-)?model|unsloth)(?:[-_.](?:[it]?q\d\w*|b?f\d\d|fp\d+))?", re.IGNORECASE)
"""The default name of a converter's file (ggml-model-q4_0), which names no model: its folder does."""
NO_NAMES = ("", ".", "..", "model", "models")
"""Folders that name no model."""
SPLIT = re.compile(r"-\d{5}-of-\d{5}$")
"""Part number in the file name of a split model."""


def model_of_gguf(path: str | None) -> str | None:
    """The name of the model in a file's path, without its part number; with the folder if it is a converter's name."""
    folder, name = ["", *re.split(r"[/\\]", path or "")][-2:]
    name = SPLIT.sub("", name.removesuffix(".gguf"))
    return f"{folder}/{name}" if CONVERTED.fullmatch(name) and folder not in NO_NAMES else name or None


def is_unnamed(model_id: str) -> bool:
    """Whether the file did not name the model."""
    return model_id == UNNAMED or model_id.startswith(f"{UNNAMED}-")


def runs_of(tests: Iterable[tuple[Hashable, Point, Test]]) -> dict[tuple[Hashable, int], list[Test]]:
    """The tests of each setup, by it and the number of the run: a test at a point that its setup had before, as of
    another build, belongs to another run."""
    groups: dict[tuple[Hashable, int], list[Test]] = {}
    seen: Counter[tuple[Hashable, str]] = Counter()
    for setup, point, test in tests:
        place = (setup, point.label)
        groups.setdefault((setup, seen[place]), []).append(test)
        seen[place] += 1
    return groups


def stated(values: Mapping[str, str | None]) -> dict[str, str]:
    """The values that the file has."""
    return {name: value for name, value in values.items() if value}


def foreign_hardware(
    device: Device, cpu_model: str | None, cpu_cores: int | None, cpu_threads: int | None, memory_bytes: int | None
) -> Hardware:
    """The machine by the names in the file. Its id is a hash of them, never the id of a machine that we measured."""
    keys: dict[str, Any] = {
        "imported": True,
        "device_type": INDEX.sub("", device.selector),
        "device_name": device.name,
        "device_count": device.count,
        "cpu_model": cpu_model,
        "cpu_cores": cpu_cores,
    }
    return Hardware(
        hardware_id=canonical_hash(keys)[:16],
        hash_version=HASH_VERSION,
        hashed_keys=keys,
        device=device,
        cpu_model=cpu_model,
        cpu_cores=cpu_cores,
        cpu_threads=cpu_threads,
        memory_bytes=memory_bytes,
    )


OF_MACHINE: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("device_memory_bytes", "memory_bytes", "parameter_count"), (0, INT64_MAX)),
    **dict.fromkeys(("cpu_cores", "cpu_threads"), (1, INT32_MAX)),
}
COUNTED = ("iterations", "warmup_iterations")


def _within_columns(file: ForeignFile, found: ForeignRun) -> ForeignRun:
    """The run without numbers about model, machine and calls that no column can hold, which identify nothing, and
    without results of such sizes, unless it has no other: each is named."""

    def beyond(name: str, value: int | None, low: int, high: int) -> bool:
        if value is None or low <= value <= high:
            return False
        file.leave_out(name, f"{shortened(value)}, expected {low} to {high}")
        return True

    unknown: dict[str, Any] = {
        name: None for name, ends in OF_MACHINE.items() if beyond(name, getattr(found, name), *ends)
    }
    results = []
    for result in found.results:
        uncounted: dict[str, Any] = {
            name: None for name in COUNTED if beyond(name, getattr(result, name), 0, INT64_MAX)
        }
        results.append(replace(result, **uncounted))
    sizes = [
        [name for name in POINT_FIELDS if (size := getattr(one.point, name)) is not None and not 1 <= size <= INT32_MAX]
        for one in results
    ]
    if not all(sizes):
        for result, names in zip(results, sizes, strict=True):
            for name in names:
                beyond(name, getattr(result.point, name), 1, INT32_MAX)
        results = [result for result, names in zip(results, sizes, strict=True) if not names]
    return replace(found, results=results, **unknown)


def check_storable(file: ForeignFile, key: str, run: Run) -> None:
    """Raise FormatError for a run that cannot be stored: NaN, a value out of a column's range, an unpaired surrogate,
    too deep nesting."""
    where = f"{short_name(key)}: " if key else ""
    for result in run.results:
        for sample in result.samples:
            values: Any = sample.values
            if not all(map(math.isfinite, (values.mean,) if isinstance(values, LargeSamples) else values)):
                file.refuse(f"{where}a value of {sample.metric} is too large")
    light = replace(run, results=tuple(replace(one, samples=()) for one in run.results))
    try:
        json.dumps(to_json(light), ensure_ascii=False).encode()
    except FormatError as error:
        file.refuse(f"{where}{error}")
    except UnicodeEncodeError:
        file.refuse(f"{where}a text contains an unpaired surrogate, which is not a character")
    except RecursionError:
        file.refuse(f"{where}lists and objects are nested too deeply")
    limits: list[Limit] = [
        ("device_count", run.hardware.device.count, 1, INT32_MAX),
        ("num_threads", run.cell.num_threads, 1, INT32_MAX),
    ]
    for result in run.results:
        limits += [(name, getattr(result.point, name), 1, INT32_MAX) for name in POINT_FIELDS]
        limits.append(("launches", result.launches, 0, INT32_MAX))
    for name, value, low, high in limits:
        if value is not None and not low <= value <= high:
            file.refuse(f"{where}{name} is {shortened(value)}, expected {low} to {high}")


def family_of(model_type: str | None, task: str | None = None) -> Family | None:
    """The family; None if neither the type nor the task implies one."""
    word = re.sub(r"[-_]", "", (model_type or "").lower())
    for family, types in MODEL_TYPES.items():
        if word and word in re.sub(r"[-_]", "", types).split():
            return family
    return TASKS.get(task or "") if model_type is None or task in TASKS else None


def split_arguments(arguments: Mapping[str, Argument]) -> tuple[dict[str, int | float], str | None]:
    """A benchmark's numeric arguments, which are axes, and the others as "name=value, ..." (None without any), which
    make a variant.

    A number that the axis's column cannot store (half a step) counts as one of the others.
    """

    def fits(name: str, value: int | float) -> bool:
        if (isinstance(value, int) and abs(value) > INT64_MAX) or not math.isfinite(value):
            return False
        is_whole = float(value).is_integer() and abs(value) <= INT32_MAX
        return name not in FURTHER or FURTHER[name].kind is float or is_whole

    axes = {name: value for name, value in arguments.items() if not isinstance(value, str) and fits(name, value)}
    others = [f"{name}={value}" for name, value in arguments.items() if name not in axes]
    return axes, ", ".join(others) or None


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of a benchmark, each where it is selected by."""

    point: Point
    setup: Mapping[str, Any]
    """Fields of the run: model, precision, threads, device."""
    mode: Mapping[str, Scalar]
    """The others that are not numbers, and the name of a benchmark whose model is an argument."""

    @property
    def key(self) -> str:
        """Equal for results of one run, and part of its id: arguments that are stored by name extend it."""
        variant, others = self.mode.get("variant"), {name: one for name, one in self.mode.items() if name != "variant"}
        stored = {name: one for name, one in self.setup.items() if name != "model_id" and one is not None}
        name = others.get("benchmark", self.setup["model_id"])
        return f"{name} {variant}" + (f" {self.setup['model_id']} {sorted(stored.items())}" if stored or others else "")


def field_of(name: str) -> str:
    """The field of the point or the run that a parameter of this name is stored in; empty for none."""
    return WORDS_OF_AXES.get(name.lower().replace("-", "_"), "")


def as_argument(value: Json) -> Argument:
    """A parameter's value as an argument: a number or a text. Anything else is its text, also true and false, which
    are no sizes."""
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else str(value)


def named_arguments(name: str) -> tuple[str, dict[str, Argument]]:
    """A benchmark's name without the arguments in it ("decode[batch=8, dtype=float16]"), and the arguments."""
    parts = [*zip(cycle((IN_NAME, IN_BRACKETS)), BRACKETED.split(name))]
    arguments = {one: parsed_number(value) for pattern, part in parts for one, value in pattern.findall(part)}
    without = "".join(pattern.sub("", part) for pattern, part in parts).strip()
    return (without or name) if arguments else name, arguments


def arguments_of(benchmark: str, arguments: Mapping[str, Argument]) -> Arguments:
    """The arguments of the benchmark of this name, which is the model unless an argument names one."""
    fields: dict[str, Any] = {}
    others: dict[str, Argument] = {}
    for name, value in arguments.items():
        field = field_of(name)
        found: Any = None
        if field in (*POINT_FIELDS, "num_threads"):  # a whole number from 1
            number = value if isinstance(value, int | float) else parsed_number(value)
            is_count = isinstance(number, int | float) and 1 <= number <= INT32_MAX and float(number).is_integer()
            found = int(number) if is_count else None
        elif field and isinstance(value, str):
            found = value.strip() or None
        if found is None or field in fields:
            others[name] = value
        else:
            fields[field] = found
    axes, variant = split_arguments(others)
    mode: dict[str, Scalar] = {"variant": variant} if variant else {}
    setup: dict[str, Any] = {"model_id": benchmark}
    if "model_id" in fields:
        setup["model_id"] = fields["model_id"]
        mode["benchmark"] = benchmark
    if (word := fields.get("precision")) is not None:
        setup["precision"] = precision_of(word)
        if setup["precision"] == "other":
            mode["precision"] = word
    if (device := fields.get("device_selector")) is not None:
        setup |= {"device_selector": device, "device_type": device.partition(":")[0]}
        if not device.lower().endswith("cpu"):
            setup["device_name"] = None  # what the file names is its processor
    if (threads := fields.get("num_threads")) is not None:
        setup["num_threads"] = threads
    sizes = {name: fields[name] for name in POINT_FIELDS if name in fields}
    return Arguments(point=Point(**{"batch_size": 1, **sizes}, axes=axes), setup=setup, mode=mode)


def shaped(point: Point, shapes: Mapping[str, Sequence[int]]) -> tuple[Point, str]:
    """The point with the sizes of its inputs, whose first one is the batch: with a sequence, or a square image, if
    input_ids or the only shape is one; otherwise unchanged, and the shapes without the batch in words."""
    distinct = list(dict.fromkeys(tuple(shape) for shape in shapes.values()))
    main = shapes.get("input_ids") or (distinct[0] if len(distinct) == 1 else ())
    if all(0 < size <= INT32_MAX for size in main):
        if len(main) == 2:
            return replace(point, sequence_length=main[1]), ""
        if len(main) == 4 and main[2] == main[3]:
            return replace(point, axes={"image_size": main[2]}), ""
    own = (shape[1:] if len(shape) > 1 and shape[0] == point.batch_size else shape for shape in distinct)
    return point, ", ".join(dict.fromkeys("x".join(map(str, sizes)) for sizes in own))


def precision_of(word: str | None) -> Precision:
    """The precision that a word means: "unknown" without a word, "other" for a word that is not in the table."""
    if word is None or word.strip().lower() in ("", "auto", "unspecified", "unknown", "none", "n/a"):
        return "unknown"
    return WORDS.get(word.strip().lower().removeprefix("torch."), "other")


def exported(facts: Fields) -> dict[str, Any]:
    """The fields of a run that an export of ours states among its own facts (`core.scenario_file.facts`)."""
    found: dict[str, Any] = {"is_simulated": facts.flag("simulated") is True}
    if device := facts.text("device"):
        found |= {"device_selector": device, "device_type": device.partition(":")[0]}
    if "device_name" in facts:
        found["device_name"] = facts.text("device_name")
    if (word := facts.text("precision")) in get_args(Precision):
        found["precision"] = word
    found |= exported_model(facts)
    if runtime := facts.text("runtime"):
        found["runtime"] = runtime
    if isinstance(mode := facts.any("runtime_mode"), dict):
        found["runtime_mode"] = {name: one for name, one in mode.items() if isinstance(one, bool | int | float | str)}
    found |= {name: one for name in ("num_threads", "device_count") if (one := facts.count(name)) is not None}
    return found


def exported_model(facts: Fields) -> dict[str, Any]:
    """What an export of ours states of the model: a layout of another tool is of one task and family, our results are
    not."""
    found: dict[str, Any] = {}
    if "result_id" in facts or "task" in facts:
        family = facts.text("family")
        known = family if family in plugins.family_names() else None
        found = {"family": known, "task": facts.text("task") or "benchmark"}
    return found | ({"weights": word} if (word := facts.text("weights")) in get_args(WeightsKind) else {})


def exported_axes(stated: object) -> dict[str, float]:
    """The further axes of a point that an export of ours states."""
    found = stated.items() if isinstance(stated, dict) else ()
    return split_arguments({name: one for name, one in found if type(one) in (int, float)})[0]


def is_amd(name: str) -> bool:
    """Whether the name is that of a GPU of AMD; most of AMD's names of processors have no GPU in them."""
    lower = name.lower()
    is_processor = any(word in lower for word in ("epyc", "ryzen", "threadripper", "athlon", "opteron"))
    return "radeon" in lower or "instinct" in lower or ("amd" in lower and not is_processor)
