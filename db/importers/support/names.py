"""Translates other tools' words for models, tasks, precisions and arguments into the warehouse's terms; and reads the
tables and names that llama.cpp's programs print.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarking.core.axes import FURTHER, POINT_FIELDS
from benchmarking.core.records import Family, Point, Precision, Scalar
from db.importers.support.reading import INT32_MAX, INT64_MAX, parsed_number

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


def family_of(model_type: str | None, task: str | None = None) -> Family | None:
    """The family; None if neither the type nor the task implies one."""
    word = re.sub(r"[-_]", "", (model_type or "").lower())
    for family, types in MODEL_TYPES.items():
        if word and word in re.sub(r"[-_]", "", types).split():
            return family
    return TASKS.get(task or "") if model_type is None or task in TASKS else None


Argument = int | float | str


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
        stored = {name: one for name, one in self.setup.items() if name != "model_id"}
        name = others.get("benchmark", self.setup["model_id"])
        return f"{name} {variant}" + (f" {self.setup['model_id']} {sorted(stored.items())}" if stored or others else "")


def _field_of(name: str) -> str:
    return WORDS_OF_AXES.get(name.lower().replace("-", "_"), "")


def is_argument(name: str) -> bool:
    """Whether a parameter of this name has a field of its own."""
    return bool(_field_of(name))


IN_NAME = re.compile(r"[\[({,;:/|\s_-]*\b([A-Za-z_][\w-]*)=([^\s,;:/|\])}]+)[\])}]*")


def named_arguments(name: str) -> tuple[str, dict[str, Argument]]:
    """A benchmark's name without the arguments in it ("decode[batch=8, dtype=float16]"), and the arguments."""
    found = {argument: parsed_number(value) for argument, value in IN_NAME.findall(name)}
    return (IN_NAME.sub("", name).strip() or name) if found else name, found


def arguments_of(benchmark: str, arguments: Mapping[str, Argument]) -> Arguments:
    """The arguments of the benchmark of this name, which is the model unless an argument names one."""
    fields: dict[str, Any] = {}
    others: dict[str, Argument] = {}
    for name, value in arguments.items():
        field = _field_of(name)
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
    if (threads := fields.get("num_threads")) is not None:
        setup["num_threads"] = threads
    sizes = {name: fields[name] for name in POINT_FIELDS if name in fields}
    return Arguments(point=Point(**{"batch_size": 1, **sizes}, axes=axes), setup=setup, mode=mode)


WORDS: dict[str, Precision] = {
    **dict.fromkeys(("float32", "fp32", "f32"), "float32"),
    "tf32": "tf32",
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("float16", "fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("float8_e4m3", "float8_e4m3fn", "fp8_e4m3", "f8e4m3", "e4m3"), "float8_e4m3"),
    **dict.fromkeys(("int8", "i8"), "int8"),
    **dict.fromkeys(("int4", "i4"), "int4"),
}


def precision_of(word: str | None) -> Precision:
    """The precision that a word means: "unknown" without a word, "other" for a word that is not in the table."""
    if word is None or word.strip().lower() in ("", "auto", "unspecified", "unknown", "none", "n/a"):
        return "unknown"
    return WORDS.get(word.strip().lower().removeprefix("torch."), "other")


def is_amd(gpu: str) -> bool:
    """Whether a GPU's name is one of AMD's."""
    return any(word in gpu.lower() for word in ("amd", "radeon", "instinct"))


GPU = re.compile(
    r"^\s*Device \d+: (?P<cuda>[^,\n]+),|^ggml_vulkan: \d+ = (?P<vulkan>[^|\n]+?) \([^()|\n]*\) \||"
    r"^ggml_metal_init: GPU name:\s+(?P<metal>[^\n]+?)\s*$",
    re.MULTILINE,
)
"""A device as the backends print it: its name; Vulkan adds the driver's name."""
SEPARATOR = re.compile(r"[|\s:-]+")
"""The line under the headings of a Markdown table."""
QUOTE = re.compile(r"^[\s>#]+(?=\|)")
"""What stands before a table in a quoted mail or a comment."""
SPLIT = re.compile(r"-\d{5}-of-\d{5}$")
"""Part number in the file name of a split model."""


def cells_of(line: str) -> list[str]:
    """The cells of a line of a Markdown table, without emphasis; empty for any other line."""
    line = QUOTE.sub("", line).replace("**", "")
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.lstrip().startswith("|") else []


def is_heading(lines: Sequence[str], at: int, names: set[str]) -> bool:
    """Whether a Markdown table with these columns begins at this line."""
    separator = QUOTE.sub("", lines[at + 1]) if at + 1 < len(lines) else ""
    return names <= set(cells_of(lines[at])) and bool(SEPARATOR.fullmatch(separator))


def end_of_table(lines: Sequence[str], start: int, end: int) -> int:
    """Where the heading of another table begins between a table's first line and `end`, or else `end`."""
    return next((at for at in range(start, end) if is_heading(lines, at, set())), end)


def model_name(path: str | None) -> str | None:
    """The name of the model in a file's path, without its part number."""
    name = re.split(r"[/\\]", path or "")[-1]
    return SPLIT.sub("", name.removesuffix(".gguf")) or None
