"""Translates other tools' words for models, tasks, precisions and arguments into the warehouse's terms."""

from __future__ import annotations

import math
from collections.abc import Mapping

from benchmarking.core.axes import FURTHER
from benchmarking.core.records import Family, Precision
from db.importers.support.reading import INT32_MAX, INT64_MAX

MODEL_TYPES: dict[Family, str] = {
    "encoder-only": (
        "albert bert camembert deberta deberta-v2 distilbert electra ernie mobilebert modernbert mpnet roberta "
        "roformer xlm-roberta xlm-roberta-xl"
    ),
    "decoder-only": (
        "bloom codegen cohere cohere2 falcon gemma gemma2 gemma3_text gpt2 gpt_bigcode gpt_neo gpt_neox gptj granite "
        "llama mistral mpt olmo olmo2 opt phi phi3 qwen2 qwen3 smollm3 stablelm starcoder2"
    ),
    "encoder-decoder": "bart blenderbot blenderbot-small longt5 m2m_100 marian mbart mt5 pegasus plbart t5 umt5",
    "vision": "beit convnext convnextv2 deit dinov2 mobilenet_v2 mobilevit resnet swin swinv2 vit",
    "vision-text": "align altclip blip chinese_clip clip siglip siglip2",
    "speech": "data2vec-audio hubert moonshine sew speech_to_text unispeech wav2vec2 whisper",
    "multimodal": "idefics idefics2 idefics3 llava llava_next paligemma qwen2_vl qwen2_5_vl",
    "diffusion": "flux latent-consistency stable-diffusion stable-diffusion-3 stable-diffusion-xl",
    "mixture-of-experts": (
        "deepseek_v2 deepseek_v3 dbrx gpt_oss granitemoe jamba mixtral olmoe phimoe qwen2_moe qwen3_moe "
        "switch_transformers"
    ),
    "state-space": "falcon_mamba mamba mamba2 rwkv",
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
    for family, types in MODEL_TYPES.items():
        if model_type in types.split():
            return family
    return TASKS.get(task or "") if model_type is None or task in TASKS else None


Argument = int | float | str


def split_arguments(arguments: Mapping[str, Argument]) -> tuple[dict[str, int | float], str | None]:
    """A benchmark's numeric arguments, which are axes, and the others as "name=value, ..." (None without any), which
    make a variant.

    A number that the axis's column cannot store (half a step) counts as one of the others.
    """
    axes = {name: value for name, value in arguments.items() if not isinstance(value, str) and _fits(name, value)}
    others = [f"{name}={value}" for name, value in arguments.items() if name not in axes]
    return axes, ", ".join(others) or None


def _fits(name: str, value: int | float) -> bool:
    if (isinstance(value, int) and abs(value) > INT64_MAX) or not math.isfinite(value):
        return False
    return name not in FURTHER or FURTHER[name].kind is float or (float(value).is_integer() and abs(value) <= INT32_MAX)


WORDS: dict[str, Precision] = {
    **dict.fromkeys(("float32", "fp32", "f32"), "float32"),
    "tf32": "tf32",
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("float16", "fp16", "f16", "half"), "float16"),
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
