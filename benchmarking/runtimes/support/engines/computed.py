"""What an engine computes of a model's configuration.

An engine's converter takes the weights and some of the configuration, and leaves out the rest without a word: it then
measures another model, which nothing shows where tokens are not compared. So every engine states, for each type of
model, what it computes; anything else is refused before it is built.

2026-11-30: no engine computes the scaling of GPT-2's attention by layer (`scale_attn_by_inverse_layer_idx`), nor
sliding windows: llama.cpp, CTranslate2, mlx-lm and OpenVINO GenAI attend to all tokens, and onnxruntime-genai's cache
of the window cannot be rewound between calls. Texts within the window are the same with and without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Workload

GELU = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu", "gelu_python")
"""One function and its approximations by tanh, which differ by less than 1e-3."""
SILU = ("silu", "swish")
ACTIVATION_KEYS = ("hidden_activation", "hidden_act", "activation_function")
ATTENTION_SCALING: Mapping[str, bool] = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False}
"""GPT-2's keys, and the values that engines compute."""
WINDOWS: Mapping[str, int | None] = {"gemma2": 4096, "mistral": 4096, "phi3": None, "qwen2": 4096, "qwen3": 4096}
"""The models with sliding windows, and transformers' default for one whose configuration names none."""
OPTIONAL_WINDOW = ("qwen2", "qwen3")
"""The models that use their window only in later layers, and only if the configuration says so."""
FIRST_WINDOWED_LAYER = 28
"""transformers' default for these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """What an engine computes of the models of one type."""

    activations: tuple[str, ...] | None
    """None for an engine whose converter refuses the ones that it lacks."""
    positions: tuple[str, ...] = ("default",)
    """Kinds of position scaling (`rope_type`)."""
    llama3_length: int | None = None
    """The only original length from which it scales positions of kind "llama3"; None for any."""
    has_own_head_size: bool = True
    """Whether a head may have another size than its share of the hidden size."""
    needed: tuple[str, ...] = ()
    """Keys that must not be null."""


def why_not_computed(engine: str, table: Mapping[str, Computed], workload: Workload) -> str | None:
    """None, or what of a model's configuration an engine with this table would leave out or cannot run."""
    config: Mapping[str, Any] = workload.config
    kind, model = str(config.get("model_type")), workload.model_id
    if (computed := table.get(kind)) is None:
        return f"runtime {engine} is built for {', '.join(sorted(table))}, not for {kind}"
    activation = next((config[key] for key in ACTIVATION_KEYS if config.get(key) is not None), None)
    if activation is not None and computed.activations is not None and activation not in computed.activations:
        return f"runtime {engine} computes {computed.activations[0]} in {kind}, not {activation}, which {model} has"
    for key, value in ATTENTION_SCALING.items():
        if kind == "gpt2" and config.get(key, value) != value:
            return f"runtime {engine} does not compute {key}={config[key]}, which {model} has"
    rope = rope_of(config)
    scaling = rope.get("rope_type", "default")
    if scaling not in computed.positions:
        return f"runtime {engine} does not compute position scaling {scaling!r} in {kind}, which {model} has"
    trained, fixed = rope.get("original_max_position_embeddings"), computed.llama3_length
    if scaling == "llama3" and fixed is not None and trained not in (None, fixed):
        return (
            f"runtime {engine} scales positions of Llama 3 from {fixed} tokens only, but {model} scales from {trained}"
        )
    if not computed.has_own_head_size and (head := config.get("head_dim")) is not None:
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        if int(head) * heads != hidden:
            return f"runtime {engine} needs heads of {hidden} / {heads} values in {kind}, and {model}'s have {head}"
    for key in computed.needed:
        if key in config and config[key] is None:
            return f"runtime {engine} cannot run {kind} without {key}, which {model} lacks"
    return None


def why_not_length(engine: str, workload: Workload, tokens: int) -> str | None:
    """None, or why an engine would compute something else than the model at a text of this length: its last token is
    generated, but not attended to."""
    if workload.source == "file" or (window := window_of(workload.config)) is None or tokens - 1 <= window:
        return None
    return (
        f"runtime {engine} does not compute sliding windows: {workload.model_id} attends to {window} tokens, and "
        f"{tokens - 1} are needed: use shorter texts or another runtime"
    )


def window_of(config: Mapping[str, Any]) -> int | None:
    """The number of latest tokens to which some of a model's layers attend; None if all attend to all."""
    kind = str(config.get("model_type"))
    if kind not in WINDOWS:
        return None
    if kind in OPTIONAL_WINDOW and not config.get("use_sliding_window"):
        return None
    layers = config.get("layer_types")
    if layers is not None and "sliding_attention" not in layers and kind not in ("mistral", "phi3"):
        return None
    if layers is None and kind in OPTIONAL_WINDOW:
        first, count = config.get("max_window_layers", FIRST_WINDOWED_LAYER), config.get("num_hidden_layers")
        if count is not None and first >= count:
            return None
    window = config.get("sliding_window", WINDOWS[kind])
    return None if window is None else int(window)


def rope_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of the rotary embedding by transformers 5's names; empty for a model without one. Older
    configurations have other keys, and the oldest call the `rope_type` `type`."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = {"rope_type": parameters["type"]} if "type" in parameters else {}
    older = {key: config[key] for key in ("rope_theta", "partial_rotary_factor") if config.get(key) is not None}
    return {**older, **kind, **parameters}


def head_size(config: Mapping[str, Any]) -> int | None:
    """The number of values of a head; None if the configuration does not tell."""
    heads = config.get("num_attention_heads")
    return int(config.get("head_dim") or int(config.get("hidden_size") or 0) // int(heads)) if heads else None
